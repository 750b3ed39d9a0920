/** Secrets that sign deliveries (Standard Webhooks): their text, and the signatures that they make. */
import { createSecretKey, type KeyObject, randomBytes } from 'node:crypto';
import { parseBase64 } from '../../core/bytes.ts';
import type { Fault } from '../../core/problem.ts';
import { Secret } from '../../core/secret.ts';
import { standardWebhooks } from '../presets/standard-webhooks.ts';
import { ALGORITHMS } from '../schemes/algorithms.ts';
import { toEd25519Key, toRawPublicKey } from '../schemes/keys.ts';

/** The parsed text of a secret. */
export interface SigningSecret {
  /** `v1`: HMAC-SHA256; `v1a`: Ed25519. */
  readonly version: 'v1' | 'v1a';
  /** The HMAC key's bytes, or the 32-byte Ed25519 seed. */
  readonly secret: Secret;
}

const { secret: symmetric, publicKey, signature } = standardWebhooks;
const SECRET_PREFIX = symmetric.prefix ?? '';
const PRIVATE_PREFIX = publicKey?.privatePrefix ?? '';
const PUBLIC_PREFIX = publicKey?.prefix ?? '';
/** The specification allows 24 to 64 bytes. */
const MIN_SECRET_BYTES = 24;
const MAX_SECRET_BYTES = 64;
const NEW_SECRET_BYTES = 32;
const SEED_BYTES = 32;

/** Parses `whsec_…` (HMAC-SHA256) or `whsk_…` (Ed25519: the seed, or seed and public key). */
export function parseSigningSecret(text: string): SigningSecret | Fault {
  if (text.startsWith(SECRET_PREFIX)) return parseSecret(text.slice(SECRET_PREFIX.length));
  if (text.startsWith(PRIVATE_PREFIX)) return parsePrivateKey(text.slice(PRIVATE_PREFIX.length));
  if (text.startsWith(PUBLIC_PREFIX))
    return { problem: `a ${PUBLIC_PREFIX} key cannot sign`, hint: `use its private key, ${PRIVATE_PREFIX}…` };
  return {
    problem: `the secret has no ${SECRET_PREFIX} prefix`,
    hint: `write ${SECRET_PREFIX} and ${MIN_SECRET_BYTES} to ${MAX_SECRET_BYTES} random bytes in base64, for example "${SECRET_PREFIX}$(openssl rand -base64 ${NEW_SECRET_BYTES})"`,
  };
}

/** A new `whsec_` secret with 32 random bytes. */
export function createSigningSecret(): SigningSecret {
  return { version: 'v1', secret: new Secret(randomBytes(NEW_SECRET_BYTES)) };
}

/** The secret's text, as its receiver needs it. The caller must show it at most once. */
export function formatSigningSecret({ version, secret }: SigningSecret): string {
  return `${version === 'v1' ? SECRET_PREFIX : PRIVATE_PREFIX}${secret.expose().toString('base64')}`;
}

/** The public key (`whpk_…`) that receivers verify a `v1a` signature with; undefined for a `v1` secret. */
export function findPublicKey({ version, secret }: SigningSecret): string | undefined {
  if (version === 'v1') return undefined;
  return `${PUBLIC_PREFIX}${toRawPublicKey(toEd25519Key(secret.expose())).toString('base64')}`;
}

/** Signs with one key. */
export interface DeliverySigner {
  readonly expiresAt: number;
  /** One entry for `Webhook-Signature`; `signed` is the ID and the timestamp, each with the dot after it. */
  sign(signed: string, body: Buffer): string;
}

/** Prepares a key, because preparing it for each attempt would cost more than the HMAC. Throws for bytes that are not a key. */
export function createDeliverySigner({
  version,
  secret,
  expiresAt,
}: SigningSecret & { readonly expiresAt?: number | undefined }): DeliverySigner {
  const prefix = `${version},`;
  const form = signature?.forms.find((each) => each.prefix === prefix);
  if (form === undefined) throw new Error(`unknown signature version ${version}`);
  const algorithm = ALGORITHMS[form.algorithm];
  const key: KeyObject = version === 'v1' ? createSecretKey(secret.expose()) : toEd25519Key(secret.expose());
  return {
    expiresAt: expiresAt ?? Number.POSITIVE_INFINITY,
    sign: (signed, body) => `${prefix}${algorithm.sign(key, [signed, body]).toString('base64')}`,
  };
}

function parseSecret(digits: string): SigningSecret | Fault {
  const bytes = parseBase64(digits);
  if (bytes === undefined) return toNotBase64(SECRET_PREFIX);
  if (bytes.length < MIN_SECRET_BYTES || bytes.length > MAX_SECRET_BYTES)
    return {
      problem: `the secret has ${bytes.length} bytes`,
      hint: `Standard Webhooks requires ${MIN_SECRET_BYTES} to ${MAX_SECRET_BYTES} bytes`,
    };
  return { version: 'v1', secret: new Secret(bytes) };
}

function parsePrivateKey(digits: string): SigningSecret | Fault {
  const bytes = parseBase64(digits);
  if (bytes === undefined) return toNotBase64(PRIVATE_PREFIX);
  const seed = bytes.subarray(0, SEED_BYTES);
  if (bytes.length !== SEED_BYTES && bytes.length !== 2 * SEED_BYTES)
    return {
      problem: `the private key has ${bytes.length} bytes`,
      hint: `write ${PRIVATE_PREFIX} and the seed of 32 bytes in base64, or the 64 bytes of seed and public key`,
    };
  if (bytes.length > SEED_BYTES && !toRawPublicKey(toEd25519Key(seed)).equals(bytes.subarray(SEED_BYTES)))
    return { problem: 'the public half does not belong to the private half', hint: 'copy the whole private key' };
  return { version: 'v1a', secret: new Secret(Buffer.from(seed)) };
}

function toNotBase64(prefix: string): Fault {
  return { problem: `the text after ${prefix} is not canonical base64`, hint: 'copy the whole secret, with its padding' };
}
