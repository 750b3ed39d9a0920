/**
 * HMAC (RFC 2104) over plain hashes: createHmac creates objects that only the garbage collector frees, and takes twice as long, 4 µs of a
 * forged delivery. All connections share one input buffer, which nothing reads outside of one computation.
 */
import { createHmac, hash, type KeyObject } from 'node:crypto';

/** The hash functions, with the sizes of their blocks in bytes. */
const BLOCK_BYTES = { sha1: 64, sha256: 64, sha384: 128, sha512: 128 } as const;

/** A hash function that HMAC can use. */
export type HmacDigest = keyof typeof BLOCK_BYTES;

/** A message in pieces; strings are latin1, as header fields are. */
export type Chunks = readonly (string | Buffer)[];

/** Copying a longer message would cost more than the plain hashes save. */
const MAX_COPIED_BYTES = 16_384;
const MAX_BLOCK_BYTES = 128;
/** The inner padded key and the message; each computation overwrites it. */
const INPUT = Buffer.alloc(MAX_BLOCK_BYTES + MAX_COPIED_BYTES);

interface PaddedKey {
  readonly inner: Buffer;
  /** The outer padded key, with room for the inner hash after it. */
  readonly outer: Buffer;
}

/** Creates a function that computes the HMAC of a message. */
export function createHmacFunction(digest: HmacDigest): (key: KeyObject, chunks: Chunks) => Buffer {
  const block = BLOCK_BYTES[digest];
  const padded = new WeakMap<KeyObject, PaddedKey>();

  function toPadded(key: KeyObject): PaddedKey {
    const known = padded.get(key);
    if (known !== undefined) return known;
    const added = padKey(key, digest, block);
    padded.set(key, added);
    return added;
  }

  return (key, chunks) => {
    if (toLength(chunks) > MAX_COPIED_BYTES) return computeInPieces(digest, key, chunks);
    const { inner, outer } = toPadded(key);
    inner.copy(INPUT);
    const end = copyChunks(chunks, INPUT, block);
    // Text in latin1 has one character for each byte, and costs less than a Buffer.
    outer.write(hash(digest, INPUT.subarray(0, end), 'binary'), block, 'latin1');
    return Buffer.from(hash(digest, outer, 'binary'), 'latin1');
  };
}

function toLength(chunks: Chunks): number {
  let length = 0;
  for (const chunk of chunks) length += chunk.length;
  return length;
}

/** Returns the place after the last byte. */
function copyChunks(chunks: Chunks, target: Buffer, start: number): number {
  let at = start;
  for (const chunk of chunks) at += typeof chunk === 'string' ? target.write(chunk, at, 'latin1') : chunk.copy(target, at);
  return at;
}

function computeInPieces(digest: HmacDigest, key: KeyObject, chunks: Chunks): Buffer {
  const mac = createHmac(digest, key);
  for (const chunk of chunks) {
    if (typeof chunk === 'string') mac.update(chunk, 'latin1');
    else mac.update(chunk);
  }
  return mac.digest();
}

function padKey(key: KeyObject, digest: HmacDigest, block: number): PaddedKey {
  const secret = key.export();
  const bytes = Buffer.alloc(block);
  (secret.length > block ? hash(digest, secret, 'buffer') : secret).copy(bytes);
  const outer = Buffer.from(bytes.map((byte) => byte ^ 0x5c));
  const room = Buffer.alloc(hash(digest, '', 'buffer').length);
  return { inner: Buffer.from(bytes.map((byte) => byte ^ 0x36)), outer: Buffer.concat([outer, room]) };
}

/** Concatenates the chunks. */
export function toBytes(chunks: Chunks): Buffer {
  return Buffer.concat(chunks.map((chunk) => (typeof chunk === 'string' ? Buffer.from(chunk, 'latin1') : chunk)));
}
