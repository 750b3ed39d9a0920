/** The log: one JSON line for each request and each event of the gate's own life; what may never be shown is fixed here. */
import { type DestinationStream, pino } from 'pino';
import type { Milliseconds } from '../../core/clock.ts';
import type { Reason, RefusalCode } from '../../core/refusal.ts';
import type { RefusalLogLevel } from '../../core/refusal-catalogue.ts';
import { LogBatches } from './log-batches.ts';

/** The one line of a request. */
export interface RequestLine {
  /** Where it came in, where that is not the data port. */
  readonly port?: 'authz';
  readonly requestId: string;
  /** Named as OpenTelemetry has them in logs, where whoever joins logs and traces looks for them. */
  readonly trace_id?: string;
  readonly span_id?: string;
  readonly route: string | undefined;
  readonly method: string;
  readonly status: number;
  readonly code: RefusalCode | 'forwarded' | 'allowed';
  readonly reason: Reason;
  readonly level: RefusalLogLevel;
  /** What it would have been refused with, had its route not been told to observe only. */
  readonly observed?: RefusalCode;
  /** Forwarded while the store was down, without the check for repeats or for order. */
  readonly unchecked?: true;
  /** Name of the key that verified. */
  readonly key?: string;
  /** Only once it is verified. */
  readonly webhookId?: string;
  /** Who a password proved it to be. */
  readonly user?: string;
  readonly certificate?: string;
  readonly client: string;
  readonly durationMs: Milliseconds;
  readonly upstreamMs?: Milliseconds;
  readonly bytesIn: number;
  readonly detail?: string;
}

/** Everything beside requests that is worth a line. */
export type LogEvent =
  | 'starting'
  | 'listening'
  | 'config_warning'
  | 'config_reloaded'
  | 'config_reload_failed'
  | 'route_observed'
  | 'secret_reloaded'
  | 'secret_unavailable'
  | 'key_match_by_old_key'
  | 'id_forgotten'
  | 'admin_token_reloaded'
  | 'admin_token_reload_failed'
  | 'secret_warning'
  | 'remote_keys_loaded'
  | 'remote_keys_failed'
  | 'remote_keys_expired'
  | 'users_reloaded'
  | 'identity_reloaded'
  | 'identity_reload_failed'
  | 'users_reload_failed'
  | 'tls_reloaded'
  | 'tls_reload_failed'
  | 'tls_warning'
  | 'signature_explained'
  | 'watch_failed'
  | 'log_lines_dropped'
  | 'dedup_in_memory'
  | 'memory_limits'
  | 'store_up'
  | 'store_down'
  | 'store_warning'
  | 'settlement_lost'
  | 'tracing_export_failed'
  | 'tracing_export_recovered'
  | 'leaving'
  | 'staying'
  | 'draining'
  | 'drain_incomplete'
  | 'stopped'
  | 'internal_error'
  | 'escaped_error'
  | 'pod_injected'
  | 'pod_skipped'
  | 'pod_denied'
  | 'event_failed'
  | 'cluster_version'
  | 'cluster_version_unknown'
  | 'certificate_issued'
  | 'certificate_loaded'
  | 'certificate_check_failed'
  | 'certificate_check_recovered'
  | 'client_ca_reloaded'
  | 'client_ca_reload_failed'
  | 'rotation_started'
  | 'authority_rotated'
  | 'ca_bundle_patched'
  | 'tls_handshake_failed'
  | 'not_ready'
  | 'ready';

/** Facts of an event; plain values only, so nothing large or secret slips in. */
export type LogFields = Readonly<Record<string, string | number | boolean | readonly string[] | undefined>>;

/** Writes the log. */
export interface Logger {
  request(line: RequestLine): void;
  info(event: LogEvent, fields?: LogFields): void;
  warn(event: LogEvent, fields?: LogFields): void;
  error(event: LogEvent, fields?: LogFields): void;
  /** Starts to write what is buffered; called on a beat. */
  flush(): void;
  /** Writes what is buffered before it returns; for the process's last words. */
  flushNow(): void;
}

/** Where lines go; a buffering one can be told to write, and tells how many lines nobody took. */
export type LogDestination = DestinationStream & { flush?(): void; flushSync?(): void; takeDropped?(): number };

/** How the log is written. */
export interface LoggerOptions {
  readonly level: 'debug' | 'info' | 'warn' | 'error';
  readonly version: string;
  /** Standard output where it is left out. */
  readonly destination?: LogDestination;
}

/** Field names that never show a value; lower case, as pino compares them as they are. Fields hold plain values only, so none is nested. */
const REDACTED = [
  'authorization',
  'proxy-authorization',
  'cookie',
  'set-cookie',
  'webhook-signature',
  'secret',
  'password',
  'token',
];

/** Builds the log. */
export function createLogger(options: LoggerOptions): Logger {
  const stream = options.destination ?? new LogBatches(1);
  const base = {
    level: options.level,
    base: { service: 'sidegate', version: options.version },
    formatters: { level: (label: string) => ({ level: label }) },
  };
  // A request's line has a closed set of fields, none of which can hold a secret: it is spared the search for them.
  const requests = pino(base, stream);
  const log = pino({ ...base, redact: { paths: REDACTED.map((name) => `["${name}"]`), censor: '[secret]' } }, stream);
  return {
    request({ level, ...line }) {
      requests[level](line, 'request');
    },
    info: (event, fields) => log.info(fields ?? {}, event),
    warn: (event, fields) => log.warn(fields ?? {}, event),
    error: (event, fields) => log.error(fields ?? {}, event),
    flush() {
      stream.flush?.();
      const lines = stream.takeDropped?.() ?? 0;
      if (lines > 0)
        log.warn({ lines, hint: 'nothing reads standard output fast enough' }, 'log_lines_dropped' satisfies LogEvent);
    },
    flushNow() {
      try {
        stream.flushSync?.();
      } catch {
        // Standard output is gone or not open yet: there is nowhere left to tell.
      }
    },
  };
}
