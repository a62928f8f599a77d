// Erasures: the list, one of them with its receipt, and a receipt from elsewhere.

import { get } from "./api.js";
import { h, replace, stored } from "./dom.js";
import { count, participant, plural, shortId, time } from "./formats.js";
import { virtualList } from "./lists.js";
import { encodeCanonically, verifyReceipt } from "./receipts.js";
import { session, hasRight } from "./session.js";
import { badge, card, copyButton, emptyState, errorBox, field, loading, makeNamesInput, pairs, readNames, table } from "./ui.js";

const POLL_MS = 3000;
const MOST_ASKED = 25;
const USUAL_WAIT_MS = 120_000;
const KINDS = { event: "One event", events: "Single events", session: "A conversation", participant: "What somebody said", scope: "A scope", tenant: "The tenant" };

/** What was chosen to forget in this tab, by the erasure's id: {what, events}. The service keeps no
 * name of a session. */
const chosenHere = new Map();

/** Keep what an erasure of this tab was to forget: `what()` makes its words. */
export function keepChoice(erasureId, choice) {
  chosenHere.set(erasureId, choice);
}

/** For whom to read erasures: a key bound to nobody with the right to erase sees all of them, and
 * named participants would see none of them. */
function chooseViewer({ viewer }) {
  return !session.caller.user && hasRight("erase") ? {} : viewer;
}

/** The erasures that the caller may see, newest first. */
export function listErasures(context) {
  const viewer = chooseViewer(context);
  if (!viewer) return h("p.hint", {}, "Say above for whom to read, and the erasures in view appear here.");
  return virtualList({
    label: "Erasures, newest first",
    rowHeight: 58,
    load: async (cursor) => {
      const page = await get("/api/v1/erasures", { ...viewer, limit: 100, cursor }, { signal: context.signal });
      return { items: page.erasures, next: page.next_cursor };
    },
    render: (it) => h("div.list-line", {}, h("a", { href: context.link("forgetting", { erasure: it.erasure_id }) }, KINDS[it.kind] ?? it.kind, `, ${plural(it.counts.events ?? 0, "event")}`), h("span.small", {}, stateBadge(it.state), " ", h("span.quiet", {}, time(it.asked_at)))),
    empty: () => emptyState("Nothing was forgotten yet.", "Each erasure is listed here with its receipt, from the moment it is asked for."),
  }).element;
}

function stateBadge(state) {
  return state === "complete" ? badge("complete", "good") : badge("hidden, stores being cleared", "warn");
}

/** One erasure: what it took, and its receipt once it is complete. */
export function showErasure(root, context) {
  const body = h("div.stack", { "aria-live": "polite" });
  root.append(h("p", {}, h("a", { href: context.link("forgetting") }, "← Forget something, and all erasures")), body);
  let timer = 0;
  const load = async () => {
    try {
      const erasure = await get(`/api/v1/erasures/${encodeURIComponent(context.state.erasure)}`, chooseViewer(context) ?? {}, { signal: context.signal });
      const isLate = erasure.state !== "complete" && Date.now() - Date.parse(erasure.asked_at) > USUAL_WAIT_MS;
      replace(body, describeErasure(context, erasure, isLate ? await findWaitingPart(context, erasure) : ""));
      if (erasure.state !== "complete") timer = setTimeout(load, POLL_MS);
    } catch (error) {
      if (error.name !== "AbortError") replace(body, errorBox(error, load));
    }
  };
  replace(body, loading());
  load();
  return () => clearTimeout(timer);
}

function nameTarget({ kind, target }) {
  const named = Object.entries(target);
  if (!named.length) return kind === "session" ? "a session, whose name is not kept" : "the whole tenant";
  return named.map(([name, value]) => [h("span.quiet", {}, `${name} `), stored(Array.isArray(value) ? value.join(", ") : value), " "]);
}

