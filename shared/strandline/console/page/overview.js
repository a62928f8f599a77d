// Overview: whether the service is well, what waits, what is stored, what models cost, which jobs ran.

import { call, get } from "./api.js";
import { h, stored } from "./dom.js";
import * as format from "./formats.js";
import { bars, meter } from "./plots.js";
import { hasRight, session } from "./session.js";
import { splitIntoSpans } from "./time_spans.js";
import { badge, emptyState, loadInto, pairs, table } from "./ui.js";

export const screen = { name: "overview", title: "Overview", letter: "o", right: null, show };

const NEWEST = 500;

function show(root, context) {
  const place = () => h("section.card");
  const isAdmin = hasRight("admin");
  const mayReadUsage = isAdmin || (hasRight("read") && !session.caller.user);
  const viewer = hasRight("read") ? context.viewer : null;
  const [health, waiting, events, use, models, jobs] = [place(), place(), place(), place(), place(), place()];
  const main = h("div.column", {}, health, viewer && events, isAdmin && models, isAdmin && jobs);
  root.append(h("div.overview", {}, main, h("div.column", {}, waiting, mayReadUsage && use)));
  const options = { signal: context.signal };
  loadInto(health, () => call("GET", "/api/v1/health", { ...options, accepts: [503] }), (it) => showHealth(it, context));
  loadInto(waiting, () => readWaiting(isAdmin, options), showWaiting);
  if (viewer) loadInto(events, () => get("/memories/list", { ...viewer, limit: NEWEST }, options), (page) => showEvents(page, context));
  if (mayReadUsage) loadInto(use, () => get("/api/v1/usage", {}, options), showUse);
  if (isAdmin) {
    loadInto(models, () => readModels(options), showModels);
    loadInto(jobs, () => get("/api/v1/admin/jobs", { limit: 50, state: context.state.jobs }, options), (page) => showJobs(page, context));
  }
}

const DEPENDENCIES = { database: "Database", blobs: "Payloads", queue: "Queue", embedding: "Embedding model" };

function showHealth(health, context) {
  const kind = { ok: "good", degraded: "warn", unavailable: "bad" }[health.status];
  const word = { ok: "All is well", degraded: "Works, with limits", unavailable: "Not available" }[health.status];
  const memory = health.memory && [
    ["events stored, erased ones counted", health.memory.events],
    ["scopes", health.memory.scopes],
    ["topics", health.memory.topics],
    [h("a", { href: context.link("graph") }, "facts"), health.memory.facts],
  ];
  return [
    h("div.headline", {}, h("h2", {}, word), badge(health.status, kind)),
    h("ul.dependencies", {}, Object.entries(health.dependencies).map(([name, state]) => h("li", {}, badge(state === "ok" ? "ok" : state, state === "ok" ? "good" : "bad"), " ", DEPENDENCIES[name] ?? name))),
    memory && h("dl.figures", {}, memory.map(([name, value]) => h("div", {}, h("dd", {}, format.count(value)), h("dt", {}, name)))),
    describeLanguage(health.language),
    health.warnings.map((it) => h("div.notice.warn", {}, stored(it))),
  ];
}

function describeLanguage(language) {
  if (!language.provider) return h("p.quiet", {}, "No language model is configured: the heuristic model tells topics apart and summarises.");
  const text = ["Language model ", h("strong", {}, stored(language.provider))];
  if (language.resting_until) return h("p.quiet", {}, text, " rests until ", format.time(language.resting_until), "; the heuristic model stands in.");
  return h("p.quiet", {}, text, language.failure ? " failed when it was last called." : " answers.");
}

// what waits --------------------------------------------------------------------------------------

const WAITING = [
  ["events_not_embedded", "oldest_not_embedded_age_seconds", "Events without a vector", "They are found by their words already, by their meaning about a second after the append."],
  ["events_not_folded", "oldest_not_folded_age_seconds", "Events not in a topic yet", "A topic is made three events after the conversation moved on, or after 30 minutes of silence."],
  ["chains_not_indexed", "oldest_not_indexed_age_seconds", "Topics not in the tree yet", "The tree is built 15 minutes after a topic closed, or once 20 wait."],
  ["erasures_waiting", "oldest_erasure_age_seconds", "Erasures without a receipt yet", "What they erase is unreadable already; all stores are cleared within minutes."],
  ["scopes_due", "oldest_due_age_seconds", "Scopes whose work is due", "Background work begins within seconds."],
];
const TROUBLE = [
  ["scopes_stuck", "Scopes whose work was postponed five times", "It is tried again by itself; the reasons are among the jobs."],
  ["jobs_failed", "Jobs failed and not tried again", "Each has its reason and what to do, below."],
  ["turns_late", "Answers of the language model late by ten minutes", ""],
  ["rows_unreadable", "Rows with a time that cannot be shown", "The nearest time that can be shown stands in answers."],
];

