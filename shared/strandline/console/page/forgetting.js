// Forgetting: choose, count, erase; then the erasure with its receipt, verified in the page.

import { get, postRead } from "./api.js";
import { askAndDo, makeOnce, select, whereAllowed } from "./changes.js";
import { h, plain, replace, stored } from "./dom.js";
import { keepChoice, listErasures, showErasure, showPastedReceipt } from "./erasures.js";
import { participants, plural, shortId } from "./formats.js";
import { virtualList } from "./lists.js";
import { session, hasRight } from "./session.js";
import { makeSessionLoader, showSessionFacts } from "./sessions.js";
import { card, emptyState, errorBox, field, loading, makeNamesInput, pairs, readNames } from "./ui.js";

export const screen = { name: "forgetting", title: "Forgetting", letter: "f", right: "read", show };

const KINDS = [
  ["session", "A conversation (session)"],
  ["participant", "What somebody said"],
  ["events", "Single events"],
  ["scope", "Everything among exact participants (scope)"],
  ["tenant", "Everything of this tenant"],
];

function show(root, context) {
  const { state } = context;
  if (state.erasure) return showErasure(root, context);
  if (state.verify) return showPastedReceipt(root, context);
  const outcome = h("div.outcome", { "aria-live": "polite" });
  root.append(
    h("div.columns", {}, card("Choose what to forget", makeForm(context, outcome), outcome), card("Erasures so far", listErasures(context), h("p", {}, h("a", { href: context.link("forgetting", { verify: "1" }) }, "Verify a receipt that you were given")))),
  );
  return undefined;
}

function makeForm(context, outcome) {
  const { state } = context;
  const kind = KINDS.some(([it]) => it === state.kind) ? state.kind : "session";
  const choice = select("kind", KINDS, kind);
  choice.addEventListener("change", () => context.update({ kind: choice.value, session: "", scope: "", who: "", events: "" }));
  const parts = { session: sessionFields, participant: participantFields, events: eventFields, scope: scopeFields, tenant: tenantFields }[kind](context);
  const form = h("form.stack", {}, field("Forget", choice), parts.fields);
  if (!hasRight("erase")) {
    form.append(h("p.hint", {}, "Counting and erasing need a key with the right ", h("code", {}, "erase"), ", which no other right includes. This one has it not: an operator makes such a key."));
    return form;
  }
  form.append(h("p.buttons", {}, h("button.main", { type: "submit" }, "Count what that takes")), h("p.hint", {}, "Counting changes nothing."));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const body = parts.read();
    if (!body) return;
    // Whoever allows changes at the count finds it again: the screen is then shown by its address.
    if (!body.tenant) context.note({ kind, session: body.session_id, scope: body.scope_id, who: body.participant, events: body.event_ids?.join(",") });
    count(context, body, () => parts.describe(body), outcome);
  });
  if (parts.isChosen) queueMicrotask(() => form.requestSubmit());
  return form;
}

function sessionFields(context) {
  const { state } = context;
  const name = h("input", { type: "text", name: "session", value: state.session ?? "", required: true, autocomplete: "off", spellcheck: "false" });
  const scope = h("input", { type: "text", name: "scope", value: state.scope ?? "", autocomplete: "off", spellcheck: "false" });
  const list = virtualList({
    label: "Conversations",
    rowHeight: 74,
    load: makeSessionLoader(context),
    render: (it) => h("div.list-line.stacked", {}, h("a", { href: context.link("forgetting", { kind: "session", session: it.session_id, scope: it.scope_id }) }, stored(it.session_id)), showSessionFacts(it)),
    empty: () => emptyState("No conversation is in view.", "A conversation is listed here once an event was sent with a session's name."),
  });
  return {
    isChosen: Boolean(state.session),
    fields: [field("Session", name, "Its name, as events were sent with it."), field("Only in this scope", scope, "Empty: the sessions of this name in all scopes."), context.viewer ? h("details", { open: !state.session }, h("summary", {}, "Choose from a list"), list.element) : h("p.hint", {}, "Say above for whom to read, and a list of conversations appears here.")],
    read: () => ({ session_id: name.value.trim(), ...(scope.value.trim() && { scope_id: scope.value.trim() }) }),
    describe: (body) => ["all events of the conversation “", stored(body.session_id), "”, and the conversation itself"],
  };
}

function participantFields({ state }) {
  const who = makeNamesInput("who", { value: state.who ?? "", placeholder: "user:alice", required: true });
  const scope = h("input", { type: "text", name: "scope", value: state.scope ?? "", autocomplete: "off", spellcheck: "false" });
  return {
    isChosen: Boolean(state.who),
    fields: [field("Participant", who, "Everything that this participant said is forgotten; what others said stays."), field("Only in this scope", scope, "Empty: in all scopes.")],
    read: () => readNames(who) && ({ participant: who.value.trim(), ...(scope.value.trim() && { scope_id: scope.value.trim() }) }),
    describe: (body) => ["everything that ", stored(body.participant), " said"],
  };
}

function eventFields({ state }) {
  const ids = h("textarea", { name: "events", rows: 4, required: true, spellcheck: "false", value: (state.events ?? "").split(",").join("\n") });
  return {
    isChosen: Boolean(state.events),
    fields: [field("Event ids", ids, "One a line, at most 1,000.")],
    read: () => ({ event_ids: ids.value.split(/[\s,]+/).filter(Boolean) }),
    describe: (body) => [plural(body.event_ids.length, "event")],
  };
}

