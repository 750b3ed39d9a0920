/** An endpoint: where events are sent to, and how. */
import type { SigningSecret } from '../../auth/schemes/signing-keys.ts';
import type { EpochMilliseconds, Milliseconds } from '../../core/clock.ts';
import type { Secret } from '../../core/secret.ts';

/** Why an endpoint is disabled. */
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

/** An endpoint, from YAML or from the management API. */
export interface Endpoint {
  /** `ep_…` from the API; the name for endpoints from YAML. Never contains `~`. */
  readonly id: string;
  readonly source: 'config' | 'api';
  readonly description: string;
  readonly url: string;
  /** Patterns such as `invoice.*`; empty: all types. `*` matches one or more whole segments. */
  readonly events: readonly string[];
  /** Undefined: events without a tenant only, unless it is for `allTenants`. Never changes for an endpoint of the API. */
  readonly tenant: string | undefined;
  readonly allTenants: boolean;
  readonly keys: readonly SigningKey[];
  /** Sent in addition; never framing, signature or `Host`. */
  readonly headers: readonly (readonly [string, string])[];
  readonly timeout: Milliseconds;
  readonly connectTimeout: Milliseconds;
  /** Attempts at once. */
  readonly concurrency: number;
  /** Attempts per second over all replicas; undefined: unlimited. */
  readonly rateLimit: number | undefined;
  /** Delays between attempts; one attempt more than entries. */
  readonly schedule: readonly Milliseconds[];
  /** Statuses of 4xx that are retried, besides 401, 403, 404, 408, 425 and 429; `all`: every 4xx except 410. */
  readonly retryClientErrors: readonly number[] | 'all';
  /** A JSON path into `data`; undefined: no order. */
  readonly orderBy: string | undefined;
  readonly disabled: { readonly at: EpochMilliseconds; readonly reason: DisabledReason } | undefined;
  /** When it was created or last enabled. */
  readonly enabledAt: EpochMilliseconds;
  readonly createdAt: EpochMilliseconds;
  readonly clientCertificate: ClientCertificate | undefined;
  /** Receives `endpoint.disabled` and `message.exhausted`, and only those. */
  readonly isOperational: boolean;
}

/** Whether the endpoint may receive events of this tenant; undefined: events without a tenant. */
export function isForTenant(endpoint: Pick<Endpoint, 'tenant' | 'allTenants'>, tenant: string | undefined): boolean {
  return endpoint.allTenants || endpoint.tenant === tenant;
}