/** What an erasure that is late still waits for, as far as the list of erasures tells. */
async function findWaitingPart(context, { erasure_id: id }) {
  const page = await get("/api/v1/erasures", { ...chooseViewer(context), state: "hidden", limit: 500 }, { signal: context.signal });
  const item = page.erasures.find((it) => it.erasure_id === id);
  if (!item) return "";
  if (item.vacuumed_at) return ["Still waited for: exports, payloads (kept 15 minutes after their mark), or topics that lost events. A vacuum removed the rows from the tables at ", time(item.vacuumed_at), "."];
  return "Still waited for: the vacuum that removes the cleared rows from the tables. It runs a minute or more after the one before, the longer it takes the later, and an hour after one that failed. Exports, payloads (up to 15 minutes) and topics that lost events come before it.";
}

function describeErasure(context, it, waitsFor = "") {
  const by = it.asked_by ?? {};
  const choice = chosenHere.get(it.erasure_id);
  const facts = card(
    KINDS[it.kind] ?? it.kind,
    pairs([
      ["State", stateBadge(it.state)],
      ["Named", choice ? choice.what() : nameTarget(it)],
      ["Events", plural(Math.max(it.receipt?.event_count ?? 0, it.counts.events ?? 0, choice?.events ?? 0), "event")],
      ["Asked", time(it.asked_at), " by ", by.user ? participant(by.user) : "a key bound to nobody", by.key_id ? [" (", shortId(by.key_id), ")"] : ""],
      ["Unreadable since", time(it.unreadable_at)],
      ["All stores cleared", it.complete_at ? time(it.complete_at) : "not yet: in the background, within minutes"],
      ["Erasure", h("code.break", {}, it.erasure_id)],
    ]),
    h("details", {}, h("summary", {}, "Rows and objects, by store"), table(["Store", "How many"], Object.entries(it.counts).map(([name, value]) => [h("code", {}, name), count(value)]), "Counts by store")),
  );
  if (!it.receipt) {
    return [facts, card("Receipt", emptyState("The receipt is not there yet.", waitsFor || "It is signed as soon as all stores are cleared, mostly within two minutes.", "This page asks again by itself."))];
  }
  return [facts, showReceipt(context, { receipt: it.receipt, signature: it.signature, public_key: it.public_key })];
}

function showReceipt(context, signed) {
  const { receipt } = signed;
  const checks = h("div", {}, loading("Verifying in this page …"));
  const asked = h("div", {});
  verifyReceipt(signed, signed.public_key).then((found) => replace(checks, listChecks(found)), (error) => replace(checks, errorBox(error)));
  const names = context.viewer || session.caller.user ? null : makeNamesInput("for", { required: true });
  const ask = h("form.stack", {}, names && field("For whom to ask", names, "Participants of what was erased: this key is bound to nobody."), h("p.buttons", {}, h("button", { type: "submit" }, "Ask the service for the erased events")));
  ask.addEventListener("submit", (event) => {
    event.preventDefault();
    const viewer = names ? { participants: readNames(names) } : (context.viewer ?? {});
    if (!names || viewer.participants) askForEvents(context, receipt, asked, viewer);
  });
  return card(
    "Receipt",
    checks,
    Array.isArray(receipt.event_ids) && receipt.event_ids.length ? ask : null,
    asked,
    h("p.buttons", {}, copyButton("Copy the receipt", () => JSON.stringify(signed, null, 2))),
    Array.isArray(receipt.not_reached) && receipt.not_reached.length ? h("details", {}, h("summary", {}, "What it could not reach"), h("ul.plain", {}, receipt.not_reached.map((it) => h("li", {}, showWithCode(typeof it === "string" ? it : JSON.stringify(it)))))) : null,
    receipt.backups_until ? h("p.quiet.small", {}, "Backups that may hold it end ", time(receipt.backups_until), ".") : h("p.quiet.small", {}, "When the last backup that may hold it ends is not known: nobody told this service how long backups are kept."),
    h("details", {}, h("summary", {}, "The receipt as it was signed"), h("pre.code", { tabindex: "0" }, stored(JSON.stringify(signed, null, 2)))),
  );
}

/** A text in which names of fields stand between backticks. */
const showWithCode = (text) => text.split("`").map((it, i) => (i % 2 ? h("code", {}, stored(it)) : stored(it, "text-part")));

