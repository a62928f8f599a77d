// People and conversations: who took part, in which scopes and sessions, and what was said.

import { get, splitNames } from "./api.js";
import { showConversation } from "./conversation.js";
import { h, plain, replace, stored } from "./dom.js";
import * as format from "./formats.js";
import { virtualList } from "./lists.js";
import { makeSessionLoader, showSessionFacts } from "./sessions.js";
import { emptyState, loadInto } from "./ui.js";

export const screen = { name: "people", title: "People and conversations", letter: "p", right: "read", needsViewer: true, show };

const TABS = { people: "People", scopes: "Scopes", sessions: "Sessions" };
const ROW = 62;
const SESSION_ROW = 82;
const PAGE = 100;
const COUNTED = "Events as they were stored: erased ones are counted.";

function show(root, context) {
  const isOpen = Boolean(context.state.scope);
  const tab = TABS[context.state.tab] ? context.state.tab : "scopes";
  const list = h("section.people-list", { "aria-label": TABS[tab] });
  const tabs = h("div.segments", { role: "group", "aria-label": "List" }, Object.entries(TABS).map(([name, label]) => h("button.segment", { type: "button", "aria-pressed": String(tab === name), onclick: () => context.update({ tab: name }) }, label)));
  list.append(tabs, makeList(tab, context), tab === "sessions" ? "" : h("p.hint", {}, COUNTED));
  const pane = h("section.people-pane");
  root.append(h(`div.people${isOpen ? ".is-open" : ""}`, {}, list, pane));
  if (isOpen) showConversation(pane, context);
  else pane.append(emptyState("Choose a conversation.", "A scope is one exact set of participants, with all that was said among them in order. A session is one conversation in it."));
}

function makeList(tab, context) {
  if (tab === "people") {
    const place = h("div.stack");
    loadInto(place, () => countPeople(context), (found) => showPeople(found, context));
    return place;
  }
  const isScopes = tab === "scopes";
  const loadScopes = async (cursor) => {
    const page = await get("/api/v1/scopes", { ...context.viewer, limit: PAGE, cursor }, { signal: context.signal });
    return { items: page.scopes, next: page.next_cursor };
  };
  const load = isScopes ? loadScopes : makeSessionLoader(context);
  const nothing = () => (isScopes ? emptyState("No scope is in view.", "A scope appears with the first event among its participants. Names keep their case: user:Ann is not user:ann.") : emptyState("No session is in view.", "A session appears with the first event that names it, or when an agent begins one."));
  return virtualList({ label: TABS[tab], rowHeight: isScopes ? ROW : SESSION_ROW, load, render: (it) => (isScopes ? showScopeRow(it, context) : showSessionRow(it, context)), empty: nothing }).element;
}

function makeRowLink(changes, isCurrent, context, ...children) {
  const { state } = context;
  const address = context.link("people", { tab: state.tab, ...changes });
  return h("a.row-link", { href: address, "aria-current": isCurrent ? "true" : null }, children);
}

function showScopeRow(scope, context) {
  const isCurrent = context.state.scope === scope.scope_id && !context.state.session;
  return makeRowLink({ scope: scope.scope_id }, isCurrent, context, h("span.row-title", { title: plain(scope.participants.join(", ")) }, format.participants(scope.participants)), h("span.row-facts", {}, h("span", { title: COUNTED }, `${format.plural(scope.last_seq, "event")} stored`), format.time(scope.last_recorded_at)));
}

function showSessionRow(session, context) {
  const isCurrent = context.state.scope === session.scope_id && context.state.session === session.session_id;
  return makeRowLink({ scope: session.scope_id, session: session.session_id }, isCurrent, context, h("span.row-title", { title: plain(session.session_id) }, stored(session.session_id)), showSessionFacts(session));
}

// people ------------------------------------------------------------------------------------------

const MOST_SCOPES = 2000;

/** Who took part in the scopes in view, the most recent first. No route lists participants: they are
 * read from the scopes, at most 2,000. */
async function countPeople(context) {
  const people = new Map();
  let cursor = null;
  let read = 0;
  do {
    const page = await get("/api/v1/scopes", { ...context.viewer, limit: 500, cursor }, { signal: context.signal });
    for (const scope of page.scopes) {
      for (const name of scope.participants) {
        const known = people.get(name) ?? { name, scopes: 0, events: 0, last: scope.last_recorded_at };
        people.set(name, { ...known, scopes: known.scopes + 1, events: known.events + scope.last_seq });
      }
    }
    read += page.scopes.length;
    cursor = page.next_cursor;
  } while (cursor && read < MOST_SCOPES);
  return { people: [...people.values()], isWhole: !cursor };
}

function showPeople({ people, isWhole }, context) {
  if (!people.length) return emptyState("Nobody is in view.", "Participants appear with the first event that they took part in.");
  const filter = h("input", { type: "search", placeholder: "Find by name", "aria-label": "Find a participant by name", autocomplete: "off", spellcheck: "false" });
  const place = h("div");
  const draw = () => {
    const word = filter.value.trim().toLowerCase();
    const found = people.filter((it) => it.name.toLowerCase().includes(word));
    const load = async () => ({ items: found, next: null });
    const nobody = () => emptyState("Nobody of this name is in this list.", isNamed(filter.value) ? h("a", { href: context.link("people", { as: filter.value.trim(), tab: "scopes" }) }, "Read for ", stored(filter.value.trim())) : "A whole name has its kind, as user:alice or agent:helper.");
    replace(place, virtualList({ label: "People", rowHeight: ROW, load, render: (it) => showPersonRow(it, context), empty: nobody }).element);
  };
  filter.addEventListener("input", draw);
  draw();
  return [filter, h("p.hint", {}, "Choosing one reads for them, here and on the other screens, and lists their scopes."), place, !isWhole && h("p.hint", {}, `Those of the ${format.count(MOST_SCOPES)} newest scopes. Type anybody else's whole name, as user:alice.`)];
}

const isNamed = (text) => /^[a-z][a-z0-9_-]{0,31}:./.test(text.trim());

/** A person's conversations are read for that person, together with those who are named already. */
function showPersonRow(person, context) {
  const named = context.state.as === "*" ? [] : splitNames(context.state.as);
  const as = [...new Set([...named, person.name])].join(",");
  return h("a.row-link", { href: context.link("people", { as, tab: "scopes" }), title: plain(`Read for ${as}`) }, h("span.row-title", {}, format.participant(person.name)), h("span.row-facts", {}, h("span", { title: COUNTED }, `${format.plural(person.events, "event")} in ${format.plural(person.scopes, "scope")}`), format.time(person.last)));
}
