/** In place of core/hmac.ts, which has a shortcut for Node. */
import type { Chunks, HmacDigest } from '../../core/hmac.ts';
import { reuse } from '../compute.ts';
import { computeHmac, type KeyObject } from './node.ts';

/** Creates a function that computes the HMAC of a message. */
export function createHmacFunction(digest: HmacDigest): (key: KeyObject, chunks: Chunks) => Buffer {
  return (key, chunks) => computeHmac(digest, key, toBytes(chunks) as Uint8Array<ArrayBuffer>);
}

/** Concatenates the chunks: once for all runs of a work, so that a body is neither copied nor compared for each key and signature. */
export function toBytes(chunks: Chunks): Buffer {
  return reuse(chunks, () =>
    Buffer.concat(chunks.map((chunk) => (typeof chunk === 'string' ? Buffer.from(chunk, 'latin1') : chunk))),
  );
}
