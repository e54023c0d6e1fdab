// Runs browsable-api.js with the small part of a browser that it uses: node browsable_api.js SCRIPT VERSION < steps.json
//
// A step is a form, what is sent of it, and the response to that. Writes, as JSON, what each step has done.
"use strict";

const fs = require("node:fs");
const vm = require("node:vm");

const source = fs.readFileSync(process.argv[2], "utf8");
const steps = JSON.parse(fs.readFileSync(0, "utf8"));

let handlers = [];
let csrf = "";
let done; // what the current step has done
let response;

class FormData {
  constructor(form) {
    this.pairs = Object.entries(form.fields);
  }
  [Symbol.iterator]() {
    return this.pairs[Symbol.iterator]();
  }
}

class Form {
  constructor({ fields = {}, attributes = {}, data = {}, raw = null, enctype = "", outside = false }) {
    Object.assign(this, { fields, attributes, dataset: data, raw, enctype, outside, box: null });
  }
  getAttribute(name) {
    return this.attributes[name] ?? null;
  }
  closest() {
    return this.outside ? null : {};
  }
  querySelector(selector) {
    const found = { ".django-idempotency": this.box };
    if (this.raw) {
      found['[data-override="content-type"]'] = { value: this.raw[0] };
      found['[data-override="content"]'] = { value: this.raw[1] };
    }
    return found[selector] ?? null;
  }
  prepend(box) {
    this.box = box;
  }
}

const json = {
  "django-idempotency-header": () => "X-Order-Key",
  "django-idempotency-key-version": () => Number(process.argv[3]),
  drf_csrf: () => ({ csrfHeaderName: "X-CSRFToken", csrfToken: csrf }),
};
const window = {};
const context = vm.createContext({
  window,
  URL,
  URLSearchParams,
  FormData,
  File,
  crypto,
  location: new URL("https://shop.example/api/charges/"),
  history: { replaceState: (state, title, url) => (done.address = url) },
  scrollTo: () => {},
  document: {
    getElementById: (id) => ({ textContent: JSON.stringify(json[id]()) }),
    addEventListener: (type, handler) => handlers.push(handler),
    createElement: () => ({ setAttribute: () => {} }),
    open: () => (handlers = []), // as a browser does
    write: (html) => (done.page = html),
    close: () => load(),
  },
  fetch: async (url, { method, headers, body }) => {
    const text = body instanceof FormData ? body.pairs : String(body);
    done.sent = { url, method, headers, body: text };
    if (response === null) {
      throw new TypeError("Failed to fetch");
    }
    const type = response.type ?? "application/json";
    return { status: response.status, url, headers: new Headers({ "Content-Type": type }), text: async () => response.body ?? "" };
  },
});

function load() {
  csrf = `token-${Math.random()}`;
  vm.runInContext(source, context);
}

async function run(step) {
  done = { sent: null, said: null, page: null, address: null, prevented: false };
  response = step.response ?? null;
  const form = new Form(step.form ?? {});
  const event = {
    target: form,
    submitter: step.button ? { dataset: step.button } : null,
    defaultPrevented: step.prevented ?? false,
    preventDefault: () => (done.prevented = true),
    stopImmediatePropagation: () => {},
  };
  handlers.slice().forEach((handler) => handler(event));
  await new Promise((resolve) => setTimeout(resolve)); // every promise of the step is settled by then
  done.said = form.box && form.box.textContent;
  return done;
}

(async () => {
  load();
  const found = [];
  for (const step of steps) {
    found.push(await run(step));
  }
  process.stdout.write(JSON.stringify(found));
})();
