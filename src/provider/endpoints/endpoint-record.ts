/** How endpoints are stored: JSON with a version, in which secrets and header values are encrypted if the config has a key; and how many may be. */

import { createCipheriv, createDecipheriv, createHash, randomBytes } from 'node:crypto';
import { getHeapStatistics } from 'node:v8';
import * as z from 'zod';
import type { ProviderEndpointConfig } from '../../config/schema/config.ts';
import type { endpointSettings } from '../../config/schema/provider-schema.ts';
import type { EpochMilliseconds } from '../../core/clock.ts';
import { Counts } from '../../core/collections.ts';
import { SidegateError } from '../../core/errors.ts';
import { parseJson } from '../../core/json-path.ts';
import type { Fault } from '../../core/problem.ts';
import { Secret } from '../../core/secret.ts';
import { DISABLED_REASONS, type Endpoint, type SigningKey } from './endpoint.ts';

// Encrypts the secrets and header values of endpoints in the store: AES-256-GCM (NIST SP 800-38D) with keys of the config.

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
const encryptedValue = z.strictObject({ v: z.literal(1), key: z.string(), data: z.base64() });
type EncryptedValue = z.output<typeof encryptedValue>;

/** Plain text without a key. */
export type StoredValue = string | EncryptedValue;

/** The key ID of values in plain text. */
export const PLAIN = 'plain';

/** Where a value belongs: endpoint, URL and field. It is authenticated, so that who can write to the store cannot move a secret to another endpoint or field, or send it to another URL. */
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
  const text = `provider.encryption.keys lacks a key that secrets of endpoints are encrypted with: ${found}. Add the key again; if it is lost, add its ID to provider.encryption.lostKeys`;
  return new SidegateError('user', 'encryption_key_missing', text);
}

function formatNames(names: readonly string[]): string {
  const more = names.length - MAX_NAMED;
  return `${names.slice(0, MAX_NAMED).join(', ')}${more > 0 ? ` and ${more} more` : ''}`;
}

const RECORD_VERSION = 1;

const disabled = z.object({ at: z.number(), reason: z.enum(DISABLED_REASONS) });
const key = z.object({
  version: z.enum(['v1', 'v1a']),
  secret: z.union([z.base64(), encryptedValue]),
  expiresAt: z.number().optional(),
});

/** Members that a later version adds are ignored, so that replicas of two versions can share a store during an update. */
const apiRecord = z.object({
  v: z.literal(RECORD_VERSION),
  url: z.string(),
  description: z.string(),
  events: z.array(z.string()),
  tenant: z.string().optional(),
  allTenants: z.boolean(),
  headers: z.record(z.string(), z.union([z.string(), encryptedValue])),
  timeout: z.number().optional(),
  concurrency: z.number().optional(),
  rateLimit: z.number().optional(),
  schedule: z.array(z.number()).optional(),
  retryClientErrors: z.union([z.literal('all'), z.array(z.number())]),
  orderBy: z.string().optional(),
  operational: z.boolean(),
  keys: z.array(key),
  disabled: disabled.optional(),
  enabledAt: z.number(),
  createdAt: z.number(),
  updatedAt: z.number(),
});

/** The state of an endpoint whose settings are in the config. */
const configState = z.object({ v: z.literal(RECORD_VERSION), disabled: disabled.optional(), enabledAt: z.number() });

type Disabled = NonNullable<Endpoint['disabled']>;

/** The settings that the API can change; durations in milliseconds. Undefined: the default of the config. */
export type EndpointSettings = Pick<ProviderEndpointConfig, keyof typeof endpointSettings>;

/** An endpoint that was created with the API. */
export interface EndpointRecord {
  readonly settings: EndpointSettings;
  readonly keys: readonly SigningKey[];
  readonly disabled?: Disabled | undefined;
  readonly enabledAt: EpochMilliseconds;
  readonly createdAt: EpochMilliseconds;
  readonly updatedAt: EpochMilliseconds;
}

/** The part of an endpoint of the config that changes at run time. */
export type ConfigState = Pick<EndpointRecord, 'disabled' | 'enabledAt'>;

/** Settings of the config for endpoints that do not set them. */
export type EndpointDefaults = Pick<Endpoint, 'timeout' | 'connectTimeout' | 'concurrency' | 'schedule'>;

export function encodeRecord(id: string, { settings, keys, ...times }: EndpointRecord, cipher: EndpointCipher): string {
  const headers = Object.entries(settings.headers).map(([name, text]) => [
    name,
    cipher.encrypt(text, toHeaderPlace(id, settings, name)),
  ]);
  const storedKeys = keys.map(({ secret, ...rest }, index) => ({
    ...rest,
    secret: cipher.encrypt(secret.expose().toString('base64'), toKeyPlace(id, settings, index, rest)),
  }));
  return JSON.stringify({ v: RECORD_VERSION, ...settings, headers: Object.fromEntries(headers), keys: storedKeys, ...times });
}

/**
 * Returns the record without the secrets and header values that could not be decrypted, or undefined for text that is not a record of this version.
 * `isSealed`: there are such values: deliveries must not be sent without them. `keyIds`: of the keys that its values are encrypted with.
 */
