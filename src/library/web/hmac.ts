/** In place of core/hmac.ts, which has a shortcut for Node. */
import type { Chunks, HmacDigest } from '../../core/hmac.ts';
import { toBytes } from '../../verify/schemes/algorithms.ts';
import { computeHmac, type KeyObject } from './node.ts';

/** Creates a function that computes the HMAC of a message. */
export function createHmacFunction(digest: HmacDigest): (key: KeyObject, chunks: Chunks) => Buffer {
  return (key, chunks) => computeHmac(digest, key, toBytes(chunks) as Uint8Array<ArrayBuffer>);
}
