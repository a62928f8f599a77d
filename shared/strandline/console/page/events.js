// An event as people read it, in a conversation and among hits.

import { h, stored } from "./dom.js";
import * as format from "./formats.js";
import { showPayload } from "./payloads.js";
import { badge } from "./ui.js";

const LONG = 1600;
const TRUST = {
  user: "said by a person",
  agent: "said by an agent",
  tool: "a tool's output: less trusted than what people and agents say",
  document: "from a document: the least trusted",
  system: "from the system: the most trusted",
};

/** A text, cut where it is long, with a button for all of it. */
export function showText(text, { classes = "text", long = LONG } = {}) {
  const value = String(text ?? "");
  if (value.length <= long) return stored(value, classes);
  const place = h("div", {}, stored(`${value.slice(0, long)}…`, classes));
  const more = h("button.quiet-button", { type: "button" }, `Show all ${format.count(value.length)} characters`);
  more.addEventListener("click", () => place.replaceChildren(stored(value, classes)));
  place.append(more);
  return place;
}

/** What an event says: its text, its parts, its payload. */
export function showContent(event, context) {
  return [
    event.content !== null && showText(event.content),
    hasOtherParts(event) && h("ol.parts", {}, event.parts.map((it) => h("li", {}, it.model && h("span.quiet.small", {}, "By ", stored(it.model), ": "), it.content === null ? h("span.quiet", {}, format.plural(it.chars, "character")) : showText(it.content)))),
    event.blob && showPayload(event.blob, context),
  ];
}

/** Whether the parts say more than the text: one part is the same text again. */
function hasOtherParts({ content, parts }) {
  return parts !== null && (parts.length > 1 || content === null);
}

/** How far it is trusted: by whom it was said, unless the speaker's name says that already. */
function showTrust({ origin, speaker }) {
  const isPlain = (speaker ?? "").startsWith(`${origin}:`);
  const isLow = origin === "tool" || origin === "document";
  return h(isPlain ? "span.unseen" : "span", { title: TRUST[origin] ?? "" }, badge(origin, isLow ? "warn" : ""));
}

/** Who speaks, of which type, how far it is trusted, and when. */
export function showEventHead(event, { onlyClock = false, link = null } = {}) {
  const time = format.time(event.occurred_at ?? event.recorded_at, { onlyClock });
  return h(
    "header.event-head",
    {},
    event.speaker ? format.participant(event.speaker) : h("span.participant", {}, event.role),
    event.type !== "message" && badge(event.type),
    showTrust(event),
    event.parts?.length === 1 && event.parts[0].model && h("span.quiet.small", {}, stored(event.parts[0].model)),
    event.channel !== "http" && h("span.quiet.small", {}, "by ", stored(event.channel)),
    h("span.event-time", {}, link ? h("a", { href: link }, time) : time),
  );
}
