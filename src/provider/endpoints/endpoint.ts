/** An endpoint: where events are sent to, and how. */

import { hash } from 'node:crypto';
import type { EpochMilliseconds, Milliseconds } from '../../core/clock.ts';
import { HOP_BY_HOP } from '../../core/field-policy.ts';
import { toFoldedName } from '../../core/head.ts';
import type { Fault } from '../../core/problem.ts';
import type { Secret } from '../../core/secret.ts';
import type { SigningSecret } from '../../verify/sign/signing-keys.ts';

export const DISABLED_REASONS = ['failing', 'gone', 'manual'] as const;
export type DisabledReason = (typeof DISABLED_REASONS)[number];

/** A secret that signs deliveries. */
export interface SigningKey extends SigningSecret {
  /** Signs until then; undefined: the current key. */
  readonly expiresAt?: EpochMilliseconds | undefined;
}

/** The TLS client certificate of an endpoint, as PEM. */
export interface ClientCertificate {
  readonly cert: string;
  readonly key: Secret;
}

export interface Endpoint {
  /** `ep_…` from the API; the name for endpoints from YAML. Never contains `~`. */
  readonly id: string;
  readonly source: 'config' | 'api';
  readonly description: string;
  readonly url: string;
  /** Patterns such as `invoice.*`; empty: all types. `*` matches one or more whole segments. */
  readonly events: readonly string[];
  /** Undefined: events without a tenant only, unless it is for `allTenants`. Never changes for an endpoint of the API. */
  readonly tenant?: string | undefined;
  readonly allTenants: boolean;
  readonly keys: readonly SigningKey[];
  /** Sent in addition; never framing, signature or `Host`. */
  readonly headers: readonly (readonly [string, string])[];
  readonly timeout: Milliseconds;
  readonly connectTimeout: Milliseconds;
  /** Attempts at once. */
  readonly concurrency: number;
  /** Attempts per second over all replicas; undefined: unlimited. */
  readonly rateLimit?: number | undefined;
  /** Delays between attempts; one attempt more than entries. */
  readonly schedule: readonly Milliseconds[];
  /** Statuses of 4xx that are retried, besides 401, 403, 404, 408, 425 and 429; `all`: every 4xx except 410. */
  readonly retryClientErrors: readonly number[] | 'all';
  /** A JSON path into `data`; undefined: no order. */
  readonly orderBy?: string | undefined;
  readonly disabled?: { readonly at: EpochMilliseconds; readonly reason: DisabledReason } | undefined;
  /** When it was created or last enabled. */
  readonly enabledAt: EpochMilliseconds;
  readonly clientCertificate?: ClientCertificate | undefined;
  /** Receives `endpoint.disabled` and `message.exhausted`, and only those. */
  readonly isOperational: boolean;
}

/** After a change of these, an endpoint is another one, as is a new endpoint with the same ID. */
export type EndpointIdentity = Pick<Endpoint, 'url' | 'tenant' | 'enabledAt'>;

export function isSameEndpoint(a: EndpointIdentity, b: EndpointIdentity): boolean {
  return a.url === b.url && a.tenant === b.tenant && a.enabledAt === b.enabledAt;
}

/** The store IDs of the states of config endpoints; no endpoint ID contains a colon. */
export const STATE_PREFIX = 'config:';

/** The ID of the endpoint that a stored record, or the state of one of the config, belongs to. */
export function toEndpointId(storeId: string): string {
  return storeId.startsWith(STATE_PREFIX) ? storeId.slice(STATE_PREFIX.length) : storeId;
}

const identities = new WeakMap<Endpoint, string>();

/** A digest of the URL, which can contain secrets, and of the tenants. */
export function toIdentity(endpoint: Endpoint): string {
  const known = identities.get(endpoint);
  if (known !== undefined) return known;
  const receiver = [endpoint.url, endpoint.allTenants ? '*' : endpoint.tenant];
  const id = hash('sha256', JSON.stringify(receiver), 'base64url').slice(0, 16);
  identities.set(endpoint, id);
  return id;
}

/** Whether the endpoint may receive events of this tenant; undefined: events without a tenant. */
export function isForTenant(endpoint: Pick<Endpoint, 'tenant' | 'allTenants'>, tenant: string | undefined): boolean {
  return endpoint.allTenants || endpoint.tenant === tenant;
}

/** An endpoint that an event is delivered to. */
export interface Target {
  readonly endpoint: string;
  /** Deliveries with the same key to the same endpoint are sent strictly one after the other, in the order they were appended. */
  readonly orderKey?: string | undefined;
  /** The endpoint is disabled: the delivery is stored as `skipped`, so that it can be retried. */
  readonly isSkipped?: boolean | undefined;
}

/**
 * The order key of a value of an event. A digest, because keys remain after the payload was erased, and the store cannot hold all text (U+0000 in
 * PostgreSQL). With the endpoint, so that values cannot be compared between endpoints.
 */
