/** The log: one JSON line per request and per lifecycle event. The fields that never show a value are listed here. */
import { type DestinationStream, pino } from 'pino';
import type { Milliseconds } from '../../core/clock.ts';
import type { Reason, RefusalCode } from '../../core/refusal.ts';
import type { RefusalLogLevel } from '../../core/refusal-catalogue.ts';
import { LogBatches } from './log-batches.ts';

/** The log line of a request. */
export interface RequestLine {
  /** The port that received it; omitted for the data port. */
  readonly port?: 'authz';
  readonly requestId: string;
  /** OpenTelemetry's names for log fields, so that tools can join logs and traces. */
  readonly trace_id?: string;
  readonly span_id?: string;
  readonly route: string | undefined;
  readonly method: string;
  readonly status: number;
  readonly code: RefusalCode | 'forwarded' | 'allowed';
  readonly reason: Reason;
  readonly level: RefusalLogLevel;
  /** The refusal that a route in observe mode did not enforce. */
  readonly observed?: RefusalCode;
  /** Forwarded while the store was down, without the checks for duplicates and order. */
  readonly unchecked?: true;
  /** Name of the key that verified it. */
  readonly key?: string;
  /** Only after verification. */
  readonly webhookId?: string;
  /** The user whose password was verified. */
  readonly user?: string;
  readonly certificate?: string;
  readonly client: string;
  readonly durationMs: Milliseconds;
  readonly upstreamMs?: Milliseconds;
  readonly bytesIn: number;
  readonly detail?: string;
}

/** The events that are logged besides requests. */
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

/** Fields of an event; plain values only, so that nothing large or secret can get into the log. */
export type LogFields = Readonly<Record<string, string | number | boolean | readonly string[] | undefined>>;

/** Writes the log. */
export interface Logger {
  request(line: RequestLine): void;
  info(event: LogEvent, fields?: LogFields): void;
  warn(event: LogEvent, fields?: LogFields): void;
  error(event: LogEvent, fields?: LogFields): void;
  /** Starts writing the buffered lines; called at a fixed interval. */
  flush(): void;
  /** Writes the buffered lines before it returns; for the last lines of a process. */
  flushNow(): void;
}

/** Where lines are written; a buffered destination can be flushed, and returns how many lines it dropped. */
export type LogDestination = DestinationStream & { flush?(): void; flushSync?(): void; takeDropped?(): number };

/** Options of the log. */
export interface LoggerOptions {
  readonly level: 'debug' | 'info' | 'warn' | 'error';
  readonly version: string;
  /** Default: standard output. */
  readonly destination?: LogDestination;
}

/** Fields that never show a value; lower case, because pino compares names exactly. Values are plain, so no field is nested. */
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

/** Creates the log. */
export function createLogger(options: LoggerOptions): Logger {
  const stream = options.destination ?? new LogBatches(1);
  const base = {
    level: options.level,
    base: { service: 'sidegate', version: options.version },
    formatters: { level: (label: string) => ({ level: label }) },
  };
  // A request's line has a closed set of fields, none of which can hold a secret, so it skips redaction.
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
        log.warn({ lines, hint: 'the reader of standard output is too slow' }, 'log_lines_dropped' satisfies LogEvent);
    },
    flushNow() {
      try {
        stream.flushSync?.();
      } catch {
        // Standard output is closed or not open yet, so the error cannot be reported.
      }
    },
  };
}
