// Parts that several screens are made of.

import { splitNames } from "./api.js";
import { h, plain, replace, stored } from "./dom.js";
import { session } from "./session.js";

/** An error as the API gives it, with what to do. */
export function errorBox(error, retry = null) {
  const field = error.details?.field;
  return h(
    "div.notice.bad",
    { role: "alert" },
    h("p", {}, h("strong", {}, chooseErrorTitle(error)), " ", stored(error.message ?? String(error))),
    field && h("p.quiet", {}, "Field: ", h("code", {}, stored(field))),
    retry && h("p", {}, h("button", { type: "button", onclick: retry }, "Try again")),
    (error.code || error.requestId) &&
      h("p.quiet.small", {}, error.code && ["Code ", h("code", {}, stored(error.code)), error.status ? ` (${error.status})` : ""], error.requestId && [" · request ", h("code", {}, stored(error.requestId))]),
  );
}

function chooseErrorTitle(error) {
  if (error.status === 401) return "This key is not accepted.";
  if (error.status === 403) return "This key may not do that.";
  if (error.status === 404) return "Not here, or not for you to see.";
  if (error.status === 410) return "It is gone.";
  if (error.status === 429) return "Too much at once.";
  if (error.retryable || error.status === 0) return "Not now.";
  return error.status ? "The service refused this." : "This page failed.";
}

/** What stands where nothing is: what will appear, when, and why. */
export function emptyState(title, ...sentences) {
  return h("div.empty", {}, h("p.empty-title", {}, title), sentences.filter(Boolean).map((it) => h("p", {}, it)));
}

export function loading(text = "Loading …") {
  return h("p.loading", { role: "status" }, text);
}

/** A label above its control. */
export function field(label, control, hint = null) {
  return h("label.field", {}, h("span.label", {}, label), control, hint && h("span.hint", {}, hint));
}

/** A field for names of participants. `readNames` checks them. */
export function makeNamesInput(name, properties = {}) {
  const input = h("input", { type: "text", name, placeholder: "user:alice, agent:helper", autocomplete: "off", spellcheck: "false", ...properties });
  input.addEventListener("input", () => input.setCustomValidity(""));
  return input;
}

/** The names in a field, or null after saying at the field which one has no kind. */
export function readNames(input) {
  const names = splitNames(input.value);
  const bare = names.find((it) => it !== "*" && it !== "everybody" && !/^[a-z][a-z0-9_-]*:./.test(it));
  input.setCustomValidity(bare ? `A participant's name begins with its kind: user:${plain(bare).toLowerCase()}, or agent:${plain(bare).toLowerCase()}.` : "");
  return input.reportValidity() ? names : null;
}

/** A card with a heading. */
export function card(title, ...children) {
  return h("section.card", {}, h("h2", {}, title), children);
}

/** Links to the parts of a screen, as [address, title, isHere]; where they do not fit, the present one
 * is scrolled to. */
export function tabs(label, links) {
  const made = links.map(([href, title, isHere]) => h("a", { href, "aria-current": isHere ? "page" : null }, title));
  requestAnimationFrame(() => made.find((it) => it.getAttribute("aria-current"))?.scrollIntoView({ block: "nearest", inline: "center" }));
  return h("nav.tabs", { "aria-label": label }, made);
}

/** Pairs of a word and what it means. */
export function pairs(rows) {
  return h("dl.pairs", {}, rows.filter(Boolean).map(([name, ...value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))));
}

export function badge(text, kind = "") {
  return h(`span.badge${kind ? `.${kind}` : ""}`, {}, text);
}

/** A table that scrolls in itself where it is too wide. */
export function table(heads, rows, label) {
  return h(
    "div.table-frame",
    { tabindex: "0", role: "region", "aria-label": label },
    h("table", {}, h("thead", {}, h("tr", {}, heads.map((it) => h("th", { scope: "col" }, it)))), h("tbody", {}, rows.map((row) => h("tr", {}, row.map((cell) => h("td", {}, cell)))))),
  );
}

/** Load something into an element: a word while it loads, an error with a way to try again. */
export async function loadInto(element, load, show) {
  replace(element, loading());
  try {
    replace(element, await show(await load()));
  } catch (error) {
    if (error.name === "AbortError") return;
    replace(element, errorBox(error, () => loadInto(element, load, show)));
  }
}

/** Copy a text, and say so on the button. */
export function copyButton(label, makeText) {
  const button = h("button.quiet-button", { type: "button" }, label);
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(makeText());
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = label), 1500);
  });
  return button;
}

/** Ask before a change: what it will do stands in `sentences`. Gives whether to go on. It is refused
 * while changes are not allowed. */
export function confirmChange(title, sentences, action) {
  if (!session.allowsChanges) return Promise.resolve(false);
  return new Promise((resolve) => {
    const dialog = h("dialog", { "aria-labelledby": "confirm-title" });
    const answer = (value) => {
      dialog.close();
      dialog.remove();
      resolve(value);
    };
    dialog.append(
      h("h2", { id: "confirm-title" }, title),
      ...sentences.map((it) => h("p", {}, it)),
      h("p.buttons", {}, h("button", { type: "button", autofocus: true, onclick: () => answer(false) }, "Cancel"), h("button.danger", { type: "button", onclick: () => answer(true) }, action)),
    );
    dialog.addEventListener("cancel", () => answer(false));
    document.body.append(dialog);
    dialog.showModal();
  });
}
