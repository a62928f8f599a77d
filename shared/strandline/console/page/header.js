// The top of the page: the menu, for whom one reads, whose key it is, and the switch for changes.

import { splitNames } from "./api.js";
import { h, plain, replace } from "./dom.js";
import { participant } from "./formats.js";
import { format, parse } from "./router.js";
import { session, hasRight, nameKey } from "./session.js";
import { makeNamesInput, readNames } from "./ui.js";

/** The header and the menu. `setViewer(as)` is told for whom to read. */
export function makeHeader({ screens, signOut, setViewer, refresh, skip }) {
  const links = screens.map((it) => ({ screen: it, link: h("a", { href: format(it.name) }, it.title) }));
  const reader = h("div.reader");
  const follow = (event) => {
    const { name, state } = event.detail;
    for (const { screen, link } of links) {
      link.setAttribute("href", format(screen.name, { as: state.as }));
      if (screen.name === name) {
        link.setAttribute("aria-current", "page");
        const bar = link.closest("ul"); // where the menu is wider than the window; the page itself does not move
        bar.scrollLeft += link.getBoundingClientRect().left - bar.getBoundingClientRect().left - (bar.clientWidth - link.offsetWidth) / 2;
      } else link.removeAttribute("aria-current");
    }
    replace(reader, makeReaderForm(state.as, setViewer));
  };
  replace(reader, makeReaderForm(parse(location.hash).state.as, setViewer));
  addEventListener("screen", follow);
  return h(
    "header.top",
    {},
    h("button.skip", { type: "button", onclick: skip }, "Skip to the screen"),
    h("div.bar", {}, h("span.brand", {}, "Strandline"), h("span.tenant", { title: "The tenant whose memory this is" }, session.caller.tenant), reader, makeAccount(signOut, refresh)),
    h("nav", { "aria-label": "Screens" }, h("ul", {}, links.map(({ link }) => h("li", {}, link)))),
  );
}

function makeReaderForm(as, setViewer) {
  const { caller } = session;
  if (!hasRight("read")) return [h("span.quiet", {}, "This key reads no memory")];
  const isEverybody = as === "*" || (!as && caller.may_read_everybody);
  const names = as && as !== "*" ? splitNames(as) : [];
  const label = isEverybody ? "everybody" : [...(caller.user && !names.includes(caller.user) ? [caller.user] : []), ...names];
  const input = makeNamesInput("as", { value: names.join(", "), placeholder: caller.may_read_everybody ? "everybody" : caller.user ? "only with …" : "user:alice, agent:helper", "aria-label": "Read for these participants, with commas between them", size: "26", list: "seen-names" });
  const seen = h("datalist", { id: "seen-names" });
  for (const kind of ["focus", "input"]) input.addEventListener(kind, () => replace(seen, offerNames(input.value)));
  const back = caller.may_read_everybody && !isEverybody && h("button.quiet-button", { type: "button", onclick: () => setViewer("*") }, "× everybody");
  const form = h("form.reader-form", { hidden: true }, input, seen, h("button", { type: "submit" }, "Read"), back);
  const open = h("button.quiet-button", { type: "button", "aria-expanded": "false" }, "Change");
  const now = h("span.reader-now", {}, h("span.quiet", {}, "Reading for "), isEverybody ? h("strong", {}, "everybody") : label.length ? label.map((it, i) => [i ? " " : "", participant(it)]) : h("strong.warn", {}, "nobody yet"));
  const show = (isOpen) => {
    form.hidden = !isOpen;
    open.setAttribute("aria-expanded", String(isOpen));
    open.textContent = isOpen ? "Close" : "Change";
    if (isOpen) input.focus();
  };
  open.addEventListener("click", () => show(form.hidden));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const chosen = readNames(input);
    if (!chosen) return;
    setViewer(chosen.length === 1 && ["*", "everybody"].includes(chosen[0]) ? "*" : chosen.join(","));
    show(false);
  });
  if (!isEverybody && !label.length) {
    form.hidden = false;
    open.hidden = true;
  }
  return [now, open, form];
}

/** Names that the page has shown, each after those that are typed already. Those with characters that
 * cannot be seen are left out. */
function offerNames(text) {
  const before = text.slice(0, text.lastIndexOf(",") + 1);
  return [...session.names].filter((it) => plain(it) === it).sort().map((it) => h("option", { value: before ? `${before} ${it}` : it }));
}

function makeAccount(signOut, refresh) {
  const { caller } = session;
  const mayChange = caller.rights.some((it) => it !== "read");
  const changes = h("input", { type: "checkbox", role: "switch", checked: session.allowsChanges });
  changes.addEventListener("change", () => {
    session.allowsChanges = changes.checked;
    refresh();
  });
  const menu = h(
    "details.account",
    {},
    h("summary", {}, caller.user ? participant(caller.user) : caller.rights.includes("operator") ? "operator" : caller.may_read_everybody ? "admin" : "key"),
    h(
      "div.account-card",
      {},
      h("p", {}, h("strong", {}, nameKey(session.key))),
      h("p.quiet", {}, "Tenant ", h("bdi", {}, caller.tenant), caller.user ? [", bound to ", participant(caller.user)] : ", bound to nobody"),
      h("p.quiet", {}, `Rights: ${caller.rights.join(", ") || "none"}`),
      mayChange && h("label.choice", {}, changes, h("span", {}, "Allow changes. Each one says what it will do, and asks.")),
      h("p.buttons", {}, h("button", { type: "button", onclick: signOut }, "Forget this key")),
    ),
  );
  menu.addEventListener("toggle", () => menu.open && closeWhenLeft(menu));
  return menu;
}

/** Esc and a press outside close an open menu. */
function closeWhenLeft(menu) {
  const listening = new AbortController();
  const close = () => {
    menu.open = false;
    listening.abort();
  };
  const { signal } = listening;
  addEventListener("pointerdown", (event) => !menu.contains(event.target) && close(), { signal });
  addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    if (menu.contains(document.activeElement)) menu.querySelector("summary").focus();
    close();
  }, { signal });
}

/** The keys that work everywhere. */
export function showKeys(screens) {
  const rows = [
    ...screens.filter((it) => it.letter).map((it) => [`g ${it.letter}`, it.title]),
    ["/", "To the screen's first field"],
    ["↑ ↓ Home End", "Through a list"],
    ["Page up, Page down", "From message to message"],
    ["?", "These keys"],
  ];
  const dialog = h("dialog", { "aria-labelledby": "keys-title" });
  const close = () => {
    dialog.close();
    dialog.remove();
  };
  dialog.append(h("h2", { id: "keys-title" }, "Keys"), h("dl.keys", {}, rows.map(([keys, what]) => h("div", {}, h("dt", {}, h("kbd", {}, keys)), h("dd", {}, what)))), h("p.buttons", {}, h("button", { type: "button", autofocus: true, onclick: close }, "Close")));
  dialog.addEventListener("cancel", close);
  document.body.append(dialog);
  dialog.showModal();
}
