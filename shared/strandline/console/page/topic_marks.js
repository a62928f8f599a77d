// Topics along a conversation: a mark at the first event of each, and a rail of one colour beside all
// of its events.

import { get } from "./api.js";
import { h, stored } from "./dom.js";
import * as format from "./formats.js";
import { badge } from "./ui.js";

const HUES = 6;
const MOST_PAGES = 10;

/** Knows the topics of sessions, each read once, and marks rows when it knows. */
export class TopicMarks {
  constructor(context) {
    this.context = context;
    this.sessions = new Map();
  }

  /** Mark a row, now or once the topics of its session are read. */
  async mark(row, event) {
    if (!event.session_id || event.type === "statement") return;
    const key = `${event.scope_id} ${event.session_id}`;
    if (!this.sessions.has(key)) this.sessions.set(key, this.read(event));
    const chain = (await this.sessions.get(key)).get(event.event_id);
    if (!chain) return;
    row.classList.add("in-topic", `hue-${chain.hue}`);
    if (chain.event_ids[0] === event.event_id) row.prepend(this.showTopic(chain));
  }

  async read(event) {
    const chains = new Map();
    let cursor = null;
    let number = 0;
    try {
      for (let pages = 0; pages < MOST_PAGES; pages += 1) {
        const page = await get(`/api/v1/sessions/${encodeURIComponent(event.session_id)}/segments`, { scope_id: event.scope_id, limit: 200, include: "all", cursor }, { signal: this.context.signal });
        for (const chain of page.segments) {
          chain.hue = number % HUES;
          number += 1;
          for (const id of chain.event_ids) chains.set(id, chain);
        }
        cursor = page.next_cursor;
        if (!cursor) break;
      }
    } catch (error) {
      if (error.name !== "AbortError") this.context.announce(`Topics of this session cannot be read: ${error.message}`);
    }
    return chains;
  }

  showTopic(chain) {
    return h(
      "p.topic-mark",
      {},
      h("span.quiet", {}, "Topic "),
      h("strong", {}, chain.topic ? stored(chain.topic) : "without a name"),
      chain.status !== "active" && [" ", badge(chain.rejected ? "rejected" : chain.status, "warn")],
      h("span.quiet.small", {}, ` · ${format.plural(chain.event_count, "event")} · heat ${chain.heat.toFixed(2)} · `),
      h("a.small", { href: this.context.link("event", { row: chain.chain_id }) }, "its events"),
    );
  }
}
