// A tenant's limits, thresholds and settings, as the service gives them; each may be changed.

import { change, get } from "./api.js";
import { askAndDo, select, whereAllowed } from "./changes.js";
import { h, stored } from "./dom.js";
import { time } from "./formats.js";
import { hasRight, session } from "./session.js";
import { loadInto, pairs, table } from "./ui.js";

const path = (tenant) => `/api/v1/admin/tenants/${encodeURIComponent(tenant)}`;

export function showTenantSettings(panel, context, tenant) {
  const body = h("div.stack");
  const status = h("div", { "aria-live": "polite" });
  panel.append(status, body);
  const reload = () => loadInto(body, () => get(path(tenant), {}, { signal: context.signal }), (it) => describe(it, { status, reload, tenant }));
  reload();
}

function describe(it, tools) {
  const mayChange = hasRight("operator") && session.allowsChanges;
  return [
    mayChange ? null : whereAllowed("operator", "Changing a setting", () => null),
    h("h3", {}, "Settings"),
    pairs([
      ["Time zone", setting(it, "time_zone", it.time_zone, "text", tools, mayChange)],
      ["Agents share", setting(it, "agents_share", it.agents_share, "boolean", tools, mayChange)],
      ["Embedding switch", setting(it, "embedding_switch", it.embedding_switch, "switch", tools, mayChange)],
      ["Reads the space", it.embedding.reads ? h("code.break", {}, stored(it.embedding.reads)) : "none yet: nothing was embedded"],
      ["Since", time(it.created_at)],
    ]),
    h("h3", {}, "Limits"),
    h("p.hint", {}, "Empty is the deployment's default; 0 allows nothing. A change applies everywhere within a minute."),
    table(["Limit", "Value"], Object.entries(it.limits).map(([name, value]) => [h("code", {}, name), setting(it, name, value, "number", tools, mayChange)]), "Limits"),
    h("h3", {}, "Thresholds of memory formation"),
    h("p.hint", {}, "Empty is the deployment's value. A change applies to memory formed from now on."),
    table(["Threshold", "Value"], Object.entries(it.tuning).map(([name, value]) => [h("code", {}, name), setting(it, name, value, typeof value === "string" ? "text" : "tuning", tools, mayChange)]), "Thresholds"),
  ];
}

function showValue(value) {
  if (value === null || value === undefined) return h("span.quiet", {}, "default");
  return stored(typeof value === "object" ? JSON.stringify(value) : String(value));
}

/** A value, and where changes are allowed the form that changes it. */
function setting(it, name, value, kind, tools, mayChange) {
  if (!mayChange) return showValue(value);
  const control = makeControl(name, value, kind);
  const form = h("form.inline-form", {}, control, h("button", { type: "submit" }, "Change …"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const next = parse(control.value, kind);
    const isTuning = name in it.tuning;
    askAndDo({
      title: `Change ${name}?`,
      sentences: [["From ", showValue(value), " to ", showValue(next), ", for the tenant ", stored(tools.tenant), "."]],
      action: "Change it",
      status: tools.status,
      run: () => change("PATCH", path(tools.tenant), isTuning ? { tuning: { [name]: next } } : { [name]: next }),
      show: () => h("p", {}, "Changed. It applies everywhere within a minute."),
    }).then((isDone) => isDone && tools.reload());
  });
  return form;
}

function makeControl(name, value, kind) {
  const label = { "aria-label": name };
  if (kind === "boolean") return select(name, [["false", "no"], ["true", "yes"]], String(value), label);
  if (kind === "switch") return select(name, [["", "default"], ["auto", "auto"], ["held", "held"]], value ?? "", label);
  return h("input", { type: kind === "number" ? "number" : "text", step: "any", name, value: value ?? "", placeholder: "default", autocomplete: "off", spellcheck: "false", ...label });
}

function parse(text, kind) {
  if (kind === "boolean") return text === "true";
  if (text.trim() === "") return null;
  if (kind === "number") return Number(text);
  if (kind === "tuning") {
    const number = Number(text);
    return Number.isNaN(number) ? text.trim() : number;
  }
  return text.trim();
}
