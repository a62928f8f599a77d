// What a person judges: facts that contradict each other, and nodes that may be the same.

import { get, postRead } from "./api.js";
import { askAndDo, whereAllowed } from "./changes.js";
import { h, replace, stored } from "./dom.js";
import { participant, participants as showParticipants, plural, time } from "./formats.js";
import { undoMergeForm } from "./graph_node.js";
import { STATED, endFact, makeSpeakerField, mergeNodes, quote, readEvents, readScopes, refuseMerge } from "./statements.js";
import { badge, card, emptyState, errorBox, field, loading, loadInto, pairs } from "./ui.js";

const GRAPH = "/api/v1/graph";

/** Facts that contradict each other, both sides with their sources. */
export function showContradictions(root, context) {
  const list = h("div.stack", { "aria-live": "polite" });
  const { node } = context.state;
  if (node) root.append(h("p", {}, "Of one fact. ", h("a", { href: context.link("graph", { view: "contradictions" }) }, "All contradictions")));
  root.append(list);
  const load = () => loadInto(list, () => postRead(`${GRAPH}/conflicts`, { limit: 50, ...(node && { node_id: node }) }, context.viewer, { signal: context.signal }), (it) => describeConflicts(context, it, load));
  load();
}

function describeConflicts(context, answer, reload) {
  const limits = { no_model: "Only the deterministic test was run: no language model is configured.", facts_cut: "More than 500 facts: those that changed last were compared.", pairs_cut: "More than 200 pairs are alike: the most similar were tested.", model_cut: "The model tested the ten most similar pairs.", model_failed: "The model gave no usable answer for a pair.", cut_by_limit: "There are more contradictions than are shown.", no_query_vector: "The fact has no vector yet, so nothing was compared." };
  const notes = answer.degraded.map((it) => limits[it] ?? it);
  return [
    h("p.quiet", {}, `${plural(answer.compared, "pair")} of facts ${answer.compared === 1 ? "is" : "are"} alike enough to be tested (cosine of ${answer.threshold.toFixed(2)} or more). `, notes.join(" ")),
    answer.conflicts.length ? answer.conflicts.map((it) => showPair(context, it, "Contradiction", reload)) : emptyState("No contradiction was found.", "Two facts that hold and are alike are tested here; where one says what the other rules out, both appear with their sources."),
    answer.candidates.length ? h("details", {}, h("summary", {}, `${plural(answer.candidates.length, "pair")} that nothing has judged: look yourself`), h("div.stack", {}, answer.candidates.map((it) => showPair(context, it, "Alike", reload)))) : null,
  ];
}

function showPair(context, conflict, title, reload) {
  const verdicts = conflict.tests.map((it) => [badge(`${it.test}: ${it.contradicts ? "contradicts" : "no contradiction"}`, it.contradicts ? "bad" : ""), it.reason ? [" ", h("span.quiet.small", {}, stored(it.reason))] : "", " "]);
  return card([title, h("span.quiet.small", {}, ` similarity ${conflict.similarity.toFixed(2)}`)], h("p", {}, verdicts), h("div.columns", {}, conflict.facts.map((fact, i) => showSide(context, fact, conflict.facts[1 - i], reload))), h("p.hint", {}, "If “", stored(conflict.facts[0].content), "”, the newer one, holds, end the other one with a reason; if not, the other way round."));
}

function showSide(context, fact, other, reload) {
  const sources = h("div.stack");
  const change = h("div.stack");
  if (fact.id) loadSide(context, fact, other, { sources, change, reload });
  return h("section.side.stack", {}, h("p.node-name", {}, fact.id ? h("a", { href: context.link("graph", { node: fact.id }) }, stored(fact.content)) : stored(fact.content)), fact.id ? pairs([["Since", time(fact.valid_from)], ["Confidence", fact.confidence?.toFixed(2)], ["Trust", fact.trust]]) : null, sources, change);
}

async function loadSide(context, fact, other, { sources, change, reload }) {
  replace(sources, loading("Loading its sources …"));
  try {
    const { history, scopes } = await readScopes(context, fact.id);
    const ids = [...new Set(history.observations.flatMap((it) => it.event_ids))].slice(0, 4);
    replace(sources, (await readEvents(context, ids)).map((it) => quote(context, it)));
    replace(change, whereAllowed("write", "Ending one of them", () => h("div.stack", {}, scopes.map((scope) => endForm(context, fact, other, scope, reload)))));
  } catch (error) {
    if (error.name !== "AbortError") replace(sources, errorBox(error, () => loadSide(context, fact, other, { sources, change, reload })));
  }
}

