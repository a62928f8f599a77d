// Topics: the tree of a snapshot, one topic with its events, and two snapshots compared.

import { change, get } from "./api.js";
import { askAndDo, select, whereAllowed } from "./changes.js";
import { h, replace, stored } from "./dom.js";
import { count, day, participants, plural, seconds, time } from "./formats.js";
import { hasRight } from "./session.js";
import { quote, readEvents } from "./statements.js";
import { compareSnapshots } from "./topics_compare.js";
import { makeTree, nameTopic } from "./topics_tree.js";
import { badge, emptyState, errorBox, field, loading, pairs } from "./ui.js";

export const screen = { name: "topics", title: "Topics", letter: "t", right: "read", needsViewer: true, show };

const MOST_EVENTS = 12;

async function show(root, context) {
  const { state } = context;
  const bar = h("div.inline-fields");
  const about = h("div.stack");
  const body = h("div.stack");
  root.append(bar, about, body);
  const snapshots = hasRight("admin") ? await readSnapshots(context) : [];
  if (snapshots.length) replace(bar, makeChoices(context, snapshots));
  const version = snapshots.some((it) => String(it.version) === state.version) ? state.version : "";
  const other = snapshots.some((it) => String(it.version) === state.with) ? state.with : "";
  if (state.version && !version) replace(about, h("p.notice.warn", {}, snapshots.length ? "The snapshot of this address is not kept any more; the active one is shown." : "Choosing a snapshot needs a key with the right admin; the active one is shown."));
  const shown = snapshots.find((it) => (version ? String(it.version) === version : it.active));
  if (shown) about.append(describeSnapshot(context, shown));
  if (other) return compareSnapshots(body, context, { version: version || String(shown.version), other });
  return showTree(body, context, version, snapshots);
}

async function readSnapshots(context) {
  const page = await get("/api/v1/admin/snapshots", { limit: 500 }, { signal: context.signal });
  return page.snapshots;
}

function makeChoices(context, snapshots) {
  const name = (it) => `${it.version}${it.active ? " (active)" : ""} – ${day(it.published_at)}, ${new Date(it.published_at).toISOString().slice(11, 16)}, ${plural(it.leaf_count, "topic")}`;
  const active = snapshots.find((it) => it.active);
  const chosen = context.state.version || String(active?.version ?? "");
  const version = select("version", snapshots.map((it) => [String(it.version), name(it)]), chosen);
  version.addEventListener("change", () => context.update({ version: version.value === String(active?.version) ? "" : version.value, slot: "", scope: "" }));
  const other = select("with", [["", "nothing"], ...snapshots.filter((it) => String(it.version) !== chosen).map((it) => [String(it.version), name(it)])], context.state.with ?? "");
  other.addEventListener("change", () => context.update({ with: other.value }));
  return [field("Snapshot", version), field("Compared with", other)];
}

/** Whose the counts of a snapshot are, where one reads for somebody: the service counts them all. */
function ofWhom(context) {
  return context.viewer.everybody ? "" : ", everybody's counted";
}

function describeSnapshot(context, it) {
  const status = h("div", { "aria-live": "polite" });
  const activate = async () => {
    const isDone = await askAndDo({
      title: `Make snapshot ${it.version} active again?`,
      sentences: ["A new version with the same trees is published, and everybody's answers rest on it from then on. The next build of each scope goes on from there.", "It can be taken back the same way."],
      action: "Make it active",
      status,
      run: () => change("POST", `/api/v1/admin/snapshots/${it.version}/activate`),
      show: (made) => h("p", {}, `Published as version ${made.version}.`),
    });
    if (isDone) context.update({ version: "", with: "" });
  };
  const counts = `${plural(it.leaf_count, "topic")} of ${plural(it.event_count, "event")} in ${plural(it.scope_count, "scope")}${ofWhom(context)}; published ${seconds(it.age_seconds)} ago`;
  return h(
    "div.stack",
    {},
    h("p.quiet", {}, `Snapshot ${it.version}${it.active ? ", which answers rest on" : ""}: ${counts}${it.repeats_version ? `; it repeats version ${it.repeats_version}` : ""}. `, it.scopes_failed.length ? badge(`${plural(it.scopes_failed.length, "scope")} failed and kept the former tree`, "warn") : "", it.erased_at ? badge("holds an erased event", "warn") : ""),
    it.active || it.erased_at ? null : whereAllowed("admin", "Making it active again", () => h("p.buttons", {}, h("button", { type: "button", onclick: activate }, "Make it active again …"))),
    status,
  );
}

