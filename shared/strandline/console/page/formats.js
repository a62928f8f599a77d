// Numbers, times and names as people read them. Times are UTC, as in the API and in prompts.

import { h, plain, stored } from "./dom.js";
import { noteName } from "./session.js";

const number = new Intl.NumberFormat("en");
const MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split(" ");

export function count(value) {
  return number.format(value ?? 0);
}

export function plural(value, one, many = `${one}s`) {
  return `${count(value)} ${value === 1 ? one : many}`;
}

export function bytes(value) {
  const units = ["B", "KB", "MB", "GB", "TB"];
  let rest = value ?? 0;
  let unit = 0;
  while (rest >= 1000 && unit < units.length - 1) {
    rest /= 1000;
    unit += 1;
  }
  return `${rest < 10 && unit ? rest.toFixed(1) : Math.round(rest)} ${units[unit]}`;
}

export function usd(value) {
  return `$${(value ?? 0).toFixed(value && value < 0.1 ? 4 : 2)}`;
}

export function seconds(value) {
  if (value < 90) return `${Math.round(value)} s`;
  if (value < 5400) return `${Math.round(value / 60)} min`;
  if (value < 172_800) return `${Math.round(value / 3600)} h`;
  return `${Math.round(value / 86_400)} days`;
}

export function day(text) {
  const at = new Date(text);
  return `${at.getUTCDate()} ${MONTHS[at.getUTCMonth()]} ${at.getUTCFullYear()}`;
}

export function clock(text) {
  return new Date(text).toISOString().slice(11, 16);
}

/** A time: day, and hour and minute in UTC; the exact one as its title. */
export function time(text, { onlyClock = false } = {}) {
  if (!text) return h("span.quiet", {}, "–");
  return h("time", { datetime: text, title: `${text} (UTC)` }, onlyClock ? clock(text) : `${day(text)}, ${clock(text)}`);
}

/** A participant: its kind quiet, its name strong. */
export function participant(name) {
  const text = String(name ?? "");
  const at = text.indexOf(":");
  if (at < 0) return stored(text, "participant");
  noteName(text);
  return h("span.participant", { title: plain(text) }, h("span.kind", {}, stored(text.slice(0, at + 1))), stored(text.slice(at + 1)));
}

export function participants(names) {
  return h("span.participants", {}, names.map((it, i) => [i ? " " : null, participant(it)]));
}

/** A long id: its beginning, whole as its title. */
export function shortId(id, length = 8) {
  const text = String(id ?? "");
  return h("code.id", { title: plain(text) }, text.length > length + 6 ? `${text.slice(0, length)}…${text.slice(-4)}` : text);
}
