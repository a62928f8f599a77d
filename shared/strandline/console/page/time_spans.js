// Times in equal spans, for plots.

import { day } from "./formats.js";

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const SIZES = [
  ["minute", MINUTE],
  ["5 minutes", 5 * MINUTE],
  ["hour", HOUR],
  ["6 hours", 6 * HOUR],
  ["day", DAY],
  ["week", 7 * DAY],
  ["4 weeks", 28 * DAY],
  ["quarter", 91 * DAY],
  ["year", 365 * DAY],
  ["decade", 3652 * DAY],
];

/** Count times, in milliseconds, by the smallest span that makes at most `most` of them. With `items`
 * each span has those whose time is in it. */
export function splitIntoSpans(times, most, items = []) {
  const [first, last] = [Math.min(...times), Math.max(...times)];
  const [unit, size] = SIZES.find(([, it]) => Math.floor(last / it) - Math.floor(first / it) < most) ?? SIZES.at(-1);
  const start = Math.floor(first / size);
  const length = Math.min(Math.floor(last / size) - start + 1, most);
  const spans = Array.from({ length: Math.max(length, 1) }, (_, i) => ({ label: makeLabel((start + i) * size, size), count: 0, items: [] }));
  times.forEach((time, i) => {
    const span = spans[Math.min(Math.floor(time / size) - start, spans.length - 1)];
    span.count += 1;
    if (items.length) span.items.push(items[i]);
  });
  return { spans, unit };
}

function makeLabel(time, size) {
  const text = new Date(time).toISOString();
  return size < DAY ? `${day(text)} ${text.slice(11, 16)}` : day(text);
}
