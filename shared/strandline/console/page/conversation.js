// One conversation: the events of a scope or of a session, older and newer without end, with topics
// and what was erased marked along it.

import { get, postRead } from "./api.js";
import { h, plain, replace, stored } from "./dom.js";
import { showContent, showEventHead } from "./events.js";
import * as format from "./formats.js";
import { slidingFeed } from "./lists.js";
import { hasRight } from "./session.js";
import { TopicMarks } from "./topic_marks.js";
import { badge, emptyState, errorBox, loading } from "./ui.js";

const PAGE = 60;

/** Fill `pane` with the conversation that the state names: `scope`, `session`, and `seq` to stand at. */
export async function showConversation(pane, context) {
  replace(pane, loading("Loading the conversation …"));
  try {
    const scope = await get(`/api/v1/scopes/${encodeURIComponent(context.state.scope)}`, context.viewer, { signal: context.signal });
    const source = context.state.session ? new SessionEvents(context, scope) : new ScopeEvents(context, scope);
    await drawConversation(pane, context, scope, source);
  } catch (error) {
    if (error.name !== "AbortError") replace(pane, errorBox(error, () => showConversation(pane, context)));
  }
}

async function drawConversation(pane, context, scope, source) {
  const isSession = Boolean(context.state.session);
  const marks = new TopicMarks(context);
  const render = (item) => drawRow(item, context, marks, scope);
  const position = h("span.quiet.small", { role: "status" });
  const slider = h("input", { type: "range", min: 1, max: Math.max(scope.last_seq, 1), value: Number(context.state.seq) || scope.last_seq, "aria-label": "Place in the conversation, by seq" });
  const feed = slidingFeed({
    label: "Conversation",
    older: (item) => source.older(item),
    newer: (item) => source.newer(item),
    render,
    onWindow: (item, isLast) => {
      position.textContent = `event ${format.count(item.seq)} of ${isSession ? "its scope's " : ""}${format.count(scope.last_seq)}${isLast ? ", the last" : ""}`;
      if (document.activeElement !== slider) slider.value = item.seq;
    },
  });
  let latest = 0; // a place that was asked for before the last one is not gone to when its answer comes late
  const stand = async (seq) => {
    const mine = (latest += 1);
    const page = await source.around(seq);
    if (mine !== latest) return page;
    feed.reset(page.items, { ...page, at: seq ? (page.items.find((it) => it.seq === seq) ?? "start") : "end" });
    return page;
  };
  const jump = async (seq) => {
    const mine = latest + 1;
    try {
      await stand(seq);
    } catch (error) {
      if (error.name !== "AbortError" && mine === latest) replace(position, errorBox(error));
    }
  };
  slider.addEventListener("change", () => {
    context.note({ seq: slider.value });
    jump(Number(slider.value));
  });
  const button = (label, seq) => h("button", { type: "button", onclick: () => {
    context.note({ seq: seq || "" });
    jump(seq);
  } }, label);
  const chosen = isSession ? { kind: "session", session: context.state.session, scope: scope.scope_id } : { kind: "scope", scope: scope.scope_id };
  const forget = hasRight("erase") && h("a", { href: context.link("forgetting", chosen) }, isSession ? "Forget this session …" : "Forget this whole scope …");
  const amount = h("span", {}, `${format.plural(scope.last_seq, "event")} stored`);
  const head = h(
    "header.conversation-head",
    {},
    h("p.back", {}, h("a", { href: context.link("people", { tab: context.state.tab }) }, "← All conversations")),
    h("h2", {}, isSession ? stored(context.state.session) : format.participants(scope.participants)),
    h("p.quiet.small", {}, isSession ? [format.participants(scope.participants), " · ", h("a", { href: context.link("people", { tab: context.state.tab, scope: scope.scope_id }) }, "the whole scope")] : ["Scope ", format.shortId(scope.scope_id), " · ", amount, " since ", format.time(scope.created_at)], forget && [" · ", forget]),
    h("div.conversation-tools", {}, !isSession && [button("Oldest", 1), slider], button("Newest", 0), position),
  );
  replace(pane, head, feed.element);
  const first = await stand(Number(context.state.seq) || 0);
  if (source.countErased?.()) amount.append(`, ${format.count(source.countErased())} of them erased`);
  if (!first.items.length) replace(feed.element, emptyState("No event is here.", scope.last_seq ? "All of them were erased, or are in other sessions." : "The first event among these participants appears here as soon as it is stored."));
}

