// Verifies the receipt of an erasure in the browser, by WebCrypto: no server is asked whether it is
// right.

import { plural } from "./formats.js";

/** The bytes that are signed: JSON with sorted names and without spaces, in UTF-8. */
export function encodeCanonically(value) {
  return new TextEncoder().encode(write(value));
}

function write(value) {
  if (Array.isArray(value)) return `[${value.map(write).join(",")}]`;
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  const names = Object.keys(value).sort(compareByCodePoint);
  return `{${names.map((name) => `${JSON.stringify(name)}:${write(value[name])}`).join(",")}}`;
}

function compareByCodePoint(one, other) {
  const [a, b] = [Array.from(one), Array.from(other)];
  for (let i = 0; i < Math.min(a.length, b.length); i += 1) {
    const difference = a[i].codePointAt(0) - b[i].codePointAt(0);
    if (difference) return difference;
  }
  return a.length - b.length;
}

/** The checks of a receipt, each {name, ok, text}; `ok` is null where it could not be made. `ownKey` is
 * the public key that the service gives now, as far as it is known: it tells whose key is used. */
export async function verifyReceipt({ receipt, signature, public_key: key }, ownKey = null) {
  return [await checkSignature(receipt, signature, key, ownKey), await checkDigest(receipt), checkCount(receipt)];
}

async function checkSignature(receipt, signature, key, ownKey) {
  const name = "Signature";
  if (!globalThis.crypto?.subtle) return { name, ok: null, text: "This page has no WebCrypto: open it over HTTPS, or at 127.0.0.1." };
  const owner = !ownKey ? "the key that is given with it, and whose that is this page does not know" : key === ownKey ? "this service's key, as the service gives it now" : "a key that is not this service's, as the service gives it now";
  const [signed, raw] = [fromHex(signature, 64), fromHex(key, 32)];
  if (!signed || !raw) return { name, ok: false, text: "The signature or the public key is not a text of hex digits of the right length." };
  try {
    const verifier = await crypto.subtle.importKey("raw", raw, { name: "Ed25519" }, false, ["verify"]);
    const ok = await crypto.subtle.verify({ name: "Ed25519" }, verifier, signed, encodeCanonically(receipt));
    return { name, ok, text: ok ? `Exactly this receipt was signed with ${owner} (Ed25519).` : `This receipt was not signed with ${owner} (Ed25519): it was changed, or belongs to another key.` };
  } catch (error) {
    if (error.name === "NotSupportedError") return { name, ok: null, text: "This browser has no Ed25519; a newer one has. The command strandline operate receipt verifies it too." };
    if (error.name === "DataError") return { name, ok: false, text: "The public key is not one of Ed25519." };
    throw error;
  }
}

async function checkDigest(receipt) {
  const name = "Digest of the event ids";
  const ids = receipt.event_ids;
  if (!Array.isArray(ids) || typeof receipt.event_ids_sha256 !== "string") return { name, ok: false, text: "The receipt has no list of events." };
  if (!ids.length && receipt.event_count) return { name, ok: null, text: "The receipt has too many events to list them: the feed of erasures of each scope does." };
  if (!globalThis.crypto?.subtle) return { name, ok: null, text: "This page has no WebCrypto: open it over HTTPS, or at 127.0.0.1." };
  const bytes = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(ids.join("\n")));
  const ok = toHex(bytes) === receipt.event_ids_sha256;
  return { name, ok, text: ok ? "SHA-256 of the listed ids is the one in the receipt." : "SHA-256 of the listed ids is another than the one in the receipt." };
}

function checkCount(receipt) {
  const listed = Array.isArray(receipt.event_ids) ? receipt.event_ids.length : 0;
  const ok = listed === receipt.event_count || listed === 0;
  return { name: "Count", ok, text: ok ? `It names ${plural(receipt.event_count, "erased event")}.` : `It says ${receipt.event_count} events, and lists ${listed}.` };
}

function fromHex(text, length) {
  if (typeof text !== "string" || !/^[0-9a-f]*$/.test(text) || text.length !== length * 2) return null;
  return Uint8Array.from(text.match(/../g), (it) => parseInt(it, 16));
}

function toHex(buffer) {
  return Array.from(new Uint8Array(buffer), (it) => it.toString(16).padStart(2, "0")).join("");
}
