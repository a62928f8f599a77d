// Graph: the nodes around one, now or as they were known then; contradictions; proposed merges.

import { get, postRead } from "./api.js";
import { select } from "./changes.js";
import { h, plain, replace, stored } from "./dom.js";
import { count, day, plural, time } from "./formats.js";
import { drawGraph, KINDS, makeLegend } from "./graph_drawing.js";
import { makeNodeCard } from "./graph_node.js";
import { showContradictions, showMerges } from "./graph_reviews.js";
import { virtualList } from "./lists.js";
import { badge, card, emptyState, errorBox, field, loading, tabs } from "./ui.js";

export const screen = { name: "graph", title: "Graph", letter: "n", right: "read", needsViewer: true, show };

const MOST_DRAWN = 300;
const MOST_READ = 500;
const SLIDER_STEPS = 1000;
const GRAPH = "/api/v1/graph";
const VIEWS = [
  ["", "Around a node"],
  ["contradictions", "Contradictions"],
  ["merges", "Proposed merges"],
];

function show(root, context) {
  const { state } = context;
  const view = VIEWS.some(([it]) => it === state.view) ? state.view : "";
  root.append(tabs("Of the graph", VIEWS.map(([name, title]) => [context.link("graph", { view: name }), title, name === view])));
  if (view === "contradictions") return showContradictions(root, context);
  if (view === "merges") return showMerges(root, context);
  return showAround(root, context);
}

async function showAround(root, context) {
  const { state } = context;
  const options = { signal: context.signal };
  const body = h("div.stack", { "aria-live": "polite" }, loading());
  root.append(body);
  const [status, oldest] = await Promise.all([get(`${GRAPH}/status`, context.viewer, options), get(`${GRAPH}/nodes`, { ...context.viewer, sort: "created_at", order: "asc", limit: 1, archived: "true", valid_only: "false" }, options)]);
  if (!oldest.nodes.length) {
    replace(body, emptyState("The graph is empty for whom you read.", "A node appears when something is stated to the graph, or once a topic is warm enough to be promoted: that happens every 30 minutes.", status.health.chains_due ? `${plural(status.health.chains_due, "topic")} wait for it now.` : ""));
    return;
  }
  const total = Object.values(status.nodes).reduce((sum, it) => sum + it.current, 0);
  const middle = state.node || (await findHeaviest(context));
  const tools = h("div.graph-bar", {}, makeSearch(context), makeSteps(context));
  const slider = makeSlider(context, oldest.nodes[0].created_at);
  const drawing = h("div.stack");
  const list = h("div");
  const refresh = (id) => (id && id !== state.node ? context.go("graph", { node: id }) : context.update({}));
  const node = makeNodeCard(context, refresh);
  replace(body, tools, slider, h("div.columns.wide-left.graph-columns", {}, h("section.card", { "aria-label": "Drawing" }, drawing), node.element), card("Nodes that were found around it", list), card("All nodes in view", listAllNodes(context)));
  if (!middle) {
    replace(drawing, emptyState("Nothing held then.", "Move the slider to a later time."));
    replace(list, h("p.quiet", {}, "None."));
    return;
  }
  await loadAround(context, middle, { drawing, list, node, total });
}

async function findHeaviest(context) {
  const asOf = context.state.as_of ? { as_of: context.state.as_of } : {};
  for (const type of ["entity", ""]) {
    const page = await get(`${GRAPH}/nodes`, { ...context.viewer, ...asOf, type, sort: "weight", limit: 1 }, { signal: context.signal });
    if (page.nodes.length) return page.nodes[0].id;
  }
  return "";
}

// controls ----------------------------------------------------------------------------------------

