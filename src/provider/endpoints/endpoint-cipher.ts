/** Encrypts the secrets and header values of endpoints in the store: AES-256-GCM (NIST SP 800-38D) with keys of the config. */
import { createCipheriv, createDecipheriv, createHash, randomBytes } from 'node:crypto';
import * as z from 'zod';
import { SidegateError } from '../../core/errors.ts';
import type { Fault } from '../../core/problem.ts';
import type { Secret } from '../../core/secret.ts';

const ALGORITHM = 'aes-256-gcm';
/** 32 bytes as `openssl rand -base64 32` writes them. */
const KEY = /^[A-Za-z0-9+/]{43}=$/;
/** Endpoints that an error text or a log line names. */
export const MAX_NAMED = 10;
const KEY_ID_LENGTH = 12;
/** Random for each value. SP 800-38D §8.3 allows 2^32 values for a key, which is more than endpoints have over years. */
const NONCE_BYTES = 12;
const TAG_BYTES = 16;

/** The stored form of a value. `v` stands for the algorithm and the layout of `data`: nonce, ciphertext, tag. */
export const encryptedValue = z.strictObject({ v: z.literal(1), key: z.string(), data: z.base64() });
type EncryptedValue = z.output<typeof encryptedValue>;

/** Plain text, if there is no key. */
export type StoredValue = string | EncryptedValue;

/** The key ID of values in plain text. */
export const PLAIN = 'plain';

/**
 * Where a value belongs: endpoint, URL and field. It is authenticated, so that who can write to the store cannot move a secret to another
 * endpoint or field, or send it to another URL.
 */
export type ValuePlace = readonly [endpoint: string, url: string, ...field: (string | number)[]];

/** Returns the bytes of a key, or why the text is not one. */
export function parseEncryptionKey(text: Secret): { readonly key: Buffer } | Fault {
  const base64 = text.expose().toString('latin1');
  if (KEY.test(base64)) return { key: Buffer.from(base64, 'base64') };
  return { problem: 'the key is not 32 bytes in base64', hint: 'create one with `openssl rand -base64 32`' };
}

/** The keys of the config: the first encrypts, all decrypt. */
export class EndpointCipher {
  readonly #keys: ReadonlyMap<string, Buffer>;
  readonly keyIds: readonly string[];
  readonly keyId: string;

  /** `keys`: 32 bytes each; none: values are stored in plain text. */
  constructor(keys: readonly Buffer[]) {
    this.#keys = new Map(keys.map((key) => [toKeyId(key), key]));
    this.keyIds = [...this.#keys.keys()];
    this.keyId = this.keyIds[0] ?? PLAIN;
  }

  /** Plain text can always be read. */
  has(keyId: string): boolean {
    return keyId === PLAIN || this.#keys.has(keyId);
  }

  encrypt(text: string, place: ValuePlace): StoredValue {
    const key = this.#keys.get(this.keyId);
    if (key === undefined) return text;
    const nonce = randomBytes(NONCE_BYTES);
    const cipher = createCipheriv(ALGORITHM, key, nonce, { authTagLength: TAG_BYTES }).setAAD(toBytes(place));
    const data = Buffer.concat([nonce, cipher.update(text, 'utf8'), cipher.final(), cipher.getAuthTag()]);
    return { v: 1, key: this.keyId, data: data.toString('base64') };
  }

  /** Returns undefined if the key is not there, or the value was not encrypted with it for this place. */
  decrypt(value: StoredValue, place: ValuePlace): string | undefined {
    if (typeof value === 'string') return value;
    const key = this.#keys.get(value.key);
    const data = Buffer.from(value.data, 'base64');
    if (key === undefined || data.length < NONCE_BYTES + TAG_BYTES) return undefined;
    const decipher = createDecipheriv(ALGORITHM, key, data.subarray(0, NONCE_BYTES), { authTagLength: TAG_BYTES })
      .setAAD(toBytes(place))
      .setAuthTag(data.subarray(-TAG_BYTES));
    const text = decipher.update(data.subarray(NONCE_BYTES, -TAG_BYTES));
    try {
      return Buffer.concat([text, decipher.final()]).toString('utf8');
    } catch {
      return undefined;
    }
  }
}

function toKeyId(key: Buffer): string {
  return createHash('sha256').update(key).digest('hex').slice(0, KEY_ID_LENGTH);
}

/** JSON, so that no two places have the same bytes. */
function toBytes(place: ValuePlace): Buffer {
  return Buffer.from(JSON.stringify(place));
}

export function toMissingKey(missing: readonly { readonly key: string; readonly endpoints: readonly string[] }[]): SidegateError {
  const found = missing.map(({ key, endpoints }) => `key ${key} of ${formatNames(endpoints)}`).join('; ');
  return new SidegateError(
    'user',
    'encryption_key_missing',
    `provider.encryption.keys lacks a key that secrets of endpoints are encrypted with: ${found}. Add the key again; if it is lost, add its ID to provider.encryption.lostKeys`,
  );
}

function formatNames(names: readonly string[]): string {
  const more = names.length - MAX_NAMED;
  return `${names.slice(0, MAX_NAMED).join(', ')}${more > 0 ? ` and ${more} more` : ''}`;
}
