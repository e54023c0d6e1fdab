// Sends the unsafe forms of REST framework's browsable API with an idempotency key.
//
// REST framework leaves a plain POST to the browser, which cannot send a header, so every unsafe form is sent from here.
// A key belongs to what is sent: an unchanged form keeps it until an answer is final, an edited form gets another one.
(function () {
  "use strict";

  const HEADER = JSON.parse(document.getElementById("django-idempotency-header").textContent);
  const VERSION = JSON.parse(document.getElementById("django-idempotency-key-version").textContent);
  const CSRF = JSON.parse(document.getElementById("drf_csrf").textContent);
  const CSRF_FIELD = "csrfmiddlewaretoken"; // masked anew on each page
  const AGAIN = "send the unchanged form again to retry. It is the same operation.";
  const SAFE = ["GET", "HEAD", "OPTIONS", "TRACE"];

  // What was sent -> its key. It lives on the window, which stays when an answer replaces the page.
  const keys = (window.djangoIdempotencyKeys = window.djangoIdempotencyKeys || new Map());

  // A UUID of version 4, or of version 7, which begins with the time in milliseconds.
  function newKey() {
    // crypto.randomUUID() exists on https and localhost only
    const bytes = crypto.getRandomValues(new Uint8Array(16));
    for (let now = Date.now(), place = 5; VERSION === 7 && place >= 0; now = Math.floor(now / 256), place--) {
      bytes[place] = now % 256;
    }
    bytes[6] = (bytes[6] & 0x0f) | (VERSION << 4);
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    const hex = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
    return hex.replace(/(.{8})(.{4})(.{4})(.{4})(.{12})/, "$1-$2-$3-$4-$5");
  }

  function isOurs(url) {
    return new URL(url, location.href).origin === location.origin;
  }

  function methodOf(form, button) {
    const method = (button && button.dataset.method) || form.dataset.method || form.getAttribute("method") || "GET";
    return method.toUpperCase();
  }

  function addressOf(form) {
    return new URL(form.getAttribute("action") || location.href, location.href).href;
  }

  // What a form sends: its body, its Content-Type (null: the browser's own) and a text that changes with its content.
  function contentOf(form) {
    const media = form.querySelector('[data-override="content-type"]');
    if (media) {
      return rawContent(media.value, form.querySelector('[data-override="content"]').value);
    }
    const fields = new FormData(form);
    const parts = Array.from(fields).filter(([name]) => name !== CSRF_FIELD);
    const shown = parts.map(([name, value]) =>
      value instanceof File ? [name, value.name, value.type, value.size, value.lastModified] : [name, value],
    );
    const body = form.enctype === "multipart/form-data" ? fields : new URLSearchParams(fields);
    return { body, type: null, text: JSON.stringify(shown) };
  }

  // As REST framework sends it: the boundary of a multipart body is the first line that looks like one.
  function rawContent(type, text) {
    if (type !== "multipart/form-data") {
      return { body: text, type, text: JSON.stringify([type, text]) };
    }
    const found = text.match(/^--([0-9A-Z'()+_,-./:=? ]{0,69}[0-9A-Z'()+_,-./:=?])\s*?$/im);
    const boundary = found ? `; boundary="${found[1]}"` : "";
    return { body: text.replace(/\n/g, "\r\n"), type: type + boundary, text: JSON.stringify([type, text]) };
  }

  // May the same request, sent again, get another answer? Then its key stays.
  function isFinal(status) {
    return status < 500 && ![408, 409, 425, 429].includes(status);
  }

  // The code of a problem document.
  function codeOf(text) {
    try {
      return JSON.parse(text).code;
    } catch {
      return undefined;
    }
  }

  function replacePage(html, url) {
    document.open("text/html");
    document.write(html);
    document.close();
    if (isOurs(url)) {
      history.replaceState({}, "", url);
    }
    scrollTo(0, 0);
  }

  function tell(form, sentences) {
    const old = form.querySelector(".django-idempotency");
    const box = old || document.createElement("div");
    box.className = "alert alert-warning django-idempotency";
    box.setAttribute("role", "alert");
    box.textContent = sentences;
    if (!old) {
      form.prepend(box);
    }
  }

  async function send(form, method) {
    const url = addressOf(form);
    const { body, type, text } = contentOf(form);
    const content = JSON.stringify([method, url, text]);
    if (!keys.has(content)) {
      keys.set(content, newKey());
    }
    const headers = { Accept: "text/html; q=1.0, */*", [HEADER]: keys.get(content) };
    if (type) {
      headers["Content-Type"] = type;
    }
    headers[CSRF.csrfHeaderName] = CSRF.csrfToken;
    let response, answer;
    try {
      response = await fetch(url, { method, headers, body });
      answer = await response.text();
    } catch {
      tell(form, `No response: ${AGAIN}`);
      return;
    }
    const isPage = (response.headers.get("Content-Type") || "").toLowerCase().startsWith("text/html");
    const said = `HTTP ${response.status}${isPage ? "" : ` ${answer}`}`;
    if (!isFinal(response.status)) {
      // The form stays, to be sent again; unless the work was done and its response was not stored, which stays so.
      tell(form, codeOf(answer) === "response-not-stored" ? said : `${said}: ${AGAIN}`);
      return;
    }
    keys.delete(content);
    if (isPage) {
      replacePage(answer, response.url);
    } else {
      tell(form, said);
    }
  }

  // Before REST framework's own handler, which stands on each form.
  document.addEventListener(
    "submit",
    (event) => {
      const form = event.target;
      const method = methodOf(form, event.submitter);
      const isElsewhere = !form.closest("#content") || !isOurs(addressOf(form)); // a form to log out, say
      if (event.defaultPrevented || SAFE.includes(method) || isElsewhere) {
        return;
      }
      event.preventDefault();
      event.stopImmediatePropagation();
      send(form, method);
    },
    true,
  );
})();