function makeSearch(context) {
  const text = h("input", { type: "search", name: "q", value: context.state.q ?? "", placeholder: "a name or a question", autocomplete: "off" });
  const results = h("div.search-results", { "aria-live": "polite" });
  const form = h("form.inline-form", { role: "search" }, field("Find a node", h("div.inline-form", {}, text, h("button", { type: "submit" }, "Find"))));
  const find = async () => {
    replace(results, loading("Searching …"));
    try {
      const body = { query: text.value.trim(), limit: 20, archived: true, ...(context.state.as_of && { as_of: context.state.as_of }) };
      // Whose text holds the words comes first: a name that is typed whole is meant.
      const answers = await Promise.all(["exact", "semantic"].map((mode) => postRead(`${GRAPH}/search`, { ...body, mode }, context.viewer, { signal: context.signal })));
      const nodes = [...new Map(answers.flatMap((it) => it.nodes).map((it) => [it.id, it])).values()];
      replace(results, nodes.length ? h("ul.plain", {}, nodes.slice(0, 30).map((it) => h("li", {}, nodeLink(context, it)))) : h("p.quiet", {}, "No node is found by this."));
    } catch (error) {
      if (error.name !== "AbortError") replace(results, errorBox(error, find));
    }
  };
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (!text.value.trim()) return;
    context.note({ q: text.value.trim() });
    find();
  });
  if (context.state.q) find();
  return h("div", {}, form, results);
}

function makeSteps(context) {
  const steps = select("hops", [["1", "one step"], ["2", "two steps"], ["3", "three steps"]], context.state.hops ?? "1");
  steps.addEventListener("change", () => context.update({ hops: steps.value === "1" ? "" : steps.value }));
  const least = select("confidence", [["", "0.5 or more"], ["0", "any"], ["0.8", "0.8 or more"]], context.state.confidence ?? "");
  least.addEventListener("change", () => context.update({ confidence: least.value }));
  return h("div.inline-fields", {}, field("Around it", steps), field("Confidence of edges", least));
}

/** The moment as of which the graph is shown: from the oldest node to now. */
function makeSlider(context, oldest) {
  const [from, to] = [new Date(oldest).getTime(), Date.now()];
  const chosen = context.state.as_of ? new Date(context.state.as_of).getTime() : to;
  const toMoment = (step) => new Date(from + ((to - from) * step) / SLIDER_STEPS).toISOString();
  const place = context.state.as_of ? Math.min(Math.max(Math.round(((chosen - from) / Math.max(to - from, 1)) * SLIDER_STEPS), 0), SLIDER_STEPS - 1) : SLIDER_STEPS;
  const slider = h("input", { type: "range", name: "as_of", min: 0, max: SLIDER_STEPS, step: 1, value: String(place) });
  const label = h("output.as-of", {}, "");
  const tell = () => {
    const isNow = Number(slider.value) === SLIDER_STEPS;
    replace(label, isNow ? "now" : time(toMoment(Number(slider.value))));
    slider.setAttribute("aria-valuetext", label.textContent);
  };
  slider.addEventListener("input", tell);
  slider.addEventListener("change", () => context.update({ as_of: Number(slider.value) === SLIDER_STEPS ? "" : toMoment(Number(slider.value)) }));
  slider.value = String(place);
  tell();
  const now = h("button.quiet-button", { type: "button", onclick: () => context.update({ as_of: "" }), disabled: !context.state.as_of }, "Now");
  return h("div.slider", {}, h("label", {}, h("span.label", {}, "As it was known "), slider), label, now, h("span.quiet.small", {}, day(oldest), " – now"));
}

// the drawing -------------------------------------------------------------------------------------

async function loadAround(context, id, { drawing, list, node, total }) {
  const { state } = context;
  replace(drawing, loading());
  try {
    const confidence = state.confidence ? Number(state.confidence) : 0.5;
    const body = { node_id: id, traversal: "neighbours", hops: Number(state.hops || 1), min_confidence: confidence, limit: MOST_READ, ...(state.as_of && { as_of: state.as_of }) };
    const answer = await postRead(`${GRAPH}/traverse`, body, context.viewer, { signal: context.signal });
    const drawn = answer.nodes.slice(0, MOST_DRAWN).map((it) => ({ ...it }));
    const places = new Map(drawn.map((it, i) => [it.id, i]));
    const edges = answer.edges.filter((it) => places.has(it.from_id) && places.has(it.to_id)).map((it) => ({ ...it, from: places.get(it.from_id), to: places.get(it.to_id) }));
    const edgesOf = (one) => edges.filter((it) => it.from_id === one.id || it.to_id === one.id).map((it) => ({ ...it, isFrom: it.from_id === one.id, other: drawn[it.from_id === one.id ? it.to : it.from] }));
    const { element } = drawGraph(drawn, edges, { onPick: (one) => node.show(one.id, edgesOf(one)), onOpen: (one) => context.update({ node: one.id }) });
    replace(drawing, makeLegend(drawn), element, describeCounts(answer, drawn, edges, total, state));
    replace(list, listFound(context, answer, drawn));
    node.show(id, edgesOf(drawn[0]));
  } catch (error) {
    if (error.name === "AbortError") return;
    replace(drawing, errorBox(error, () => loadAround(context, id, { drawing, list, node, total })));
  }
}