export function toOrderKey(endpoint: string, value: string | number | boolean): string {
  return hash('sha256', `${endpoint}\n${value}`, 'base64url').slice(0, 22);
}

/** The properties of an event that decide where it is delivered. */
export interface RoutedEvent {
  readonly type: string;
  readonly tenant?: string | undefined;
  readonly data: Readonly<Record<string, unknown>>;
}

/** Looks up endpoints without I/O; changes are written through to the store, and changes by other replicas arrive within seconds. */
export interface EndpointRegistry {
  get(id: string): Endpoint | undefined;
  /** Reads the store if it has, or had, another version of the endpoint: another replica changed it. `version`: as the caller read it, if it did. */
  catchUp?(id: string, version?: number): Promise<void>;
  /** Whether an endpoint that is unknown here may be known to another replica, or later: its deliveries wait. */
  isElsewhere?(id: string): boolean;
  list(): readonly Endpoint[];
  /** The operational endpoints that receive this type about endpoints of this tenant. */
  routeOperational(type: string, tenant: string | undefined): readonly Target[];
  /** Returns false if the endpoint was disabled already or does not exist. `identity`: only while it has this one. */
  disable(id: string, reason: DisabledReason, at: EpochMilliseconds, identity?: EndpointIdentity): Promise<boolean>;
}

/** An endpoint as the store keeps it. The store does not interpret `json`, which contains secrets. */
export interface StoredEndpoint {
  readonly id: string;
  /** Of no other state of an endpoint with this ID, also after it was removed and created again. */
  readonly version: number;
  readonly json: string;
}

/** The durable store of endpoints, shared by all replicas. Part of the delivery queue, so that one file or one schema holds everything. */
export interface EndpointStore {
  /** A page of those after this ID, in the order of the store; empty: no more. */
  list(after?: string): Promise<readonly StoredEndpoint[]>;
  /** Of an endpoint of the API and of the state of one of the config with this ID: the sum of both. 0: none is stored. */
  readVersion(id: string): Promise<number>;
  /** Stores if the stored version is `replaced` (undefined: not stored); otherwise returns false and changes nothing. */
  put(endpoint: StoredEndpoint, replaced?: number): Promise<boolean>;
  /** Returns false if it was not stored, or not in this version. */
  remove(id: string, version?: number): Promise<boolean>;
  /** Calls `listener` soon after another replica changed an endpoint. Returns how to stop. */
  onChange(listener: () => void): () => void;
}

/** Headers that the sender writes, or that change how the request is framed, read or answered. All names are folded. */
const RESERVED: ReadonlySet<string> = new Set([
  ...HOP_BY_HOP,
  'host',
  'content-length',
  'content-type',
  'content-encoding',
  'content-range',
  'expect',
  'user-agent',
  'accept-encoding',
  'traceparent',
  'tracestate',
  'via',
]);
/** The signature, in the two spellings that receivers accept, and what sidegate says to apps. */
const RESERVED_PREFIXES = ['webhook-', 'svix-', 'sidegate-', 'proxy-'];
const NAME = /^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}$/;
/** Visible ASCII; spaces and tabs only inside. */
const VALUE = /^(?:[\x21-\x7e](?:[\t\x20-\x7e]*[\x21-\x7e])?)?$/;
const MAX_HEADERS = 32;
const MAX_TOTAL_BYTES = 8_192;
/** `: ` and the line end. */
const LINE_OVERHEAD = 4;

/** The first problem of an endpoint's headers. Names are compared as apps may fold them: `webhook_id` is `Webhook-Id` to a CGI app. */
export function findHeaderProblem(headers: readonly (readonly [name: string, value: string])[]): Fault | undefined {
  if (headers.length > MAX_HEADERS)
    return { problem: `there are ${headers.length} headers`, hint: `at most ${MAX_HEADERS} are allowed` };
  const seen = new Set<string>();
  let bytes = 0;
  for (const [name, value] of headers) {
    if (!NAME.test(name)) return { problem: 'a header name is not a token', hint: 'use letters, digits and dashes' };
    const folded = toFoldedName(name);
    if (RESERVED.has(folded) || RESERVED_PREFIXES.some((prefix) => folded.startsWith(prefix)))
      return {
        problem: `the header ${name} cannot be set`,
        hint: 'sidegate writes it itself, or it would change how the request is read; choose another name',
      };
    if (seen.has(folded))
      return { problem: `the header ${name} is set twice`, hint: 'names are compared without case, and `_` counts as `-`' };
    // The value may be a secret.
    if (!VALUE.test(value))
      return {
        problem: `the value of the header ${name} is invalid`,
        hint: 'use visible ASCII characters, with spaces only between them',
      };
    seen.add(folded);
    bytes += name.length + value.length + LINE_OVERHEAD;
  }
  if (bytes <= MAX_TOTAL_BYTES) return undefined;
  return { problem: `the headers have ${bytes} bytes`, hint: `at most ${MAX_TOTAL_BYTES} are allowed` };
}
