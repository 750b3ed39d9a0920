/** The record of a finished request, however it ended: it is counted, logged, journaled and traced here and nowhere else. */

import type { Admitted, VerifiedSender } from '../../core/admitted.ts';
import type { Clock, Milliseconds } from '../../core/clock.ts';
import type { VerifiedEvent } from '../../core/event.ts';
import type { HeaderFields } from '../../core/head.ts';
import {
  type Acknowledgement,
  REFUSALS,
  type Reason,
  type Refusal,
  type RefusalCode,
  type RefusalLogLevel,
  type StageName,
} from '../../core/refusal.ts';
import { MAX_METHOD_LENGTH, type ParsedHead, type RequestInfo } from '../../core/request.ts';
import type { Journal, JournalBody, RequestDetails } from '../../telemetry/journal/journal.ts';
import type { Logger, RequestLine } from '../../telemetry/log/logger.ts';
import type { Exemplar } from '../../telemetry/metrics/series.ts';
import { SAMPLED } from '../../telemetry/tracing/trace-context.ts';
import type { RequestTrace, RouteTrace, Span, SpanAttributes, Tracing } from '../../telemetry/tracing/tracer.ts';
import { PRESETS } from '../../verify/presets/catalogue.ts';
import type { SchemeDescription } from '../../verify/schemes/description.ts';
import type { ForwardOutcome } from '../upstream/outcome.ts';
import type { SenderExpectations } from './respond.ts';
import type { RouteMetrics } from './route-metrics.ts';

/** The events that the pipeline logs, besides requests. */
export type PipelineLogEvent = 'access_revoked' | 'internal_error';

/** The outcome of passing on an admitted request; all fields are absent if the port wrote the response itself. */
export interface Passed {
  readonly outcome?: ForwardOutcome | undefined;
  readonly refusal?: Refusal | undefined;
  /** When it was sent to the app, if that is recorded; monotonic. */
  readonly sentAt?: Milliseconds | undefined;
}

/** A finished request. */
export interface RequestRecord extends Passed, Partial<VerifiedSender> {
  readonly info: RequestInfo;
  /** Absent if the head itself was rejected. */
  readonly head?: ParsedHead | undefined;
  /** Absent if no route was found. */
  readonly route?: RecordedRoute | undefined;
  /** Absent if its signature was not verified. */
  readonly event?: VerifiedEvent | undefined;
  readonly admitted?: Admitted | undefined;
  /** Of the gate that rejected it; absent if none ran. */
  readonly stage?: StageName | undefined;
  readonly trace?: RequestTrace | undefined;
}

/** The route of a finished request. */
export interface RecordedRoute extends SenderExpectations {
  readonly name: string;
  /** Values of WWW-Authenticate or Proxy-Authenticate, one field line each. */
  readonly challenges: readonly string[];
  readonly metrics: RouteMetrics;
  readonly trace: RouteTrace;
  /** Undefined if it stores no bodies. */
  readonly bodies?: BodyRecorder | undefined;
}

/** Stores the body of a finished request, if its route asks for it. */
export interface BodyRecorder {
  record(ended: RequestRecord): JournalBody;
}

/** Refusals of requests whose sender was verified. */
export const VERIFIED_REFUSALS: ReadonlySet<RefusalCode> = new Set<Acknowledgement>(['duplicate', 'stale', 'handshake']);

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

/** Records one request. `sentStatus`: that of a refusal, if it is not the catalogue's. */
export function record(ended: RequestRecord, sentStatus: number | undefined, metrics: RouteMetrics, parts: RecordParts): void {
  const { refusal, outcome } = ended;
  const result =
    refusal === undefined ? toUnchecked(toObserved(toForwarded(outcome), ended), ended) : toRefused(refusal, sentStatus);
  write(ended, result, parts, undefined, (line, exemplar) => {
    metrics.request(line.method, line.status, line.durationMs, exemplar);
    const { upstreamMs } = line;
    if (outcome === undefined || upstreamMs === undefined) return;
    metrics.upstream(upstreamMs, line.durationMs - upstreamMs, exemplar);
    if ('failure' in outcome) metrics.upstreamError(outcome.failure.kind);
  });
}

