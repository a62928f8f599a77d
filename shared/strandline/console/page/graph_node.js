// One node of the graph: what it says, who said it, and its changes: corrected, ended, taken back.

import { get } from "./api.js";
import { askAndDo, select, whereAllowed } from "./changes.js";
import { h, replace, stored } from "./dom.js";
import { participant, participants as showParticipants, plural, time } from "./formats.js";
import { KINDS } from "./graph_drawing.js";
import { STATED, endFact, findScopes, makeSpeakerField, quote, readEvents, stateFact, undoMerge } from "./statements.js";
import { badge, errorBox, field, loading, pairs } from "./ui.js";

const MOST_SOURCES = 8;
let lastChange = null; // what the person has just changed: said at the node once it is shown again

/** The card of a node: {element, show(node, edges)}. `refresh` is called after a change. */
export function makeNodeCard(context, refresh) {
  const heading = h("h2", {}, "Node");
  const body = h("div.stack");
  const element = h("section.card", { "aria-label": "The chosen node" }, heading, body);
  let shown = 0;
  async function show(id, edges = []) {
    shown += 1;
    const mine = shown;
    replace(body, loading());
    try {
      const asOf = context.state.as_of ? { as_of: context.state.as_of } : {};
      const path = `/api/v1/graph/nodes/${encodeURIComponent(id)}`;
      const options = { signal: context.signal };
      const [node, history] = await Promise.all([get(path, { ...context.viewer, ...asOf }, options), get(`${path}/history`, { ...context.viewer, limit: 100 }, options)]);
      if (mine !== shown) return;
      const said = lastChange;
      lastChange = null;
      heading.textContent = (KINDS[node.type] ?? KINDS.entity).title;
      const changes = h("div");
      replace(body, said && h("p.notice.good", { role: "status" }, said), describe(context, node, history, edges), changes, describeSources(context, history));
      const scopes = await findScopes(context, history);
      replace(changes, node.type === "fact" ? describeFactChanges(context, node, history, scopes, refresh) : [describeMerges(context, history, scopes, refresh), hintAtFacts(context)]);
    } catch (error) {
      if (error.name !== "AbortError" && mine === shown) replace(body, errorBox(error, () => show(id, edges)));
    }
  }
  return { element, show };
}

/** Whether a fact ended at the moment from which it held: so the API says that it was never so. */
const neverHeld = (it) => it.valid_to !== null && it.valid_to === it.valid_from;

function describe(context, node, history, edges) {
  const hidden = new Set(["name", "content", "title"]);
  const rows = Object.entries(node.properties).filter(([name, value]) => value !== null && value !== "" && !hidden.has(name)).map(([name, value]) => [name, stored(Array.isArray(value) ? value.join("; ") : String(value))]);
  return [
    h("p.node-name", {}, stored(node.name)),
    node.valid_to ? h("div.notice.warn", {}, h("p", {}, neverHeld(node) ? "Never so: a later statement says that this was wrong from the first." : ["No longer so since ", time(node.valid_to), "."])) : null,
    h("p.buttons", {}, h("a.button", { href: context.link("graph", { ...context.state, node: node.id, view: "" }) }, "What is around it"), node.type === "fact" ? h("a.button", { href: context.link("graph", { view: "contradictions", node: node.id }) }, "What contradicts it") : null),
    pairs([
      ...rows,
      ["Confidence", node.confidence.toFixed(2), h("span.quiet", {}, `, of ${plural(node.weight, "observation")}`)],
      ["Trust", `${node.trust} `, h("span.quiet", {}, "(the least of its sources)")],
      ["Holds", neverHeld(node) ? "never; stated as of " : "from ", time(node.valid_from), node.valid_to && !neverHeld(node) ? [" to ", time(node.valid_to)] : ""],
      node.archived && ["Archived", "yes: lists leave it out"],
      node.members.length > 1 && ["Joined", `of ${node.members.length} nodes of this name, each of one scope`],
    ]),
    edges.length ? h("details", { open: edges.length <= 12 }, h("summary", {}, plural(edges.length, "edge"), " in the drawing"), h("ul.plain", {}, edges.map((it) => h("li", {}, h("span.quiet", {}, `${it.isFrom ? "" : "← "}${it.type}`, it.label ? [" (", stored(it.label), ")"] : "", it.isFrom ? " → " : " "), h("a", { href: context.link("graph", { ...context.state, node: it.other.id, view: "" }) }, stored(it.other.name)))))) : null,
    history.revisions.length > 1 ? h("section", {}, h("h3", {}, "How it changed"), h("ol.plain", {}, history.revisions.map((it) => h("li", {}, h("a", { href: context.link("graph", { node: it.id, view: "" }), "aria-current": it.id === node.id ? "true" : null }, stored(it.content)), " ", h("span.quiet.small", {}, time(it.valid_from), neverHeld(it) ? ", never so" : it.valid_to ? [" – ", time(it.valid_to)] : ", still"), it.reason ? h("p.quiet.small", {}, "Ended: ", stored(it.reason)) : null)))) : null,
  ];
}

