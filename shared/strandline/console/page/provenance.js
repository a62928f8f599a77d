// What an event cites, and what rests on it; of a chain, a topic, a snapshot, a node or an edge what
// it is derived from, down to the events.

import { get } from "./api.js";
import { h, replace, stored } from "./dom.js";
import * as format from "./formats.js";
import { TopicMarks } from "./topic_marks.js";
import { badge, card, emptyState, errorBox, loadInto, loading, pairs } from "./ui.js";

const TEXTS = 12;
const PAGE = 50;

/** A link to an event, with its words once they are read. */
function linkEvent(id, weight, context, isRead) {
  const words = h("span.quiet", {}, isRead ? "…" : format.shortId(id));
  if (isRead) {
    get(`/api/v1/events/${id}`, context.viewer, { signal: context.signal }).then(
      (it) => replace(words, it.speaker && [format.participant(it.speaker), " "], stored((it.content ?? it.blob?.name ?? "a payload").slice(0, 160))),
      (error) => error.name !== "AbortError" && replace(words, stored(error.message)),
    );
  }
  return h("li", {}, h("a", { href: context.link("event", { id }) }, words), weight !== null && h("span.quiet.small", {}, ` ${weight.toFixed(2)}`));
}

/** The events that an event cites. */
export function showCited(event, context) {
  const edges = [...event.edges].sort((a, b) => b.weight - a.weight);
  const list = edges.length ? h("ul.links", {}, edges.map((it, i) => linkEvent(it.event_id, it.weight, context, i < TEXTS))) : h("p.quiet", {}, "It cites nothing: it was said for itself.");
  return card(edges.length ? `Cites ${format.plural(edges.length, "event")}` : "Cites", list);
}

/** The events that cite an event, in pages. */
export function showCiting(provenance, event, context) {
  const place = h("div");
  loadInto(place, () => provenance, (found) => {
    if (!found.edges.length) return h("p.quiet", {}, "No later event cites it.");
    const list = h("ul.links", {}, found.edges.map((it, i) => linkEvent(it.event_id, it.weight, context, i < TEXTS)));
    return [list, makeMore(found.next_cursor, event.event_id, context, (page) => list.append(...page.edges.map((it) => linkEvent(it.event_id, it.weight, context, false))))];
  });
  return card("Cited by", place);
}

function makeMore(cursor, row, context, add) {
  if (!cursor) return null;
  let next = cursor;
  const button = h("button", { type: "button" }, "More");
  button.addEventListener("click", async () => {
    button.disabled = true;
    try {
      const page = await get(`/api/v1/provenance/${encodeURIComponent(row)}`, { ...context.viewer, limit: PAGE, cursor: next }, { signal: context.signal });
      add(page);
      next = page.next_cursor;
      button.disabled = false;
      if (!next) button.remove();
    } catch (error) {
      if (error.name !== "AbortError") button.replaceWith(errorBox(error));
    }
  });
  return h("p", {}, button);
}

/** The topic, the tree above it and the graph that rest on an event. */
export function showDerived(provenance, event, context) {
  const place = h("div.column");
  const load = async () => {
    const [found, chains] = await Promise.all([provenance, event.session_id && event.type !== "statement" ? new TopicMarks(context).read(event) : new Map()]);
    return { found, chain: chains.get(event.event_id) };
  };
  loadInto(place, load, ({ found, chain }) => [showChain(found, chain, context), showTree(found, context), showGraph(found.graph, context)]);
  return card("Made of it", place);
}

function showChain(found, chain, context) {
  const [version] = found.chains;
  if (!version) return h("div", {}, h("h3", {}, "Topic"), h("p.quiet", {}, "In no topic yet: one is made three events after the conversation moved on, or after 30 minutes of silence."));
  return h(
    "div",
    {},
    h("h3", {}, "Topic"),
    h("p", {}, h("a", { href: context.link("event", { row: version.chain_id }) }, chain?.topic ? stored(chain.topic) : format.shortId(version.chain_id)), h("span.quiet", {}, ` · ${format.plural(version.event_count, "event")}, version ${version.version}`), chain?.rejected && [" ", badge("rejected", "warn")]),
    chain && h("p.quiet", {}, stored(chain.summary)),
  );
}

