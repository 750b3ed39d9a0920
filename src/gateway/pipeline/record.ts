/** Counts, logs and journals each finished request, however it ended; no other module does. */
import type { Clock, Milliseconds } from '../../core/clock.ts';
import { MAX_METHOD_LENGTH } from '../../core/method.ts';
import type { Reason, Refusal, RefusalCode } from '../../core/refusal.ts';
import { REFUSALS, type RefusalLogLevel } from '../../core/refusal-catalogue.ts';
import type { RequestTrace } from '../../core/request-trace.ts';
import type { Journal } from '../../telemetry/journal/journal.ts';
import type { Logger, RequestLine } from '../../telemetry/log/logger.ts';
import type { Exemplar } from '../../telemetry/metrics/series.ts';
import type { Tracing } from '../../telemetry/tracing/span.ts';
import { SAMPLED } from '../../telemetry/tracing/traceparent.ts';
import type { ForwardOutcome } from '../upstream/outcome.ts';
import type { PipelineLogEvent } from './log-events.ts';
import { toDetails } from './request-details.ts';
import { type RequestRecord, toObservedRefusal } from './request-record.ts';
import type { RouteMetrics } from './route-metrics.ts';
import { toSpans } from './spans.ts';

/** The destinations of request records. */
export interface RecordParts {
  readonly clock: Clock;
  readonly logger: Logger<PipelineLogEvent>;
  readonly journal: Journal;
  readonly tracing: Tracing;
}

/** The status that logs show if the sender disconnected before the response; it is never sent. */
const SENDER_GONE = 499;

/** Maximum characters of a value that a client wrote. */
const MAX_TEXT = 1_024;

/** Counts, logs and journals one request. */
export function record(requestRecord: RequestRecord, metrics: RouteMetrics, parts: RecordParts): void {
  write(requestRecord, toResult(requestRecord), parts, undefined, (line, exemplar) => {
    metrics.request(line.method, line.status, line.durationMs, exemplar);
    const { outcome } = requestRecord;
    const { upstreamMs } = line;
    if (outcome === undefined || upstreamMs === undefined) return;
    metrics.upstream(upstreamMs, line.durationMs - upstreamMs, exemplar);
    if ('failure' in outcome) metrics.upstreamError(outcome.failure.kind);
  });
}

/** The same for an auth request of the forward-auth endpoint; `status` is that of the response to its caller. */
export function recordAuthRequest(requestRecord: RequestRecord, status: number, parts: RecordParts, count: Count): void {
  const { refusal } = requestRecord;
  const result = refusal === undefined ? toObserved(ALLOWED, requestRecord) : toRefused(refusal);
  write(requestRecord, { ...result, status }, parts, 'authz', count);
}

type Count = (line: RequestLine, exemplar: Exemplar | undefined) => void;

function write(requestRecord: RequestRecord, result: Result, parts: RecordParts, port: RequestLine['port'], count: Count): void {
  const { info } = requestRecord;
  const { clock, tracing } = parts;
  const trace = toTrace(requestRecord, tracing);
  const line = toLine(requestRecord, clock.monotonic() - info.startedAt, trace, result, port);
  count(line, toExemplar(trace, clock));
  report(line, requestRecord, parts);
  if (trace?.isRecorded === true) reportSpans(requestRecord, line, trace, tracing);
}

/** A new trace if the request was rejected before its caller was known. */
function toTrace({ trace }: RequestRecord, { tracer }: Tracing): RequestTrace | undefined {
  return trace ?? tracer.begin('none', 'rejected');
}

/** Only a sampled trace can be looked up. */
function toExemplar(trace: RequestTrace | undefined, clock: Clock): Exemplar | undefined {
  return trace !== undefined && (trace.flags & SAMPLED) !== 0 ? { traceId: trace.traceId, at: clock.now() } : undefined;
}

function reportSpans(requestRecord: RequestRecord, line: RequestLine, trace: RequestTrace, { onSpan }: Tracing): void {
  for (const span of toSpans(requestRecord, line, trace)) onSpan?.(span);
}

/** The journal first, so that the decision is there even if logging fails. */
function report(line: RequestLine, requestRecord: RequestRecord, { journal, logger }: RecordParts): void {
  if (journal.size === 0) return logger.request(line);
  const text = JSON.stringify(line);
  journal.add(requestRecord.info.receivedAt, line, toDetails(requestRecord), text);
  logger.request(line, text);
}

