// Calls of the service's public API, at the page's own origin and base path. Nothing here knows more
// than the key may read.

import { session } from "./session.js";

const ATTEMPTS = 3;
const LONGEST_PAUSE = 5;

/** An answer that is an error, as the API gives it: what happened, and the way out. */
export class ApiError extends Error {
  constructor(status, error) {
    super(error.message);
    this.status = status;
    this.code = error.code;
    this.details = error.details ?? {};
    this.requestId = error.request_id ?? "";
    this.retryable = Boolean(error.retryable);
  }
}

let tellWaiting = () => {};
/** Who hears that a call is tried again: `(sentence)`. */
export function onWaiting(listener) {
  tellWaiting = listener;
}

/** GET: `get("/api/v1/scopes", {limit: 50}, viewer)`. A list is a parameter that is repeated. */
export function get(path, query = {}, options = {}) {
  return call("GET", path, { query, ...options });
}

/** POST of a read, as recall: it may be sent again. */
export function postRead(path, body, query = {}, options = {}) {
  return call("POST", path, { query, body, ...options });
}

/** A call that changes something. It is not sent again by itself. */
export function change(method, path, body, query = {}, headers = {}) {
  return call(method, path, { query, body, headers, attempts: 1 });
}

/** Send a request, and give the answer's body. Raises ApiError. */
export async function call(method, path, { query = {}, body, signal, headers = {}, attempts = ATTEMPTS, as = "json", accepts = [] } = {}) {
  for (let attempt = 1; ; attempt += 1) {
    const response = await send(method, path, query, body, signal, headers);
    if (response.ok || accepts.includes(response.status)) return response[as]();
    const error = await readError(response);
    if (!error.retryable || attempt >= attempts || response.status === 429) throw error;
    const seconds = Math.min(Number(response.headers.get("Retry-After")) || 1, LONGEST_PAUSE);
    tellWaiting(`${error.message} Trying again in ${seconds} s.`);
    await new Promise((resolve) => setTimeout(resolve, seconds * 1000));
  }
}

async function send(method, path, query, body, signal, headers) {
  const address = new URL(path.replace(/^\//, ""), new URL("./", location.href.split("#")[0]));
  for (const [name, value] of Object.entries(query)) {
    for (const one of [value].flat()) if (one !== undefined && one !== null && one !== "") address.searchParams.append(name, one);
  }
  const init = { method, signal, cache: "no-store", headers: { ...headers } };
  if (session.key) init.headers.Authorization = `Bearer ${session.key}`;
  if (body !== undefined) {
    init.headers["Content-Type"] = "application/json";
    init.body = JSON.stringify(body);
  }
  try {
    return await fetch(address, init);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, {
      code: "unreachable",
      message: "The service did not answer. Check that it runs and that this machine reaches it, then try again.",
    });
  }
}

async function readError(response) {
  try {
    return new ApiError(response.status, (await response.json()).error);
  } catch (error) {
    if (!(error instanceof SyntaxError || error instanceof TypeError)) throw error;
    const message = `The answer ${response.status} came from something before the service, and has no reason in it.`;
    return new ApiError(response.status, { code: "no_reason", message });
  }
}

/** For whom to read, as query parameters: `as` is "*" for everybody, else names with commas. */
export function toViewer(as) {
  if (as === "*") return { everybody: "true" };
  return { participants: splitNames(as) };
}

/** Names between commas; a name may hold commas itself, so one begins with its kind: `user:`. */
export function splitNames(text) {
  const names = (text ?? "").split(/,\s*(?=[a-z][a-z0-9_-]{0,31}:)/);
  return names.map((it) => it.trim().replace(/,$/, "")).filter(Boolean);
}