function endForm(context, fact, other, { member, participants }, reload) {
  const reason = h("input", { type: "text", name: "reason", required: true, maxlength: 1000, autocomplete: "off" });
  const speaker = makeSpeakerField(participants);
  const status = h("div", { "aria-live": "polite" });
  const form = h("form.stack", {}, field("Why this one is no longer so", reason), field("Stated by", speaker, STATED), h("p.buttons", {}, h("button.danger", { type: "submit" }, "End this one …")), status);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const said = { participants, speaker: speaker.value, reason: reason.value.trim() };
    const isDone = await askAndDo({ title: "End this fact?", sentences: [["“", stored(fact.content), "” is no longer so, because: ", stored(said.reason)], ["“", stored(other.content), "” still holds. A statement of ", participant(said.speaker), " is stored; it can be taken back at the fact."]], action: "End it", status, run: endFact(member, said), show: () => h("p", {}, "Ended. ", h("a", { href: context.link("graph", { node: member }) }, "Take it back at the fact")) });
    if (isDone) reload();
  });
  return form;
}

/** Nodes that may be the same: accept or refuse. */
export function showMerges(root, context) {
  const list = h("div.stack", { "aria-live": "polite" });
  root.append(list);
  loadInto(list, () => get(`${GRAPH}/merges/proposals`, { ...context.viewer, limit: 100 }, { signal: context.signal }), (it) => describeProposals(context, it));
}

function describeProposals(context, answer) {
  const about = h("p.quiet", {}, `${plural(answer.compared, "node")} compared${answer.complete ? "" : ", the newest of each scope and type: not all"}. A merge is stated, never made by itself.`);
  if (!answer.proposals.length) return [about, emptyState("No merge is proposed.", "Two nodes of one kind and scope whose names or meanings are near appear here: accept that they are the same, or refuse, and they are proposed no more.")];
  return [about, h("div.stack", {}, answer.proposals.map((it) => showProposal(context, it)))];
}

function showProposal(context, it) {
  const reason = h("input", { type: "text", name: "reason", maxlength: 1000, autocomplete: "off" });
  const speaker = makeSpeakerField(it.participants);
  const body = h("div.stack");
  const status = h("div", { "aria-live": "polite" });
  const decide = async (isSame) => {
    if (!speaker.reportValidity()) return;
    const said = { participants: it.participants, speaker: speaker.value, from_id: it.from_id, into_id: it.into_id, ...(reason.value.trim() && { reason: reason.value.trim() }) };
    const names = ["“", stored(it.from_name), "” and “", stored(it.into_name), "”"];
    await askAndDo({
      title: isSame ? "Merge these two?" : "Refuse this merge?",
      sentences: [[names, isSame ? " are the same: the first, and all that was merged into it, is read as the second." : " are not the same: it is proposed no more to merge them."], ["A statement of ", participant(said.speaker), isSame ? " is stored; the merge can be undone." : " is stored; they can still be merged."]],
      action: isSame ? "Merge" : "Refuse",
      status,
      run: (isSame ? mergeNodes : refuseMerge)(said),
      show: (answer) => {
        body.remove();
        return isSame ? h("div.stack", {}, h("p", {}, "Merged. ", h("a", { href: context.link("graph", { node: it.into_id }) }, stored(it.into_name))), undoMergeForm(context, answer.merge_id, it.participants, () => replace(status, h("p", {}, "The merge was undone.")))) : h("p", {}, "Refused: it is proposed no more.");
      },
    });
  };
  replace(body, whereAllowed("write", "Accepting or refusing", () => h("div.stack", {}, h("div.inline-fields", {}, field("Reason (may be empty)", reason), field("Stated by", speaker, STATED)), h("p.buttons", {}, h("button.main", { type: "button", onclick: () => decide(true) }, "Accept: the same …"), h("button", { type: "button", onclick: () => decide(false) }, "Refuse: two …")))));
  const link = (id, name) => h("a", { href: context.link("graph", { node: id }) }, stored(name));
  return card([link(it.from_id, it.from_name), " → ", link(it.into_id, it.into_name)], h("p.quiet.small", {}, `names ${Math.round(it.similarity * 100)} % alike`, it.cosine === null ? "" : `, meanings ${Math.round(it.cosine * 100)} %`, " · among ", showParticipants(it.participants)), body, status);
}
