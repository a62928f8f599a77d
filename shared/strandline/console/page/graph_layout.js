// Places of the nodes of a drawing: springs along edges, and all nodes push each other away. The same
// nodes and edges always give the same places.

const STEPS = 140;
const SPRING = 92;
const TURN = Math.PI * (3 - Math.sqrt(5)); // the golden angle spreads what begins on one ring

/** Give each node an `x` and a `y`; the first one stays in the middle. `edges` have `from` and `to`,
 * positions among the nodes. At most 300 nodes: every pair is looked at. */
export function placeNodes(nodes, edges) {
  nodes.forEach((node, i) => {
    const radius = i === 0 ? 0 : 34 * Math.sqrt(i) + 46 * (node.hops ?? 1);
    node.x = radius * Math.cos(i * TURN);
    node.y = radius * Math.sin(i * TURN);
  });
  const degrees = nodes.map(() => 0);
  for (const { from, to } of edges) {
    degrees[from] += 1;
    degrees[to] += 1;
  }
  const push = Math.min(9000, 2600 + 160_000 / Math.max(nodes.length, 1));
  const dx = new Float64Array(nodes.length);
  const dy = new Float64Array(nodes.length);
  for (let step = 0; step < STEPS; step += 1) {
    dx.fill(0);
    dy.fill(0);
    pushApart(nodes, dx, dy, push);
    pullTogether(nodes, edges, degrees, dx, dy);
    const most = 26 * (1 - step / STEPS) + 0.5;
    for (let i = 1; i < nodes.length; i += 1) {
      const length = Math.hypot(dx[i], dy[i]) || 1;
      const share = Math.min(length, most) / length;
      nodes[i].x += dx[i] * share;
      nodes[i].y += dy[i] * share;
    }
  }
}

function pushApart(nodes, dx, dy, push) {
  for (let i = 0; i < nodes.length; i += 1) {
    for (let j = i + 1; j < nodes.length; j += 1) {
      let x = nodes[i].x - nodes[j].x;
      let y = nodes[i].y - nodes[j].y;
      let square = x * x + y * y;
      if (square < 0.01) {
        x = 0.1 * Math.cos((i + j) * TURN);
        y = 0.1 * Math.sin((i + j) * TURN);
        square = 0.01;
      }
      const force = Math.min(push / square, 30);
      const length = Math.sqrt(square);
      dx[i] += (x / length) * force;
      dy[i] += (y / length) * force;
      dx[j] -= (x / length) * force;
      dy[j] -= (y / length) * force;
    }
    dx[i] -= nodes[i].x * 0.012; // towards the middle
    dy[i] -= nodes[i].y * 0.012;
  }
}

function pullTogether(nodes, edges, degrees, dx, dy) {
  for (const { from, to } of edges) {
    const x = nodes[to].x - nodes[from].x;
    const y = nodes[to].y - nodes[from].y;
    const length = Math.hypot(x, y) || 1;
    const force = ((length - SPRING) * 0.22) / Math.sqrt(Math.min(degrees[from], degrees[to]));
    dx[from] += (x / length) * force;
    dy[from] += (y / length) * force;
    dx[to] -= (x / length) * force;
    dy[to] -= (y / length) * force;
  }
}

/** The box around all nodes, not smaller than `least`: {x, y, width, height}. */
export function measure(nodes, margin = 60, least = 560) {
  const xs = nodes.map((it) => it.x);
  const ys = nodes.map((it) => it.y);
  const [left, right, top, bottom] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  const width = Math.max(right - left + 2 * margin, least);
  const height = Math.max(bottom - top + 2 * margin, least * 0.7);
  return { x: (left + right - width) / 2, y: (top + bottom - height) / 2, width, height };
}