function scopeFields(context) {
  const { state } = context;
  const scope = h("input", { type: "text", name: "scope", value: state.scope ?? "", required: true, autocomplete: "off", spellcheck: "false" });
  const list = virtualList({
    label: "Scopes",
    rowHeight: 56,
    load: async (cursor) => {
      const page = await get("/api/v1/scopes", { ...context.viewer, limit: 100, cursor }, { signal: context.signal });
      return { items: page.scopes, next: page.next_cursor };
    },
    render: (it) => h("div.list-line", {}, h("a", { href: context.link("forgetting", { kind: "scope", scope: it.scope_id }) }, participants(it.participants)), h("span.quiet.small", {}, plural(it.last_seq, "event"), " · ", shortId(it.scope_id))),
    empty: () => emptyState("No scope is in view.", "A scope is one exact set of participants. It appears with its first event."),
  });
  return {
    isChosen: Boolean(state.scope),
    fields: [field("Scope", scope, "The id of one exact set of participants."), context.viewer ? h("details", { open: !state.scope }, h("summary", {}, "Choose from a list"), list.element) : h("p.hint", {}, "Say above for whom to read, and a list of scopes appears here.")],
    read: () => ({ scope_id: scope.value.trim() }),
    describe: () => ["all events of this scope"],
  };
}

function tenantFields() {
  const { tenant } = session.caller;
  const name = h("input", { type: "text", name: "tenant", required: true, autocomplete: "off", spellcheck: "false" });
  const read = () => {
    const isSame = name.value.trim() === tenant;
    name.setCustomValidity(isSame ? "" : `Type the tenant's name: ${plain(tenant)}`);
    if (!isSame) name.reportValidity();
    return isSame ? { tenant: true } : null;
  };
  name.addEventListener("input", () => name.setCustomValidity(""));
  return { isChosen: false, fields: [field("The tenant's name, typed", name, "Everything that this tenant remembers is forgotten, of everybody.")], read, describe: () => ["all that the tenant ", stored(tenant), " remembers, of everybody"] };
}

// `what` makes the words for what is chosen: an element stands in one place, so each place has its own.
async function count(context, body, what, outcome) {
  replace(outcome, loading("Counting …"));
  try {
    const preview = await postRead("/api/v1/erasures", { ...body, dry_run: true }, {}, { signal: context.signal });
    replace(outcome, showPreview(context, body, what, preview, await readParticipants(context, body.scope_id)));
  } catch (error) {
    if (error.name !== "AbortError") replace(outcome, errorBox(error));
  }
}

/** The participants of a scope that is named by its id; null where none is, or it is not in view. */
async function readParticipants(context, scopeId) {
  if (!scopeId || !context.viewer) return null;
  try {
    return (await get(`/api/v1/scopes/${encodeURIComponent(scopeId)}`, context.viewer, { signal: context.signal })).participants;
  } catch (error) {
    if (error.status !== 404) throw error;
    return null;
  }
}

/** Whether an erasure of this body also clears what belongs to no event, which a dry run does not count. */
const takesMoreThanEvents = (body) => Boolean((body.participant || body.tenant) && !body.scope_id);

function showPreview(context, body, what, preview, names) {
  const more = takesMoreThanEvents(body) ? "What belongs to no event goes too, and is not counted: uploads that no event cites, names given to sonas, questions." : "";
  const size = more && preview.events === 0 ? "what belongs to no event" : plural(preview.events, "event");
  const status = h("div", { "aria-live": "polite" });
  const rows = pairs([
    ["Events", plural(preview.events, "event"), `, in ${plural(preview.scopes, "scope")}`],
    names && ["Among", participants(names)],
    preview.chains > 0 && ["Topics", plural(preview.chains, "chain"), " would lose events: rebuilt of what is left, or gone"],
    preview.payloads > 0 && ["Payloads", plural(preview.payloads, "payload"), " that they cite"],
  ]);
  const send = makeOnce("POST", "/api/v1/erasures", body);
  const ask = () =>
    askAndDo({
      title: `Forget ${size}?`,
      sentences: [
        ["This erases ", what(), ", with the text, the payloads, the vectors and everything that was derived from them."],
        ...(more ? [more] : []),
        "It cannot be taken back. From the answer on nobody can read them; within minutes all stores are cleared, and a signed receipt is made.",
      ],
      action: `Forget ${size}`,
      status,
      run: send,
      show: (it) => {
        keepChoice(it.erasure_id, { what, events: preview.events });
        context.go("forgetting", { erasure: it.erasure_id });
        return h("p", {}, "Forgotten.");
      },
    });
  return h(
    "section.notice",
    { "aria-label": "What it would take" },
    h("p", {}, h("strong", {}, "A dry run. "), "Nothing is forgotten yet. Forgetting ", what(), " takes:"),
    rows,
    more && h("p", {}, more),
    preview.events === 0 && !more ? h("p.hint", {}, "Nothing is there to forget.") : whereAllowed("erase", "Forgetting", () => h("p.buttons", {}, h("button.danger", { type: "button", onclick: ask }, `Forget ${size} …`))),
    status,
  );
}
