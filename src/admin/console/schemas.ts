/** The schemas of the console's API. */

import * as z from 'zod';
import { duration, instant } from '../../config/schema/scalars.ts';
import { STAGES } from '../../core/refusal.ts';
import { BODY_ABSENCES } from '../../telemetry/journal/journal.ts';
import { MAX_RATED_ROUTES } from '../rate-history.ts';
import { OUTCOMES, STAGE_RESULTS } from './stages.ts';

// Recent deliveries.

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

// Failed logins.

const MAX_NAME = 256;

const failedLogins = z.strictObject({
  realm: z.string(),
  client: z.string().describe('Address.'),
  failures: z.int().describe('Recent requests with wrong credentials or during a ban.'),
  lastAt: z.iso.datetime(),
  routes: z.array(z.string()),
  bannedForMs: z
    .number()
    .nullable()
    .describe('Remaining time of the ban of its network (an IPv4 address or an IPv6 /64); null: not banned.'),
});

export const failedLoginList = z.strictObject({ data: z.array(failedLogins) });
export type FailedLogins = z.output<typeof failedLogins>;

const realm = z.string().min(1).max(MAX_NAME);

export const release = z
  .union([
    z.strictObject({ realm, client: z.union([z.ipv4(), z.ipv6()]).describe('Its whole network is released.') }),
    z.strictObject({ realm, user: z.string().min(1).max(MAX_NAME) }),
  ])
  .describe('A client or a user whose failed logins are forgotten.');
export type Release = z.output<typeof release>;

export const released = z.strictObject({
  hadFailures: z.boolean().describe('false: it was not banned, and had no failed logins.'),
});

// The overview.

const counts = z.record(z.string(), z.int()).describe('By reason.');
const percentiles = z
  .strictObject({ p50: z.number(), p95: z.number(), p99: z.number() })
  .nullable()
  .describe('In ms; null without requests that the app answered.');

export const routeFigures = z.strictObject({
  lastMinutes: z
    .strictObject({ seconds: z.number(), perSecond: z.number(), requests: z.int(), failed: z.int(), rejected: z.int() })
    .describe(
      'The sum of `rates`, or, while there are none, of the requests that the journal still has, over all `replicas`. `seconds` is the longest of their times.',
    ),
  lastAt: time.nullable().describe('When the newest request in the journals of all `replicas` arrived.'),
});

const routeOverview = z.strictObject({
  name: z.string(),
  mode: z.enum(['enforce', 'observe']),
  scheme: z.string().nullable().describe('Of its webhooks.'),
  sinceStart: z
    .strictObject({ accepted: z.int(), rejected: counts, observed: counts.describe('Not enforced, by reason.') })
    .describe('Decisions of this replica.'),
  rates: z
    .strictObject({
      intervalSeconds: z.number(),
      until: time.describe('The end of the newest interval.'),
      accepted: z.array(z.int()).describe('Without those that failed.'),
      failed: z.array(z.int()).describe('Accepted, but the response was an error: of the app, or because it did not respond.'),
      rejected: z.array(z.int()),
    })
    .nullable()
    .describe(
      `Requests per interval in the last ten minutes, oldest first; null for routes after the first ${MAX_RATED_ROUTES} of the config.`,
    ),
  ...routeFigures.shape,
  recent: z
    .strictObject({
      requests: z.int(),
      perSecond: z.number(),
      outcomes: z.record(z.enum(OUTCOMES), z.int()),
      rejected: counts,
      overheadMs: percentiles.describe('The time that sidegate added, in ms; null without requests that the app answered.'),
      appMs: percentiles,
      skew: z
        .array(z.strictObject({ upToSeconds: z.int().nullable().describe('null: larger.'), count: z.int() }))
        .describe('Requests by the absolute difference between their signed time and their arrival.'),
    })
    .describe('The requests that the journal still has.'),
  keys: z
    .array(z.strictObject({ name: z.string(), matches: z.int(), lastUsed: time.nullable() }))
    .describe('Keys, and their use since the start.'),
});

export const overview = z.strictObject({
  replica: z.string(),
  replicas: z
    .array(z.string())
    .describe(
      'Those whose figures `lastMinutes` and `lastAt` sum; with Redis, all that share it. The other figures are of `replica`.',
    ),
  version: z.string(),
  at: time,
  config: z.strictObject({
    hash: z.string(),
    loadedAt: time,
    lastReload: z.strictObject({ at: time, isSuccessful: z.boolean(), problems: z.array(z.string()) }),
  }),
  store: z.strictObject({ kind: z.enum(['memory', 'redis']), isUp: z.boolean() }),
  journal: z.strictObject({
    size: z.int(),
    kept: z.int(),
    recorded: z.int(),
    bytes: z.int(),
    seconds: z.number().describe('The time that the kept requests span.'),
  }),
  routes: z.array(routeOverview).describe('Those with the largest share of failed, then of rejected requests first.'),
  unmatched: z.int().describe('Recent requests that matched no route.'),
});

export type Overview = z.output<typeof overview>;
export type RouteOverview = Overview['routes'][number];
export type RouteFigures = z.output<typeof routeFigures>;
