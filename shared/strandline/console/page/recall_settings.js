// The settings of a recall as a form, and as a request.

import { h } from "./dom.js";
import { field } from "./ui.js";

/** Ways to ask the same question again: name, label, and the settings of the other side. */
export const VARIANTS = [
  ["words", "by words alone", (it) => copy(it, { words: "1" })],
  ["time", "at another time", (it) => copy(it, { as_of: it.as_of || new Date(Date.now() - 30 * 86_400_000).toISOString().slice(0, 16) })],
  ["people", "for other participants", (it) => copy(it, {})],
  ["settings", "with other settings", (it) => copy(it, {})],
];

function copy(settings, changes) {
  const same = Object.entries(settings).filter(([name]) => name !== "q" && !name.startsWith("b_"));
  return Object.fromEntries(Object.entries({ ...Object.fromEntries(same), ...changes }).map(([name, value]) => [`b_${name}`, value]));
}

// A participant is named with its kind; a bare name would be refused.
const NAME = "[a-z][a-z0-9_\\-]*:.+";
const NUMBER = { type: "number", step: "any" };
// Name in the address, label, kind of control, name in the request.
const FIELDS = [
  ["limit", "Hits at most", { type: "number", min: 1, max: 100, placeholder: "10" }],
  ["min", "Least relevance", { ...NUMBER, min: 0, max: 1, placeholder: "by the threshold" }],
  ["as_of", "As of (UTC)", { type: "datetime-local" }],
  ["now", "Now is (UTC)", { type: "datetime-local" }],
  ["recency", "Weight of recency", { ...NUMBER, min: 0, max: 1, placeholder: "0" }],
  ["importance", "Weight of importance", { ...NUMBER, min: 0, max: 1, placeholder: "0" }],
  ["expand", "Cited events added", { type: "number", min: 0, max: 50, placeholder: "0" }],
  ["budget", "Tokens of the block", { type: "number", min: 100, max: 8000, placeholder: "1000" }],
];
const FILTERS = [
  ["session", "Session", { type: "text", maxlength: 128 }],
  ["speaker", "Speaker", { type: "text", placeholder: "user:alice", pattern: NAME, title: "Its kind and its name, as user:mara" }],
  ["since", "Since (UTC)", { type: "datetime-local" }],
  ["until", "Until (UTC)", { type: "datetime-local" }],
];
const CHOICES = [
  ["breadth", "Lists and summaries", [["", "by the question"], ["1", "yes"], ["0", "no"]]],
  ["order", "Order", [["", "as it comes"], ["relevance", "by relevance"], ["time", "by time"]]],
  ["type", "Type", ["", "message", "thought", "action", "observation", "upload", "statement"].map((it) => [it, it || "any"])],
  ["origin", "Trust", ["", "user", "agent", "tool", "document", "system"].map((it) => [it, it || "any"])],
];

/** A form of the settings that the state has under `prefix`; `read()` gives them for the state. */
export function makeSettings(state, prefix, title) {
  const controls = new Map();
  const input = ([name, label, attributes]) => {
    const control = h("input", { ...attributes, name: prefix + name, value: state[prefix + name] ?? "", autocomplete: "off" });
    controls.set(name, control);
    return field(label, control);
  };
  const select = ([name, label, options]) => {
    const chosen = state[prefix + name] ?? "";
    const control = h("select", { name: prefix + name }, options.map(([value, text]) => h("option", { value, selected: value === chosen }, text)));
    controls.set(name, control);
    return field(label, control);
  };
  const words = h("input", { type: "checkbox", name: `${prefix}words`, checked: state[`${prefix}words`] === "1" });
  const isUsed = [...FIELDS, ...FILTERS, ...CHOICES].some(([name]) => state[prefix + name]);
  // Folded, so that the answers stay on the screen; open only while the other side has yet to differ.
  const differs = words.checked || [["as"], ...FIELDS, ...FILTERS, ...CHOICES].some(([name]) => (state[prefix + name] ?? "") !== (name === "as" ? "" : (state[name] ?? "")));
  const element = h(
    "details.settings",
    { open: prefix ? !differs : isUsed && !state.compare },
    h("summary", {}, title),
    prefix && h("div.settings-grid", {}, input(["as", "For these participants", { type: "text", placeholder: "as beside", pattern: `${NAME}|everybody|\\*`, title: "Each with its kind, as user:mara" }])),
    h("label.choice", {}, words, h("span", {}, "By words alone, without the question's vector")),
    h("div.settings-grid", {}, FIELDS.map(input), CHOICES.map(select), FILTERS.map(input)),
  );
  element.addEventListener("invalid", () => (element.open = true), { capture: true }); // the field has to be seen
  const read = () => {
    const values = Object.fromEntries([...controls].map(([name, control]) => [prefix + name, control.value.trim()]));
    return { ...values, [`${prefix}words`]: words.checked ? "1" : "" };
  };
  return { element, read };
}

/** The body of a recall that the state says. */
export function makeRequest(state, prefix) {
  const value = (name) => state[prefix + name] || undefined;
  const amount = (name) => (value(name) === undefined ? undefined : Number(value(name)));
  const moment = (name) => (value(name) ? toMoment(value(name)) : undefined);
  const weights = { recency: amount("recency"), importance: amount("importance") };
  const breadth = value("breadth");
  return {
    query: state.q,
    limit: amount("limit"),
    min_relevance: amount("min"),
    as_of: moment("as_of"),
    now: moment("now"),
    expand: amount("expand"),
    order: value("order"),
    breadth: breadth === undefined ? undefined : breadth === "1",
    weights: weights.recency || weights.importance ? { recency: weights.recency ?? 0, importance: weights.importance ?? 0 } : undefined,
    only_words: value("words") === "1" || undefined,
    session_id: value("session"),
    speaker: value("speaker"),
    since: moment("since"),
    until: moment("until"),
    type: value("type"),
    origin: value("origin"),
  };
}

/** A time of the form, which is UTC, as the API takes it. */
function toMoment(text) {
  return /[Zz]|[+-]\d\d:\d\d$/.test(text) ? text : `${text}${text.length === 16 ? ":00" : ""}Z`;
}
