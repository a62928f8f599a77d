// What a change of the graph is stored as: a statement of somebody, among the exact participants of
// its scope.

import { get, postRead } from "./api.js";
import { makeOnce, select } from "./changes.js";
import { h, stored } from "./dom.js";
import { participant, time } from "./formats.js";
import { session } from "./session.js";

const GRAPH = "/api/v1/graph";

/** Events by id, those that the caller may see; a text says why one is not there. */
export async function readEvents(context, ids) {
  return Promise.all(
    ids.map(async (id) => {
      try {
        return await get(`/api/v1/events/${id}`, context.viewer, { signal: context.signal });
      } catch (error) {
        if (![404, 410].includes(error.status)) throw error;
        return { event_id: id, missing: error.status === 410 ? "This event was erased." : "This event is not in view." };
      }
    }),
  );
}

/** What somebody said, with a link to the event. */
export function quote(context, event) {
  const link = h("a", { href: context.link("event", { id: event.event_id }) }, "event");
  if (event.missing) return h("blockquote", {}, h("p.quiet", {}, event.missing, " ", link));
  const text = event.content ?? (event.name ? `[${event.name}]` : "[a payload]");
  return h("blockquote", {}, h("p", {}, stored(text.length > 600 ? `${text.slice(0, 600)}…` : text)), h("p.quiet.small", {}, event.speaker ? participant(event.speaker) : event.role, ", ", time(event.occurred_at ?? event.recorded_at), " · trust ", event.origin, " · ", link));
}

/** A node's members, each with the participants of its scope, as a change needs them. */
export async function findScopes(context, history) {
  const sources = new Map();
  for (const one of history.observations) if (!sources.has(one.member) && one.event_ids.length) sources.set(one.member, one.event_ids[0]);
  const events = await readEvents(context, [...sources.values()]);
  return [...sources.keys()].map((member, i) => ({ member, participants: events[i].participants })).filter((it) => it.participants);
}

/** The same by a node's id, with its history. */
export async function readScopes(context, nodeId) {
  const history = await get(`${GRAPH}/nodes/${encodeURIComponent(nodeId)}/history`, { ...context.viewer, limit: 100 }, { signal: context.signal });
  return { history, scopes: await findScopes(context, history) };
}

/** What stands below the choice of who states it. */
export const STATED = "Whose statement it is. The event also records this key as its writer.";

/** Who states a change: one of the participants. The person chooses, so that nobody's words become
 * another's by a default; a bound user's own statement is the exception. */
export function makeSpeakerField(participants) {
  const mine = session.caller.user;
  const may = mine ? participants.filter((it) => it === mine || it.startsWith("agent:")) : participants;
  return select("speaker", [["", "choose who states it"], ...may.map((it) => [it, it])], mine ?? "", { required: true });
}

/** The edges of a fact as it held at a moment (null: now), as a new fact of the same scope takes
 * them: an edge stays within one scope, so of a node of several scopes that scope's member is its end. */
async function readRelationships(context, factId, participants, asOf) {
  const body = { node_id: factId, traversal: "neighbours", hops: 1, min_confidence: 0, limit: 20, ...(asOf && { as_of: asOf }) };
  const answer = await postRead(`${GRAPH}/traverse`, body, context.viewer, { signal: context.signal });
  const edges = answer.edges.filter((it) => ["fact_entity", "fact_topic"].includes(it.type) && it.from_id === answer.nodes[0].id);
  const found = [];
  for (const edge of edges) {
    const node = answer.nodes.find((it) => it.id === edge.to_id);
    const target = node?.members.length > 1 ? await findMember(context, node.id, participants) : node?.id;
    if (target) found.push({ edge: edge.type, target });
  }
  return found;
}

async function findMember(context, nodeId, participants) {
  const { scopes } = await readScopes(context, nodeId);
  return scopes.find((it) => it.participants.join() === participants.join())?.member;
}

/** A call that states a fact, with the edges that another one has or had. `replaces` is the fact that
 * ends with it, for `reason`; `validFrom` is since when the one holds and the other does not (null:
 * now). Gives {id, event_id, scope_id}. */
export async function stateFact(context, { participants, speaker, content, category, like, asOf = null, replaces = null, reason = "", validFrom = null }) {
  const relationships = await readRelationships(context, like, participants, asOf);
  const node = { type: "fact", content, category, ref: "fact", relationships, ...(validFrom && { valid_from: validFrom }), ...(replaces && { invalidates: replaces, reason }) };
  const answer = await makeOnce("POST", `${GRAPH}/nodes`, { participants, speaker, nodes: [node] })();
  return { ...answer.nodes[0], scope_id: answer.scope_id };
}

/** A call that ends a fact, from `validFrom` on (null: now). */
export const endFact = (id, { participants, speaker, reason, validFrom = null }) => makeOnce("POST", `${GRAPH}/nodes/${encodeURIComponent(id)}/invalidate`, { participants, speaker, reason, ...(validFrom && { valid_from: validFrom }) });
export const mergeNodes = (body) => makeOnce("POST", `${GRAPH}/merges`, body);
export const refuseMerge = (body) => makeOnce("POST", `${GRAPH}/merges/refusals`, body);
export const undoMerge = (id, body) => makeOnce("POST", `${GRAPH}/merges/${id}/undo`, body);
