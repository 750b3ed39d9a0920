/** Converts a request record to spans by OpenTelemetry's conventions for HTTP: no path, no query, no content, no header but Host. */
import type { ParsedHead } from '../../core/parsed-head.ts';
import type { RequestTrace } from '../../core/request-trace.ts';
import type { RequestLine } from '../../telemetry/log/logger.ts';
import type { Span, SpanAttributes } from '../../telemetry/tracing/span.ts';
import type { ForwardOutcome } from '../upstream/outcome.ts';
import type { RequestRecord } from './request-record.ts';
import { VERIFIED_REFUSALS } from './trust-level.ts';

/** RFC 9110, RFC 5789 and QUERY: any other method is arbitrary text from the client. */
const METHODS = new Set(['CONNECT', 'DELETE', 'GET', 'HEAD', 'OPTIONS', 'PATCH', 'POST', 'PUT', 'TRACE', 'QUERY']);
const AUTHORITY = /^(\[[0-9a-f:.]+\]|[a-z0-9._-]{1,253})(?::(\d{1,5}))?$/i;
const CLIENT_ERROR = 400;
const SERVER_ERROR = 500;

/** The gate's own span, and that of the request to the app, if one was sent. */
export function toSpans(requestRecord: RequestRecord, line: RequestLine, trace: RequestTrace): Span[] {
  const { info, head, outcome, sentAt, route } = requestRecord;
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
        ...(line.status >= SERVER_ERROR ? { 'error.type': toErrorType(requestRecord, line) } : undefined),
        ...(line.port === undefined ? undefined : { 'sidegate.port': line.port }),
        ...(line.route === undefined ? undefined : { 'sidegate.route': line.route }),
        'sidegate.decision': toDecision(requestRecord),
        'sidegate.reason': line.reason,
        'sidegate.request_id': line.requestId,
      },
      // 4xx is the client's mistake: the span's status stays unset.
      isError: line.status >= SERVER_ERROR,
      link: trace.link,
    },
  ];
  if (outcome === undefined || sentAt === undefined) return spans;
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
function toDecision({ refusal, decision }: RequestRecord): 'allow' | 'deny' | 'observe' {
  if (decision?.kind === 'admitted') return decision.admitted.observed === undefined ? 'allow' : 'observe';
  return refusal === undefined || VERIFIED_REFUSALS.has(refusal.code) ? 'allow' : 'deny';
}