function listChecks(checks) {
  const isWhole = checks.every((it) => it.ok !== false) && checks[0].ok === true;
  const title = isWhole ? "Verified: the receipt is whole." : checks.some((it) => it.ok === false) ? "Not verified: do not trust this receipt." : "Not verified here.";
  return h(`div.notice${isWhole ? ".good" : checks.some((it) => it.ok === false) ? ".bad" : ".warn"}`, { role: "status" }, h("p", {}, h("strong", {}, title)), h("ul.checks", {}, checks.map((it) => h("li", {}, h("strong", {}, it.ok ? "✓ " : it.ok === null ? "– " : "✗ ", it.name), ": ", it.text))));
}

/** The API is asked for some of the events: each has to be gone. */
async function askForEvents(context, receipt, element, viewer) {
  const ids = receipt.event_ids.slice(0, MOST_ASKED);
  replace(element, loading(`Asking for ${plural(ids.length, "event")} …`));
  const left = [];
  for (const id of ids) {
    try {
      await get(`/api/v1/events/${encodeURIComponent(id)}`, viewer, { signal: context.signal });
      left.push(id);
    } catch (error) {
      if (error.name === "AbortError") return;
      if (![404, 410].includes(error.status)) {
        replace(element, errorBox(error));
        return;
      }
    }
  }
  const more = receipt.event_ids.length > ids.length ? ` (the first of ${count(receipt.event_ids.length)})` : "";
  replace(element, left.length ? h("p.warn", { role: "alert" }, `${plural(left.length, "event")} can still be read: `, left.join(", ")) : h("p", { role: "status" }, `✓ The service gives none of ${plural(ids.length, "event")}${more} any more.`));
}

/** A receipt that somebody was given, as text. */
export function showPastedReceipt(root, context) {
  const text = h("textarea", { name: "receipt", rows: 12, required: true, spellcheck: "false", placeholder: '{"receipt": {…}, "signature": "…", "public_key": "…"}' });
  const result = h("div", { "aria-live": "polite" });
  const form = h("form.stack", {}, field("Receipt, as JSON", text, "With receipt, signature and public_key, as “Copy the receipt” gives it, or the answer of GET /api/v1/erasures/{erasure_id}."), h("p.buttons", {}, h("button.main", { type: "submit" }, "Verify")), result);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    try {
      const signed = JSON.parse(text.value);
      if (!signed?.receipt || typeof signed.receipt !== "object") throw new SyntaxError("it has no part named receipt");
      const own = await readOwnReceipt(context, signed.receipt.erasure_id);
      replace(result, listChecks(await verifyReceipt(signed, own?.public_key)), compareWithService(signed, own));
    } catch (error) {
      if (error.name === "AbortError") return;
      replace(result, h("div.notice.bad", { role: "alert" }, h("p", {}, error instanceof SyntaxError ? ["This is no receipt: ", stored(error.message), ". Paste all of it, from { to }."] : stored(error.message))));
    }
  });
  root.append(h("p", {}, h("a", { href: context.link("forgetting") }, "← Forget something, and all erasures")), card("Verify a receipt", h("p", {}, "It is verified in this page, by the public key in it. Nothing is sent anywhere but a question for the erasure of that id."), form));
}

/** The service's own answer about an erasure; null where it shows none to this key. */
async function readOwnReceipt(context, id) {
  try {
    return await get(`/api/v1/erasures/${encodeURIComponent(id)}`, chooseViewer(context) ?? {}, { signal: context.signal });
  } catch (error) {
    if (error.status === undefined) throw error;
    return null;
  }
}

function compareWithService(signed, own) {
  if (!own) return h("p.hint", {}, "This service does not show that erasure to this key, so compare the public key with one that you know: ", h("code.break", {}, stored(signed.public_key)));
  if (!own.receipt) return h("div.notice.bad", { role: "alert" }, h("p", {}, "This service has signed no receipt of this erasure yet: do not trust this text."));
  const isSame = ["receipt", "signature"].every((it) => isEqual(own[it], signed[it]));
  if (!isSame) return h("div.notice.bad", { role: "alert" }, h("p", {}, "The service's own receipt of this erasure says something else: do not trust this text."));
  return h("p", {}, own.public_key === signed.public_key ? "The service's own receipt of this erasure is the same, with the same signature and key." : "The service's own receipt of this erasure is the same, but the public key here is not the service's key.");
}

const isEqual = (one, other) => encodeCanonically(one ?? null).join() === encodeCanonically(other ?? null).join();
