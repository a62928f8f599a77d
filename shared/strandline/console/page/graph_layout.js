// Places of the nodes of a drawing: springs along edges, and all nodes push each other away. The same
// nodes and edges always give the same places.

const STEPS = 140;
const SPRING = 92;
const TURN = Math.PI * (3 - Math.sqrt(5)); // the golden angle spreads what begins on one ring

/** Give each node an `x` and a `y`; the first one stays in the middle. `edges` have `from` and `to`,
 * positions among the nodes. At most 300 nodes: every pair is looked at. */
export function placeNodes(nodes, edges) {
  const size = nodes.length;
  const [x, y, dx, dy, degrees] = Array.from({ length: 5 }, () => new Float64Array(size));
  nodes.forEach((node, i) => {
    const radius = i === 0 ? 0 : 34 * Math.sqrt(i) + 46 * (node.hops ?? 1);
    x[i] = radius * Math.cos(i * TURN);
    y[i] = radius * Math.sin(i * TURN);
  });
  for (const { from, to } of edges) {
    degrees[from] += 1;
    degrees[to] += 1;
  }
  const push = Math.min(9000, 2600 + 160_000 / Math.max(size, 1));
  for (let step = 0; step < STEPS; step += 1) {
    dx.fill(0);
    dy.fill(0);
    pushApart(x, y, dx, dy, push);
    pullTogether(x, y, dx, dy, edges, degrees);
    const most = 26 * (1 - step / STEPS) + 0.5;
    for (let i = 1; i < size; i += 1) {
      const length = Math.sqrt(dx[i] * dx[i] + dy[i] * dy[i]) || 1;
      const share = Math.min(length, most) / length;
      x[i] += dx[i] * share;
      y[i] += dy[i] * share;
    }
  }
  nodes.forEach((node, i) => Object.assign(node, { x: x[i], y: y[i] }));
}

function pushApart(x, y, dx, dy, push) {
  const size = x.length;
  for (let i = 0; i < size; i += 1) {
    for (let j = i + 1; j < size; j += 1) {
      let right = x[i] - x[j];
      let down = y[i] - y[j];
      let square = right * right + down * down;
      if (square < 0.01) {
        right = 0.1 * Math.cos((i + j) * TURN);
        down = 0.1 * Math.sin((i + j) * TURN);
        square = 0.01;
      }
      const force = Math.min(push / square, 30) / Math.sqrt(square);
      dx[i] += right * force;
      dy[i] += down * force;
      dx[j] -= right * force;
      dy[j] -= down * force;
    }
    dx[i] -= x[i] * 0.012; // towards the middle
    dy[i] -= y[i] * 0.012;
  }
}

function pullTogether(x, y, dx, dy, edges, degrees) {
  for (const { from, to } of edges) {
    const right = x[to] - x[from];
    const down = y[to] - y[from];
    const length = Math.sqrt(right * right + down * down) || 1;
    const force = ((length - SPRING) * 0.22) / Math.sqrt(Math.min(degrees[from], degrees[to])) / length;
    dx[from] += right * force;
    dy[from] += down * force;
    dx[to] -= right * force;
    dy[to] -= down * force;
  }
}

/** The box around all nodes, not smaller than `least`: {x, y, width, height}. */
export function measure(nodes, least, margin = 60) {
  const xs = nodes.map((it) => it.x);
  const ys = nodes.map((it) => it.y);
  const [left, right, top, bottom] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  const width = Math.max(right - left + 2 * margin, least);
  const height = Math.max(bottom - top + 2 * margin, least * 0.7);
  return { x: (left + right - width) / 2, y: (top + bottom - height) / 2, width, height };
}