async function readWaiting(isAdmin, options) {
  const [health, metrics] = await Promise.all([call("GET", "/api/v1/health", { ...options, accepts: [503] }), isAdmin ? get("/metrics", {}, { ...options, as: "text" }) : ""]);
  return { background: health.background ?? {}, metrics: parseMetrics(metrics) };
}

/** The values of Prometheus' text format, by name without the service's prefix. */
function parseMetrics(text) {
  const lines = text.split("\n").filter((it) => it && !it.startsWith("#"));
  return Object.fromEntries(lines.map((it) => [it.split(" ")[0].replace("strandline_", ""), Number(it.split(" ")[1])]));
}

function showWaiting({ background, metrics }) {
  const isAdmin = Object.keys(metrics).length > 0;
  const waiting = isAdmin ? WAITING.map(([name, age, label, why]) => ({ value: metrics[name], age: metrics[age], label, why })) : [{ value: background.erasures_waiting, age: background.oldest_erasure_seconds, label: WAITING[3][2], why: WAITING[3][3] }];
  const top = Math.max(...waiting.map((it) => it.value || 0));
  const trouble = TROUBLE.filter(([name]) => background[name]);
  return [
    h("h2", {}, "What waits"),
    h("ul.waiting", {}, waiting.map((it) => h("li", {}, h("div.row", {}, h("span", {}, it.label), h("strong", {}, format.count(it.value))), it.value > 0 && [meter(it.value, top, { label: `${it.label}: ${it.value}` }), h("p.hint", {}, `The oldest for ${format.seconds(it.age ?? 0)}. `, it.why)]))),
    trouble.map(([name, label, why]) => h("div.notice.warn", {}, h("p", {}, h("strong", {}, `${format.count(background[name])}: ${label}.`), " ", why))),
    !isAdmin && h("p.hint", {}, "How many events wait for a vector or a topic, a key with the right admin sees."),
  ];
}

// events over time --------------------------------------------------------------------------------

function showEvents(page, context) {
  const by = context.state.by === "recorded_at" ? "recorded_at" : "occurred_at";
  const times = page.events.map((it) => Date.parse(it[by] ?? it.recorded_at));
  if (!times.length) return [h("h2", {}, "Events over time"), emptyState("Nothing is stored here yet.", ["You are in the tenant ", h("strong", {}, h("bdi", {}, session.caller.tenant)), "."], "Each event that somebody appends appears here at once.")];
  const { spans, unit } = splitIntoSpans(times, 60);
  const points = spans.map((it) => ({ label: it.label, value: it.count, title: `${it.label}: ${format.plural(it.count, "event")}` }));
  const which = page.next_cursor ? `The newest ${format.count(page.events.length)} events` : `All ${format.count(page.events.length)} events in view`;
  const choose = (value, label) => h("button.segment", { type: "button", "aria-pressed": String(by === value), onclick: () => context.update({ by: value }) }, label);
  return [
    h("div.headline", {}, h("h2", {}, "Events over time"), h("span.segments", { role: "group", "aria-label": "By which time" }, choose("occurred_at", "happened"), choose("recorded_at", "stored"))),
    bars(points, { label: `${which}, by ${unit}` }),
  ];
}

// use ---------------------------------------------------------------------------------------------

const QUOTAS = { requests: "Requests in this minute", appends: "Events appended in this minute", stored_bytes: "Stored bytes" };

function showUse(usage) {
  return [
    h("h2", {}, "Stored, and quotas"),
    usage.stored && h("p", {}, h("strong.large", {}, format.bytes(usage.stored.bytes)), h("span.quiet", {}, ` in ${format.plural(usage.stored.events, "event")}, erased ones counted, as of `, format.time(usage.stored.measured_at))),
    usage.stored && h("p.hint", {}, "That is what events and payloads take, as last counted. The quota below also holds what the service took of it ahead, in portions, for the next appends: so it is more, and goes back by itself."),
    !usage.stored && h("p.quiet", {}, "What is stored is counted in the background; the first count comes with the first sweep."),
    h("ul.waiting", {}, usage.quotas.map((quota) => {
      const show = quota.name === "stored_bytes" ? format.bytes : format.count;
      const label = QUOTAS[quota.name] ?? quota.name;
      return h("li", {}, h("div.row", {}, h("span", {}, label), h("span", {}, h("strong", {}, show(quota.used)), h("span.quiet", {}, ` of ${show(quota.at_once)}`))), meter(quota.used, quota.at_once, { label: `${label}: ${show(quota.used)} of ${show(quota.at_once)}`, kind: quota.used > 0.9 * quota.at_once ? "against" : "" }));
    })),
  ];
}

