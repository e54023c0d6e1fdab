// Sends an edited form a second time, with what little of a browser form.js needs, and prints what it asks for.
// Arguments: the script, the address of the keys, the form's action.
"use strict";

const { readFileSync } = require("node:fs");
const [script, keys, action] = process.argv.slice(2);

let item = "tea";
let submit;
const asked = [];
const kept = new Map();
const field = { name: "key", value: "first", dataset: { idempotency: keys }, matches: () => true };
const elements = Object.assign([field], { namedItem: () => ({ value: "csrf" }) });
const form = { elements, getAttribute: (name) => (name === "action" ? action : null), requestSubmit() {} };
const browser = {
  window: { addEventListener() {} },
  document: {
    baseURI: "https://shop.example/order/",
    addEventListener: (name, listener) => (submit = name === "submit" ? listener : submit),
  },
  location: { href: "https://shop.example/order/", origin: "https://shop.example", pathname: "/order/" },
  performance: { getEntriesByType: () => [] },
  sessionStorage: { getItem: (name) => kept.get(name) ?? null, setItem: (name, value) => kept.set(name, value) },
  FormData: class {
    *[Symbol.iterator]() {
      yield ["item", item];
    }
  },
  File: class {},
  fetch: async (address, { body }) => {
    asked.push([address, JSON.parse(body).path]);
    return { ok: false };
  },
};
new Function(...Object.keys(browser), readFileSync(script, "utf8"))(...Object.values(browser));

for (item of ["tea", "coffee"]) {
  submit({ target: form, submitter: null, preventDefault() {}, stopImmediatePropagation() {} });
}
console.log(JSON.stringify(asked));
