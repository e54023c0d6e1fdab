// fetch() under an idempotency key that is kept until the outcome is known: over retries, a reload and a closed tab.
//
//   const { send } = djangoIdempotency;
//   const response = await send("/api/orders/", { method: "POST", body, headers }, { operation: "order:cart-7", user: "42" });
//
// Without import and export it is whatever loads it: <script src>, <script type="module" src>, `import "./fetch.js"` in a
// bundle or in Node.js. Each defines globalThis.djangoIdempotency, once. It needs https or localhost, as Web Crypto does.
//
// The key is in localStorage before it is sent, with a digest of the request and nothing of its content. Tabs that send
// the same operation while its outcome is open share the key. A success and a refusal that is final end it: it is still
// there for a minute, for a tab that has sent the operation before.
(() => {
  "use strict";

  /**
   * @typedef {object} Options
   * @property {string} [operation] Names the operation. By default it is what the request contains: an edit is another one.
   * @property {string} [user] Whose it is: an id of who is logged in. Another user of this browser gets a key of their own.
   * @property {string} [header] Carries the key: "Idempotency-Key".
   * @property {() => string | Promise<string>} [newKey] Makes a key; by default a random UUID.
   * @property {number} [lifetime] How long the server remembers a key, in milliseconds: a day.
   * @property {number} [retries] The most retries: 8.
   * @property {number} [within] All attempts and pauses end within this time, in milliseconds: 60,000.
   * @property {number} [timeout] The longest attempt, in milliseconds: 20,000.
   * @property {number} [base] The longest first pause, which doubles each time, in milliseconds: 500.
   * @property {number} [longest] The longest pause that the server does not ask for, in milliseconds: 10,000.
   *
   * @typedef {{ key: string, content: string, created: number, ended?: number }} Kept
   * @typedef {{ created: number, ended?: number, key?: undefined, content?: undefined }} Broken What cannot be read as one.
   * @typedef {"again" | "keep" | "drop"} Verdict Send it again; stop, and keep the key; stop, and drop it.
   */

  if ("djangoIdempotency" in globalThis) return; // loaded twice

  const DEFAULTS = { user: "", header: "Idempotency-Key", newKey: () => crypto.randomUUID(), lifetime: 86_400_000, retries: 8,
    within: 60_000, timeout: 20_000, base: 500, longest: 10_000 };
  const SAFE = ["GET", "HEAD", "OPTIONS", "TRACE"];
  // After these a new key may do the work twice: somebody looks the result up first.
  const LOOKED_UP = ["key-expired", "key-too-old", "operation-cancelled", "operation-held", "possible-duplicate",
    "record-unreadable", "replay-refused", "replay-unchecked"];
  // The operation's own refusals. Others may come from a proxy: they say nothing of an attempt whose response was lost.
  const OF_OPERATION = [400, 402, 422];
  const PREFIX = "idempotency:fetch:";
  const CSRF_FIELD = "csrfmiddlewaretoken"; // masked anew on each page
  const SEEN = 100; // milliseconds after which other tabs see what was written into localStorage
  const FORGOTTEN = 60_000; // milliseconds after which what has ended is removed

  /** @param {"mismatch" | "too-old" | "unreadable"} code @param {string} operation @param {string} message */
  const refusal = (code, operation, message) => Object.assign(new Error(message), { name: "IdempotencyError", code, operation });

  /** Says what to do after a response. `code`: of its problem document. `clean`: no attempt before it may have done the work.
   * @param {{ status: number, redirected?: boolean, type?: string }} response @param {string | undefined} code
   * @param {boolean} clean @returns {Verdict} */
  function judge({ status, redirected, type }, code, clean) {
    if (status >= 200 && status < 300 && !redirected) return "drop";
    if (code !== undefined && LOOKED_UP.includes(code)) return "keep";
    if ([408, 425, 429].includes(status) || code === "in-progress" || code === "body-incomplete" || (status >= 500 && status !== 501)) return "again";
    if (status === 401 || ([412, 428].includes(status) && code !== "key-ahead")) return "keep"; // log in; read the state
    if (redirected || type === "opaqueredirect" || status < 400) return clean ? "drop" : "keep"; // to a login page, perhaps
    return clean || OF_OPERATION.includes(status) ? "drop" : "keep";
  }

  /** Reads Retry-After, seconds or a date, as milliseconds; 0 for none. @param {string | null} value */
  function retryAfter(value) {
    const text = (value ?? "").trim();
    const asked = /^\d+$/.test(text) ? Number(text) * 1000 : Date.parse(text) - Date.now();
    return Math.max(0, asked || 0);
  }

  /** How long to wait before a retry, from 0: what the server asks for, and full jitter on top of that.
   * @param {number} retry @param {number} floor @param {{ base: number, longest: number }} options */
  const pause = (retry, floor, { base, longest }) => floor + Math.random() * Math.min(longest, base * 2 ** Math.min(retry, 32));

  /** Parses JSON that anything may have written; undefined: it is none. @param {string} text */
  const parse = (text) => {
    try {
      return JSON.parse(text);
    } catch {
      return undefined;
    }
  };

  /** Reads what is kept. What is broken may stand for an attempt that was made: it is of an operation whose outcome is open.
   * @param {string} place @returns {Kept | Broken | null} */
  const read = (place) => {
    const text = localStorage.getItem(place);
    if (text === null) return null;
    const found = parse(text) ?? {};
    const { key, content, created, ended } = found;
    const whole = typeof key === "string" && key !== "" && typeof content === "string" && Number.isFinite(created);
    return whole && (ended === undefined || Number.isFinite(ended)) ? found : { created: Date.now() };
  };
  /** @param {string} place @param {Kept} kept */
  const write = (place, kept) => localStorage.setItem(place, JSON.stringify(kept));
  /** The user and the operation whose place it is; undefined: it is nobody's. @param {string} place @returns {[string, string] | undefined} */
  const namesAt = (place) => {
    const names = parse(place.slice(PREFIX.length));
    return Array.isArray(names) && names.length === 2 && names.every((each) => typeof each === "string") ? /** @type {[string, string]} */ (names) : undefined;
  };
  const places = () => Object.keys(localStorage).filter((place) => place.startsWith(PREFIX) && namesAt(place));
  /** @param {string} user @param {string} operation */
  const placeOf = (user, operation) => PREFIX + JSON.stringify([user, operation]);

  /** A digest of what is sent. @param {string} method @param {string} url @param {BodyInit | null | undefined} body */
  async function digestOf(method, url, body) {
    /** @type {unknown[]} */
    const parts = [method, url];
    let bytes = new ArrayBuffer(0);
    if (body instanceof FormData) { // its bytes have a boundary, which differs each time
      const fields = Array.from(body).filter(([name]) => name !== CSRF_FIELD);
      parts.push(fields.map(([name, sent]) => [name, sent instanceof File ? [sent.name, sent.size, sent.lastModified] : sent]));
    } else {
      bytes = await new Response(body).arrayBuffer();
    }
    const all = await new Blob([JSON.stringify(parts), bytes]).arrayBuffer();
    return Array.from(new Uint8Array(await crypto.subtle.digest("SHA-256", all)), (byte) => byte.toString(16).padStart(2, "0")).join("");
  }

  /** Keeps other tabs waiting. @template T @param {string} name @param {() => Promise<T>} work @returns {Promise<T>} */
  function alone(name, work) {
    const locks = globalThis.navigator?.locks;
    return locks ? new Promise((resolve, reject) => {
      locks.request(name, async () => {
        await work().then(resolve, reject);
        await sleep(SEEN);
      }).catch(reject);
    }) : work();
  }

  /** @param {number} duration @param {AbortSignal | null} [signal] @returns {Promise<void>} */
  const sleep = (duration, signal) => new Promise((resolve, reject) => {
    const stop = () => (clearTimeout(timer), reject(signal?.reason));
    const timer = setTimeout(() => (signal?.removeEventListener("abort", stop), resolve()), duration);
    signal?.addEventListener("abort", stop, { once: true });
  });

  /** Sends it once. @param {string} url @param {RequestInit} init @param {number} timeout */
  async function attempt(url, init, timeout) {
    const controller = new AbortController();
    const timer = setTimeout(() => controller.abort(new DOMException("No response in time.", "TimeoutError")), timeout);
    init.signal?.addEventListener("abort", () => controller.abort(init.signal?.reason), { once: true });
    try {
      const response = await fetch(url, { ...init, signal: controller.signal });
      const text = response.status < 400 ? "" : await response.clone().text();
      /** @type {string | undefined} of a problem document */
      const code = await Promise.resolve(text).then(JSON.parse).then((found) => found?.code, () => undefined);
      return { response, code };
    } finally {
      clearTimeout(timer);
    }
  }

  /** Sends a request until its outcome is known, within bounds. Returns the last response, or raises as fetch() does. While
   * it is not final the key is kept: send it again, also after a reload. Raises IdempotencyError, and sends nothing, for an
   * open operation with other content, one that the server may have forgotten, or one whose key cannot be read any more:
   * forget() it to send it as a new one. What is broken of other operations is in nobody's way.
   * @param {string | URL} address @param {RequestInit} [init] @param {Options} [options] @returns {Promise<Response>} */
  async function send(address, init = {}, options = {}) {
    const [began, ends] = [Date.now(), performance.now() + (options.within ?? DEFAULTS.within)];
    const terms = { ...DEFAULTS, ...options };
    const method = (init.method ?? "GET").toUpperCase();
    if (SAFE.includes(method)) return fetch(address, init);
    if (address instanceof Request || init.body instanceof ReadableStream) {
      throw new TypeError("A Request or a stream cannot be sent again: pass the address, and a body of text, bytes or fields.");
    }
    const signal = init.signal;
    const url = new URL(address, globalThis.document?.baseURI ?? globalThis.location?.href).href;
    const content = await digestOf(method, url, init.body);
    const operation = terms.operation ?? content;
    const place = placeOf(terms.user, operation);
    const { kept, made } = await alone(place, async () => {
      signal?.throwIfAborted();
      places().filter((each) => (read(each)?.ended ?? began) < began - FORGOTTEN).forEach((each) => localStorage.removeItem(each));
      const found = read(place);
      const known = found?.ended !== undefined && found.ended <= began ? null : found; // ended since this tab was told to send it
      if (known && known.key === undefined) {
        throw refusal("unreadable", operation, "What was kept of this operation cannot be read. Look the result up first.");
      }
      if (known && known.content !== content) {
        throw refusal("mismatch", operation, "The outcome of this operation is open, and it had other content.");
      }
      if (known && Date.now() - known.created > terms.lifetime - terms.within) {
        throw refusal("too-old", operation, "The server may have forgotten this key. Look the result up first.");
      }
      const { key, created } = known ?? { key: await terms.newKey(), created: Date.now() };
      const kept = { key, content, created };
      write(place, kept);
      return { kept, made: !known };
    });
    const headers = new Headers(init.headers);
    headers.set(terms.header, kept.key);
    let clean = made;
    for (let retry = 0; ; retry++) {
      const there = read(place);
      if (there?.key === undefined || there.ended !== undefined) write(place, kept); // another tab knows the outcome, this one does not
      let /** @type {Response | undefined} */ response, code, failure;
      try {
        ({ response, code } = await attempt(url, { ...init, headers }, Math.min(terms.timeout, ends - performance.now())));
      } catch (error) {
        signal?.throwIfAborted();
        failure = error;
      }
      const verdict = response ? judge(response, code, clean) : "again";
      if (response && verdict !== "again") {
        if (verdict === "drop" && read(place)?.key === kept.key) write(place, { ...kept, ended: Date.now() });
        return response;
      }
      clean &&= response !== undefined && [425, 429].includes(response.status);
      const wait = pause(retry, retryAfter(response?.headers.get("Retry-After") ?? null), terms);
      if (retry >= terms.retries || wait >= ends - performance.now()) {
        if (response) return response;
        throw failure;
      }
      await sleep(wait, signal);
    }
  }

  /** Returns the operations whose outcome is open, such as to ask after a reload; without a key, those whose key cannot be
   * read any more. @param {{ user?: string }} [options] */
  const pending = ({ user = "" } = {}) => places().map((place) => ({ ...read(place), names: namesAt(place) ?? ["", ""] }))
    .filter(({ names, ended }) => names[0] === user && ended === undefined)
    .map(({ key, created, names }) => ({ key, created, operation: names[1] }));

  /** Drops the key of an operation: the next one is new. @param {string} operation @param {{ user?: string }} [options] */
  const forget = (operation, { user = "" } = {}) => localStorage.removeItem(placeOf(user, operation));

  Object.assign(globalThis, { djangoIdempotency: Object.freeze({ send, pending, forget, judge, pause, retryAfter }) });
})();
