// Plots, drawn as SVG. Each has its figures as text for those who do not see it.

import { h, svg } from "./dom.js";

/** Bars over time: `points` are {label, value, title}. */
export function bars(points, { label, height = 120, unit = "" }) {
  const width = 600;
  const gap = points.length > 60 ? 0.5 : 2;
  const step = width / Math.max(points.length, 1);
  const top = Math.max(...points.map((it) => it.value), 0) || 1;
  const drawing = svg("svg.plot", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": label });
  points.forEach((point, i) => {
    const size = (point.value / top) * (height - 4);
    const bar = svg("rect.bar", { x: i * step + gap / 2, width: Math.max(step - gap, 0.5), y: height - size, height: size, rx: 1 }, svg("title", {}, point.title));
    drawing.append(bar);
  });
  const scale = h("div.plot-scale", { "aria-hidden": "true" }, h("span", {}, points[0]?.label ?? ""), h("span", {}, points.at(-1)?.label ?? ""));
  return h("figure.figure", {}, h("figcaption", {}, h("span", {}, label), h("span.quiet", {}, `at most ${top === 1 && !points.some((it) => it.value) ? 0 : formatValue(top)}${unit}`)), drawing, scale);
}

function formatValue(value) {
  return value >= 1 || value === 0 ? Math.round(value * 100) / 100 : value.toPrecision(2);
}

/** One horizontal bar beside others, each a part of the largest. */
export function meter(value, top, { label, kind = "" }) {
  const share = top > 0 ? Math.min(Math.abs(value) / top, 1) : 0;
  return svg(
    `svg.meter${kind ? `.${kind}` : ""}`,
    { viewBox: "0 0 100 8", preserveAspectRatio: "none", role: "img", "aria-label": label },
    svg("rect.track", { width: 100, height: 8, rx: 1 }),
    svg("rect.bar", { width: share * 100, height: 8, rx: 1 }),
  );
}
