// The key, whose it is, and what the person allowed. The key is in this tab's memory alone; in the
// tab's storage only where the person asked for that.

const STORE = "strandline.key";

export const session = {
  key: sessionStorage.getItem(STORE) ?? "",
  /** Whose key it is, as the service says: {tenant, user, rights, key_id, may_read_everybody}. */
  caller: null,
  /** Whether what changes something may be done; off until the person turns it on. */
  allowsChanges: false,
  /** The question that was last typed in the recall debugger. */
  question: "",
  /** Names of participants that the page has shown. */
  names: new Set(),
};

const MOST_NAMES = 500;

/** Remember a name that is shown, to offer it where one is typed. */
export function noteName(name) {
  if (session.names.size < MOST_NAMES) session.names.add(name);
}

/** Keep a key, for this tab if `forTab`. */
export function keepKey(key, forTab) {
  session.key = key;
  session.caller = null;
  session.allowsChanges = false;
  session.question = "";
  session.names.clear();
  if (forTab) sessionStorage.setItem(STORE, key);
  else sessionStorage.removeItem(STORE);
}

export function forgetKey() {
  keepKey("", false);
}

export function isKeptForTab() {
  return sessionStorage.getItem(STORE) !== null;
}

/** Whether the key has a right; an admin's reads and writes. */
export function hasRight(right) {
  const rights = session.caller?.rights ?? [];
  return rights.includes(right) || (rights.includes("admin") && ["read", "write"].includes(right));
}

/** What a key is called before anybody is asked: its public id, or a JWT's subject. */
export function nameKey(key) {
  if (key.startsWith("strandline_")) {
    const bytes = decodeBase64Url(key.slice("strandline_".length));
    if (bytes?.length === 64) return `API key ${toHex(bytes.slice(0, 16))}`;
  }
  const payload = readJwtPayload(key);
  if (payload) return `token of ${payload.sub ?? "nobody"}, issued by ${payload.iss ?? "an unnamed issuer"}`;
  return "a text that is no key of Strandline";
}

function readJwtPayload(key) {
  const parts = key.split(".");
  const bytes = parts.length === 3 ? decodeBase64Url(parts[1]) : null;
  if (!bytes) return null;
  try {
    const payload = JSON.parse(new TextDecoder().decode(bytes));
    return payload && typeof payload === "object" ? payload : null;
  } catch (error) {
    if (error instanceof SyntaxError) return null; // then it is no JWT
    throw error;
  }
}

function decodeBase64Url(text) {
  if (!/^[A-Za-z0-9_-]+$/.test(text) || text.length % 4 === 1) return null;
  return Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (it) => it.charCodeAt(0));
}

function toHex(bytes) {
  return Array.from(bytes, (it) => it.toString(16).padStart(2, "0")).join("");
}
