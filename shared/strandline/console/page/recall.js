// Recall debugger: a question asked as anybody one may ask for, what came and why, what a model would
// get, and two settings side by side.

import { h, replace } from "./dom.js";
import { showAnswer } from "./recall_answer.js";
import { showPromptBlock } from "./prompt_block.js";
import { VARIANTS, makeRequest, makeSettings } from "./recall_settings.js";
import { emptyState, field, loadInto } from "./ui.js";
import { postRead, toViewer } from "./api.js";
import { session } from "./session.js";

export const screen = { name: "recall", title: "Recall debugger", letter: "r", right: "read", needsViewer: true, show };

function show(root, context) {
  const { state } = context;
  const query = h("textarea", { name: "q", rows: 2, required: true, maxlength: 8000, placeholder: "What did you ask, or would an agent ask?", value: state.q ?? session.question });
  const settings = makeSettings(state, "", "Settings");
  const other = state.compare ? makeSettings(state, "b_", "The other settings", context) : null;
  const form = h(
    "form.card.recall-form",
    {},
    field("Question", query),
    h("div.recall-settings", {}, settings.element, other?.element),
    h("p.buttons", {}, h("button.main", { type: "submit" }, "Ask"), h("span.quiet.small.wide-only", {}, h("kbd", {}, "Ctrl+Enter"), " asks."), h("span.quiet.small", {}, "The answer is recorded as a use, as every recall: topics it uses stay warm.")),
  );
  const read = () => ({ q: query.value.trim(), ...settings.read(), ...(other ? other.read() : {}) });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    context.update(read());
  });
  session.question = query.value;
  query.addEventListener("input", () => (session.question = query.value));
  query.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) form.requestSubmit();
  });
  const compare = h("p.buttons.variants", {}, h("span.quiet", {}, state.compare ? "Beside it:" : "The same question"), VARIANTS.map(([name, label, make]) => h("button", { type: "button", "aria-pressed": String(state.compare === name), onclick: () => context.update({ ...read(), ...clearOther(state), compare: name, ...make(read()) }) }, label)), state.compare && h("button", { type: "button", onclick: () => context.update({ ...read(), ...clearOther(state), compare: "" }) }, "Close the other"));
  const results = h("div.recall-results");
  root.append(form, compare, results);
  if (!state.q) {
    replace(results, emptyState("Ask a question.", "The hits appear here with what each feature adds to their score, and below them the block of text that a model would get.", "The question is asked for those who stand at the top; choose others under Change, or beside it."));
    return;
  }
  results.append(ask(context, ""), ...(state.compare ? [ask(context, "b_")] : []));
}

function clearOther(state) {
  return Object.fromEntries(Object.keys(state).filter((it) => it.startsWith("b_")).map((it) => [it, ""]));
}

/** One asking: its hits, then the block for a prompt. */
function ask(context, prefix) {
  const { state, signal } = context;
  const as = state[`${prefix}as`] || "";
  const viewer = prefix && as ? toViewer(as === "everybody" ? "*" : as) : context.viewer;
  const request = makeRequest(state, prefix);
  const answer = h("div.answer");
  const prompt = h("div.prompt");
  const readers = viewer.everybody ? "everybody" : viewer.participants?.join(", ") || "the key's own user";
  const nearest = h("p.hint", { hidden: true }, "There are no hits, but the block still shows the nearest events, marked as such.");
  const found = {};
  const note = (name, amount) => {
    found[name] = amount;
    nearest.hidden = !(found.hits === 0 && found.citations > 0);
  };
  loadInto(answer, () => postRead("/api/v1/recall", { ...request, explain: true, include: "full" }, viewer, { signal }), (it) => {
    note("hits", it.hits.length);
    return showAnswer(it, request, { ...context, viewer });
  });
  showPromptBlock(prompt, request, state[`${prefix}budget`], context, viewer, (it) => note("citations", it.citations.length));
  return h("section.card.asking", { "aria-label": `Answer for ${readers}` }, h("p.quiet.small", {}, "Asked for ", h("strong", {}, h("bdi", {}, readers)), request.only_words ? ", by words alone" : "", request.as_of ? `, as of ${request.as_of}` : ""), answer, nearest, prompt);
}
