// Asks for a key, and before a key that a link brought is used for the first time.

import { h, replace } from "./dom.js";
import { session, isKeptForTab, nameKey } from "./session.js";
import { errorBox, field } from "./ui.js";

/** A form for a key; `use(key, forTab)` gets it. */
export function askForKey(problem, use) {
  const key = h("input", { type: "password", name: "key", autocomplete: "off", spellcheck: "false", required: true });
  const forTab = h("input", { type: "checkbox", name: "tab", checked: isKeptForTab() });
  const hint = h("p.hint", { role: "status" });
  const form = h(
    "form.door",
    { "aria-labelledby": "door-title" },
    h("p.brand-large", {}, "Strandline"),
    h("h1", { id: "door-title" }, "See what an agent remembers, and why"),
    problem && errorBox(problem),
    problem && !/expired|revoked/.test(problem.message) && h("p.hint", {}, "Check that it was copied whole, and that it is a key of this service."),
    field("API key or token", key),
    h("label.choice", {}, forTab, h("span", {}, "Keep it in this tab until it is closed")),
    h("p.buttons", {}, h("button.main", { type: "submit" }, "Open")),
    hint,
    h("p.hint", {}, "The key stays in this tab's memory and is sent to this service alone. What you may see is what the key may read through the API. On one machine ", h("code", {}, "strandline console"), " opens this page with the local key."),
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const text = key.value.trim();
    // A header cannot carry other characters.
    if (/^[\x21-\x7e]+$/.test(text)) use(text, forTab.checked);
    else hint.textContent = "A key has letters, digits and signs of ASCII alone, without spaces: copy it again.";
  });
  requestAnimationFrame(() => key.focus());
  return form;
}

/** Say which key a link brought, and ask whether to use it; `decide(use)` gets the answer. */
export function askToUseLinkedKey(key, decide) {
  const isKey = /^[\x21-\x7e]+$/.test(key);
  const yes = h("button.main", { type: "button", onclick: () => decide(true) }, "Use this key");
  const door = h(
    "section.door",
    { "aria-labelledby": "door-title" },
    h("p.brand-large", {}, "Strandline"),
    h("h1", { id: "door-title" }, "The link brought a key"),
    h("p", {}, "It was not used yet: ", h("strong.break", {}, h("bdi", {}, isKey ? nameKey(key) : "a text that is no key"))),
    h("p.hint", {}, "Use it only if you know who made the link: what you do here is done, and recorded, as the holder of this key. It is already gone from the address."),
    session.key && h("p.hint", {}, "It would take the place of ", nameKey(session.key), "."),
    h("p.buttons", {}, isKey && yes, h("button", { type: "button", onclick: () => decide(false) }, session.key ? "Go on with mine" : "Do not use it")),
  );
  if (isKey) requestAnimationFrame(() => yes.focus());
  return replace(h("div", {}), door);
}
