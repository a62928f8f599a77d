// Overview: whether the service is well, what waits, what is stored, what models cost.

import { get } from "./api.js";
import { h } from "./dom.js";
import { card, loadInto, pairs } from "./ui.js";

export const screen = { name: "overview", title: "Overview", letter: "o", right: null, show };

function show(root, context) {
  const health = h("div");
  root.append(card("Health", health));
  loadInto(health, () => get("/api/v1/health", {}, { signal: context.signal, accepts: [503] }), (it) =>
    pairs(Object.entries(it.dependencies).map(([name, state]) => [name, state])),
  );
}