function describeCounts(answer, drawn, edges, total, state) {
  const steps = { 1: "one step", 2: "two steps", 3: "three steps" }[state.hops || 1];
  const isCut = answer.degraded.includes("cut_by_limit");
  const rest = answer.nodes.length - drawn.length;
  return h("p.quiet.small.counts", { role: "status" }, `Drawn: ${plural(drawn.length, "node")} and ${plural(edges.length, "edge")}, the nearest and heaviest within ${steps}. `, rest || isCut ? `Not drawn: ${isCut ? "at least " : ""}${count(Math.max(rest, isCut ? 1 : 0))} more within ${steps}. ` : "", `In view are ${count(total)} nodes that hold now, counted in each scope; the list below joins those of one name.`);
}

/** On a narrow window a name has two lines. */
function chooseRowHeight() {
  return matchMedia("(max-width: 600px)").matches ? 72 : 44;
}

function nodeLink(context, it) {
  return [h("a", { href: context.link("graph", { ...context.state, node: it.id, q: "" }) }, stored(it.name)), " ", badge((KINDS[it.type] ?? KINDS.entity).title.toLowerCase()), it.valid_to ? [" ", badge(it.valid_to === it.valid_from ? "never so" : "no longer so", "warn")] : ""];
}

/** The same nodes as in the drawing, and those that were found and not drawn, as a list. */
function listFound(context, answer, drawn) {
  const items = answer.nodes;
  return virtualList({
    label: `The ${items.length} nodes that were found, ${drawn.length} of them drawn`,
    rowHeight: chooseRowHeight(),
    load: () => Promise.resolve({ items, next: null }),
    render: (it, i) => h("div.list-line", {}, h("span.line-main", { title: plain(it.name) }, nodeLink(context, it)), h("span.quiet.small", {}, it.hops === 0 ? "the middle" : plural(it.hops, "step"), i >= MOST_DRAWN ? ", not drawn" : "")),
    empty: () => emptyState("Nothing is around it."),
  }).element;
}

function listAllNodes(context) {
  const { state } = context;
  const type = select("type", [["", "all kinds"], ...Object.entries(KINDS).map(([key, it]) => [key, it.title])], state.type ?? "");
  type.addEventListener("change", () => context.update({ type: type.value }));
  const over = h("input", { type: "checkbox", name: "over", checked: state.over === "1" });
  over.addEventListener("change", () => context.update({ over: over.checked ? "1" : "" }));
  const query = { ...context.viewer, sort: "weight", limit: 100, type: state.type, as_of: state.as_of, ...(state.over === "1" && { valid_only: "false", archived: "true" }) };
  const amount = h("span.quiet.small", { role: "status" });
  const list = virtualList({
    label: "All nodes in view, those of the most observations first",
    rowHeight: chooseRowHeight(),
    load: async (cursor) => {
      const page = await get(`${GRAPH}/nodes`, { ...query, cursor }, { signal: context.signal });
      if (!cursor && !page.next_cursor) amount.textContent = plural(page.nodes.length, "node");
      return { items: page.nodes, next: page.next_cursor };
    },
    render: (it) => h("div.list-line", {}, h("span.line-main", { title: plain(it.name) }, nodeLink(context, it)), h("span.quiet.small", {}, plural(it.weight, "observation"))),
    empty: () => emptyState("No node of this kind is in view."),
  });
  return [h("div.inline-fields", {}, field("Kind", type), h("label.choice", {}, over, h("span", {}, "Also what ended or was archived")), amount), list.element];
}