export function decodeRecord(id: string, json: string, cipher: EndpointCipher) {
  const stored = parseJson(json, apiRecord);
  if (stored === undefined) return undefined;
  const { v: _, keys, disabled: since, enabledAt, createdAt, updatedAt, ...settings } = stored;
  const values: StoredValue[] = [...Object.values(settings.headers), ...keys.map(({ secret }) => secret)];
  const headers = Object.entries(settings.headers).flatMap(([name, header]) => {
    const text = cipher.decrypt(header, toHeaderPlace(id, settings, name));
    return text === undefined ? [] : [[name, text] as const];
  });
  const secretKeys = keys.flatMap(({ secret, ...rest }, index) => {
    const text = cipher.decrypt(secret, toKeyPlace(id, settings, index, rest));
    return text === undefined ? [] : [{ ...rest, secret: new Secret(Buffer.from(text, 'base64')) }];
  });
  const times = { disabled: since, enabledAt, createdAt, updatedAt };
  return {
    record: { settings: { ...settings, headers: Object.fromEntries(headers) }, keys: secretKeys, ...times },
    isSealed: headers.length + secretKeys.length < values.length,
    keyIds: [...new Set(values.map((each) => (typeof each === 'string' ? PLAIN : each.key)))],
  };
}

type Placed = Pick<EndpointSettings, 'url'>;

function toHeaderPlace(id: string, { url }: Placed, name: string): ValuePlace {
  return [id, url, 'header', name];
}

/** With the expiry, so that nobody who can only write to the store lets a leaked secret sign for longer. */
function toKeyPlace(id: string, { url }: Placed, index: number, { version, expiresAt }: Omit<SigningKey, 'secret'>): ValuePlace {
  return [id, url, 'key', index, version, expiresAt ?? 'current'];
}

export function encodeState({ disabled: since, enabledAt }: ConfigState): string {
  return JSON.stringify({ v: RECORD_VERSION, disabled: since, enabledAt });
}

/** Returns undefined for text that is not a state of this version. */
export function decodeState(json: string): { readonly state: ConfigState } | undefined {
  const stored = parseJson(json, configState);
  return stored && { state: { disabled: stored.disabled, enabledAt: stored.enabledAt } };
}

/** The endpoint as the rest of the provider sees it: settings of the config or of the store, completed by the defaults. */
export function toEndpoint(
  settings: EndpointSettings,
  own: Pick<Endpoint, 'id' | 'source' | 'keys' | 'disabled' | 'enabledAt' | 'clientCertificate'>,
  defaults: EndpointDefaults,
): Endpoint {
  const { headers, operational: isOperational, ...rest } = settings;
  const { timeout = defaults.timeout, concurrency = defaults.concurrency, schedule = defaults.schedule } = settings;
  const completed = { timeout, connectTimeout: Math.min(defaults.connectTimeout, timeout), concurrency, schedule };
  return { ...rest, ...completed, headers: Object.entries(headers), isOperational, ...own };
}

// Bounds the heap that stored endpoints use, in all and by tenant.

/** A stored endpoint, or the state of one. */
interface Kept {
  readonly json: string;
  readonly record?: EndpointRecord | undefined;
}

/** The part of the heap that stored endpoints may use, and what each uses: 2.7 KB were measured, and 2 bytes per character, and 480 per pattern. */
export const ENDPOINTS_HEAP_SHARE = 0.4;
const [ENDPOINT_BYTES, BYTES_PER_CHARACTER, PATTERN_BYTES] = [2_048, 3, 512];
/** Of that part, for the endpoints of one tenant. */
const TENANT_SHARE = 0.5;
/** More is not read, unless a large heap has more room: what was accepted, also if it was encrypted since. A replica with more memory may have stored more. */
const [READ_HEAP_SHARE, LARGE_HEAP_SHARE, USED_BYTES] = [0.45, 0.85, 24 * 2 ** 20];

export class EndpointMemory {
  readonly heapBytes: number;
  #bytes = 0;
  readonly #ofTenants = new Counts();

  constructor(heapBytes = getHeapStatistics().heap_size_limit) {
    this.heapBytes = heapBytes;
  }

  replace(before: Kept | undefined, after: Kept | undefined): void {
    this.#bytes += toGrowth(before, after);
    for (const [kept, sign] of [
      [before, -1],
      [after, 1],
    ] as const)
      if (kept?.record?.settings.tenant !== undefined) this.#ofTenants.add(kept.record.settings.tenant, sign * toKeptBytes(kept));
  }

  /** Which part has no room for a new or changed endpoint. */
  findFull(before: Kept | undefined, after: Kept): 'heap' | 'tenant' | undefined {
    const growth = toGrowth(before, after);
    const most = ENDPOINTS_HEAP_SHARE * this.heapBytes;
    if (growth <= 0) return undefined;
    if (this.#bytes + growth > most) return 'heap';
    const tenant = after.record?.settings.tenant;
    return tenant !== undefined && this.#ofTenants.of(tenant) + growth > TENANT_SHARE * most ? 'tenant' : undefined;
  }

  /** Whether another one may be read. */
  canRead(before: Kept | undefined, after: Kept): boolean {
    const most = Math.max(READ_HEAP_SHARE * this.heapBytes, LARGE_HEAP_SHARE * this.heapBytes - USED_BYTES);
    const growth = toGrowth(before, after);
    return growth <= 0 || this.#bytes + growth <= most;
  }
}

/** `characters`: of its JSON. */
export function toHeapBytes(characters: number, patterns: number): number {
  return ENDPOINT_BYTES + BYTES_PER_CHARACTER * characters + PATTERN_BYTES * patterns;
}

function toKeptBytes(kept: Kept | undefined): number {
  return kept === undefined ? 0 : toHeapBytes(kept.json.length, kept.record?.settings.events.length ?? 0);
}

function toGrowth(before: Kept | undefined, after: Kept | undefined): number {
  return toKeptBytes(after) - toKeptBytes(before);
}
