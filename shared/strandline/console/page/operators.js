// Keys, quotas and tenants, for operators. An operator's key reads no memory.

import { call, change, get } from "./api.js";
import { askAndDo, whereAllowed } from "./changes.js";
import { h, replace, stored } from "./dom.js";
import { bytes, count, participant, shortId, time, usd } from "./formats.js";
import { virtualList } from "./lists.js";
import { meter } from "./plots.js";
import { showTenantSettings } from "./tenant_settings.js";
import { badge, card, copyButton, emptyState, field, loadInto, pairs, table, tabs } from "./ui.js";

export const screen = { name: "operators", title: "Keys, quotas, tenants", letter: "k", right: "operator", show };

const TABS = [
  ["keys", "Keys"],
  ["certificates", "Client certificates"],
  ["quotas", "Quotas and use"],
  ["settings", "Limits and settings"],
  ["audit", "Audit trail"],
];
const RIGHTS = [
  ["read", "read memory"],
  ["write", "store"],
  ["erase", "forget"],
  ["admin", "read everybody, run jobs"],
  ["operator", "tenants and keys; reads no memory"],
];

const tenantPath = (name) => `/api/v1/admin/tenants/${encodeURIComponent(name)}`;

function show(root, context) {
  const detail = h("div.stack");
  root.append(h("div.columns.wide-right", {}, card("Tenants", listTenants(context), makeTenant(context)), detail));
  if (context.state.tenant) showTenant(detail, context, context.state.tenant);
  else replace(detail, emptyState("Choose a tenant.", "Its keys, client certificates, quotas, settings and audit trail appear here."));
}

function listTenants(context) {
  return virtualList({
    label: "Tenants, by name",
    rowHeight: 54,
    load: async (cursor) => {
      const page = await get("/api/v1/admin/tenants", { limit: 200, cursor }, { signal: context.signal });
      return { items: page.tenants, next: page.next_cursor };
    },
    render: (it) => h("div.list-line.stacked", {}, h("a", { href: context.link("operators", { tenant: it.tenant_id, tab: context.state.tab }), "aria-current": it.tenant_id === context.state.tenant ? "true" : null }, stored(it.tenant_id)), h("span.quiet.small", {}, "since ", time(it.created_at))),
    empty: () => emptyState("There is no tenant yet.", "A tenant is the boundary between memories. Make the first one below, then a key for it."),
  }).element;
}

function makeTenant(context) {
  const name = h("input", { type: "text", name: "tenant", required: true, pattern: "[a-z0-9][a-z0-9\\-]{0,62}", title: "Small letters, digits and hyphens, at most 63", autocomplete: "off", spellcheck: "false" });
  const status = h("div", { "aria-live": "polite" });
  const form = h("form.stack", {}, field("New tenant", name, "Small letters, digits and hyphens."), h("p.buttons", {}, h("button", { type: "submit" }, "Make a tenant …")));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const tenant = name.value.trim();
    const isDone = await askAndDo({ title: `Make the tenant ${tenant}?`, sentences: ["It begins empty, with the deployment's default limits. A tenant cannot be deleted; its memory can be erased."], action: "Make it", status, run: () => change("POST", "/api/v1/admin/tenants", { tenant_id: tenant }), show: () => h("p", {}, "Made.") });
    if (isDone) context.go("operators", { tenant });
  });
  return h("details", {}, h("summary", {}, "Make a tenant"), whereAllowed("operator", "Making a tenant", () => form), status);
}

function showTenant(root, context, tenant) {
  const tab = TABS.some(([it]) => it === context.state.tab) ? context.state.tab : "keys";
  const panel = h("div.stack");
  const links = TABS.map(([name, title]) => [context.link("operators", { tenant, tab: name }), title, name === tab]);
  replace(root, card(["Tenant ", stored(tenant)], tabs("Of this tenant", links), panel));
  ({ keys: showKeys, certificates: showCertificates, quotas: showQuotas, settings: showTenantSettings, audit: showAudit })[tab](panel, context, tenant);
}

// keys and certificates ---------------------------------------------------------------------------

function describeEnd(it) {
  if (it.revoked_at) return [badge("revoked", "bad"), " ", time(it.revoked_at)];
  if (it.expires_at && new Date(it.expires_at) <= new Date()) return [badge("expired", "warn"), " ", time(it.expires_at)];
  return [badge("valid", "good"), " ", it.expires_at ? ["until ", time(it.expires_at)] : "without end"];
}

const isOver = (it) => Boolean(it.revoked_at) || (it.expires_at && new Date(it.expires_at) <= new Date());

async function loadAll(path, name, context) {
  const items = [];
  let cursor = null;
  do {
    const page = await get(path, { limit: 500, cursor }, { signal: context.signal });
    items.push(...page[name]);
    cursor = page.next_cursor;
  } while (cursor && items.length < 2000);
  return { items, isCut: Boolean(cursor) };
}

