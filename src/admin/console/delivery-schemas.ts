/** The schemas of recent deliveries. */
import * as z from 'zod';
import { duration, instant } from '../../config/schema/scalars.ts';
import { STAGES } from '../../core/refusal.ts';
import { BODY_ABSENCES } from '../../telemetry/journal/journal.ts';
import { OUTCOMES, STAGE_RESULTS } from './stages.ts';

const MAX_PAGE = 250;
const DEFAULT_PAGE = 50;
const MAX_TEXT = 1_024;
const STATUS = /^[1-5](?:\d\d|xx)$/;
const REQUEST_ID = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;
/** `_unmatched` selects requests without a route, `_proxy` those of the forward proxy. */
const ROUTE = /^_?[a-z0-9](?:[a-z0-9._-]{0,61}[a-z0-9])?$/;

/** The ID of a request. */
export const requestId = z.string().regex(REQUEST_ID).describe('ID of the request, as in the log and the response.');
const route = z
  .string()
  .regex(ROUTE, 'not the name of a route')
  .optional()
  .describe('Only requests of this route; `_unmatched` selects requests without a route.');
const text = z.string().max(MAX_TEXT).optional();

/** The filters of the stream. */
export const streamQuery = z.strictObject({
  route,
  outcome: z.array(z.enum(OUTCOMES)).optional().describe('Only requests with one of these outcomes; repeatable.'),
  reason: text.describe('Only requests with this `reason`, such as `bad_signature`.'),
  status: z
    .string()
    .regex(STATUS, 'not a status such as 401 or 4xx')
    .optional()
    .describe('Only responses with this status; `4xx` selects all from 400 to 499.'),
  client: text.describe('Only requests of this client address.'),
  type: text.describe('Only events of this type, if a header names it.'),
  id: text.describe('Only the request, the event, or the event in the queue with this ID.'),
  from: instant().optional().describe('Only requests that arrived at this time or later (RFC 3339).'),
  to: instant().optional().describe('Only requests that arrived before this time (RFC 3339).'),
});
export type StreamQuery = z.output<typeof streamQuery>;

/** The filters of the list. */
export const deliveryQuery = streamQuery.extend({
  last: duration().optional().describe('Only requests that arrived in this time before now, such as `15m`.'),
  limit: z.coerce.number().int().min(1).max(MAX_PAGE).default(DEFAULT_PAGE).describe('Maximum number of results.'),
  cursor: z.string().max(MAX_TEXT).optional().describe('`cursor` of the page before.'),
});
export type DeliveryQuery = z.output<typeof deliveryQuery>;

/** Why a stored body is not shown to a reader. */
const BODY_DENIALS = ['login_required', 'not_loopback', 'other_replica'] as const;
export type BodyDenial = (typeof BODY_DENIALS)[number];

const time = z.iso.datetime();
const stage = z
  .strictObject({ name: z.enum(STAGES), result: z.enum(STAGE_RESULTS), detail: z.string().nullable() })
  .describe('One check of the request, in order.');

/** A row of the list. */
export const delivery = z.strictObject({
  id: requestId,
  replica: z.string().describe('The host name of the replica that received it.'),
  at: time.describe('When it arrived.'),
  route: z.string().nullable(),
  method: z.string(),
  path: z.string().nullable().describe('Without the query.'),
  client: z.string(),
  status: z.int().describe('Of the response.'),
  outcome: z.enum(OUTCOMES),
  code: z.string().describe('A code of docs/refusals.md, `forwarded` or `allowed`.'),
  reason: z.string(),
  stoppedBy: z.enum(STAGES).nullable().describe('The stage that ended the request before the app handled it.'),
  stages: z.array(stage),
  observed: z
    .string()
    .nullable()
    .describe('The code that the route would have rejected the request with, without `mode: observe`.'),
  event: z.string().nullable().describe('ID of the verified event.'),
  type: z.string().nullable().describe('Type of the event, if a header names it.'),
  delivery: z.string().nullable().describe('ID of the outgoing delivery to the app, with `ack: onAccept`.'),
  key: z.string().nullable().describe('Name of the key that verified it.'),
  skewMs: z.int().nullable().describe('Time of arrival minus signed time; not verified if `key` is null.'),
  durationMs: z.number(),
  appMs: z.number().nullable().describe('The part of the duration that the app took.'),
  bytesIn: z.int(),
  bytesOut: z.int().nullable().describe("Size of the body of the app's response."),
});

export const deliveryPage = z.strictObject({
  data: z.array(delivery),
  cursor: z.string().nullable().describe('Send it to get the next page; null at the last one.'),
});

const header = z.strictObject({ name: z.string(), value: z.string().nullable().describe('null: hidden.') });

const body = z
  .strictObject({
    text: z.string().nullable().describe('The stored text, without redacted values.'),
    bytes: z.int().describe('Size of the body as it arrived.'),
    isTruncated: z.boolean().describe('`text` is only the beginning.'),
    redactions: z.int().describe('How many values `[redacted]` replaces.'),
    absence: z
      .enum([...BODY_ABSENCES, ...BODY_DENIALS])
      .nullable()
      .describe('Why `text` is null.'),
    note: z.string().nullable().describe('The same in words, or what is missing in `text`.'),
  })
  .describe('The body of a request on a route with `storeBody`.');

/** One request in full. */
export const deliveryDetail = delivery.extend({
  port: z.enum(['data', 'proxy', 'authz']),
  user: z.string().nullable().describe('The user whose password was verified.'),
  certificate: z.string().nullable().describe('The name of the client certificate.'),
  detail: z.string().nullable().describe('The exact problem.'),
  isUnchecked: z.boolean().describe('Forwarded without a check for duplicates, because the store was down.'),
  traceId: z.string().nullable(),
  headers: z.array(header),
  body: body.nullable().describe('null: the route stores no bodies.'),
  findings: z.array(z.string()).describe('Why the signature or the timestamp was wrong, and how to fix it.'),
  commands: z
    .strictObject({
      repeat: z
        .string()
        .nullable()
        .describe('Sends the body from the file `body` again, with a new signature by the key of the route, if it has one.'),
      explain: z.string().nullable().describe('Explains the captured delivery; null if it was not captured.'),
    })
    .describe('For a POSIX shell.'),
});

export type BodyView = z.output<typeof body>;
export type DeliveryView = z.output<typeof delivery>;
export type DeliveryDetail = z.output<typeof deliveryDetail>;