/** The same for an auth request of the forward-auth endpoint. */
export function recordAuthRequest(
  ended: RequestRecord,
  sentStatus: number | undefined,
  parts: RecordParts,
  count: (status: number, line: RequestLine, exemplar: Exemplar | undefined) => void,
): void {
  const { refusal } = ended;
  const result = refusal === undefined ? toObserved(ALLOWED, ended) : toRefused(refusal, sentStatus);
  write(ended, result, parts, 'authz', (line, exemplar) => count(result.status, line, exemplar));
}

type Count = (line: RequestLine, exemplar: Exemplar | undefined) => void;

function write(ended: RequestRecord, result: Result, parts: RecordParts, port: RequestLine['port'], count: Count): void {
  const { clock, tracing } = parts;
  const trace = toTrace(ended, tracing);
  const line = toLine(ended, clock.monotonic() - ended.info.startedAt, trace, result, port);
  count(line, toExemplar(trace, clock));
  report(line, ended, parts);
  if (trace?.isRecorded === true) reportSpans(ended, line, trace, tracing);
}

/** A new trace if the request was rejected before its caller was known. */
function toTrace({ trace }: RequestRecord, { tracer }: Tracing): RequestTrace | undefined {
  return trace ?? tracer.begin('none', 'rejected');
}

/** Only a sampled trace can be looked up. */
function toExemplar(trace: RequestTrace | undefined, clock: Clock): Exemplar | undefined {
  return trace !== undefined && (trace.flags & SAMPLED) !== 0 ? { traceId: trace.traceId, at: clock.now() } : undefined;
}

function reportSpans(ended: RequestRecord, line: RequestLine, trace: RequestTrace, { onSpan }: Tracing): void {
  for (const span of toSpans(ended, line, trace)) onSpan?.(span);
}

/** The journal first, so that the decision is there even if logging fails. */
function report(line: RequestLine, ended: RequestRecord, { journal, logger }: RecordParts): void {
  if (journal.size === 0) return logger.request(line);
  const text = JSON.stringify(line);
  journal.add(ended.info.receivedAt, line, toDetails(ended), text);
  logger.request(line, text);
}

/** One literal with all fields, present or not: a single object shape costs a sixth of what joining parts would cost. */
function toLine(
  { info, head, outcome, route, user, certificateName, event }: RequestRecord,
  durationMs: number,
  trace: RequestTrace | undefined,
  result: Result,
  port: RequestLine['port'],
): RequestLine {
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
    user: toShort(user?.name),
    certificate: toShort(certificateName),
    upstreamMs: outcome?.upstreamMs && roundToMicrosecond(outcome.upstreamMs),
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
  // An acknowledged event whose content the app has never seen.
  const level = code === 'duplicate' && reason === 'id_reused' ? 'warn' : logLevel;
  const result: Result = { status: sentStatus ?? status, code, reason, level };
  return detail === undefined ? result : { ...result, detail: shorten(detail) };
}

/** A warning if the request was forwarded only because the route is in observe mode. */
function toObserved(result: Result, { admitted }: RequestRecord): Result {
  const observed = admitted?.observed;
  if (observed === undefined) return result;
  const { code, reason, detail } = observed;
  const level = REFUSALS[code].status < 300 ? 'info' : 'warn';
  return { ...result, reason, observed: code, level, ...(detail === undefined ? undefined : { detail: shorten(detail) }) };
}

