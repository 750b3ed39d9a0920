/** The metrics of the ports: connections, limits, buffered bodies, revocation lists. */
import type { Registry } from '@prometheus-io/client';
import type { EpochMilliseconds } from '../core/clock.ts';
import type { OpenConnections } from '../http/server/strict-server.ts';
import { findNextUpdate, TlsContexts, type TlsSettings } from '../http/server/tls.ts';
import { createFamilies, watchGauge } from '../telemetry/metrics/series.ts';

/** The limits that a request or connection can reach. */
const LIMITS = [
  'head_timeout',
  'body_idle',
  'body_rate',
  'body_total',
  'body_size',
  'header_bytes',
  'header_fields',
  'target',
  'connections',
  'client_connections',
  'handshakes',
  'handshake_bytes',
  'empty_records',
  'small_chunks',
  'client_requests',
  'rejected_streams',
  'pipelined',
  'client_in_flight',
  'route_in_flight',
  'unverified_in_flight',
  'upgrades',
  'client_upgrades',
  'send_stall',
  'in_flight_queue',
  'queue_timeout',
  'waiters',
  'store',
  'store_share',
  'buffer',
  'buffer_share',
  'heap',
  'login_attempts',
  'memory',
] as const;
export type LimitLabel = (typeof LIMITS)[number];

export interface ServerMetrics {
  readonly connections: OpenConnections;
  limitHit(limit: LimitLabel): void;
  /** `read` returns the bytes of buffered request bodies; called on each scrape. */
  watchBufferedBytes(read: () => number): void;
  /** When the first revocation list of a port's client CAs expires; undefined: never. */
  crlNextUpdate(section: string, at: EpochMilliseconds | undefined): void;
}

/** Registers the metrics. */
export function createServerMetrics(registers: Registry[]): ServerMetrics {
  const { counter, gauge } = createFamilies(registers);
  const families = {
    connections: gauge('sidegate_connections', 'Open connections on all ports except the admin port.'),
    limits: counter('sidegate_limit_hits_total{limit}', 'Requests and connections that reached a limit.'),
    crlNextUpdate: gauge(
      'sidegate_client_crl_next_update_timestamp_seconds{section}',
      'When the first revocation list of client CAs expires; from then on, clients with a certificate of that CA are rejected.',
    ),
  };
  return {
    connections: families.connections.series(),
    limitHit: (limit) => families.limits.series(limit).add(),
    watchBufferedBytes: (read) => watchGauge('sidegate_buffered_bytes', 'Bytes of buffered request bodies.', registers, read),
    crlNextUpdate(section, at) {
      if (at === undefined) families.crlNextUpdate.remove(section);
      else families.crlNextUpdate.series(section).value = at / 1000;
    },
  };
}

/** Reports when the revocation lists of a port expire: from then on, OpenSSL rejects the clients of that CA. */
export function reportNextUpdate(section: string, { clientCrl }: TlsSettings, metrics: ServerMetrics): void {
  if (clientCrl !== undefined) metrics.crlNextUpdate(section, findNextUpdate(clientCrl));
}

/** The TLS contexts of a port, if it has any; `section`: its config path. */
export function toContexts(
  section: string,
  read: { readonly settings: TlsSettings } | undefined,
  metrics: ServerMetrics,
): TlsContexts | undefined {
  if (read === undefined) return undefined;
  reportNextUpdate(section, read.settings, metrics);
  return new TlsContexts(read.settings);
}
