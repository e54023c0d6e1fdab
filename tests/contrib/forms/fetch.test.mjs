// The rules of fetch.js, with a server and a storage that are made up. test_fetch.py runs it, with SCRIPT and PROBLEMS.
import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import { pathToFileURL } from "node:url";

/** What a browser's localStorage does: values are text, and its keys are its own properties. */
class Storage {
  getItem(name) {
    return this[name] ?? null;
  }
  setItem(name, value) {
    this[name] = String(value);
  }
  removeItem(name) {
    delete this[name];
  }
}

const real = globalThis.setTimeout;
const URL_ = "https://shop.example/api/charges/";
const FAST = { base: 0, longest: 0 };
let waits; // how long each pause was
let sent; // what the server got
let answers; // what it says: a status, [status, code, headers], or an error; the last one again and again
let last; // an answer's place

beforeEach(() => {
  globalThis.localStorage = new Storage();
  [waits, sent, last] = [[], [], 0];
  globalThis.setTimeout = (wake, duration) => {
    // 20,000 is the limit of an attempt, which never ends one here
    if (duration > 19_000) return real(() => {}, 0);
    waits.push(duration);
    return real(wake, 0);
  };
  globalThis.fetch = async (url, init) => {
    sent.push({ url, key: new Headers(init?.headers).get("Idempotency-Key"), kept: keys() });
    const answer = answers[Math.min(last++, answers.length - 1)];
    if (answer instanceof Error) throw answer;
    if (answer instanceof Response) return answer;
    const [status, code, headers = {}] = [answer].flat();
    const empty = [204, 304].includes(status);
    return new Response(empty ? null : JSON.stringify(code ? { code } : {}), { status, headers });
  };
});

await import(pathToFileURL(process.env.SCRIPT).href);
const { send, pending, forget, judge, pause, retryAfter } = globalThis.djangoIdempotency;

const parsed = (text) => {
  try {
    return JSON.parse(text) ?? {};
  } catch {
    return {}; // a test has broken it
  }
};
const all = () => Object.values(localStorage).map(parsed);
const keys = () => all().filter(({ ended }) => ended === undefined).map(({ key }) => key);
const change = (changes) => {
  const [place] = Object.keys(localStorage);
  localStorage[place] = JSON.stringify({ ...JSON.parse(localStorage[place]), ...changes });
};
const post = (said, options = {}, body = '{"amount": 1}') => {
  [answers, last] = [said, 0];
  return send(URL_, { method: "POST", body }, { ...FAST, ...options });
};
const broken = () => new TypeError("Failed to fetch");

test("the key is kept before it is sent, and dropped on success", async () => {
  assert.equal((await post([201])).status, 201);
  assert.match(sent[0].key, /^[0-9a-f]{8}-[0-9a-f]{4}-4/);
  assert.deepEqual(sent[0].kept, [sent[0].key]);
  assert.deepEqual(keys(), []);
});

test("every retry has the same key, whatever came before it", async () => {
  const said = [broken(), 500, 502, 503, 504, 408, 425, 429, [409, "in-progress"], 201];
  assert.equal((await post(said, { retries: 9 })).status, 201);
  assert.equal(sent.length, 10);
  assert.equal(new Set(sent.map(({ key }) => key)).size, 1);
});

test("the next operation has another key, also with the same content", async () => {
  await post([201]);
  await post([201]);
  assert.notEqual(sent[0].key, sent[1].key);
});

test("after the last retry the key stays, and the same request is sent with it again", async () => {
  assert.equal((await post([503], { retries: 2 })).status, 503);
  await assert.rejects(post([broken()], { retries: 1 }), TypeError);
  assert.equal((await post([200])).status, 200);
  assert.equal(sent.length, 6);
  assert.equal(new Set(sent.map(({ key }) => key)).size, 1);
  assert.deepEqual(keys(), []);
});

test("retries have a limit in number and in time", async () => {
  await post([503], { retries: 3 });
  assert.equal(sent.length, 4);
  await post([[503, "store-unavailable", { "Retry-After": "3600" }]]);
  assert.equal(sent.length, 5); // an hour is not within a minute
});

test("Retry-After is waited for, seconds and dates, and the pauses grow by themselves", async () => {
  await post([[503, null, { "Retry-After": "7" }], 201], { base: 500, longest: 10_000 });
  assert.ok(waits[0] >= 7000 && waits[0] <= 7500, waits);
  assert.equal(retryAfter("120"), 120_000);
  const date = retryAfter(new Date(Date.now() + 60_000).toUTCString());
  assert.ok(date > 55_000 && date <= 60_000, date);
  assert.deepEqual([null, "", "soon", "-5", "Wed, 21 Oct 2015 07:28:00 GMT"].map(retryAfter), [0, 0, 0, 0, 0]);
  const random = Math.random;
  Math.random = () => 1;
  const terms = { base: 500, longest: 10_000 };
  assert.deepEqual([0, 1, 4, 5, 1000].map((retry) => pause(retry, 0, terms)), [500, 1000, 8000, 10_000, 10_000]);
  assert.equal(pause(0, 3000, terms), 3500);
  Math.random = random;
});

