// The drawing of a part of the graph, as SVG: a shape and a colour for each kind. Arrow keys go from
// node to node; a list of the same nodes stands beside it.

import { h, plain, svg } from "./dom.js";
import { measure, placeNodes } from "./graph_layout.js";

export const KINDS = {
  entity: { title: "Entity", path: "M-8-8h16v16h-16z" },
  fact: { title: "Fact", path: "M-9 0a9 9 0 1 0 18 0a9 9 0 1 0-18 0z" },
  decision: { title: "Decision", path: "M0-11L11 0L0 11L-11 0z" },
  event: { title: "Event", path: "M0-10L10 8H-10z" },
  topic: { title: "Topic", path: "M-10 0L-5-9H5L10 0L5 9H-5z" },
};
const MOST_LABELS = 46;
const LABEL_LENGTH = 30;
const LETTER_WIDTH = 6.2; // about that of a letter of a label, in the drawing's own units
const LABEL_HEIGHT = 13;

/** What a shape means; the shape says it, not the colour alone. */
export function makeLegend(nodes) {
  const kinds = Object.entries(KINDS).map(([type, { title, path }]) => {
    const count = nodes.filter((it) => it.type === type).length;
    return h("li", {}, svg(`svg.swatch.kind-${type}`, { viewBox: "-13 -13 26 26", "aria-hidden": "true" }, svg("path", { d: path })), h("span", {}, `${title} `, h("span.quiet", {}, String(count))));
  });
  return h("ul.legend", { "aria-label": "Kinds of nodes that are drawn" }, kinds);
}

function shorten(text) {
  const points = Array.from(plain(text).replace(/\s+/g, " "));
  return points.length > LABEL_LENGTH ? `${points.slice(0, LABEL_LENGTH - 1).join("")}…` : points.join("");
}

/** Draw these nodes, the first in the middle. `onPick(node)` is told which one is chosen, `onOpen`
 * which one is to be the middle. */
export function drawGraph(nodes, edges, { onPick, onOpen }) {
  placeNodes(nodes, edges);
  const box = measure(nodes, innerWidth < 700 ? 320 : 560); // in a small graph the words do not get larger than the page's
  const view = { ...box };
  const frame = svg("svg.graph", { viewBox: "0 0 1 1", role: "group", "aria-label": `A drawing of ${nodes.length} nodes and ${edges.length} edges. Arrow keys go from node to node, Enter shows one. The list below has the same nodes.` });
  const lines = edges.map((edge) => svg(`line.edge${edge.type === "invalidates" ? ".against" : ""}`, {}, svg("title", {}, `${shorten(nodes[edge.from].name)} – ${edge.type}${edge.label ? ` (${plain(edge.label)})` : ""} – ${shorten(nodes[edge.to].name)}`)));
  const labelled = chooseLabels(nodes);
  const shapes = nodes.map((node, i) => makeShape(node, i, labelled.get(i)));
  const incident = nodes.map((_, i) => edges.flatMap((edge, n) => (edge.from === i || edge.to === i ? [n] : [])));
  frame.append(svg("g", { "aria-hidden": "true" }, lines), svg("g", {}, shapes));

  const moveLine = (n) => {
    const [a, b] = [nodes[edges[n].from], nodes[edges[n].to]];
    lines[n].setAttribute("x1", a.x);
    lines[n].setAttribute("y1", a.y);
    lines[n].setAttribute("x2", b.x);
    lines[n].setAttribute("y2", b.y);
  };
  const moveShape = (i) => shapes[i].setAttribute("transform", `translate(${nodes[i].x.toFixed(1)} ${nodes[i].y.toFixed(1)})`);
  const showView = () => frame.setAttribute("viewBox", `${view.x} ${view.y} ${view.width} ${view.height}`);
  nodes.forEach((_, i) => moveShape(i));
  edges.forEach((_, n) => moveLine(n));
  showView();

  let here = 0;
  const pick = (i, byKey = false) => {
    shapes[here].setAttribute("tabindex", "-1");
    shapes[here].classList.remove("picked");
    here = i;
    shapes[here].setAttribute("tabindex", "0");
    shapes[here].classList.add("picked");
    lines.forEach((line, n) => line.classList.toggle("near", incident[here].includes(n)));
    if (byKey) shapes[here].focus();
    else onPick(nodes[here]);
  };
  const zoom = (factor) => {
    const width = Math.min(Math.max(view.width * factor, 120), box.width * 3);
    const height = (width / view.width) * view.height;
    view.x += (view.width - width) / 2;
    view.y += (view.height - height) / 2;
    Object.assign(view, { width, height });
    showView();
  };
  addPointer(frame, { nodes, view, shapes, incident, moveShape, moveLine, showView, pick, onOpen });
  addKeys(frame, { nodes, getHere: () => here, pick, onPick, onOpen, zoom });
  const whole = () => {
    Object.assign(view, box);
    showView();
  };
  const tools = h("div.graph-tools", {}, h("button", { type: "button", "aria-label": "Nearer", onclick: () => zoom(0.75) }, "+"), h("button", { type: "button", "aria-label": "Farther", onclick: () => zoom(1.33) }, "−"), h("button", { type: "button", onclick: whole }, "Whole"));
  shapes[0].setAttribute("tabindex", "0");
  shapes[0].classList.add("picked", "middle");
  lines.forEach((line, n) => line.classList.toggle("near", incident[0].includes(n)));
  return { element: h("div.graph-frame", {}, frame, tools) };
}

