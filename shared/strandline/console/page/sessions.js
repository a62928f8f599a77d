// Sessions as people tell them apart: the first words, the day, and how many events.

import { get } from "./api.js";
import { h, stored } from "./dom.js";
import { count, day, participants, plural } from "./formats.js";

const PAGE = 100;
const NEWEST = 500;
const WORDS = 90;

/** Loads pages of sessions for a list; each session gets `seen`: what the newest 500 events in view,
 * which are read once, have of it. */
export function makeSessionLoader(context) {
  let newest = null;
  return async (cursor) => {
    newest ??= readNewestEvents(context);
    const [page, seen] = await Promise.all([get("/api/v1/sessions", { ...context.viewer, limit: PAGE, cursor }, { signal: context.signal }), newest]);
    return { items: page.sessions.map((it) => ({ ...it, seen: seen.get(makeKey(it)) })), next: page.next_cursor };
  };
}

const makeKey = (it) => JSON.stringify([it.scope_id, it.session_id]);

async function readNewestEvents(context) {
  const page = await get("/memories/list", { ...context.viewer, limit: NEWEST }, { signal: context.signal });
  const found = new Map();
  for (const event of page.events) {
    if (!event.session_id) continue;
    const one = found.get(makeKey(event)) ?? { events: 0, isWhole: !page.next_cursor };
    one.events += 1;
    one.first = !one.first || event.seq < one.first.seq ? event : one.first;
    found.set(makeKey(event), one);
  }
  return found;
}

/** What a session's row says below its name. */
export function showSessionFacts({ seen, participants: names, created_at: created }) {
  if (!seen) return h("span.session-facts.quiet.small", {}, `stored ${day(created)} · `, participants(names));
  const { first, events, isWhole } = seen;
  const text = (first.content ?? "[a payload]").slice(0, WORDS);
  const amount = isWhole ? plural(events, "event") : `${count(events)} or more events`;
  return [h("span.session-facts.small", {}, isWhole ? "" : "… ", "“", stored(text), "”"), h("span.session-facts.quiet.small", {}, `${day(first.occurred_at ?? first.recorded_at)} · ${amount} · `, participants(names))];
}
