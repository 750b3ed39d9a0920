/** The schema of the overview. */
import * as z from 'zod';
import { MAX_RATED_ROUTES } from '../rate-history.ts';
import { OUTCOMES } from './stages.ts';

const time = z.iso.datetime();
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
