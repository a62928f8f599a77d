// A tree whose branches are loaded when they are opened. Arrow keys as in any tree: down and up, right
// opens, left closes or goes to what is above.

import { h, replace, stored } from "./dom.js";
import { day, participants, plural } from "./formats.js";
import { errorBox, loading } from "./ui.js";

/** What a topic is called. */
export function nameTopic(topic) {
  if (topic.erased_at) return h("span.quiet", {}, "a topic whose text was erased");
  if (topic.topic || topic.summary) return stored(topic.topic ?? topic.summary);
  return h("span.quiet", {}, topic.kind === "leaf" ? "a topic without a name" : "topics without a name");
}

/** The tree: {element, ready}. `first` is the first page of roots, `load(query)` gives what is below
 * one or the next page, `chosen` names the topic to open at, `onPick(topic)` is told what is chosen. */
export function makeTree({ label, first, load, chosen, onPick }) {
  const tree = h("ul.tree", { role: "tree", "aria-label": label });
  const more = h("p.buttons");
  const topics = new Map();
  let cursor = null;

  const add = (page) => {
    tree.append(...page.topics.map((it) => makeItem(it, true)));
    cursor = page.next_cursor;
    replace(more, cursor ? h("button", { type: "button", onclick: loadMore }, "More conversations") : null);
  };
  async function loadMore() {
    replace(more, loading());
    try {
      add(await load({ limit: 50, cursor }));
    } catch (error) {
      if (error.name !== "AbortError") replace(more, errorBox(error, loadMore));
    }
  }

  function makeItem(topic, isRoot) {
    const isLeaf = topic.kind === "leaf";
    const twist = h("span.twist", { "aria-hidden": "true" }, isLeaf ? "·" : "▸");
    const content = h("div.tree-item", {}, twist, h("div", {}, h("div", {}, isRoot ? participants(topic.participants) : null, isRoot ? ": " : null, nameTopic(topic)), h("div.quiet.small", {}, `${plural(topic.event_count, "event")}${isLeaf ? "" : `, ${plural(topic.leaf_count, "topic")}`} · ${describePeriod(topic)}`)));
    const item = h("li", { role: "treeitem", tabindex: "-1", "aria-expanded": isLeaf ? null : "false", "aria-selected": "false" }, content);
    topics.set(item, topic);
    content.addEventListener("click", (event) => {
      pick(item);
      if (!isLeaf && (event.target === twist || item.getAttribute("aria-expanded") === "false")) toggle(item);
    });
    return item;
  }

  function pick(item) {
    for (const one of tree.querySelectorAll('[aria-selected="true"]')) one.setAttribute("aria-selected", "false");
    item.setAttribute("aria-selected", "true");
    focus(item);
    onPick(topics.get(item));
  }

  function focus(item) {
    for (const one of tree.querySelectorAll('[tabindex="0"]')) one.setAttribute("tabindex", "-1");
    item.setAttribute("tabindex", "0");
    item.focus({ preventScroll: false });
  }

  async function toggle(item) {
    const isOpen = item.getAttribute("aria-expanded") === "true";
    if (isOpen) {
      item.setAttribute("aria-expanded", "false");
      item.querySelector(".twist").textContent = "▸";
      item.querySelector(":scope > ul")?.remove();
      return;
    }
    const topic = topics.get(item);
    const group = h("ul", { role: "group" });
    const wait = h("li", { role: "none" }, loading());
    group.append(wait);
    item.append(group);
    item.setAttribute("aria-expanded", "true");
    item.querySelector(".twist").textContent = "▾";
    try {
      const page = await load({ scope_id: topic.scope_id, slot: topic.slot });
      replace(group, page.topics.map((it) => makeItem(it, false)));
    } catch (error) {
      if (error.name !== "AbortError") replace(group, h("li", { role: "none" }, errorBox(error)));
    }
  }

  tree.addEventListener("keydown", (event) => {
    const item = event.target.closest('[role="treeitem"]');
    if (!item || event.altKey || event.ctrlKey || event.metaKey) return;
    const items = [...tree.querySelectorAll('[role="treeitem"]')];
    const here = items.indexOf(item);
    const expanded = item.getAttribute("aria-expanded");
    const above = item.parentElement.closest('[role="treeitem"]');
    const actions = {
      ArrowDown: () => items[here + 1] && focus(items[here + 1]),
      ArrowUp: () => items[here - 1] && focus(items[here - 1]),
      Home: () => focus(items[0]),
      End: () => focus(items.at(-1)),
      ArrowRight: () => (expanded === "false" ? toggle(item) : expanded === "true" && items[here + 1] && focus(items[here + 1])),
      ArrowLeft: () => (expanded === "true" ? toggle(item) : above && focus(above)),
      Enter: () => pick(item),
      " ": () => pick(item),
    };
    if (!actions[event.key]) return;
    event.preventDefault();
    actions[event.key]();
  });

  /** Open the way to the topic of the address, as far as it is among these conversations. */
  async function openChosen() {
    const roots = [...tree.children];
    if (!chosen.slot) {
      if (roots[0] && roots.length === 1) await toggle(roots[0]);
      return;
    }
    const root = roots.find((it) => topics.get(it).scope_id === chosen.scope);
    if (root) await descend(root, chosen.slot, 0);
  }

  async function descend(item, slot, depth) {
    if (topics.get(item).slot === slot) {
      pick(item);
      return true;
    }
    if (item.getAttribute("aria-expanded") !== "false" || depth > 12) return false;
    await toggle(item);
    for (const child of item.querySelectorAll(":scope > ul > [role='treeitem']")) if (await descend(child, slot, depth + 1)) return true;
    await toggle(item);
    return false;
  }

  add(first);
  tree.firstElementChild?.setAttribute("tabindex", "0");
  return { element: h("div.stack", {}, tree, more), ready: openChosen() };
}

function describePeriod(topic) {
  const [from, to] = [day(topic.started_at), day(topic.last_event_at)];
  return from === to ? from : `${from} – ${to}`;
}
