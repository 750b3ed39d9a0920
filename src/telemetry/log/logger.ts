/** The log: one JSON line per request and per lifecycle event. The fields that never show a value are listed here. */
import { type DestinationStream, type Logger as PinoLogger, pino } from 'pino';
import { type Milliseconds, systemClock } from '../../core/clock.ts';
import type { Reason, RefusalCode, RefusalLogLevel } from '../../core/refusal.ts';
import { DEFAULT_FLUSH_MS, LogBatches } from './log-batches.ts';

/** The log line of a request. */
export interface RequestLine {
  /** The port that received it; omitted for the data port. */
  readonly port?: 'authz' | undefined;
  readonly requestId: string;
  /** OpenTelemetry's names for log fields, so that tools can join logs and traces. */
  readonly trace_id?: string | undefined;
  readonly span_id?: string | undefined;
  readonly route: string | undefined;
  readonly method: string;
  readonly status: number;
  readonly code: RefusalCode | 'forwarded' | 'allowed';
  readonly reason: Reason;
  readonly level: RefusalLogLevel;
  /** The refusal that a route in observe mode did not enforce. */
  readonly observed?: RefusalCode | undefined;
  /** Forwarded while the store was down, without the checks for duplicates and order. */
  readonly unchecked?: true | undefined;
  /** Name of the key that verified it. */
  readonly key?: string | undefined;
  /** Only after verification. */
  readonly webhookId?: string | undefined;
  /** The user whose password was verified. */
  readonly user?: string | undefined;
  readonly certificate?: string | undefined;
  readonly client: string;
  readonly durationMs: Milliseconds;
  readonly upstreamMs?: Milliseconds | undefined;
  readonly bytesIn: number;
  readonly detail?: string | undefined;
}

/** The events that this area logs; each area lists its own. */
export type TelemetryLogEvent = 'log_lines_dropped' | 'escaped_error' | 'key_match_by_old_key' | 'library_warning';

/** Fields of an event; plain values only, so that nothing large or secret can get into the log. */
export type LogFields = Readonly<Record<string, string | number | boolean | readonly string[] | undefined>>;

/** Writes the log. */
export interface Logger<Event extends string = TelemetryLogEvent> {
  /** `text`: the line in JSON, if the caller has it already. */
  request(line: RequestLine, text?: string): void;
  readonly info: (event: Event, fields?: LogFields) => void;
  readonly warn: (event: Event, fields?: LogFields) => void;
  readonly error: (event: Event, fields?: LogFields) => void;
  /** Logs how many lines were dropped since the last call. */
  reportDropped(): void;
  /** Starts writing the buffered lines, and resolves once they are written. With a full pipe that nobody reads, that is never. */
  flush(): Promise<void>;
  /** Writes the buffered lines before it returns; only for a process that ends, and after `flush`: a full pipe blocks the event loop. */
  flushNow(): void;
}

/** Where lines are written; a buffered destination can be flushed, and returns how many lines it dropped. */
export type LogDestination = DestinationStream & { whenFlushed?(): Promise<void>; flushSync?(): void; takeDropped?(): number };

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

/**
 * Writes the line of a request in pino's format. It has a closed set of fields, none of which can hold a secret, so it needs neither
 * redaction nor pino's serializers, which would cost 2 µs more for each request.
 */
function createRequestLog(log: PinoLogger, base: object, stream: LogDestination): Logger['request'] {
  const isEnabled = {
    info: log.isLevelEnabled('info'),
    warn: log.isLevelEnabled('warn'),
    error: log.isLevelEnabled('error'),
  };
  const shared = JSON.stringify(base).slice(1, -1);
  return (line, text = JSON.stringify(line)) => {
    if (!isEnabled[line.level]) return;
    const time = pino.stdTimeFunctions.epochTime().slice(1);
    stream.write(`{${time},${shared},${text.slice(1, -1)},"msg":"request"}\n`);
  };
}

/** Creates the log. */
export function createLogger<Event extends string>(options: {
  readonly level: 'debug' | 'info' | 'warn' | 'error';
  readonly version: string;
  /** The worker that writes the lines, from 1 on; only if there are several. */
  readonly worker?: number | undefined;
  /** The longest time from a line to its write on standard output. */
  readonly flush?: Milliseconds;
  /** Default: standard output. */
  readonly destination?: LogDestination;
}): Logger<Event> {
  const { flush: flushAfter = DEFAULT_FLUSH_MS } = options;
  const stream = options.destination ?? new LogBatches(1, { clock: systemClock, flushAfter });
  const { version, worker } = options;
  const base = { service: 'sidegate', version, ...(worker === undefined ? undefined : { worker }) };
  const formatters = { level: (label: string) => ({ level: label }) };
  const redact = { paths: REDACTED.map((name) => `["${name}"]`), censor: '[secret]' };
  const log = pino({ level: options.level, base, formatters, redact }, stream);
  return {
    request: createRequestLog(log, base, stream),
    info: (event, fields) => log.info(fields ?? {}, event),
    warn: (event, fields) => log.warn(fields ?? {}, event),
    error: (event, fields) => log.error(fields ?? {}, event),
    reportDropped() {
      const lines = stream.takeDropped?.() ?? 0;
      if (lines > 0)
        log.warn({ lines, hint: 'the reader of standard output is too slow' }, 'log_lines_dropped' satisfies TelemetryLogEvent);
    },
    flush: async () => stream.whenFlushed?.(),
    flushNow() {
      try {
        stream.flushSync?.();
      } catch {
        // Standard output is closed or not open yet, so the error cannot be reported.
      }
    },
  };
}