function showKeys(panel, context, tenant) {
  const list = h("div");
  const status = h("div.stack", { "aria-live": "polite" });
  const path = `${tenantPath(tenant)}/keys`;
  const reload = () => loadInto(list, () => loadAll(path, "keys", context), (found) => describeKeys(found, { path, status, reload }));
  panel.append(status, list, h("details", {}, h("summary", {}, "Make a key"), whereAllowed("operator", "Making a key", () => makePrincipalForm({ path, status, reload, isKey: true }))));
  reload();
}

function describeKeys({ items, isCut }, tools) {
  if (!items.length) return emptyState("This tenant has no key.", "Nobody reaches its memory yet. Make a key below; its secret is shown once.");
  const rows = items.map((it) => [
    [shortId(it.key_id), it.label ? [h("br"), stored(it.label, "small")] : ""],
    it.user ? participant(it.user) : h("span.quiet", {}, "nobody"),
    it.rights.join(", "),
    describeEnd(it),
    [time(it.created_at), it.rotated_to ? [h("br"), h("span.quiet.small", {}, "rotated to ", shortId(it.rotated_to))] : ""],
    isOver(it) ? "" : whereAllowedQuietly(() => h("span.buttons", {}, it.rotated_to ? null : h("button", { type: "button", onclick: () => rotateKey(it, tools) }, "Rotate …"), h("button.danger", { type: "button", onclick: () => revoke(it, `${tools.path}/${it.key_id}`, "key", tools) }, "Revoke …"))),
  ]);
  return [table(["Key", "Bound to", "Rights", "State", "Made", "Change"], rows, "Keys, newest first"), isCut ? h("p.hint", {}, `The newest ${count(items.length)} are shown.`) : null];
}

function whereAllowedQuietly(makeControls) {
  const made = whereAllowed("operator", "A change", makeControls);
  return made.classList.contains("hint") ? h("span.quiet.small", {}, "changes are off") : made;
}

function rotateKey(key, { path, status, reload }) {
  return askAndDo({
    title: "Rotate this key?",
    sentences: ["A successor with the same user, rights and label is made; its secret is shown once. The old key stays valid for another day, then ends."],
    action: "Rotate",
    status,
    run: () => change("POST", `${path}/${key.key_id}/rotate`, { overlap_seconds: 86_400 }),
    show: (it) => showToken(it.key),
  }).then((isDone) => isDone && reload());
}

function revoke(it, path, what, { status, reload }) {
  return askAndDo({
    title: `Revoke this ${what}?`,
    sentences: [[`Within 60 seconds every call with this ${what} is refused. It cannot be taken back: make another one. `, it.label ? ["Its label: ", stored(it.label)] : ""]],
    action: "Revoke",
    status,
    run: () => call("DELETE", path, { attempts: 1 }),
    show: () => h("p", {}, "Revoked. It is refused within 60 seconds."),
  }).then((isDone) => isDone && reload());
}

function showToken(key) {
  return h("div.notice.good", { role: "status" }, h("p", {}, h("strong", {}, "The key, shown this once. "), "It is stored nowhere: copy it now."), h("p", {}, h("code.break", {}, key.token)), h("p.buttons", {}, copyButton("Copy the key", () => key.token)));
}

function makePrincipalForm({ path, status, reload, isKey }) {
  const subject = h("input", { type: "text", name: "subject", required: true, placeholder: "CN=alice,O=Example", autocomplete: "off", spellcheck: "false" });
  const user = h("input", { type: "text", name: "user", placeholder: "user:alice", autocomplete: "off", spellcheck: "false" });
  const label = h("input", { type: "text", name: "label", maxlength: 200, autocomplete: "off" });
  const days = h("input", { type: "number", name: "days", min: 1, max: 3650, value: "90" });
  const boxes = RIGHTS.map(([name, meaning]) => ({ name, box: h("input", { type: "checkbox", name, checked: name === "read" || name === "write" }), meaning }));
  const form = h(
    "form.stack",
    {},
    isKey ? null : field("Subject", subject, "The distinguished name, most specific part first."),
    field("Bound to", user, "It reads and writes as this user only. Empty: bound to nobody, and trusted with everybody's names."),
    h("fieldset", {}, h("legend", {}, "Rights"), boxes.map(({ name, box, meaning }) => h("label.choice", {}, box, h("span", {}, h("code", {}, name), ` – ${meaning}`)))),
    field("Label", label, "What it is for. Lists show it: no secret here."),
    field("Days until it expires", days, "Empty: it does not expire."),
    h("p.buttons", {}, h("button.main", { type: "submit" }, isKey ? "Make a key …" : "Add a subject …")),
  );
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const rights = boxes.filter(({ box }) => box.checked).map(({ name }) => name);
    const body = { rights, label: label.value };
    if (user.value.trim()) body.user = user.value.trim();
    if (!isKey) body.subject = subject.value.trim();
    if (days.value) body.expires_at = new Date(Date.now() + Number(days.value) * 86_400_000).toISOString();
    const isDone = await askAndDo({
      title: isKey ? "Make a key?" : "Add this subject?",
      sentences: [["Whoever holds it may: ", rights.join(", ") || "nothing", "; ", body.user ? ["as ", participant(body.user), " only."] : "bound to nobody, so on behalf of anyone it names."]],
      action: isKey ? "Make it" : "Add it",
      status,
      run: () => change("POST", path, body),
      show: (it) => (isKey ? showToken(it) : h("p", {}, "Added.")),
    });
    if (isDone) reload();
  });
  return form;
}