async function showTree(body, context, version, snapshots) {
  const detail = h("section.card", { "aria-label": "The chosen topic", "aria-live": "polite" }, h("h2", {}, "Topic"), h("p.quiet", {}, "Choose a topic in the tree: its summary and its events appear here."));
  const load = (query) => get("/api/v1/topics", { ...context.viewer, version, ...query }, { signal: context.signal });
  const first = await load({ limit: 50 });
  if (!first.topics.length) {
    replace(body, await describeNothing(context, snapshots.length > 0 || first.snapshot));
    return;
  }
  const tree = makeTree({
    label: `Topics of snapshot ${first.snapshot.version}`,
    first,
    load,
    chosen: { slot: context.state.slot, scope: context.state.scope },
    onPick: (topic) => {
      context.note({ slot: topic.slot, scope: topic.scope_id });
      showTopic(detail, context, topic);
    },
  });
  replace(body, h("div.columns", {}, h("section.card", {}, h("h2", {}, "The tree"), tree.element), detail));
  await tree.ready;
}

async function describeNothing(context, hasSnapshot) {
  const sentences = ["A topic appears three events after it ended, or after a pause of half an hour. The tree is built once 20 topics wait, or the oldest has waited for 15 minutes."];
  if (hasRight("admin")) {
    const index = await get("/api/v1/admin/topics", {}, { signal: context.signal });
    if (index.waiting_versions) sentences.push(`${plural(index.waiting_versions, "topic")} wait in ${plural(index.waiting_scopes, "scope")}${ofWhom(context)}.`, !index.due_at ? "" : Date.parse(index.due_at) <= Date.now() ? "A build is due now." : ["A build is due at ", time(index.due_at), "."]);
    if (index.running_job_id) sentences.push("A build is running now.");
  }
  return emptyState(hasSnapshot ? "No topic is in view for whom you read." : "There is no tree yet.", ...sentences);
}

// one topic ---------------------------------------------------------------------------------------

function showTopic(detail, context, topic) {
  const events = h("div.stack");
  const model = topic.models?.summary?.model;
  replace(
    detail,
    h("h2", {}, nameTopic(topic)),
    topic.erased_at ? h("div.notice.warn", {}, h("p", {}, "An event below it was erased ", time(topic.erased_at), "; its text is gone until the next build.")) : topic.summary ? h("p", {}, stored(topic.summary)) : h("p.quiet", {}, "It has no summary: the quality gate did not keep it, its events are covered all the same."),
    pairs([
      ["Kind", topic.kind === "leaf" ? `a topic, version ${topic.chain_version}` : `joins ${plural(topic.leaf_count, "topic")} below it`],
      ["Among", participants(topic.participants)],
      ["When", time(topic.started_at), " – ", time(topic.last_event_at)],
      ["Events", count(topic.event_count)],
      ["Trust", `${topic.trust} `, h("span.quiet", {}, "(the least of its events)")],
      model && ["Summary by", stored(model)],
      topic.cutoff !== null && ["Covers", `every event up to number ${count(topic.cutoff)} of its scope`],
    ]),
    h("h3", {}, "Its events"),
    events,
  );
  showEvents(events, context, topic);
}

async function showEvents(element, context, topic) {
  const list = h("div.stack");
  const more = h("p.buttons");
  replace(element, list, more);
  let cursor = null;
  const load = async () => {
    replace(more, loading());
    try {
      const page = await get(`/api/v1/provenance/${topic.kind === "leaf" ? topic.slot : topic.node_id}`, { ...context.viewer, limit: MOST_EVENTS, cursor }, { signal: context.signal });
      const found = await readEvents(context, page.events.slice(0, MOST_EVENTS).map((it) => it.event_id));
      list.append(...found.map((it) => quote(context, it)));
      cursor = page.next_cursor;
      replace(more, cursor ? h("button", { type: "button", onclick: load }, "More events") : list.children.length ? null : h("p.quiet", {}, "None of its events is in view."));
    } catch (error) {
      if (error.name !== "AbortError") replace(more, errorBox(error, load));
    }
  };
  await load();
}
