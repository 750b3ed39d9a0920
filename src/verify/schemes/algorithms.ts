/** The signature algorithms, each with verification and signing. */
import { constants, hash, type KeyObject, sign as signBytes, verify as verifyBytes } from 'node:crypto';
import { isEqualInConstantTime } from '../../core/bytes.ts';
import { type Chunks, createHmacFunction, type HmacDigest, toBytes } from '../../core/hmac.ts';
import type { Algorithm } from './description.ts';

/** One algorithm. */
export interface AlgorithmEntry {
  readonly isAsymmetric: boolean;
  /** Length of a signature in bytes. */
  readonly lengths: readonly [min: number, max: number];
  /** Returns a check for signatures. The expected value is computed once for any number of signatures. */
  checker(key: KeyObject, chunks: Chunks): (signature: Buffer) => boolean;
  sign(key: KeyObject, chunks: Chunks): Buffer;
}

/** Longer tokens are rejected. */
const MAX_TOKEN_BYTES = 4_096;

function hmac(digest: HmacDigest, length: number): AlgorithmEntry {
  return toSymmetric(createHmacFunction(digest), length);
}

function toSymmetric(compute: AlgorithmEntry['sign'], length: number): AlgorithmEntry {
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

/** SHA-256 of the secret and the message, without HMAC. A secret before the message needs a format that no appended bytes fit (RFC 6151 §2). */
function keyedDigest(order: 'first' | 'last'): AlgorithmEntry {
  const compute = (key: KeyObject, chunks: Chunks): Buffer =>
    hash('sha256', toBytes(order === 'first' ? [key.export(), ...chunks] : [...chunks, key.export()]), 'buffer');
  return toSymmetric(compute, 32);
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

/** RSA moduli in bytes: 2048 bits as FIPS 186-5 requires, and a limit, because unverified senders cause the work. */
export const RSA_BYTES: readonly [min: number, max: number] = [256, 1_024];

/** RSASSA-PKCS1-v1_5 and RSASSA-PSS (RFC 8017 §8). */
function rsa(digest: string, isPss: boolean): AlgorithmEntry {
  const { RSA_PKCS1_PADDING, RSA_PKCS1_PSS_PADDING, RSA_PSS_SALTLEN_AUTO, RSA_PSS_SALTLEN_DIGEST } = constants;
  const padding = isPss ? RSA_PKCS1_PSS_PADDING : RSA_PKCS1_PADDING;
  // Senders differ in the length of the salt, which has no influence on whether somebody else can sign.
  const [verifying, signing] = isPss
    ? [
        { padding, saltLength: RSA_PSS_SALTLEN_AUTO },
        { padding, saltLength: RSA_PSS_SALTLEN_DIGEST },
      ]
    : [{ padding }, { padding }];
  return {
    isAsymmetric: true,
    lengths: RSA_BYTES,
    checker(key, chunks) {
      const signed = toBytes(chunks);
      const options = { key, ...verifying };
      return (signature) => verifyBytes(digest, signed, options, signature);
    },
    sign: (key, chunks) => signBytes(digest, toBytes(chunks), { key, ...signing }),
  };
}

const token: AlgorithmEntry = {
  isAsymmetric: false,
  lengths: [1, MAX_TOKEN_BYTES],
  checker(key) {
    // Compares digests, so that the time does not reveal the length of the secret either.
    const expected = hash('sha256', key.export(), 'buffer');
    return (signature) => isEqualInConstantTime(hash('sha256', signature, 'buffer'), expected);
  },
  sign: (key) => key.export(),
};

/** All algorithms; ECDSA signatures are DER (RFC 3279 §2.2.3). */
export const ALGORITHMS: Readonly<Record<Algorithm, AlgorithmEntry>> = {
  'hmac-sha1': hmac('sha1', 20),
  'hmac-sha256': hmac('sha256', 32),
  'hmac-sha384': hmac('sha384', 48),
  'hmac-sha512': hmac('sha512', 64),
  'sha256-secret-first': keyedDigest('first'),
  'sha256-secret-last': keyedDigest('last'),
  ed25519: publicKey(null, [64, 64]),
  'ecdsa-p256': publicKey('sha256', [8, 72]),
  'rsa-sha256': rsa('sha256', false),
  'rsa-sha512': rsa('sha512', false),
  'rsa-pss-sha256': rsa('sha256', true),
  'rsa-pss-sha512': rsa('sha512', true),
  token,
};