function drawRow(item, context, marks, scope) {
  if (item.kind === "gap") {
    const which = item.first === item.last ? `Event ${format.count(item.first)} was erased` : `Events ${format.count(item.first)} to ${format.count(item.last)} were erased`;
    return h("article.event.erased", { tabindex: "-1" }, which, item.at ? [", ", format.time(item.at)] : ".");
  }
  const { event } = item;
  const isMarked = Number(context.state.seq) === event.seq;
  const facts = [
    event.edges.length > 0 && h("span", {}, `cites ${format.plural(event.edges.length, "event")}`),
    event.stop_reason && event.stop_reason !== "endTurn" && badge(event.stop_reason, "warn"),
    Object.keys(event.metadata).length > 0 && h("details.metadata", {}, h("summary", {}, "metadata"), stored(JSON.stringify(event.metadata, null, 2), "text mono")),
  ].filter(Boolean);
  const row = h(
    `article.event.by-${event.role}${isMarked ? ".marked" : ""}`,
    { tabindex: "-1", "aria-label": plain(`${event.speaker ?? event.role}, event ${event.seq}`) },
    item.startsDay && h("p.day", {}, format.day(event.occurred_at ?? event.recorded_at)),
    item.startsSession && !context.state.session && event.session_id && h("p.session-mark", {}, "Session ", h("a", { href: context.link("people", { tab: context.state.tab, scope: scope.scope_id, session: event.session_id }) }, stored(event.session_id)), hasRight("erase") && [" · ", h("a", { href: context.link("forgetting", { kind: "session", session: event.session_id, scope: scope.scope_id }) }, "Forget this session …")]),
    item.endsSession && !context.state.session && h("p.session-mark", {}, `Without a session${event.type === "message" ? "" : ": stated facts"}`),
    showEventHead(event, { onlyClock: true, link: context.link("event", { id: event.event_id }) }),
    h("div.event-body", {}, showContent(event, context)),
    facts.length > 0 && h("footer.event-facts", {}, facts),
  );
  marks.mark(row, event);
  return row;
}

/** Rows of events in the order of seq, with what was erased between them. */
class RowMaker {
  constructor(erasedAt) {
    this.erasedAt = erasedAt;
  }

  make(events, before, { showsGaps }) {
    const rows = [];
    let last = before;
    for (const event of events) {
      if (showsGaps && last && event.seq > last.seq + 1) rows.push({ kind: "gap", seq: last.seq + 1, first: last.seq + 1, last: event.seq - 1, at: this.erasedAt.get(last.seq + 1) });
      const time = (it) => format.day(it.occurred_at ?? it.recorded_at);
      rows.push({ kind: "event", seq: event.seq, event, startsDay: !last?.event_id || time(last) !== time(event), startsSession: !last?.event_id || last.session_id !== event.session_id, endsSession: Boolean(last?.session_id) && !event.session_id });
      last = event;
    }
    return rows;
  }
}

/** The events of a scope by seq: any place in it is one call away. */
class ScopeEvents {
  constructor(context, scope) {
    this.context = context;
    this.scope = scope;
    this.path = `/api/v1/scopes/${scope.scope_id}`;
    this.rows = null;
  }

  async read(after, limit) {
    this.rows ??= await this.makeRowMaker();
    return get(`${this.path}/events`, { ...this.context.viewer, after_seq: after, limit }, { signal: this.context.signal });
  }

  /** How many were erased, once the first rows are read. */
  countErased() {
    return this.rows.erasedAt.size;
  }

