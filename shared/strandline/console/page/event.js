// Event: its block and CID, what it cites, and what rests on it, up to topic and graph; of a topic or
// a node the same from above, down to its events.

import { get } from "./api.js";
import { decodeDagCbor, hashesToCid } from "./dag_cbor.js";
import { h, plain, replace, stored } from "./dom.js";
import { showContent, showEventHead } from "./events.js";
import * as format from "./formats.js";
import { showCiting, showCited, showDerived, showRow } from "./provenance.js";
import { hasRight } from "./session.js";
import { badge, card, copyButton, emptyState, errorBox, field, loadInto, pairs } from "./ui.js";

export const screen = { name: "event", title: "Event", letter: "e", right: "read", needsViewer: true, show };

function show(root, context) {
  const { state } = context;
  root.append(makeSearch(context));
  if (state.row) return showRow(root, state.row, context);
  if (!state.id && !state.cid) {
    root.append(emptyState("Name an event.", "Its id or its CID; hits, citations and messages lead here by themselves. The id of a topic, a node or an edge of the graph shows what that rests on."));
    return undefined;
  }
  const place = h("div.screen");
  root.append(place);
  const path = state.id ? `/api/v1/events/${encodeURIComponent(state.id)}` : `/memory/${encodeURIComponent(state.cid)}`;
  return loadInto(place, () => get(path, context.viewer, { signal: context.signal }), (event) => showEvent(event, context));
}

function makeSearch(context) {
  const { state } = context;
  const input = h("input", { type: "search", name: "row", value: state.id ?? state.cid ?? state.row ?? "", placeholder: "of an event, topic, node or edge", spellcheck: "false", autocomplete: "off" });
  const form = h("form.search-form", { role: "search" }, field("Id or CID", input), h("button", { type: "submit" }, "Show"));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const text = input.value.trim();
    if (/^b[a-z2-7]{58}$/.test(text)) context.go("event", { cid: text });
    else if (text) context.go("event", await findKind(text, context));
  });
  return form;
}

/** Whether an id is an event's or another row's: provenance knows. */
async function findKind(id, context) {
  if (id.includes(":")) return { row: id };
  try {
    const found = await get(`/api/v1/provenance/${encodeURIComponent(id)}`, { ...context.viewer, limit: 1 }, { signal: context.signal });
    return found.kind === "event" ? { id } : { row: id };
  } catch (error) {
    if (error.name === "AbortError") throw error;
    return { id }; // then the event's own answer says what is wrong
  }
}

function showEvent(event, context) {
  const provenance = get(`/api/v1/provenance/${event.event_id}`, { ...context.viewer, limit: 50 }, { signal: context.signal });
  provenance.catch(() => {}); // each place that waits for it shows the error
  return [
    h("section.card.event-card", {}, showEventHead(event), h("div.event-body", {}, showContent(event, context)), h("p.buttons", {}, event.type === "statement" && linkFacts(provenance, context), h("a", { href: context.link("people", { scope: event.scope_id, seq: event.seq }) }, "In its conversation"), event.session_id && h("a", { href: context.link("people", { scope: event.scope_id, session: event.session_id, seq: event.seq, tab: "sessions" }) }, "In its session"), hasRight("erase") && h("a", { href: context.link("forgetting", { kind: "events", events: event.event_id }) }, "Forget it"))),
    h("div.flow", {}, showCited(event, context), h("div.flow-middle", { "aria-hidden": "true" }, h("span", {}, "cites"), h("span.flow-arrow", {}, "←"), h("strong", {}, "this event"), h("span.flow-arrow", {}, "→"), h("span", {}, "rests on it")), h("div.flow-side", {}, showCiting(provenance, event, context), showDerived(provenance, event, context))),
    h("div.event-facts-grid", {}, showDetails(event, provenance, context), showBlock(event, context)),
  ];
}

/** Links to the facts that a statement states, where they are corrected; nothing where it states none. */
function linkFacts(provenance, context) {
  const place = h("span", { hidden: true });
  const show = ({ graph }) => {
    const facts = graph.filter((it) => it.kind === "node" && it.type === "fact");
    place.hidden = !facts.length;
    replace(place, facts.map((it, i) => h("a", { href: context.link("graph", { node: it.id }) }, facts.length > 1 ? `Correct fact ${i + 1} ` : "Correct this fact")));
  };
  provenance.then(show, () => {}); // what is made of it says the error
  return place;
}

function showDetails(event, provenance, context) {
  const vectors = h("span", {}, "…");
  provenance.then(
    (it) => replace(vectors, it.vectors.length ? it.vectors.map((one) => h("p", {}, stored(one.space), one.is_refused ? " (the model refused the text)" : "", " ", format.time(one.embedded_at))) : "none yet: it is found by its words"),
    (error) => error.name !== "AbortError" && replace(vectors, errorBox(error)),
  );
  return card(
    "Details",
    pairs([
      ["Event", h("code.break", {}, event.event_id)],
      ["Participants", format.participants(event.participants)],
      ["Scope", h("a", { href: context.link("people", { scope: event.scope_id }) }, format.shortId(event.scope_id)), `, seq ${format.count(event.seq)}`],
      event.session_id && ["Session", stored(event.session_id)],
      ["Happened", event.occurred_at ? format.time(event.occurred_at) : h("span.quiet", {}, "not stated")],
      ["Stored", format.time(event.recorded_at)],
      ["Role, type", `${event.role}, ${event.type}`],
      ["Trust", badge(event.origin)],
      ["Channel", stored(event.channel)],
      event.source_event_key && ["Its own key", stored(event.source_event_key)],
      event.name && ["Name", stored(event.name)],
      event.mime_type && ["Media type", stored(event.mime_type)],
      event.stop_reason && ["Stop reason", event.stop_reason],
      Object.keys(event.metadata).length > 0 && ["Metadata", stored(JSON.stringify(event.metadata, null, 2), "text mono")],
      ["Vectors", vectors],
    ]),
  );
}

/** The block as it is stored, checked here: the browser hashes it and compares with the CID. */
function showBlock(event, context) {
  const place = h("div.column");
  const load = async () => {
    const bytes = new Uint8Array(await get(`/ipfs/${event.cid}`, { ...context.viewer, format: "raw" }, { signal: context.signal, as: "arrayBuffer" }));
    return { bytes, isRight: await hashesToCid(bytes, event.cid) };
  };
  if (event.cid) loadInto(place, load, (it) => showBytes(it));
  else place.append(h("p.quiet", {}, "It has no block: an earlier release stored it."));
  return card("Block", event.cid && h("p.row", {}, h("code.break", { title: plain(event.cid) }, event.cid), copyButton("Copy", () => event.cid)), place);
}

function showBytes({ bytes, isRight }) {
  const verdict = { true: badge("hashes to its CID", "good"), false: badge("does not hash to its CID", "bad"), null: badge("not checked: this page needs HTTPS for it", "warn") }[isRight];
  const text = JSON.stringify(decodeDagCbor(bytes), (_, value) => (typeof value === "bigint" ? String(value) : value), 2);
  return [h("p", {}, verdict, h("span.quiet", {}, ` ${format.count(bytes.length)} bytes of DAG-CBOR`)), h("div.block", { tabindex: "0", role: "region", "aria-label": "The block" }, stored(text))];
}