/** One literal with all fields, present or not: a single object shape costs a sixth of what joining parts would cost. */
function toLine(
  { info, head, outcome, route, decision }: RequestRecord,
  durationMs: number,
  trace: RequestTrace | undefined,
  result: Result,
  port: RequestLine['port'],
): RequestLine {
  const sender = decision?.kind === 'admitted' ? decision.admitted.sender : decision?.sender;
  const event = decision?.kind === 'admitted' ? decision.admitted.claimed?.event : decision?.event;
  return {
    level: result.level,
    port,
    requestId: info.requestId,
    trace_id: trace?.traceId,
    span_id: trace?.spanId,
    route: route?.name,
    method: shorten(info.method, MAX_METHOD_LENGTH),
    client: shorten(info.client.address),
    bytesIn: head?.body.received ?? 0,
    durationMs: roundToMicrosecond(durationMs),
    key: event?.keyName,
    webhookId: toShort(event?.id),
    user: toShort(sender?.user?.name),
    certificate: toShort(sender?.certificateName),
    upstreamMs: outcome && roundToMicrosecond(outcome.upstreamMs),
    status: result.status,
    code: result.code,
    reason: result.reason,
    detail: result.detail,
    observed: result.observed,
    unchecked: result.unchecked,
  };
}

/** The clock has more digits than it measures; they would take a tenth of a log line. */
function roundToMicrosecond(time: Milliseconds): Milliseconds {
  return Math.round(time * 1_000) / 1_000;
}

function toShort(text: string | undefined): string | undefined {
  return text === undefined ? undefined : shorten(text);
}

/** Truncates a value that a client wrote. The text is copied: a slice would keep all of the original in the journal. */
function shorten(text: string, maxLength = MAX_TEXT): string {
  return text.length <= maxLength ? text : `${Buffer.from(text.slice(0, maxLength)).toString()}…`;
}

interface Result {
  readonly status: number;
  readonly code: RequestLine['code'];
  readonly reason: Reason;
  readonly level: RefusalLogLevel;
  readonly detail?: string;
  readonly observed?: RefusalCode;
  readonly unchecked?: true;
}

const ALLOWED: Result = { status: 200, code: 'allowed', reason: 'ok', level: 'info' };

function toRefused({ code, reason, detail }: Refusal, sentStatus?: number): Result {
  const { status, logLevel } = REFUSALS[code];
  const result: Result = { status: sentStatus ?? status, code, reason, level: logLevel };
  return detail === undefined ? result : { ...result, detail: shorten(detail) };
}

/** A warning if the request was forwarded only because the route is in observe mode. */
function toObserved(result: Result, requestRecord: RequestRecord): Result {
  const observed = toObservedRefusal(requestRecord);
  if (observed === undefined) return result;
  const { code, reason, detail } = observed;
  const level = REFUSALS[code].status < 300 ? 'info' : 'warn';
  return { ...result, reason, observed: code, level, ...(detail === undefined ? undefined : { detail: shorten(detail) }) };
}

function toResult(requestRecord: RequestRecord): Result {
  const { refusal, status, outcome } = requestRecord;
  if (refusal !== undefined) return toRefused(refusal, status);
  return toUnchecked(toObserved(toForwarded(outcome), requestRecord), requestRecord);
}

/** A warning, as operators must look for duplicates among these once the store is back. */
function toUnchecked(result: Result, { decision }: RequestRecord): Result {
  if (decision?.kind !== 'admitted' || decision.admitted.claimed?.isUnchecked !== true) return result;
  return { ...result, unchecked: true, level: result.level === 'info' ? 'warn' : result.level };
}

function toForwarded(outcome: ForwardOutcome | undefined): Result {
  if (outcome?.kind === 'responded' || outcome?.kind === 'upgraded')
    return { status: outcome.status, code: 'forwarded', reason: 'ok', level: 'info' };
  if (outcome?.kind === 'broken') {
    const reason = outcome.failure.kind === 'timeout' ? 'upstream_timeout' : 'upstream_reset';
    return { status: outcome.status, code: 'forwarded', reason, level: 'error', detail: outcome.failure.detail };
  }
  if (outcome?.kind === 'aborted')
    return {
      status: outcome.status === 0 ? SENDER_GONE : outcome.status,
      code: 'forwarded',
      reason: 'sender_gone',
      level: 'info',
    };
  throw new Error('a request record has neither a refusal nor an outcome');
}