  async makeRowMaker() {
    const erased = new Map();
    let page = { next_after: 0 };
    do {
      page = await get(`${this.path}/erasures`, { ...this.context.viewer, after: page.next_after, limit: 500 }, { signal: this.context.signal });
      for (const it of page.erasures) erased.set(it.seq, it.erased_at);
    } while (page.erasures.length === 500 && erased.size < 5000);
    return new RowMaker(erased);
  }

  async around(seq) {
    const end = Math.min((seq || this.scope.last_seq) + PAGE / 2, this.scope.last_seq);
    const start = Math.max(0, end - PAGE);
    const page = await this.read(start, PAGE);
    const items = this.rows.make(page.events, { seq: start }, { showsGaps: true });
    this.addTail(items, page);
    return { items, hasOlder: start > 0, hasNewer: page.next_after_seq < page.last_seq };
  }

  async older(item) {
    let size = PAGE;
    for (let end = item.seq - 1; end > 0; size = Math.min(size * 2, 500)) {
      const start = Math.max(0, end - size);
      const page = await this.read(start, size);
      const events = page.events.filter((it) => it.seq < item.seq);
      if (events.length || start === 0) {
        const items = this.rows.make(events, { seq: start }, { showsGaps: true });
        const reached = events.at(-1)?.seq ?? start;
        if (item.kind === "event" && reached < item.seq - 1) items.push({ kind: "gap", seq: reached + 1, first: reached + 1, last: item.seq - 1, at: this.rows.erasedAt.get(reached + 1) });
        return { items, more: start > 0 };
      }
      end = start;
    }
    return { items: [], more: false };
  }

  async newer(item) {
    const from = item.kind === "gap" ? item.last : item.seq;
    const page = await this.read(from, PAGE);
    const items = this.rows.make(page.events, item.event ?? { seq: from }, { showsGaps: true });
    this.addTail(items, page);
    return { items, more: page.next_after_seq < page.last_seq };
  }

  /** What was erased at the very end has no event after it. */
  addTail(items, page) {
    const last = items.at(-1)?.seq ?? 0;
    const isEnd = page.next_after_seq >= page.last_seq;
    if (isEnd && items.length && last < page.last_seq) items.push({ kind: "gap", seq: page.last_seq, first: last + 1, last: page.last_seq, at: this.rows.erasedAt.get(last + 1) });
  }
}

/** The events of a session, newest first in pages; those that were read are kept. */
class SessionEvents {
  constructor(context, scope) {
    this.context = context;
    this.scope = scope;
    this.items = [];
    this.cursor = null;
    this.isWhole = false;
  }

  async readOlder() {
    const body = { session_id: this.context.state.session, scope_id: this.scope.scope_id, limit: PAGE, cursor: this.cursor ?? undefined };
    const page = await postRead("/api/v1/events/query", body, this.context.viewer, { signal: this.context.signal });
    const events = page.scopes.flatMap((it) => it.events);
    this.cursor = page.next_cursor;
    this.isWhole = !page.next_cursor;
    const rows = new RowMaker(new Map()).make(events, null, { showsGaps: false });
    this.items.unshift(...rows);
    return rows;
  }

  async around(seq) {
    if (!this.items.length) await this.readOlder();
    while (seq && !this.isWhole && this.items[0]?.seq > seq) await this.readOlder();
    const at = seq ? this.items.findIndex((it) => it.seq >= seq) : this.items.length - 1;
    const start = Math.max(0, at - PAGE / 2);
    const items = this.items.slice(start, start + PAGE * 2);
    return { items, hasOlder: start > 0 || !this.isWhole, hasNewer: start + items.length < this.items.length };
  }

  async older(item) {
    const at = this.items.findIndex((it) => it.seq === item.seq);
    if (at > 0) return { items: this.items.slice(Math.max(0, at - PAGE), at), more: at > PAGE || !this.isWhole };
    const items = this.isWhole ? [] : await this.readOlder();
    return { items, more: !this.isWhole };
  }

  async newer(item) {
    const at = this.items.findIndex((it) => it.seq === item.seq) + 1;
    return { items: this.items.slice(at, at + PAGE), more: at + PAGE < this.items.length };
  }
}
