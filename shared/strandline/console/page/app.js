// The shell: signs in, shows the menu and the screen that the address names.

import { ApiError, call, get, onWaiting, toViewer } from "./api.js";
import { h, replace } from "./dom.js";
import { participant } from "./formats.js";
import { makeHeader, showKeys } from "./header.js";
import { format, parse, takeKeyFromAddress } from "./router.js";
import { SCREENS } from "./screens.js";
import { session, forgetKey, hasRight, keepKey } from "./session.js";
import { askForKey, askToUseLinkedKey } from "./sign_in.js";
import { emptyState, errorBox, loading } from "./ui.js";

let linkedKey = takeKeyFromAddress(); // before anything else: no other code sees an address with it
const app = document.getElementById("app");
const announcer = h("p.unseen", { role: "status", "aria-live": "polite" });
const main = h("main", { id: "main", tabindex: "-1" });
let shown = { name: "", leave: null, controller: new AbortController() };

let lastReader = ""; // for whom the screen before was read

onWaiting((sentence) => announce(sentence));

function announce(sentence) {
  announcer.textContent = sentence;
}

function listScreens() {
  return SCREENS.filter((it) => !it.right || hasRight(it.right));
}

async function start() {
  leaveScreen();
  if (linkedKey) {
    const key = linkedKey;
    const decide = (use) => {
      linkedKey = "";
      if (use) keepKey(key, false);
      start();
    };
    replace(app, askToUseLinkedKey(key, decide));
  } else if (!session.key) showSignIn(null);
  else if (session.caller) showShell();
  else await connect();
}

function showSignIn(problem) {
  replace(app, askForKey(problem, (key, forTab) => {
    keepKey(key, forTab);
    start();
  }));
}

/** Learn whose key it is. A key that is not accepted is forgotten, and the reason shown. */
async function connect() {
  replace(app, loading("Asking the service whose key this is …"));
  try {
    const health = await call("GET", "/api/v1/health", { accepts: [503] });
    session.caller = health.caller;
    if (!health.caller) {
      if (health.status === "unavailable") throw new ApiError(503, { code: "unavailable", retryable: true, message: "The service's database cannot be reached now." });
      await get("/api/v1/scopes", { limit: 1 }); // says why the key is not accepted
      throw new ApiError(503, { code: "unavailable", retryable: true, message: "The service could not look the key up." });
    }
    showShell();
  } catch (error) {
    if (error.status === 401) {
      forgetKey();
      showSignIn(error);
    } else replace(app, h("div.door", {}, errorBox(error, connect), h("p", {}, h("button", { type: "button", onclick: signOut }, "Use another key"))));
  }
}

function signOut() {
  forgetKey();
  start();
}

function showShell() {
  replace(app, makeHeader({ screens: listScreens(), signOut, setViewer, refresh: showScreen, skip: () => main.focus() }), main, announcer);
  shown = { name: "", leave: null, controller: new AbortController() };
  showScreen();
}

function leaveScreen() {
  shown.controller.abort();
  shown.leave?.();
  shown = { name: "", leave: null, controller: new AbortController() };
}

/** For whom the address reads: `as`, by default everybody where the key may, else the bound user. */
function chooseViewer(state) {
  const { caller } = session;
  if (state.as === "*" && !caller.may_read_everybody) return null;
  if (state.as) return toViewer(state.as);
  if (caller.may_read_everybody) return toViewer("*");
  return caller.user ? {} : null;
}

function setViewer(as) {
  const { name, state } = parse(location.hash);
  location.hash = format(name || "overview", { ...state, as });
}

/** Says that from now on the page reads for others than before, with a way back; or nothing. */
function tellReader(viewer, isFirst) {
  const reader = JSON.stringify(viewer);
  const isSame = isFirst || reader === lastReader;
  lastReader = reader;
  if (isSame || !viewer) return null;
  const own = session.caller.user; // a bound key reads for its user as well
  const others = (viewer.participants ?? []).filter((it) => it !== own);
  const names = own && !viewer.everybody ? [own, ...others] : others;
  announce(`Now reading for ${viewer.everybody ? "everybody" : names.join(", ")}.`);
  if (viewer.everybody) return h("p.notice", {}, "Now reading for everybody, on all screens.");
  const back = session.caller.may_read_everybody && [" ", h("button.quiet-button", { type: "button", onclick: () => setViewer("*") }, "× everybody")];
  return h("p.notice", {}, h("span", {}, "Now reading for ", names.map((it) => [participant(it), " "]), `on all screens: what ${names.length > 1 ? "all of them" : "they"} took part in.`, back));
}

async function showScreen() {
  const { name, state } = parse(location.hash);
  const screens = listScreens();
  const screen = screens.find((it) => it.name === name) ?? (name ? null : screens[0]);
  const isOther = shown.name !== (screen?.name ?? name);
  const isFirst = shown.name === "";
  leaveScreen();
  shown.name = screen?.name ?? name;
  const { controller } = shown;
  const root = h("div.screen");
  const heading = h("h1", { tabindex: "-1" }, screen?.title ?? "No such screen");
  replace(main, heading, tellReader(chooseViewer(state), isFirst), root);
  document.title = `${screen?.title ?? "No such screen"} · Strandline console`;
  dispatchEvent(new CustomEvent("screen", { detail: { name: shown.name, state } }));
  if (!isFirst && (isOther || document.activeElement === document.body)) heading.focus({ preventScroll: true });
  if (isOther) scrollTo(0, 0);
  if (!screen) {
    replace(root, emptyState("This address names no screen that this key may open.", "The menu has those that it may."));
    return;
  }
  const context = makeContext(screen, state, controller.signal);
  if (screen.needsViewer && !context.viewer) {
    replace(root, emptyState("Say for whom to read.", ["You are in the tenant ", h("strong", {}, h("bdi", {}, session.caller.tenant)), "."], "This key belongs to nobody in particular, so the service asks on whose behalf it reads: name one or more participants above, as user:alice. What all of them took part in is shown."));
    return;
  }
  try {
    const leave = await screen.show(root, context);
    if (controller.signal.aborted) leave?.();
    else shown.leave = leave ?? null;
  } catch (error) {
    if (error.name !== "AbortError" && !controller.signal.aborted) replace(root, errorBox(error, showScreen));
  }
}

function makeContext(screen, state, signal) {
  const link = (name, more = {}) => format(name, { as: state.as, ...more });
  const changed = (changes) => format(screen.name, { ...state, ...changes });
  return {
    state,
    signal,
    viewer: chooseViewer(state),
    link,
    go: (name, more) => (location.hash = link(name, more)),
    update: (changes) => {
      if (location.hash === changed(changes)) showScreen();
      else location.hash = changed(changes);
    },
    note: (changes) => {
      Object.assign(state, changes);
      history.replaceState(null, "", changed(changes));
    },
    announce,
  };
}

addEventListener("hashchange", () => {
  const key = takeKeyFromAddress();
  if (key) {
    linkedKey = key;
    start();
  } else if (session.caller) showScreen();
});

let lastKey = "";
addEventListener("keydown", (event) => {
  if (event.altKey || event.ctrlKey || event.metaKey || event.target.closest("input, textarea, select, dialog")) return;
  const screen = lastKey === "g" && listScreens().find((it) => it.letter === event.key);
  lastKey = event.key;
  if (!session.caller) return;
  if (screen) location.hash = format(screen.name, { as: parse(location.hash).state.as });
  else if (event.key === "/") {
    const search = main.querySelector("input, textarea");
    if (!search) return;
    event.preventDefault();
    search.focus();
  } else if (event.key === "?") showKeys(listScreens());
});

start();
