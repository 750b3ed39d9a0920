/** Endpoints as the API shows them: without secrets and without the values of headers. */
import { type Milliseconds, toInstant } from '../../core/clock.ts';
import { findPublicKey } from '../attempt/signing-keys.ts';
import type { Endpoint } from '../endpoints/endpoint.ts';
import type { OperationParts } from './api-parts.ts';

const UNITS = [
  ['d', 86_400_000],
  ['h', 3_600_000],
  ['m', 60_000],
  ['s', 1_000],
  ['ms', 1],
] as const;

/** The shortest text that `duration()` of the config parses. */
export function formatDuration(duration: Milliseconds): string {
  const [unit, size] = UNITS.find(([, each]) => duration > 0 && duration % each === 0) ?? ['ms', 1];
  return duration === 0 ? '0s' : `${duration / size}${unit}`;
}

/** The endpoint's JSON. */
export function toEndpointView(endpoint: Endpoint, { registry, clock }: OperationParts): object {
  const { id, source, url, description, events, tenant, allTenants, headers, concurrency, rateLimit, retryClientErrors } =
    endpoint;
  const { orderBy, isOperational, keys, disabled } = endpoint;
  const record = registry.find(id)?.record;
  const now = clock.now();
  return {
    id,
    source,
    url,
    description,
    events,
    tenant,
    allTenants,
    headerNames: headers.map(([name]) => name),
    timeout: formatDuration(endpoint.timeout),
    concurrency,
    rateLimit,
    schedule: endpoint.schedule.map(formatDuration),
    retryClientErrors,
    orderBy,
    operational: isOperational,
    signatures: keys
      .filter(({ expiresAt = Number.POSITIVE_INFINITY }) => expiresAt > now)
      .map((key) => ({
        version: key.version,
        publicKey: findPublicKey(key),
        expiresAt: key.expiresAt === undefined ? undefined : toInstant(key.expiresAt),
      })),
    disabled: disabled === undefined ? undefined : { at: toInstant(disabled.at), reason: disabled.reason },
    createdAt: record === undefined ? undefined : toInstant(record.createdAt),
    updatedAt: record === undefined ? undefined : toInstant(record.updatedAt),
  };
}

/** The `ETag` of an endpoint that was created with the API. */
export function toEtag(version: number): string {
  return `"${version}"`;
}