function showTree(found, context) {
  if (!found.topics.length) return h("div", {}, h("h3", {}, "Tree of topics"), h("p.quiet", {}, "Not in the tree yet: it is built 15 minutes after a topic closed, or once 20 wait."));
  return h("div", {}, h("h3", {}, `Tree of topics, snapshot ${found.snapshot_version}`), h("ol.tree-path", {}, found.topics.map((it) => h("li", {}, h("a", { href: context.link("event", { row: it.slot }) }, it.kind === "leaf" ? "leaf" : "branch", " ", format.shortId(it.slot))))));
}

function showGraph(items, context) {
  if (!items.length) return h("div", {}, h("h3", {}, "Graph"), h("p.quiet", {}, "No fact or entity rests on it. What a caller states is there at once; of a warm topic half an hour after its last change."));
  const nodes = items.filter((it) => it.kind === "node");
  const edges = items.filter((it) => it.kind !== "node");
  return h("div", {}, h("h3", {}, "Graph"), h("ul.links", {}, nodes.map((it, i) => linkNode(it, context, i < TEXTS))), edges.length > 0 && h("p.quiet", {}, `and ${format.plural(edges.length, "edge")}: `, edges.slice(0, TEXTS).map((it, i) => [i ? ", " : "", h("a", { href: context.link("event", { row: it.id }) }, stored(it.type))])));
}

function linkNode(item, context, isRead) {
  const name = h("span", {}, format.shortId(item.id, 12));
  if (isRead) {
    get(`/api/v1/graph/nodes/${encodeURIComponent(item.id)}`, context.viewer, { signal: context.signal }).then(
      (it) => replace(name, stored((it.name ?? it.properties?.content ?? item.id).slice(0, 160))),
      (error) => error.name !== "AbortError" && replace(name, stored(error.message)),
    );
  }
  return h("li", {}, badge(item.type), " ", h("a", { href: context.link("event", { row: item.id }) }, name));
}

// from above --------------------------------------------------------------------------------------

const KINDS = { chain: "Topic (a chain)", topic: "Topic of the tree", snapshot: "Snapshot", node: "Node of the graph", graph_edge: "Edge of the graph" };

/** Any row that is no event: what it is derived from. */
export async function showRow(root, row, context) {
  const place = h("div.screen", {}, loading());
  root.append(place);
  try {
    const found = await get(`/api/v1/provenance/${encodeURIComponent(row)}`, { ...context.viewer, limit: PAGE }, { signal: context.signal });
    if (found.kind === "event") context.update({ row: "", id: found.id });
    else replace(place, describeRow(found, row, context));
  } catch (error) {
    if (error.name !== "AbortError") replace(place, errorBox(error));
  }
}

function describeRow(found, row, context) {
  const list = h("ul.links", {}, found.events.map((it, i) => linkEvent(it.event_id, null, context, i < TEXTS)));
  const add = (page) => list.append(...page.events.map((it) => linkEvent(it.event_id, null, context, false)));
  return [
    card(
      KINDS[found.kind] ?? found.kind,
      pairs([
        ["Id", h("code.break", {}, found.id)],
        found.scope_id && ["Scope", h("a", { href: context.link("people", { scope: found.scope_id }) }, format.shortId(found.scope_id))],
        found.snapshot_version && ["Snapshot", `version ${found.snapshot_version}`],
        found.chains.length > 0 && ["Versions", h("ol.plain", {}, found.chains.map((it) => h("li", { value: it.version }, `${format.plural(it.event_count, "event")}, seq ${format.count(it.first_seq)} to ${format.count(it.last_seq)}`, it.is_current && [" ", badge("current", "accent")])))],
        found.topics.length > 1 && ["Up to the root", h("ol.tree-path", {}, found.topics.map((it) => h("li", {}, h("a", { href: context.link("event", { row: it.slot }) }, format.shortId(it.slot)))))],
        found.scopes.length > 0 && ["Scopes", h("ul.plain", {}, found.scopes.map((it) => h("li", {}, format.participants(it.participants), ` ${format.plural(it.leaf_count, "topic")}`)))],
      ]),
    ),
    found.graph.length > 0 && card("Made of it", showGraph(found.graph, context)),
    card("The events below it", found.events.length ? [list, makeMore(found.next_cursor, row, context, add)] : emptyState("None that you may see.", "What it rests on may have been erased, or be out of view.")),
  ].filter(Boolean);
}
