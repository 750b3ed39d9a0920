/** The algorithms that signatures are made by: one table for checking and making them. */
import { createHmac, hash, type KeyObject, sign as signBytes, verify as verifyBytes } from 'node:crypto';
import { isEqualInConstantTime } from '../../core/bytes.ts';
import type { Algorithm } from './description.ts';

/** What is signed, piece by piece; text is latin1, as header fields are. */
export type Chunks = readonly (string | Buffer)[];

/** How one algorithm works. */
export interface AlgorithmEntry {
  readonly isAsymmetric: boolean;
  /** Of a signature in bytes. */
  readonly lengths: readonly [least: number, most: number];
  /** A check of one signature; what it needs is computed once, however many there are. */
  checker(key: KeyObject, chunks: Chunks): (signature: Buffer) => boolean;
  sign(key: KeyObject, chunks: Chunks): Buffer;
}

/** Longer tokens are no tokens. */
const LONGEST_TOKEN = 4_096;

function hmac(digest: string, length: number): AlgorithmEntry {
  const compute = (key: KeyObject, chunks: Chunks): Buffer => {
    const mac = createHmac(digest, key);
    for (const chunk of chunks) {
      if (typeof chunk === 'string') mac.update(chunk, 'latin1');
      else mac.update(chunk);
    }
    return mac.digest();
  };
  return {
    isAsymmetric: false,
    lengths: [length, length],
    checker(key, chunks) {
      const expected = compute(key, chunks);
      return (signature) => isEqualInConstantTime(signature, expected);
    },
    sign: compute,
  };
}

function publicKey(digest: string | null, lengths: readonly [number, number]): AlgorithmEntry {
  return {
    isAsymmetric: true,
    lengths,
    checker(key, chunks) {
      const signed = toBytes(chunks);
      return (signature) => verifyBytes(digest, signed, key, signature);
    },
    sign: (key, chunks) => signBytes(digest, toBytes(chunks), key),
  };
}

const token: AlgorithmEntry = {
  isAsymmetric: false,
  lengths: [1, LONGEST_TOKEN],
  checker(key) {
    // By digests: the time tells nothing of the secret's length either.
    const expected = hash('sha256', key.export(), 'buffer');
    return (signature) => isEqualInConstantTime(hash('sha256', signature, 'buffer'), expected);
  },
  sign: (key) => key.export(),
};

/** Every algorithm; ECDSA signatures are DER (RFC 3279 §2.2.3). */
export const ALGORITHMS: Readonly<Record<Algorithm, AlgorithmEntry>> = {
  'hmac-sha1': hmac('sha1', 20),
  'hmac-sha256': hmac('sha256', 32),
  'hmac-sha512': hmac('sha512', 64),
  ed25519: publicKey(null, [64, 64]),
  'ecdsa-p256': publicKey('sha256', [8, 72]),
  token,
};

/** The chunks as one. */
export function toBytes(chunks: Chunks): Buffer {
  return Buffer.concat(chunks.map((chunk) => (typeof chunk === 'string' ? Buffer.from(chunk, 'latin1') : chunk)));
}