function showCertificates(panel, context, tenant) {
  const list = h("div");
  const status = h("div.stack", { "aria-live": "polite" });
  const path = `${tenantPath(tenant)}/certificates`;
  const tools = { path, status, reload: () => loadInto(list, () => loadAll(path, "certificates", context), describe) };
  const describe = ({ items }) => {
    if (!items.length) return emptyState("No client certificate is known.", "Where mutual TLS is enabled, a subject that is added here authenticates as the principal that it is given.");
    const rows = items.map((it) => [
      [stored(it.subject), it.issuer ? [h("br"), h("span.quiet.small", {}, "issued by ", stored(it.issuer))] : "", it.label ? [h("br"), stored(it.label, "small")] : ""],
      it.user ? participant(it.user) : h("span.quiet", {}, "nobody"),
      it.rights.join(", "),
      describeEnd(it),
      isOver(it) ? "" : whereAllowedQuietly(() => h("button.danger", { type: "button", onclick: () => revoke(it, `${path}/${it.certificate_id}`, "subject", tools) }, "Revoke …")),
    ]);
    return table(["Subject", "Bound to", "Rights", "State", "Change"], rows, "Subjects of client certificates, newest first");
  };
  panel.append(status, list, h("details", {}, h("summary", {}, "Add a subject"), whereAllowed("operator", "Adding a subject", () => makePrincipalForm({ ...tools, isKey: false }))));
  tools.reload();
}

// quotas, trail -----------------------------------------------------------------------------------

const isBytes = (quota) => quota.name === "stored_bytes";

function showQuotas(panel, context, tenant) {
  const body = h("div.stack");
  panel.append(body);
  loadInto(body, () => get(tenantPath(tenant), {}, { signal: context.signal }), (it) => describeUse(it.usage));
}

function describeUse(usage) {
  const rows = usage.quotas.map((it) => {
    const show = isBytes(it) ? bytes : count;
    return [
      h("code", {}, it.name),
      [show(it.limit), it.per === "minute" ? " a minute" : " in all"],
      [meter(it.used, it.at_once, { label: `${it.name}: ${it.used} of ${it.at_once}` }), h("span.quiet.small", {}, `${show(it.used)} of ${show(it.at_once)}`)],
      it.remaining > 0 ? show(it.remaining) : h("strong.warn", {}, it.retry_after ? `none for ${it.retry_after} s` : "none"),
    ];
  });
  const { models, stored: kept } = usage;
  return [
    table(["Quota", "Limit", "In use now", "Left"], rows, "Quotas"),
    h("div.grid", {}, h("section", {}, h("h3", {}, "Stored"), kept ? pairs([["Bytes", bytes(kept.bytes)], ["Events", count(kept.events)], ["Scopes", count(kept.scopes)], ["Counted", time(kept.measured_at)]]) : h("p.quiet", {}, "Not counted yet: that happens in the background.")), h("section", {}, h("h3", {}, "Language models this month"), pairs([["Calls", `${count(models.calls)}, ${count(models.failures)} of them without a usable answer`], ["Tokens", `${count(models.tokens_in)} in, ${count(models.tokens_out)} out`], ["Cost", [usd(models.cost_usd), models.budget_usd === null ? ", no limit" : ` of ${usd(models.budget_usd)}`]], models.resting_until && ["Resting until", time(models.resting_until)]]))),
  ];
}

function showAudit(panel, context, tenant) {
  panel.append(
    virtualList({
      label: "Audit trail, newest first",
      rowHeight: 66,
      load: async (cursor) => {
        const page = await get(`${tenantPath(tenant)}/audit`, { limit: 100, cursor }, { signal: context.signal });
        return { items: page.entries, next: page.next_cursor };
      },
      render: (it) => h("div.list-line.stacked", {}, h("button.quiet-button.left", { type: "button", onclick: () => showEntry(it) }, h("code", {}, stored(it.route)), " ", it.outcome === "done" ? "" : badge(it.outcome, "bad")), h("span.quiet.small", {}, time(it.at), " · ", it.actor_user ? participant(it.actor_user) : it.actor_key_id ? ["key ", shortId(it.actor_key_id)] : "at the operator's console")),
      empty: () => emptyState("Nothing was done yet.", "What admins and operators do, and what was refused, is listed here."),
    }).element,
  );
}

function showEntry(it) {
  const dialog = h("dialog", { "aria-label": "Entry of the audit trail" });
  const close = () => {
    dialog.close();
    dialog.remove();
  };
  dialog.append(h("h2", {}, "Entry"), h("pre.code", { tabindex: "0" }, stored(JSON.stringify(it, null, 2))), h("p.buttons", {}, h("button", { type: "button", autofocus: true, onclick: close }, "Close")));
  dialog.addEventListener("cancel", close);
  document.body.append(dialog);
  dialog.showModal();
}
