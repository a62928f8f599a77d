// The bytes of a payload: downloaded, or shown as text or as a picture. Whatever type was stored, they
// are never a document of this origin.

import { get } from "./api.js";
import { hashesToCid } from "./dag_cbor.js";
import { h, plain, replace, stored } from "./dom.js";
import * as format from "./formats.js";
import { badge, errorBox, loading } from "./ui.js";

const MOST_BYTES = 4 * 1024 * 1024; // more than that the service does not answer itself
const MOST_SHOWN = 100_000; // characters
const SNIFFED_BYTES = 64 * 1024;
const LONG_CHARACTERS = /^(?:utf-16|gb|big5|shift_jis|euc-|iso-2022)/; // others have one byte for each
const NOT_WESTERN = new Set([...Array(9).keys(), 11, ...Array.from({ length: 18 }, (_, n) => n + 14), 127, 0x81, 0x8d, 0x8f, 0x90, 0x9d]);
const PICTURES = new Set(["image/png", "image/jpeg", "image/gif", "image/webp"]);
const TEXTS = /^(?:text\/|application\/(?:.*\+)?(?:json|xml|yaml|csv)\b)/;

/** A payload's name, type and size, with a way to its bytes. */
export function showPayload(blob, context) {
  const type = (blob.mime_type ?? "").split(";")[0].trim().toLowerCase();
  const place = h("div.payload-bytes", { "aria-live": "polite" });
  const name = blob.name ? plain(blob.name) : `payload ${blob.cid.slice(0, 10)}`;
  const button = (label, act) => h("button.quiet-button", { type: "button", "aria-label": `${label} ${name}`, onclick: () => useBytes(place, blob, context, act) }, label);
  const isShown = PICTURES.has(type) || TEXTS.test(type);
  return h(
    "div.payload",
    {},
    h("p", {}, badge("payload"), " ", blob.name ? stored(blob.name, "strong") : "without a name", h("span.quiet", {}, " · ", blob.mime_type ? stored(blob.mime_type) : "unknown type", ` · ${format.bytes(blob.size)} · `), format.shortId(blob.cid, 10)),
    blob.size > MOST_BYTES
      ? h("p.hint", {}, "Above 4 MiB this page does not load it: ", h("code", {}, "GET /file/{cid}"), " gives the address of the store, for a program.")
      : h("p.buttons", {}, isShown && button("Show", (bytes) => (PICTURES.has(type) ? showPicture(bytes, type, name) : showAsText(bytes, blob.mime_type))), button("Download", (bytes) => download(bytes, blob))),
    place,
  );
}

/** Load the bytes, and use them if they are those that the CID names. */
async function useBytes(place, blob, context, act) {
  replace(place, loading());
  try {
    const bytes = new Uint8Array(await get(`/ipfs/${blob.cid}`, { ...context.viewer, format: "raw" }, { signal: context.signal, as: "arrayBuffer" }));
    const isRight = await hashesToCid(bytes, blob.cid);
    replace(place, isRight === false ? h("div.notice.bad", { role: "alert" }, h("p", {}, "The bytes do not hash to the CID: they are not what was stored.")) : await act(bytes));
  } catch (error) {
    if (error.name !== "AbortError") replace(place, errorBox(error, () => useBytes(place, blob, context, act)));
  }
}

/** The character set of a text, as the service tells it when it makes the text searchable: that of a byte
 * order mark or of the media type, else UTF-8, or Windows-1252 where the first 64 KiB are that. */
function findCharset(bytes, mimeType) {
  if (bytes[0] === 0xff && bytes[1] === 0xfe) return "utf-16le";
  if (bytes[0] === 0xfe && bytes[1] === 0xff) return "utf-16be";
  const head = bytes.subarray(0, SNIFFED_BYTES);
  const beyondAscii = head.reduce((count, byte) => count + (byte > 127), 0);
  const characters = [...new TextDecoder("utf-8", { ignoreBOM: true }).decode(head, { stream: head.length < bytes.length })];
  const isOwn = (byte, at) => byte === 0xef && head[at + 1] === 0xbf && head[at + 2] === 0xbd; // U+FFFD in the text itself
  const faults = characters.filter((it) => it === "\ufffd").length - head.filter(isOwn).length;
  const isUtf8 = characters.length - (head.length - beyondAscii) > 2 * faults;
  const declared = readCharset(mimeType);
  if (declared && !(isUtf8 && !LONG_CHARACTERS.test(declared))) return declared;
  const isWestern = beyondAscii > 0 && 3 * beyondAscii <= head.length && !head.some((byte) => NOT_WESTERN.has(byte));
  return !isUtf8 && isWestern ? "windows-1252" : "utf-8";
}

/** The character set that a media type names, if a browser knows it; "" for UTF-8 and ASCII, with which
 * texts of any kind are marked. */
function readCharset(mimeType) {
  const label = /charset="?([^";\s]+)/i.exec(mimeType ?? "")?.[1] ?? "utf-8";
  try {
    const { encoding } = new TextDecoder(label);
    return encoding === "utf-8" || /ascii/i.test(label) ? "" : encoding;
  } catch (error) {
    if (error instanceof RangeError) return "";
    throw error;
  }
}

function showAsText(bytes, mimeType) {
  const charset = findCharset(bytes, mimeType);
  const text = new TextDecoder(charset).decode(bytes);
  const shown = text.slice(0, MOST_SHOWN);
  return [h("div.block", { tabindex: "0", role: "region", "aria-label": "The payload's text" }, stored(shown, "text mono")), shown.length < text.length && h("p.hint", {}, `The first ${format.count(MOST_SHOWN)} of ${format.count(text.length)} characters; a download has all.`), charset !== "utf-8" && h("p.hint", {}, `Read as ${charset}.`)];
}

async function showPicture(bytes, type, name) {
  const reader = new FileReader();
  const source = await new Promise((resolve, reject) => {
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(new Blob([bytes], { type }));
  });
  return h("img.payload-picture", { src: source, alt: name });
}

/** Save the bytes as a file. Their type is that of unknown bytes, so that nothing opens them here. */
function download(bytes, blob) {
  const address = URL.createObjectURL(new Blob([bytes], { type: "application/octet-stream" }));
  const name = plain(blob.name ?? "").replace(/[/\\:]/g, "_");
  h("a", { href: address, download: name || `${blob.cid}.bin` }).click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
  return h("p.hint", { role: "status" }, "The browser saves it.");
}