/** Who said it, in their words. */
function describeSources(context, history) {
  const list = h("div.stack");
  const observations = history.observations.filter((it) => it.event_ids.length);
  const load = async (all) => {
    const chosen = all ? observations : observations.slice(0, MOST_SOURCES);
    replace(list, loading());
    try {
      const ids = [...new Set(chosen.flatMap((it) => it.event_ids.slice(0, 2)))];
      const events = new Map((await readEvents(context, ids)).map((it) => [it.event_id, it]));
      replace(
        list,
        chosen.map((it) => h("section.source", {}, h("p.small.quiet", {}, time(it.observed_at), ", ", it.source_kind === "chain" ? "drawn from a topic" : "stated", it.is_evidence ? "" : [" · ", badge("no evidence: upkeep")], it.changes.valid_to ? [" · ", badge("ended it", "warn")] : "", "merged_into" in it.changes ? [" · ", badge(it.changes.merged_into ? "merged" : "merge undone")] : ""), it.event_ids.slice(0, 2).map((id) => quote(context, events.get(id))))),
        chosen.length < observations.length || history.next_cursor ? h("p.buttons", {}, h("button", { type: "button", onclick: () => load(true) }, `All ${observations.length}${history.next_cursor ? " of the first" : ""} sources`)) : null,
      );
    } catch (error) {
      if (error.name !== "AbortError") replace(list, errorBox(error, () => load(all)));
    }
  };
  load(false);
  return h("section.stack", {}, h("h3", {}, "What it rests on"), list);
}

function reasonField(label = "Reason") {
  return h("input", { type: "text", name: "reason", required: true, maxlength: 1000, autocomplete: "off", "aria-label": label });
}

/** The fact's changes, in each scope that has it. */
function describeFactChanges(context, node, history, scopes, refresh) {
  if (context.state.as_of) return h("p.hint", {}, "It is shown as it was known then. Go back to now to change it.");
  const make = () => scopes.map((scope) => (node.valid_to ? undoForm(context, node, history, scope, refresh) : changeForm(context, node, history, scope, refresh)));
  return h("section.stack", {}, h("h3", {}, node.valid_to ? "Take that back" : "Correct or end it"), scopes.length ? whereAllowed("write", node.valid_to ? "Taking it back" : "Correcting", () => h("div.stack", {}, make())) : h("p.hint", {}, "The events that it rests on are not in view, so its participants are not known here."));
}

function changeForm(context, node, history, { member, participants }, refresh) {
  const content = h("textarea", { name: "content", rows: 2, maxlength: 4000, value: node.name });
  const reason = reasonField();
  const how = select("how", [["ended", "is no longer so, from now on"], ["never", "was never so: it was wrong from the first"]], "ended");
  const speaker = makeSpeakerField(participants);
  const status = h("div", { "aria-live": "polite" });
  const form = h("form.stack", {}, h("p.small.quiet", {}, "Among ", showParticipants(participants), ":"), field("What stands here", how), field("What is so instead", content), field("Reason", reason), field("Stated by", speaker, STATED), h("p.buttons", {}, h("button", { type: "submit", value: "correct" }, "Correct …"), h("button.danger", { type: "submit", value: "end" }, "End without another …")), status);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const isEnd = event.submitter?.value === "end";
    const text = content.value.trim();
    if (!isEnd && (!text || text === node.name)) {
      replace(status, h("p.warn", { role: "alert" }, "Write what is so instead, or end the fact without another."));
      return;
    }
    const wasNever = how.value === "never";
    const validFrom = wasNever ? (history.revisions.find((it) => it.id === member) ?? node).valid_from : null;
    const said = { participants, speaker: speaker.value, reason: reason.value.trim(), validFrom };
    const isDone = await askAndDo({
      title: isEnd ? "End this fact?" : "Correct this fact?",
      sentences: [
        ["“", stored(node.name), wasNever ? "” was never so, because: " : "” is no longer so from now on, because: ", stored(said.reason)],
        isEnd ? "Nothing takes its place." : [wasNever ? "What was so instead from the first: “" : "What is so instead: “", stored(text), "”"],
        ["A statement of ", participant(said.speaker), " is stored. The former fact is kept, and shown as of earlier times; this can be taken back."],
      ],
      action: isEnd ? "End it" : "Correct it",
      status,
      run: () => (isEnd ? endFact(member, said)() : stateFact(context, { ...said, content: text, category: node.properties.category, like: member, replaces: member })),
      show: (made) => {
        const link = !isEnd && h("a", { href: context.link("graph", { node: made.id }) }, stored(text));
        lastChange = h("span", {}, isEnd ? "Ended: the statement is stored." : ["Corrected. What is so instead: ", link]);
        return h("p", {}, "Done.");
      },
    });
    if (isDone) refresh(member);
  });
  return form;
}