test("an attempt that takes too long is sent again", async () => {
  globalThis.setTimeout = (wake) => real(wake, 0);
  let tries = 0;
  globalThis.fetch = (url, { signal }) => {
    if (++tries > 1) return Promise.resolve(new Response(null, { status: 204 }));
    return new Promise((resolve, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
  };
  assert.equal((await send(URL_, { method: "POST" }, FAST)).status, 204);
  assert.equal(tries, 2);
});

test("who stops the request keeps its key", async () => {
  const stop = new AbortController();
  globalThis.fetch = async () => {
    stop.abort();
    throw broken();
  };
  const request = send(URL_, { method: "POST", signal: stop.signal }, FAST);
  await assert.rejects(request, { name: "AbortError" });
  assert.equal(keys().length, 1);
  answers = [200];
  await assert.rejects(send(URL_, { method: "POST", signal: AbortSignal.abort() }), { name: "AbortError" });
});

test("a stop during a pause ends it", async () => {
  const stop = new AbortController();
  globalThis.setTimeout = (wake, duration) => real(wake, duration > 19_000 ? 0 : 1e6);
  answers = [503];
  const request = send(URL_, { method: "POST", signal: stop.signal }, { base: 1000 });
  real(() => stop.abort(), 20);
  await assert.rejects(request, { name: "AbortError" });
});

test("a refusal by the operation itself drops the key; another one says nothing of an attempt whose response was lost", async () => {
  for (const [said, dropped] of [
    [[422], true],
    [[404], true],
    [[403], true],
    [[broken(), 422], true],
    [[broken(), 402], true],
    [[broken(), 404], false],
    [[broken(), 403], false],
    [[429, 404], true], // the first did nothing
    [[401], false],
    [[412], false],
  ]) {
    globalThis.localStorage = new Storage();
    await post(said);
    assert.deepEqual([said, keys().length], [said, dropped ? 0 : 1]);
  }
  globalThis.localStorage = new Storage();
  await post([503], { retries: 0 });
  await post([404]);
  assert.equal(keys().length, 1); // nor of one before a reload
});

test("a redirect may lead to a login page", async () => {
  const led = () => Object.defineProperty(new Response("<form>"), "redirected", { value: true });
  await post([led()]);
  assert.equal(keys().length, 0);
  await post([broken(), led()]);
  assert.equal(keys().length, 1);
});

test("content that is edited is another operation, unless it has its name", async () => {
  await post([503], { retries: 0 });
  await post([503], { retries: 0 }, '{"amount": 2}');
  assert.notEqual(sent[0].key, sent[1].key);
  const named = { operation: "order:1", retries: 0 };
  await post([503], named);
  await assert.rejects(post([201], named, '{"amount": 2}'), { name: "IdempotencyError", code: "mismatch", operation: "order:1" });
  assert.equal(sent.length, 3);
  forget("order:1");
  await post([201], named, '{"amount": 2}');
  assert.notEqual(sent[2].key, sent[3].key);
});

test("fields and files are content, and the CSRF token is not", async () => {
  const form = (item, token, name = "a.txt") => {
    const made = new FormData();
    made.append("csrfmiddlewaretoken", token);
    made.append("item", item);
    made.append("file", new File(["x"], name, { lastModified: 1 }));
    return made;
  };
  const terms = { operation: "order", retries: 0 };
  await post([503], terms, form("tea", "masked-1"));
  await post([503], terms, form("tea", "masked-2"));
  assert.equal(sent[0].key, sent[1].key);
  await assert.rejects(post([503], terms, form("coffee", "masked-1")), { code: "mismatch" });
  await assert.rejects(post([503], terms, form("tea", "masked-1", "b.txt")), { code: "mismatch" });
});

test("a key that the server may have forgotten is not sent", async () => {
  await post([503], { retries: 0 });
  change({ created: Date.now() - 86_350_000 });
  await assert.rejects(post([201]), { code: "too-old" });
  assert.equal(sent.length, 1);
});

test("each user has keys of their own, and only what is open is pending", async () => {
  await post([503], { operation: "a", user: "1", retries: 0 });
  await post([503], { operation: "a", user: "2", retries: 0 });
  await post([201], { operation: "b", user: "1" });
  assert.notEqual(sent[0].key, sent[1].key);
  assert.deepEqual(pending({ user: "1" }).map(({ operation, key }) => [operation, key]), [["a", sent[0].key]]);
  assert.deepEqual(pending(), []);
});

test("nothing of the content is kept", async () => {
  await post([503], { retries: 0 }, "secret");
  assert.doesNotMatch(JSON.stringify(localStorage), /secret|shop\.example/);
});

test("another tab that ends the operation does not end this one", async () => {
  let tries = 0;
  globalThis.fetch = async (url, { headers }) => {
    sent.push({ key: headers.get("Idempotency-Key"), kept: keys() });
    change({ ended: Date.now() });
    if (++tries < 3) throw broken();
    return new Response(null, { status: 204 });
  };
  await send(URL_, { method: "POST" }, FAST);
  assert.deepEqual(sent.map(({ key, kept }) => kept[0] === key), [true, true, true]);
  assert.equal(new Set(sent.map(({ key }) => key)).size, 1);
});

test("who was told to send it before it ended shares the key, and a minute later nothing is left of it", async () => {
  await post([201]);
  change({ ended: Date.now() + 1000 }); // as a tab sees it that was waiting
  await post([201]);
  assert.equal(sent[0].key, sent[1].key);
  change({ ended: Date.now() - 61_000 });
  await post([201], {}, "other");
  assert.deepEqual(all().map(({ key }) => key), [sent[2].key]);
});

test("a success drops its own key alone", async () => {
  globalThis.fetch = async () => {
    change({ key: "of another tab" });
    return new Response(null, { status: 204 });
  };
  await send(URL_, { method: "POST" }, FAST);
  assert.deepEqual(keys(), ["of another tab"]);
});

test("a safe request has no key, and what cannot be sent twice is refused", async () => {
  answers = [200];
  await send(URL_);
  assert.deepEqual([sent[0].key, keys()], [null, []]);
  await assert.rejects(send(new Request(URL_, { method: "POST" }), { method: "POST" }), TypeError);
  await assert.rejects(send(URL_, { method: "POST", body: new ReadableStream(), duplex: "half" }), TypeError);
  assert.equal(sent.length, 1);
});

// What an older version, another script or a full disk may have left.
const BROKEN = ["", "{", "null", "7", '"text"', "[]", "{}", '{"key":7,"content":"","created":1}', '{"key":"k","content":"c","created":"soon"}',
  '{"key":"k","content":"c","created":1,"ended":null}', "[".repeat(1e5), "\u0000", "\ud800"];

test("what is broken of one operation stops no other one, and is not taken for nothing", async () => {
  for (const text of BROKEN) {
    globalThis.localStorage = new Storage();
    sent = [];
    await post([503], { operation: "a", user: "1", retries: 0 });
    localStorage.setItem(Object.keys(localStorage)[0], text);
    assert.equal((await post([201], { operation: "b", user: "1" })).status, 201);
    assert.equal((await post([201], { operation: "a", user: "2" })).status, 201);
    // Its own operation may have been carried out under the key that is lost.
    await assert.rejects(post([201], { operation: "a", user: "1" }), { name: "IdempotencyError", code: "unreadable", operation: "a" });
    assert.deepEqual(pending({ user: "1" }).map(({ operation, key }) => [operation, key]), [["a", undefined]]);
    assert.equal(sent.length, 3);
    forget("a", { user: "1" });
    assert.equal((await post([201], { operation: "a", user: "1" })).status, 201);
  }
});

test("what is in nobody's place is in nobody's way", async () => {
  for (const name of ["", "{", "null", "[]", '["a"]', '["a",7]', '["a","b","c"]']) {
    localStorage.setItem(`idempotency:fetch:${name}`, "{");
  }
  assert.deepEqual(pending(), []);
  assert.equal((await post([201])).status, 201);
});

test("what breaks while it is sent is written again", async () => {
  let tries = 0;
  globalThis.fetch = async (url, { headers }) => {
    sent.push(headers.get("Idempotency-Key"));
    const [place] = Object.keys(localStorage);
    localStorage.setItem(place, "{");
    if (++tries < 3) throw broken();
    return new Response(null, { status: 503 });
  };
  assert.equal((await send(URL_, { method: "POST" }, { ...FAST, retries: 3 })).status, 503);
  assert.equal(new Set(sent).size, 1);
});

test("where nothing can be kept, nothing is sent", async () => {
  localStorage.setItem = () => {
    throw new DOMException("full", "QuotaExceededError");
  };
  await assert.rejects(post([201]), { name: "QuotaExceededError" });
  assert.equal(sent.length, 0);
});

test("a project has a header and keys of its own", async () => {
  globalThis.fetch = async (url, { headers }) => {
    assert.equal(headers.get("X-Order-Key"), "made-1");
    assert.equal(headers.get("X-CSRFToken"), "token");
    return new Response(null, { status: 204 });
  };
  const init = { method: "POST", headers: { "X-CSRFToken": "token" } };
  await send(URL_, init, { header: "X-Order-Key", newKey: async () => "made-1" });
});

test("the script is loaded once", async () => {
  const first = globalThis.djangoIdempotency;
  await import(`${pathToFileURL(process.env.SCRIPT).href}?again`);
  assert.equal(globalThis.djangoIdempotency, first);
});

test("what it does after each problem", () => {
  // [[status, code, verdict], …], from the package: see test_fetch.py.
  for (const [status, code, verdict] of JSON.parse(process.env.PROBLEMS)) {
    assert.deepEqual([code, judge({ status }, code, true)], [code, verdict]);
  }
});
