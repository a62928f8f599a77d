// Reads a block in DAG-CBOR, and checks that it hashes to its CID (CIDv1, sha2-256).

const ALPHABET = "abcdefghijklmnopqrstuvwxyz234567";
const LINK_TAG = 42;
const SHA2_256 = 0x12;
const DIGEST_BYTES = 32;

/** Whether the bytes hash to the CID. Null where this browser cannot hash, without HTTPS. */
export async function hashesToCid(bytes, cid) {
  if (!crypto.subtle) return null;
  const expected = decodeBase32(cid.slice(1)).slice(-DIGEST_BYTES - 2);
  if (expected[0] !== SHA2_256 || expected[1] !== DIGEST_BYTES) return false;
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  return digest.every((it, i) => it === expected[i + 2]);
}

function decodeBase32(text) {
  const bytes = [];
  let bits = 0;
  let value = 0;
  for (const letter of text) {
    value = (value << 5) | ALPHABET.indexOf(letter);
    bits += 5;
    if (bits >= 8) {
      bits -= 8;
      bytes.push((value >> bits) & 255);
      value &= (1 << bits) - 1;
    }
  }
  return Uint8Array.from(bytes);
}

function encodeBase32(bytes) {
  let text = "";
  let bits = 0;
  let value = 0;
  for (const byte of bytes) {
    value = (value << 8) | byte;
    bits += 8;
    while (bits >= 5) {
      bits -= 5;
      text += ALPHABET[(value >> bits) & 31];
      value &= (1 << bits) - 1;
    }
  }
  return bits ? text + ALPHABET[(value << (5 - bits)) & 31] : text;
}

/** What a block holds, as objects for JSON; a link is {"/": "its CID"}. Raises RangeError. */
export function decodeDagCbor(bytes) {
  const reader = new Reader(bytes);
  const value = reader.read();
  if (reader.at !== bytes.length) throw new RangeError("The block has bytes after its value.");
  return value;
}

class Reader {
  constructor(bytes) {
    this.bytes = bytes;
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.at = 0;
  }

  read() {
    const head = this.view.getUint8(this.at);
    this.at += 1;
    const kind = head >> 5;
    if (kind === 7) return this.readSimple(head & 31);
    const amount = this.readAmount(head & 31);
    if (kind === 0) return amount;
    if (kind === 1) return typeof amount === "bigint" ? -1n - amount : -1 - amount;
    if (kind === 2) return { "/": { bytes: this.take(amount).length } };
    if (kind === 3) return new TextDecoder("utf-8", { fatal: true }).decode(this.take(amount));
    if (kind === 4) return Array.from({ length: amount }, () => this.read());
    if (kind === 5) return Object.fromEntries(Array.from({ length: amount }, () => [this.read(), this.read()]));
    return this.readLink(amount);
  }

  readAmount(size) {
    if (size < 24) return size;
    const width = { 24: 1, 25: 2, 26: 4, 27: 8 }[size];
    if (!width) throw new RangeError("The block has a length that DAG-CBOR does not know.");
    const start = this.at;
    this.at += width;
    if (width === 1) return this.view.getUint8(start);
    if (width === 2) return this.view.getUint16(start);
    if (width === 4) return this.view.getUint32(start);
    const large = this.view.getBigUint64(start);
    return large <= BigInt(Number.MAX_SAFE_INTEGER) ? Number(large) : large;
  }

  readSimple(size) {
    if (size === 20 || size === 21) return size === 21;
    if (size === 22) return null;
    if (size !== 27) throw new RangeError("The block has a value that DAG-CBOR does not know.");
    this.at += 8;
    return this.view.getFloat64(this.at - 8);
  }

  readLink(tag) {
    const length = tag === LINK_TAG ? this.readAmount(this.view.getUint8(this.at++) & 31) : 0;
    if (!length) throw new RangeError("The block has a tag that DAG-CBOR does not know.");
    return { "/": `b${encodeBase32(this.take(length).slice(1))}` }; // after the byte of its base
  }

  take(length) {
    if (this.at + length > this.bytes.length) throw new RangeError("The block ends too early.");
    this.at += length;
    return this.bytes.slice(this.at - length, this.at);
  }
}