function undoForm(context, node, history, { member, participants }, refresh) {
  const revision = history.revisions.find((it) => it.id === member);
  if (revision && !revision.valid_to) return null;
  const replacements = revision?.replaced_by ?? [];
  const successors = history.revisions.filter((it) => replacements.includes(it.id) && !it.valid_to);
  const again = history.revisions.find((it) => it.content === node.name && !it.valid_to);
  if (again) return h("p.hint", {}, "It holds again: ", h("a", { href: context.link("graph", { node: again.id }) }, "the fact as it holds now"), ".");
  const reason = reasonField();
  const speaker = makeSpeakerField(participants);
  const status = h("div", { "aria-live": "polite" });
  const form = h("form.stack", {}, field("Reason", reason), field("Stated by", speaker, STATED), h("p.buttons", {}, h("button", { type: "submit" }, "Undo: it holds again …")), status);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const said = { participants, speaker: speaker.value, reason: reason.value.trim() };
    const ending = history.observations.filter((it) => it.changes.valid_to && it.member === member).at(-1);
    const asOf = new Date(new Date(ending?.observed_at ?? node.valid_to) - 1).toISOString();
    let made = null;
    const isDone = await askAndDo({
      title: "State this fact again?",
      sentences: [["“", stored(node.name), "” is stated again from now on, by ", participant(said.speaker), ", because: ", stored(said.reason)], ["It is trusted as that statement is, not as what was said first: ", h("strong", {}, said.speaker.startsWith("user:") ? "user" : "agent"), ". The time in which it had ended stays so."], successors.length ? ["What took its place ends: “", stored(successors[0].content), "”"] : "", "Its history shows both changes."],
      action: "State it again",
      status,
      run: async () => (made = await stateFact(context, { ...said, content: node.name, category: node.properties.category, like: member, asOf, replaces: successors[0]?.id ?? null })),
      show: () => {
        lastChange = "It holds again: the statement is stored.";
        return h("p", {}, "It holds again.");
      },
    });
    if (isDone) refresh(made.id);
  });
  return form;
}

/** Where a change is made, said at what cannot be changed itself. */
function hintAtFacts(context) {
  if (context.state.as_of) return null;
  return whereAllowed("write", "Correcting a fact", () => h("p.hint", {}, "Facts are corrected or ended at the fact itself: choose one in the drawing, or in the list below."));
}

/** The merges that the node's history has, each with its undoing. */
function describeMerges(context, history, scopes, refresh) {
  const merges = history.observations.filter((it) => it.changes.merged_into);
  const undone = history.observations.filter((it) => "merged_into" in it.changes && !it.changes.merged_into);
  if (!merges.length || context.state.as_of) return null;
  const latest = merges.at(-1);
  if (undone.some((it) => it.observed_at > latest.observed_at && it.member === latest.member)) return null;
  const scope = scopes.find((it) => it.member === latest.member) ?? scopes[0];
  if (!scope) return null;
  return h("section.stack", {}, h("h3", {}, "Merged"), whereAllowed("write", "Undoing a merge", () => undoMergeForm(context, latest.source_id, scope.participants, () => refresh(latest.member))));
}

/** A form that undoes a merge. */
export function undoMergeForm(context, mergeId, participants, done) {
  const speaker = makeSpeakerField(participants);
  const status = h("div", { "aria-live": "polite" });
  const undo = async () => {
    if (!speaker.reportValidity()) return;
    const isDone = await askAndDo({ title: "Undo this merge?", sentences: ["The nodes are read as they were before. What was stated since stays.", ["A statement of ", participant(speaker.value), " is stored."]], action: "Undo the merge", status, run: undoMerge(mergeId, { participants, speaker: speaker.value }), show: () => h("p", {}, "Undone.") });
    if (isDone) done();
  };
  return h("div.stack", {}, field("Stated by", speaker, STATED), h("p.buttons", {}, h("button", { type: "button", onclick: undo }, "Undo the merge …")), status);
}
