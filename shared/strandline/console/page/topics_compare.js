// Two snapshots compared: which topics only one of them has, and which differ.

import { get } from "./api.js";
import { h, replace } from "./dom.js";
import { plural } from "./formats.js";
import { nameTopic } from "./topics_tree.js";
import { card, emptyState, errorBox, loading } from "./ui.js";

const PAGE = 40;
const WORDS = { added: "+ added", gone: "− gone", changed: "≠ changed" };

/** What `version` has otherwise than `other`. */
export async function compareSnapshots(body, context, { version, other }) {
  const rows = h("tbody");
  const more = h("div");
  const title = h("p", { role: "status" }, loading("Comparing …"));
  const frame = h("div.table-frame", { tabindex: "0", role: "region", "aria-label": "Differences" }, h("table", {}, h("thead", {}, h("tr", {}, ["Change", `Before, in ${other}`, `After, in ${version}`, "Place"].map((it) => h("th", { scope: "col" }, it)))), rows));
  replace(body, card(`Snapshot ${version} compared with ${other}`, title, frame, more));
  let cursor = null;
  const load = async () => {
    replace(more, loading());
    try {
      const page = await get(`/api/v1/admin/snapshots/${version}/difference`, { from: other, limit: PAGE, cursor }, { signal: context.signal });
      replace(title, describe(page));
      frame.hidden = page.changes.length === 0;
      const contents = await readContents(context, page.changes);
      rows.append(...page.changes.map((it) => makeRow(context, it, contents, { version, other })));
      cursor = page.next_cursor;
      replace(more, cursor ? h("button", { type: "button", onclick: load }, "More differences") : null);
    } catch (error) {
      if (error.name !== "AbortError") replace(more, errorBox(error, load));
    }
  };
  await load();
}

function describe(page) {
  if (!page.added && !page.gone && !page.changed) return emptyState("Both have the same topics.", "A difference appears here once a build took in new topics, or an older snapshot was made active again.");
  const notes = page.same_configuration ? "" : " They were made with other models, and most differ for that reason alone.";
  return `${plural(page.added, "place")} added, ${page.gone} gone, ${page.changed} changed, in ${plural(page.scopes, "scope")}.${notes}`;
}

/** The contents that the differences name and that are in view, by id. */
async function readContents(context, changes) {
  const ids = [...new Set(changes.flatMap((it) => [it.node_before, it.node_after]).filter(Boolean))];
  const found = new Map();
  for (let start = 0; start < ids.length; start += 100) {
    const page = await get("/api/v1/topics", { ...context.viewer, node_id: ids.slice(start, start + 100) }, { signal: context.signal });
    for (const topic of page.topics) found.set(topic.node_id, topic);
  }
  return found;
}

function makeRow(context, it, contents, { version, other }) {
  const side = (nodeId, inVersion) => {
    if (!nodeId) return h("span.quiet", {}, "–");
    const topic = contents.get(nodeId);
    if (!topic) return h("span.quiet", {}, "not in view");
    return [h("a", { href: context.link("topics", { version: inVersion, scope: it.scope_id, slot: it.slot_id }) }, nameTopic(topic)), h("span.quiet.small", {}, ` ${plural(topic.event_count, "event")}`)];
  };
  const isMoved = it.change === "changed" && it.node_before === it.node_after;
  return h("tr", {}, h("td", {}, h(`strong.change-${it.change}`, {}, isMoved ? "↷ moved" : WORDS[it.change])), h("td", {}, side(it.node_before, other)), h("td", {}, side(it.node_after, version)), h("td.quiet", {}, it.leaf ? "a topic" : "joins topics"));
}
