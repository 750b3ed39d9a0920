/** Events: their ID, the envelope that is sent (interface.md part 2), and their metadata: the trace context, or the request of an inbox. */
import { randomBytes } from 'node:crypto';
import * as z from 'zod';
import { parseJson } from '../../core/json-path.ts';
import { formatTraceparent, parseTraceparent, parseTracestate } from '../../telemetry/tracing/trace-context.ts';

/** IDs of endpoints that stand for the app of a route. No other endpoint can have one: `:` is not allowed in their IDs. */
export const INBOX_PREFIX = 'inbox:';
export const INBOX_TYPE = 'inbox';

/** Without `.`, which separates the parts of the signed text, and without `~`, which separates event and endpoint. */
export const EVENT_ID = /^[A-Za-z0-9_:-]{1,128}$/;

export const INBOX_METADATA = '{"inbox":';
/** Metadata of events that sidegate creates itself, for endpoints of its choice. */
export const OWN_METADATA = '{"own":true}';

/** The JSON that is sent; `created` is in seconds since 1970, or what the app gave. */
export interface Envelope {
  readonly type: string;
  readonly id: string;
  readonly created: number;
  readonly data: Readonly<Record<string, unknown>>;
}

export function createEventId(): string {
  return `msg_${randomBytes(16).toString('base64url')}`;
}

/** The body of every attempt: the same bytes each time. */
export function toBody({ type, id, created, data }: Envelope): Buffer {
  return Buffer.from(JSON.stringify({ type, id, created, data }));
}

/** Like `toBody`, with `data` as its JSON text: formatting parsed data again would change numbers that JavaScript cannot represent. */
export function joinBody({ type, id, created }: Omit<Envelope, 'data'>, data: Uint8Array): Buffer {
  const head = JSON.stringify({ type, id, created }).slice(0, -1);
  return Buffer.concat([Buffer.from(`${head},"data":`), data, Buffer.from('}')]);
}

const TraceContext = z.object({ traceparent: z.string(), tracestate: z.string().optional().catch(undefined) });
const NONE: readonly (readonly [string, string])[] = [];

/** The headers that continue the trace: `traceparent` and `tracestate` of the metadata; none if it has no valid trace context. Never throws. */
export function readTraceHeaders(metadata: string): readonly (readonly [name: string, value: string])[] {
  // Most events have no trace, and parsing costs more than this search.
  if (!metadata.includes('"traceparent"')) return NONE;
  const { traceparent, tracestate } = parseJson(metadata, TraceContext) ?? {};
  const parent = traceparent === undefined ? undefined : parseTraceparent([traceparent]);
  if (parent === undefined) return NONE;
  const state = tracestate === undefined ? undefined : parseTracestate([tracestate]);
  const header = ['traceparent', formatTraceparent(parent)] as const;
  return state === undefined ? [header] : [header, ['tracestate', state]];
}

export function toInboxEndpoint(route: string): string {
  return `${INBOX_PREFIX}${route}`;
}

export function isInboxEndpoint(id: string): boolean {
  return id.startsWith(INBOX_PREFIX);
}

/** The maker of an event: the app, the sender of a delivery that a route received, or sidegate. */
export type EventSource = 'app' | 'inbox' | 'own';

/** `metadata`: at least its first 13 characters. */
export function toEventSource(metadata: string): EventSource {
  if (metadata === OWN_METADATA) return 'own';
  return metadata.startsWith(INBOX_METADATA) ? 'inbox' : 'app';
}

/** The request to the app, with the headers that the gate built when it accepted the delivery. */
const InboxRequest = z.object({
  method: z.string(),
  path: z.string(),
  /** Raw pairs in the order they are sent, including the framing header. */
  headers: z.array(z.string()).readonly(),
  /** The ID that the sender gave it. */
  event: z.string().optional(),
});
type InboxRequest = z.output<typeof InboxRequest>;
const InboxMetadata = z.object({ inbox: InboxRequest });

export function toInboxMetadata(inbox: InboxRequest): string {
  return JSON.stringify({ inbox });
}

/** Undefined if the metadata is not that of an inbox event. */
export function parseInboxMetadata(metadata: string): InboxRequest | undefined {
  return parseJson(metadata, InboxMetadata)?.inbox;
}
