// Two lists that stay quick however long they are: only rows near the window are elements.

import { h, replace } from "./dom.js";
import { errorBox } from "./ui.js";

const OVERSCAN = 6;

/** A list of rows of one height, in pages by cursor: `load(cursor)` gives {items, next}. `render`
 * makes a row's content, with one link or button; arrow keys move between them. `empty` makes what
 * stands there when there is nothing. */
export function virtualList({ label, rowHeight, load, render, empty }) {
  const space = h("div.space");
  const frame = h("div.virtual-list", { role: "list", "aria-label": label, tabindex: "0" }, space);
  const status = h("div.list-status", { role: "status" });
  const root = h("div.list", {}, frame, status);
  const items = [];
  const rows = new Map();
  let next = null;
  let isLoading = false;
  let isDone = false;

  async function loadMore() {
    if (isLoading || isDone) return;
    isLoading = true;
    status.textContent = "Loading …";
    try {
      const page = await load(next);
      items.push(...page.items);
      next = page.next;
      isDone = !next;
      status.textContent = isDone ? "" : `${items.length.toLocaleString("en")} loaded; more follow as you scroll`;
      if (isDone && !items.length) replace(root, empty());
    } catch (error) {
      if (error.name === "AbortError") return;
      isDone = true;
      const again = () => {
        isDone = false;
        loadMore();
      };
      replace(status, errorBox(error, again));
    } finally {
      isLoading = false;
    }
    draw();
  }

  function draw() {
    space.style.height = `${items.length * rowHeight}px`;
    if (isDone) frame.style.maxHeight = `${items.length * rowHeight + 2}px`; // a short list takes no more room than its rows
    const first = Math.max(0, Math.floor(frame.scrollTop / rowHeight) - OVERSCAN);
    const last = Math.min(items.length, Math.ceil((frame.scrollTop + frame.clientHeight) / rowHeight) + OVERSCAN);
    for (const [index, row] of rows) {
      if ((index < first || index >= last) && !row.contains(document.activeElement)) {
        row.remove();
        rows.delete(index);
      }
    }
    for (let index = first; index < last; index += 1) if (!rows.has(index)) rows.set(index, drawRow(index));
    if (last > items.length - 30) loadMore();
  }

  function drawRow(index) {
    const row = h("div.virtual-row", { role: "listitem", "aria-posinset": index + 1, "aria-setsize": isDone ? items.length : -1 }, render(items[index], index));
    row.style.transform = `translateY(${index * rowHeight}px)`;
    row.style.height = `${rowHeight}px`;
    const before = [...rows.keys()].filter((it) => it > index).sort((a, b) => a - b)[0];
    space.insertBefore(row, before === undefined ? null : rows.get(before));
    return row;
  }

  function focusRow(index) {
    const top = index * rowHeight;
    if (top < frame.scrollTop) frame.scrollTop = top;
    if (top + rowHeight > frame.scrollTop + frame.clientHeight) frame.scrollTop = top + rowHeight - frame.clientHeight;
    draw();
    rows.get(index)?.querySelector("a, button")?.focus({ preventScroll: true });
  }

  frame.addEventListener("scroll", draw, { passive: true });
  frame.addEventListener("keydown", (event) => {
    const here = [...rows].find(([, row]) => row.contains(document.activeElement))?.[0] ?? -1;
    const target = { ArrowDown: here + 1, ArrowUp: here - 1, Home: 0, End: items.length - 1 }[event.key];
    if (target === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    if (items.length) focusRow(Math.min(Math.max(target, 0), items.length - 1));
  });
  const observer = new ResizeObserver(draw);
  observer.observe(frame);
  loadMore();
  return { element: root, items };
}

const MOST_ROWS = 240;
const NEAR = 900;
const ROWS_A_FRAME = 15; // more would hold up a frame while one scrolls

const nextFrame = () => new Promise(requestAnimationFrame);

/** Rows of any height, older above and newer below, without end in both directions. `older(item)` and
 * `newer(item)` give {items, more}, in the order of time; the item is the first or last that is
 * there. Rows far from the window are taken out, and come back when one scrolls there. */
export function slidingFeed({ label, first, older, newer, render, onWindow = () => {} }) {
  const top = h("div.feed-end", { role: "status" });
  const bottom = h("div.feed-end", { role: "status" });
  const body = h("div.feed-rows", { role: "feed", "aria-label": label, "aria-busy": "true" });
  const frame = h("div.feed", { role: "region", "aria-label": label, tabindex: "0" }, top, body, bottom);
  const ends = { older: { more: true, busy: false, status: top }, newer: { more: true, busy: false, status: bottom } };
  const rows = [];
  let hold = null;
  let generation = 0; // how often it was begun anew: what was asked for before belongs elsewhere

  const makeRow = (item) => ({ item, element: render(item) });

  function addOlder(items) {
    const height = frame.scrollHeight;
    const made = items.map(makeRow);
    rows.unshift(...made);
    body.prepend(...made.map((it) => it.element));
    frame.scrollTop += frame.scrollHeight - height;
    while (rows.length > MOST_ROWS) {
      rows.pop().element.remove();
      ends.newer.more = true;
    }
  }

  function addNewer(items) {
    const made = items.map(makeRow);
    rows.push(...made);
    body.append(...made.map((it) => it.element));
    const height = frame.scrollHeight;
    const surplus = Math.max(0, rows.length - MOST_ROWS);
    if (surplus) {
      for (const row of rows.splice(0, surplus)) row.element.remove();
      frame.scrollTop -= height - frame.scrollHeight;
      ends.older.more = true;
    }
  }

  async function extend(direction) {
    const end = ends[direction];
    const mine = generation;
    if (end.busy || !end.more || !rows.length) return;
    end.busy = true;
    end.status.textContent = "Loading …";
    try {
      const page = direction === "older" ? await older(rows[0].item) : await newer(rows.at(-1).item);
      for (let done = 0; done < page.items.length && mine === generation; done += ROWS_A_FRAME) {
        const last = page.items.length - done;
        if (direction === "older") addOlder(page.items.slice(Math.max(0, last - ROWS_A_FRAME), last));
        else addNewer(page.items.slice(done, done + ROWS_A_FRAME));
        await nextFrame();
      }
      if (mine !== generation) return;
      end.more = page.more;
      end.status.textContent = "";
    } catch (error) {
      if (error.name === "AbortError" || mine !== generation) return;
      end.more = false;
      const again = () => {
        end.more = true;
        extend(direction);
      };
      replace(end.status, errorBox(error, again));
    } finally {
      if (mine === generation) end.busy = false;
    }
    check();
  }

  function check() {
    if (!frame.isConnected) return;
    if (frame.scrollTop < NEAR) extend("older");
    if (frame.scrollHeight - frame.scrollTop - frame.clientHeight < NEAR) extend("newer");
    tellWindow();
  }

  function tellWindow() {
    const middle = frame.getBoundingClientRect().top + frame.clientHeight / 2;
    const isEnd = !ends.newer.more && frame.scrollHeight - frame.scrollTop - frame.clientHeight < 2;
    const isStart = !ends.older.more && frame.scrollTop < 2;
    const row = isEnd ? rows.at(-1) : isStart ? rows[0] : rows.find((it) => it.element.getBoundingClientRect().bottom >= middle);
    if (row) onWindow(row.item, isEnd);
  }

  /** Show these items and no others; `at` says where: "start", "end", or the item to stand at. */
  function reset(items, { hasOlder, hasNewer, at }) {
    generation += 1;
    for (const end of Object.values(ends)) {
      end.busy = false;
      end.status.textContent = "";
    }
    rows.splice(0, rows.length, ...items.map(makeRow));
    replace(body, rows.map((it) => it.element));
    body.setAttribute("aria-busy", "false");
    ends.older.more = hasOlder;
    ends.newer.more = hasNewer;
    const row = rows.find((it) => it.item === at);
    hold = () => {
      if (row) frame.scrollTop = row.element.offsetTop - frame.clientHeight / 3;
      else frame.scrollTop = at === "end" ? frame.scrollHeight : 0;
    };
    hold();
    check();
  }

  // Marks that come later move rows: the place is held until the person scrolls.
  const observer = new ResizeObserver(() => hold?.());
  observer.observe(body);
  for (const kind of ["wheel", "touchstart", "pointerdown", "keydown"]) frame.addEventListener(kind, () => (hold = null), { passive: true });

  let isWaiting = false;
  frame.addEventListener(
    "scroll",
    () => {
      if (isWaiting) return;
      isWaiting = true;
      requestAnimationFrame(() => {
        isWaiting = false;
        check();
      });
    },
    { passive: true },
  );
  frame.addEventListener("keydown", (event) => {
    if (!["PageDown", "PageUp"].includes(event.key) || !event.target.closest("article")) return;
    const here = rows.findIndex((it) => it.element.contains(document.activeElement));
    const row = rows[here + (event.key === "PageDown" ? 1 : -1)];
    if (!row) return;
    event.preventDefault();
    row.element.focus();
  });
  if (first) requestAnimationFrame(() => reset(first.items, first));
  return { element: frame, reset };
}
