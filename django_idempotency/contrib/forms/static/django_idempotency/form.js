// Gives a form another key when it is sent with other content, or once more after it has succeeded.
//
// What is sent again unchanged keeps its key: a second click, or after Back or a reload. Nothing here is needed for that,
// but after a reload, which brings a new key. Without this script an edited form that was sent before is refused.
(() => {
  "use strict";

  if (window.djangoIdempotencyForm) {
    return; // loaded twice
  }
  window.djangoIdempotencyForm = true;

  const FIELD = "input[data-idempotency]";
  const CSRF_FIELD = "csrfmiddlewaretoken"; // masked anew on each page
  const SUCCEEDED = "succeeded";
  const renewing = new WeakSet(); // forms that are about to get another key
  const passing = new WeakSet(); // forms that have got it, and are sent by ourselves

  // What was sent under a key, as a digest, and which key was sent from a page. This window's, until it is closed.
  const memory = {
    get: (name) => {
      try {
        return sessionStorage.getItem(`idempotency:${name}`);
      } catch {
        return null; // the browser keeps nothing: then the server decides
      }
    },
    set: (name, value) => {
      try {
        sessionStorage.setItem(`idempotency:${name}`, value);
      } catch {
        // as above
      }
    },
  };

  // Has the browser shown this page before, and does it now show it again?
  let again = performance.getEntriesByType("navigation").some(({ type }) => type === "reload" || type === "back_forward");
  const begin = () => (again = false);
  const repeat = () => (again = true);

  const fieldOf = (form) => Array.from(form.elements).find((element) => element.matches(FIELD));

  function addressOf(form, button) {
    const htmx = form.getAttribute("hx-post") || form.getAttribute("data-hx-post");
    const own = (button && button.getAttribute("formaction")) || htmx || form.getAttribute("action");
    return new URL(own || location.href, document.baseURI);
  }

  // A digest (FNV-1a, 64 bits) of what a form sends, without its key: what a person typed is not kept.
  function digestOf(form, field, button) {
    const parts = [addressOf(form, button).href, button && button.name, button && button.value];
    for (const [name, value] of new FormData(form)) {
      if (name !== field.name && name !== CSRF_FIELD) {
        parts.push(name, value instanceof File ? [value.name, value.size, value.lastModified] : value);
      }
    }
    let hash = 0xcbf29ce484222325n;
    for (const byte of new TextEncoder().encode(JSON.stringify(parts))) {
      hash = BigInt.asUintN(64, (hash ^ BigInt(byte)) * 0x100000001b3n);
    }
    return hash.toString(16);
  }

  // The CSRF token goes to this origin alone, which has keys for its own paths only.
  const mayRenew = (form, field, button) =>
    [new URL(field.dataset.idempotency, document.baseURI), addressOf(form, button)].every(
      ({ origin }) => origin === location.origin,
    );

  async function renew(form, field, button) {
    const token = form.elements.namedItem(CSRF_FIELD);
    const headers = { Accept: "application/json", "Content-Type": "application/json" };
    if (token) {
      headers["X-CSRFToken"] = token.value;
    }
    const body = JSON.stringify({ path: addressOf(form, button).pathname });
    try {
      const response = await fetch(field.dataset.idempotency, { method: "POST", headers, body });
      const { key } = response.ok ? await response.json() : {};
      if (typeof key === "string" && key) {
        field.value = key;
      }
    } catch {
      // The form is sent with the key that it has, and the server says why that does not do.
    }
  }

  document.addEventListener(
    "submit",
    (event) => {
      const form = event.target;
      const button = event.submitter;
      const field = fieldOf(form);
      if (!field || event.defaultPrevented) {
        return;
      }
      if (renewing.has(form)) {
        event.preventDefault(); // a second click
        event.stopImmediatePropagation();
        return;
      }
      const page = `${location.pathname} ${addressOf(form, button).href}`;
      const content = digestOf(form, field, button);
      const last = memory.get(page);
      if (again && last && memory.get(field.value) === null && memory.get(last) === content) {
        field.value = last; // this form was sent before the reload
      }
      const sent = memory.get(field.value);
      if (sent === null || sent === content || passing.has(form) || !field.dataset.idempotency || !mayRenew(form, field, button)) {
        // Noted although a script of the page may cancel the event: most do so to send the form themselves, by fetch() or
        // submit(), which nothing sees. After one that sends nothing, an edited form gets a key that it does not need.
        memory.set(field.value, content);
        memory.set(page, field.value);
        return;
      }
      event.preventDefault();
      event.stopImmediatePropagation();
      renewing.add(form);
      renew(form, field, button).then(() => {
        renewing.delete(form);
        passing.add(form);
        try {
          form.requestSubmit(button); // sends the event at once, unless the browser finds the form invalid now
        } finally {
          passing.delete(form);
        }
      });
    },
    true,
  );

  // Where a success leaves the form on the page, the next submission is another operation, even with the same content.
  function succeed(form, response) {
    const leads = ["HX-Redirect", "HX-Location", "HX-Refresh"].some((name) => response.header(name));
    if (form && form.isConnected && response.ok && !response.redirected && !leads && fieldOf(form)) {
      memory.set(fieldOf(form).value, SUCCEEDED);
    }
  }

  const read = (response) => ({
    ok: response.ok,
    redirected: response.redirected,
    header: (name) => response.headers.get(name),
  });

  document.addEventListener("turbo:submit-end", ({ target, detail }) => {
    if (detail.fetchResponse) {
      succeed(target, read(detail.fetchResponse.response));
    }
  });
  document.addEventListener("htmx:finally:request", ({ detail: { ctx } }) => { // htmx 4
    if (ctx.response) {
      succeed(ctx.sourceElement.closest("form"), read(ctx.response.raw));
    }
  });
  document.addEventListener("htmx:afterRequest", ({ detail: { elt, successful, xhr, pathInfo } }) => { // htmx 2
    const redirected = xhr.responseURL !== new URL(pathInfo.finalRequestPath, document.baseURI).href;
    succeed(elt.closest("form"), { ok: successful, redirected, header: (name) => xhr.getResponseHeader(name) });
  });

  // A page that htmx or Turbo has fetched is a new one, unless a person went back to it.
  document.addEventListener("turbo:visit", ({ detail }) => (detail.action === "restore" ? repeat() : begin()));
  document.addEventListener("htmx:after:history:push", begin);
  document.addEventListener("htmx:pushedIntoHistory", begin);
  window.addEventListener("popstate", repeat);
})();