const computeScale = (node) => 1 + Math.min(Math.log2(Math.max(node.weight, 1)) / 6, 0.7);
const computeLabelTop = (node) => 11 * computeScale(node) + 12;

const computeLabelBottom = (node) => -11 * computeScale(node) - 5;

/** Which nodes show their names and where, below or above them: the middle, then the heaviest, none
 * over another's name. A map from positions to places. */
function chooseLabels(nodes) {
  const order = [...nodes.keys()].sort((a, b) => (a === 0 ? -1 : b === 0 ? 1 : nodes[b].weight - nodes[a].weight || a - b));
  const taken = [];
  const chosen = new Map();
  for (const i of order) {
    if (chosen.size >= MOST_LABELS) break;
    const [x, half] = [nodes[i].x, (shorten(nodes[i].name).length * LETTER_WIDTH) / 2];
    const isFree = (y) => !taken.some((it) => Math.abs(it.x - x) < it.half + half && Math.abs(it.y - nodes[i].y - y) < LABEL_HEIGHT);
    const place = [computeLabelTop(nodes[i]), computeLabelBottom(nodes[i])].find(isFree);
    if (place === undefined) continue;
    taken.push({ x, y: nodes[i].y + place, half });
    chosen.set(i, place);
  }
  return chosen;
}

function makeShape(node, i, labelPlace) {
  const kind = KINDS[node.type] ?? KINDS.entity;
  const over = node.valid_to ? ", no longer so" : "";
  const shape = svg(`g.node.kind-${node.type}${labelPlace === undefined ? "" : ".labelled"}${node.valid_to ? ".over" : ""}`, { role: "button", tabindex: "-1", "data-node": i, "aria-label": `${kind.title}: ${plain(node.name).slice(0, 200)}${over}` });
  const scale = computeScale(node);
  shape.append(svg("path", { d: kind.path, transform: `scale(${scale.toFixed(2)})` }), svg("text", { y: labelPlace ?? computeLabelTop(node), "text-anchor": "middle", "aria-hidden": "true" }, shorten(node.name)), svg("title", {}, `${kind.title}: ${plain(node.name)}${over}`));
  return shape;
}

/** A node is dragged, the ground moves the view, a click chooses, a double click opens. */
function addPointer(frame, { nodes, view, shapes, incident, moveShape, moveLine, showView, pick, onOpen }) {
  let held = null;
  let isWaiting = false;
  const find = (target) => Number(target.closest("[data-node]")?.dataset.node ?? -1);
  const perPixel = () => Math.max(view.width / frame.clientWidth, view.height / frame.clientHeight);
  const release = () => {
    held = null;
    frame.classList.remove("moving");
  };
  frame.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    held = { node: find(event.target), x: event.clientX, y: event.clientY, moved: 0 };
    frame.setPointerCapture(event.pointerId);
    frame.classList.add("moving");
  });
  frame.addEventListener("pointermove", (event) => {
    if (!held) return;
    const scale = perPixel();
    const [x, y] = [(event.clientX - held.x) * scale, (event.clientY - held.y) * scale];
    held.moved += Math.abs(event.clientX - held.x) + Math.abs(event.clientY - held.y);
    [held.x, held.y] = [event.clientX, event.clientY];
    if (held.node >= 0) {
      nodes[held.node].x += x;
      nodes[held.node].y += y;
    } else {
      view.x -= x;
      view.y -= y;
    }
    if (isWaiting) return;
    isWaiting = true;
    const { node } = held;
    requestAnimationFrame(() => {
      isWaiting = false;
      if (node < 0) showView();
      else {
        moveShape(node);
        incident[node].forEach(moveLine);
      }
    });
  });
  frame.addEventListener("pointerup", () => {
    if (held && held.moved < 5 && held.node >= 0) pick(held.node);
    release();
  });
  frame.addEventListener("pointercancel", release);
  frame.addEventListener("dblclick", (event) => {
    const i = shapes.findIndex((shape) => shape.contains(event.target));
    const chosen = i >= 0 ? i : shapes.findIndex((shape) => shape.matches(".picked:hover"));
    if (chosen >= 0) onOpen(nodes[chosen]);
  });
}

/** Arrow keys go to the nearest node in that direction, + and − change the size. */
function addKeys(frame, { nodes, getHere, pick, onPick, onOpen, zoom }) {
  const directions = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
  frame.addEventListener("keydown", (event) => {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const direction = directions[event.key];
    const here = nodes[getHere()];
    if (direction) {
      const next = findNext(nodes, here, direction);
      if (next >= 0) pick(next, true);
    } else if (event.key === "Enter") (event.shiftKey ? onOpen : onPick)(here);
    else if (event.key === "+" || event.key === "-") zoom(event.key === "+" ? 0.75 : 1.33);
    else return;
    event.preventDefault();
  });
}

function findNext(nodes, here, [x, y]) {
  let best = -1;
  let least = Infinity;
  nodes.forEach((node, i) => {
    const along = (node.x - here.x) * x + (node.y - here.y) * y;
    const across = Math.abs((node.x - here.x) * y) + Math.abs((node.y - here.y) * x);
    const far = along + 2 * across;
    if (node !== here && along > 0 && far < least) [best, least] = [i, far];
  });
  return best;
}