// models ------------------------------------------------------------------------------------------

async function readModels(options) {
  const [usage, page] = await Promise.all([get("/api/v1/usage", {}, options), get("/api/v1/model-calls", { limit: NEWEST }, options)]);
  return { month: usage.models, calls: page.calls, isWhole: !page.next_cursor };
}

function showModels({ month, calls, isWhole }) {
  const totals = pairs([
    ["This month", h("strong", {}, format.usd(month.cost_usd)), ` for ${format.plural(month.calls, "call")}`, month.failures ? `, ${format.count(month.failures)} of them failed` : ""],
    month.budget_usd !== null && ["Budget", format.usd(month.budget_usd), h("span.quiet", {}, ` (${format.usd(month.remaining_usd)} left)`)],
    ["Tokens", `${format.count(month.tokens_in)} in, ${format.count(month.tokens_out)} out`],
    month.resting_until && ["Resting until", format.time(month.resting_until)],
  ]);
  if (!calls.length) return [h("h2", {}, "Model calls and their cost"), totals, emptyState("No language model was called in the last 30 days.", "Calls appear here once a model is configured; each has its task, tokens and cost.")];
  const { spans, unit } = splitIntoSpans(calls.map((it) => Date.parse(it.at)), 60, calls);
  const costs = spans.map((it) => ({ label: it.label, value: it.items.reduce((sum, one) => sum + one.cost_usd, 0) }));
  const which = isWhole ? "The last 30 days" : `The newest ${format.count(calls.length)} calls`;
  return [
    h("h2", {}, "Model calls and their cost"),
    totals,
    h("div.grid", {}, bars(spans.map((it) => ({ label: it.label, value: it.count, title: `${it.label}: ${format.plural(it.count, "call")}` })), { label: `${which}: calls by ${unit}` }), bars(costs.map((it) => ({ ...it, title: `${it.label}: ${format.usd(it.value)}` })), { label: `${which}: cost by ${unit}`, unit: " USD" })),
    table(["Task", "Calls", "Failed", "Tokens in", "Tokens out", "Cost"], sumByTask(calls).map((it) => [stored(it.task), format.count(it.calls), format.count(it.failed), format.count(it.in), format.count(it.out), format.usd(it.cost)]), "Model calls by task"),
  ];
}

function sumByTask(calls) {
  const tasks = new Map();
  for (const one of calls) {
    const sum = tasks.get(one.task) ?? { task: one.task, calls: 0, failed: 0, in: 0, out: 0, cost: 0 };
    sum.calls += 1;
    sum.failed += one.outcome === "ok" ? 0 : 1;
    sum.in += one.tokens_in;
    sum.out += one.tokens_out;
    sum.cost += one.cost_usd;
    tasks.set(one.task, sum);
  }
  return [...tasks.values()].sort((a, b) => b.cost - a.cost || b.calls - a.calls);
}

// jobs --------------------------------------------------------------------------------------------

const JOB_BADGES = { done: "good", failed: "bad", running: "accent", queued: "" };

function showJobs(page, context) {
  const choose = (value, label) => h("button.segment", { type: "button", "aria-pressed": String((context.state.jobs ?? "") === value), onclick: () => context.update({ jobs: value }) }, label);
  const head = h("div.headline", {}, h("h2", {}, "Jobs"), h("span.segments", { role: "group", "aria-label": "Which jobs" }, choose("", "all"), choose("running", "running"), choose("failed", "failed")));
  if (!page.jobs.length) return [head, emptyState(context.state.jobs ? `No job is ${context.state.jobs}.` : "No job ran in the last 30 days.", "Topics are built, facts promoted and old rows archived by jobs; they start by themselves when there is work.")];
  const rows = page.jobs.map((job) => [
    [h("strong", {}, job.kind), h("br"), badge(job.state, JOB_BADGES[job.state])],
    job.reason ? [h("p", {}, stored(job.reason)), h("p.hint", {}, stored(job.advice))] : h("span.quiet", {}, Object.entries(job.totals).filter(([, value]) => value).map(([name, value]) => `${name.replaceAll("_", " ")} ${format.count(value)}`).join(", ") || "–"),
    [format.time(job.created_at), h("p.hint", {}, job.finished_at && job.started_at ? `took ${format.seconds((Date.parse(job.finished_at) - Date.parse(job.started_at)) / 1000)}` : job.started_at ? "runs" : "waits", job.attempts > 1 ? `, attempt ${job.attempts}` : "")],
  ]);
  return [head, table(["Job", "What it did, or why it failed", "When"], rows, "Jobs"), page.next_cursor && h("p.hint", {}, "The newest 50 of them.")];
}
