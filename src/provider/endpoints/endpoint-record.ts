/** How endpoints are stored: JSON with a version, with the secrets inside. */
import * as z from 'zod';
import type { EpochMilliseconds, Milliseconds } from '../../core/clock.ts';
import { Secret } from '../../core/secret.ts';
import { DISABLED_REASONS, type Endpoint, type SigningKey } from './endpoint.ts';

const RECORD_VERSION = 1;

const disabled = z.object({ at: z.number(), reason: z.enum(DISABLED_REASONS) });
const key = z.object({ version: z.enum(['v1', 'v1a']), secret: z.base64(), expiresAt: z.number().optional() });

/** Members that a later version adds are ignored, so that replicas of two versions can share a store during an update. */
const apiRecord = z.object({
  v: z.literal(RECORD_VERSION),
  url: z.string(),
  description: z.string(),
  events: z.array(z.string()),
  channels: z.array(z.string()),
  headers: z.record(z.string(), z.string()),
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

/** When and why an endpoint was disabled. */
export type Disabled = NonNullable<Endpoint['disabled']>;

/** The settings that the API can change; durations in milliseconds. Undefined: the default of the config. */
export interface EndpointSettings {
  readonly url: string;
  readonly description: string;
  readonly events: readonly string[];
  readonly channels: readonly string[];
  readonly headers: Readonly<Record<string, string>>;
  readonly timeout?: Milliseconds | undefined;
  readonly concurrency?: number | undefined;
  readonly rateLimit?: number | undefined;
  readonly schedule?: readonly Milliseconds[] | undefined;
  readonly retryClientErrors: readonly number[] | 'all';
  readonly orderBy?: string | undefined;
  readonly operational: boolean;
}

/** An endpoint that was created with the API. */
export interface EndpointRecord {
  readonly settings: EndpointSettings;
  readonly keys: readonly SigningKey[];
  readonly disabled: Disabled | undefined;
  readonly enabledAt: EpochMilliseconds;
  readonly createdAt: EpochMilliseconds;
  readonly updatedAt: EpochMilliseconds;
}

/** The part of an endpoint of the config that changes at run time. */
export type ConfigState = Pick<EndpointRecord, 'disabled' | 'enabledAt'>;

/** Settings of the config for endpoints that do not set them. */
export type EndpointDefaults = Pick<Endpoint, 'timeout' | 'connectTimeout' | 'concurrency' | 'schedule'>;

export function encodeRecord({ settings, keys, ...times }: EndpointRecord): string {
  const plainKeys = keys.map(({ secret, ...rest }) => ({ ...rest, secret: secret.expose().toString('base64') }));
  return JSON.stringify({ v: RECORD_VERSION, ...settings, keys: plainKeys, ...times });
}

/** Returns undefined for text that is not a record of this version. */
export function decodeRecord(json: string): EndpointRecord | undefined {
  const record = parse(json, apiRecord);
  if (record === undefined) return undefined;
  const { v: _, keys, disabled: since, enabledAt, createdAt, updatedAt, ...settings } = record;
  const secretKeys = keys.map(({ secret, ...rest }) => ({ ...rest, secret: new Secret(Buffer.from(secret, 'base64')) }));
  return { settings, keys: secretKeys, disabled: since, enabledAt, createdAt, updatedAt };
}

export function encodeState({ disabled: since, enabledAt }: ConfigState): string {
  return JSON.stringify({ v: RECORD_VERSION, disabled: since, enabledAt });
}

/** Returns undefined for text that is not a state of this version. */
export function decodeState(json: string): ConfigState | undefined {
  const state = parse(json, configState);
  return state === undefined ? undefined : { disabled: state.disabled, enabledAt: state.enabledAt };
}

/** The endpoint as the rest of the provider sees it. */
export function toEndpoint(id: string, record: EndpointRecord, defaults: EndpointDefaults): Endpoint {
  const { settings, keys, disabled: since, enabledAt, createdAt } = record;
  const { operational, headers, timeout, concurrency, rateLimit, schedule, orderBy, ...rest } = settings;
  return {
    ...rest,
    id,
    source: 'api',
    keys,
    headers: Object.entries(headers),
    timeout: timeout ?? defaults.timeout,
    connectTimeout: Math.min(defaults.connectTimeout, timeout ?? defaults.timeout),
    concurrency: concurrency ?? defaults.concurrency,
    schedule: schedule ?? defaults.schedule,
    rateLimit,
    orderBy,
    disabled: since,
    enabledAt,
    createdAt,
    clientCertificate: undefined,
    isOperational: operational,
  };
}

function parse<T>(json: string, schema: z.ZodType<T>): T | undefined {
  try {
    return schema.safeParse(JSON.parse(json)).data;
  } catch {
    return undefined;
  }
}
