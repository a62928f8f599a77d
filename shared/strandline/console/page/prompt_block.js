// The block of text that a model would get: tokens counted, citations that lead to their events.

import { postRead } from "./api.js";
import { h, replace, stored } from "./dom.js";
import * as format from "./formats.js";
import { copyButton, loadInto } from "./ui.js";

const DEFAULT_BUDGET = 1000;
const LEFT_OUT = { recent: "of the newest events", topics: "topics", events: "less relevant events", shortened: "shortened texts" };

/** Load the block for a recall's request into a place; `tell(block)` is called with it. What a context has no setting for is named. */
export function showPromptBlock(place, request, budget, context, viewer, tell) {
  const { query, as_of, now, expand, breadth, min_relevance, session_id } = request;
  const body = { query, as_of, now, expand, breadth, min_relevance, budget: Number(budget) || DEFAULT_BUDGET };
  const load = () => postRead("/api/v1/context", body, viewer, { signal: context.signal });
  const block = h("div");
  const unused = [session_id && "session", request.only_words && "words alone", request.weights && "weights", ["speaker", "type", "origin", "since", "until"].some((it) => request[it]) && "filters"].filter(Boolean);
  replace(place, h("h3", {}, "What a model would get"), unused.length > 0 && h("p.hint", {}, `A context has no ${unused.join(", ")}: the block is that of the question without them.`), block);
  loadInto(block, load, (it) => {
    tell(it);
    return showBlock(it, body.budget, context);
  });
}

function showBlock(block, budget, context) {
  const events = new Map(block.citations.map((it) => [String(it.n), it.event_id]));
  const left = Object.entries(block.cut).filter(([, value]) => value).map(([name, value]) => `${format.count(value)} ${LEFT_OUT[name] ?? name}`);
  if (!block.text) return h("p.quiet", {}, "An empty text: nothing in view speaks of this, so a model would get nothing.");
  return [
    h("p.row", {}, h("span", {}, h("strong", {}, format.plural(block.tokens, "token")), h("span.quiet", {}, ` of ${format.count(budget)}, ${format.plural(block.citations.length, "citation")}`)), copyButton("Copy the block", () => block.text)),
    h("div.block", { tabindex: "0", role: "region", "aria-label": "The block for a prompt" }, linkCitations(block.text, events, context)),
    left.length > 0 && h("p.hint", {}, `Left out or cut: ${left.join(", ")}.`),
  ];
}

/** The block's text, where [n] of a citation leads to its event. */
function linkCitations(text, events, context) {
  const parts = [];
  let done = 0;
  for (const match of text.matchAll(/\[(\d+)\]/g)) {
    const id = events.get(match[1]);
    if (!id) continue;
    parts.push(stored(text.slice(done, match.index), "text-part"), h("a", { href: context.link("event", { id }) }, match[0]));
    done = match.index + match[0].length;
  }
  return [...parts, stored(text.slice(done), "text-part")];
}
