/** How endpoints are stored: JSON with a version, in which secrets and header values are encrypted if the config has a key. */
import * as z from 'zod';
import type { ProviderEndpointConfig } from '../../config/schema/config.ts';
import type { endpointSettings } from '../../config/schema/provider-schema.ts';
import type { EpochMilliseconds } from '../../core/clock.ts';
import { parseJson } from '../../core/json-path.ts';
import { Secret } from '../../core/secret.ts';
import { DISABLED_REASONS, type Endpoint, type SigningKey } from './endpoint.ts';
import { type EndpointCipher, encryptedValue, PLAIN, type StoredValue, type ValuePlace } from './endpoint-cipher.ts';

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