/** A warning, as operators must look for duplicates among these once the store is back. */
function toUnchecked(result: Result, { admitted }: RequestRecord): Result {
  if (admitted?.claimed?.isUnchecked !== true) return result;
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

/** In which senders name the type of an event. */
export const EVENT_TYPE_HEADERS: readonly string[] = [
  'x-github-event',
  'x-gitea-event',
  'x-gitlab-event',
  'x-event-key',
  'x-shopify-topic',
  'shopify-topic',
  'x-wc-webhook-topic',
  'x-commercelayer-topic',
  'x-pagerduty-event',
  'ce-type',
];
/** Fields that contain neither credentials nor signatures. */
const GENERAL_HEADERS: readonly string[] = [
  'host',
  'content-type',
  'content-length',
  'content-encoding',
  'transfer-encoding',
  'user-agent',
  'expect',
  'via',
  'x-forwarded-for',
  'x-forwarded-host',
  'x-forwarded-proto',
  ...EVENT_TYPE_HEADERS,
];
/** Never shown: a token is a credential, and a signature with its body could be sent again. */
const SIGNATURE_HEADERS: ReadonlySet<string> = new Set(PRESETS.map(({ signature }) => signature?.header.toLowerCase() ?? ''));
/** The values of all other fields are hidden: they may be credentials. */
const SHOWN_HEADERS: ReadonlySet<string> = new Set([
  ...GENERAL_HEADERS,
  ...PRESETS.flatMap(toTimeAndId).filter((name) => !SIGNATURE_HEADERS.has(name)),
]);
const ELLIPSIS = '...';
const MAX_PATH_LENGTH = 1_024;
const MAX_FIELDS = 64;
const MAX_NAME_LENGTH = 64;
const MAX_VALUE_LENGTH = 256;
const MAX_HEADERS_LENGTH = 4_096;

/** The details of a request that the journal keeps besides its log line. */
export function toDetails(ended: RequestRecord): RequestDetails {
  const { head, event, admitted, refusal, outcome, route } = ended;
  const path = head?.target.path;
  return {
    path: path === undefined ? undefined : cut(path, MAX_PATH_LENGTH),
    headers: head === undefined ? '' : toText(head.headers),
    // The rejection may not have been enforced.
    signedAt: event === undefined ? (refusal ?? admitted?.observed)?.claimedAt : event.timestamp,
    stoppedAt: toStage(ended),
    queuedAs: outcome?.kind === 'responded' ? outcome.queuedAs : undefined,
    isClaimed: admitted?.claimed?.claim !== undefined,
    bytesOut: outcome !== undefined && 'contentBytes' in outcome ? outcome.contentBytes : undefined,
    body: route?.bodies?.record(ended),
  };
}

/** The stage that stopped it, or would have without observe mode. */
function toStage({ refusal, admitted, stage = 'arrived' }: RequestRecord): StageName | undefined {
  const observed = admitted?.observed;
  if (observed !== undefined && refusal === undefined) return observed.stage ?? stage;
  return refusal && (refusal.stage ?? (admitted === undefined ? stage : 'app'));
}

/** The fields, one per line. */
function toText({ names, raw }: HeaderFields): string {
  const lines: string[] = [];
  const count = Math.min(names.length, MAX_FIELDS);
  for (let i = 0; i < count; i++) {
    const name = names[i] as string;
    lines.push(
      SHOWN_HEADERS.has(name) ? `${name}\t${cut(raw[i * 2 + 1] as string, MAX_VALUE_LENGTH)}` : cut(name, MAX_NAME_LENGTH),
    );
  }
  return cut(lines.join('\n'), MAX_HEADERS_LENGTH);
}

function cut(text: string, maxLength: number): string {
  return text.length > maxLength ? text.slice(0, maxLength) + ELLIPSIS : text;
}

function toTimeAndId({ timestamp, id }: SchemeDescription): string[] {
  return [timestamp?.from, id].flatMap((source) =>
    source !== undefined && 'header' in source ? [source.header.toLowerCase()] : [],
  );
}

/** RFC 9110, RFC 5789 and QUERY: any other method is arbitrary text from the client. */
const METHODS = new Set(['CONNECT', 'DELETE', 'GET', 'HEAD', 'OPTIONS', 'PATCH', 'POST', 'PUT', 'TRACE', 'QUERY']);
const AUTHORITY = /^(\[[0-9a-f:.]+\]|[a-z0-9._-]{1,253})(?::(\d{1,5}))?$/i;
const CLIENT_ERROR = 400;
const SERVER_ERROR = 500;

/**
 * The gate's own span, and that of the request to the app, if one was sent: by OpenTelemetry's conventions for HTTP, with no path, no query, no
 * content, and no header but Host.
 */
function toSpans(ended: RequestRecord, line: RequestLine, trace: RequestTrace): Span[] {
  const { info, head, outcome, sentAt, route } = ended;
  const method = METHODS.has(info.method) ? info.method : '_OTHER';
  const { traceId, flags, tracestate } = trace;
  const shared = { traceId, flags, tracestate };
  const template = route?.trace.template;
  const spans: Span[] = [
    {
      ...shared,
      spanId: trace.spanId,
      parentId: trace.parentId,
      isParentRemote: trace.parentId !== undefined,
      kind: 'server',
      name: toName(method, template),
      startedAt: info.receivedAt,
      endedAt: info.receivedAt + line.durationMs,
      attributes: {
        'http.request.method': method,
        ...(template === undefined ? undefined : { 'http.route': template }),
        'http.response.status_code': line.status,
        'url.scheme': info.client.scheme,
        ...toServerAddress(head),
        ...(line.status >= SERVER_ERROR ? { 'error.type': toErrorType(ended, line) } : undefined),
        ...(line.port === undefined ? undefined : { 'sidegate.port': line.port }),
        ...(line.route === undefined ? undefined : { 'sidegate.route': line.route }),
        'sidegate.decision': toDecision(ended),
        'sidegate.reason': line.reason,
        'sidegate.request_id': line.requestId,
      },
      // 4xx is the client's mistake: the span's status stays unset.
      isError: line.status >= SERVER_ERROR,
      link: trace.link,
    },
  ];
  if (outcome?.upstreamMs === undefined || sentAt === undefined) return spans;
  const startedAt = info.receivedAt + (sentAt - info.startedAt);
  const errorType = toClientErrorType(outcome);
  const app = route?.trace.app ?? head?.destination;
  spans.push({
    ...shared,
    spanId: trace.appParentId,
    parentId: trace.spanId,
    isParentRemote: false,
    kind: 'client',
    name: toName(method, undefined),
    startedAt,
    endedAt: startedAt + outcome.upstreamMs,
    attributes: {
      'http.request.method': method,
      ...(app === undefined ? undefined : { 'server.address': app.host, 'server.port': app.port }),
      ...('status' in outcome && outcome.status > 0 ? { 'http.response.status_code': outcome.status } : undefined),
      ...(errorType === undefined ? undefined : { 'error.type': errorType }),
    },
    isError: errorType !== undefined,
    link: undefined,
  });
  return spans;
}

function toName(method: string, template: string | undefined): string {
  const verb = method === '_OTHER' ? 'HTTP' : method;
  return template === undefined ? verb : `${verb} ${template}`;
}

/** The address that the client used for the gate; undefined if it is not a host and port. */
function toServerAddress(head: ParsedHead | undefined): SpanAttributes | undefined {
  if (head === undefined) return undefined;
  const { client, headers } = head;
  const forwarded = client.viaTrustedProxy ? headers.all('x-forwarded-host').at(-1) : undefined;
  const [, host, port] = AUTHORITY.exec(forwarded ?? headers.get('host') ?? '') ?? [];
  if (host === undefined) return undefined;
  const address = { 'server.address': host.startsWith('[') ? host.slice(1, -1) : host };
  return port === undefined ? address : { ...address, 'server.port': Number(port) };
}

/** A failure of the app by its status, one of the gate by its reason. */
function toErrorType({ refusal }: RequestRecord, line: RequestLine): string {
  return refusal === undefined ? String(line.status) : line.reason;
}

function toClientErrorType(outcome: ForwardOutcome): string | undefined {
  if ('failure' in outcome) return outcome.failure.kind;
  if (outcome.kind === 'aborted') return 'sender_gone';
  return outcome.status >= CLIENT_ERROR ? String(outcome.status) : undefined;
}

/** As `sidegate_auth_decisions_total` counts it. */
function toDecision({ refusal, admitted }: RequestRecord): 'allow' | 'deny' | 'observe' {
  if (admitted !== undefined) return admitted.observed === undefined ? 'allow' : 'observe';
  return refusal === undefined || VERIFIED_REFUSALS.has(refusal.code) ? 'allow' : 'deny';
}
