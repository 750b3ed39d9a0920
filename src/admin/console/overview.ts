/** The overview of all replicas: per route what arrived, what was rejected and how long it took; the state of config and store. */

import type { Registry } from '@prometheus-io/client';
import * as z from 'zod';
import { namesOf, type RouteConfig } from '../../config/schema/config.ts';
import { type Clock, type EpochMilliseconds, type Milliseconds, toInstant } from '../../core/clock.ts';
import { parseJson } from '../../core/json-path.ts';
import type { KeyUse } from '../../gateway/pipeline/route-metrics.ts';
import { defineOperation, type Operation, toJson } from '../../http-api/operation.ts';
import type { SharedStreams } from '../../state/shared-streams.ts';
import type { Journal, JournalEntry } from '../../telemetry/journal/journal.ts';
import { MAX_RATED_ROUTES, RATE_INTERVAL_MS, type RateHistory, type RouteRates } from '../rate-history.ts';
import { type Overview, overview, type RouteFigures, type RouteOverview, routeFigures } from './schemas.ts';
import { isClaimedOnly, OUTCOMES, type RequestOutcome, toOutcome, toSkew } from './stages.ts';

/** The last attempt to load the config. */
interface LastReload {
  readonly at: EpochMilliseconds;
  readonly isSuccessful: boolean;
  /** Formatted. */
  readonly problems: readonly string[];
}

/** The active config. */
interface ActiveConfig {
  readonly hash: string;
  readonly loadedAt: EpochMilliseconds;
  readonly lastReload: LastReload;
}

/** The dependencies of the overview. */
export interface OverviewParts {
  readonly clock: Clock;
  readonly replica: string;
  readonly version: string;
  readonly journal: Pick<Journal, 'find' | 'size' | 'length' | 'recorded' | 'bytes'>;
  readonly rates: RateHistory;
  readonly registers: readonly Registry[];
  readonly routes: () => readonly RouteConfig[];
  readonly keyUse: (route: string, key: string) => KeyUse;
  readonly config: () => ActiveConfig;
  readonly storeKind: () => 'memory' | 'redis';
}

const DECISIONS = 'sidegate_auth_decisions_total';
const STORE_UP = 'sidegate_dedup_up';
/** Upper bounds in seconds. */
const SKEW_BOUNDS = [0, 1, 5, 30, 60, 300] as const;

/** Builds the operation. */
export function createOverviewOperation(parts: OverviewParts, figures: ReplicaFigures): Operation {
  return defineOperation({
    id: 'getOverview',
    method: 'GET',
    path: '/api/v1/overview',
    summary: 'Show the state of each route, of the config and of the store',
    responses: { 200: { description: 'The overview.', schema: overview } },
    problems: [],
    async handle() {
      return toJson(200, await buildOverview(parts, figures));
    },
  });
}

async function buildOverview(parts: OverviewParts, figures: ReplicaFigures): Promise<Overview> {
  const { clock, journal, replica, version } = parts;
  const { hash, loadedAt, lastReload } = parts.config();
  const decisions = await readSamples(parts.registers, DECISIONS);
  const [up] = await readSamples(parts.registers, STORE_UP);
  const others = await figures.readOthers();
  const recentRequests = readRecent(parts);
  const { byRoute, seconds } = recentRequests;
  const own = figures.toOwn(recentRequests);
  const toRoute = (route: RouteConfig, recent: readonly JournalEntry[]): RouteOverview => {
    const all = [own, ...others.map(({ routes }) => routes)];
    return {
      name: route.name,
      mode: route.mode,
      scheme: route.webhook?.scheme ?? null,
      sinceStart: toTotals(decisions.filter(({ labels }) => labels['route'] === route.name)),
      rates: toRates(parts.rates.of(route.name)),
      ...sumFigures(all.flatMap((routes) => routes.get(route.name) ?? [])),
      recent: toRecent(recent, seconds),
      keys: route.webhook === undefined ? [] : namesOf(route.webhook).map((key) => toKey(key, parts.keyUse(route.name, key))),
    };
  };
  return {
    replica,
    replicas: [replica, ...others.map((other) => other.replica)],
    version,
    at: toInstant(clock.now()),
    config: {
      hash,
      loadedAt: toInstant(loadedAt),
      lastReload: { ...lastReload, at: toInstant(lastReload.at), problems: [...lastReload.problems] },
    },
    store: { kind: parts.storeKind(), isUp: up?.value === 1 },
    journal: { size: journal.size, kept: journal.length, recorded: journal.recorded, bytes: journal.bytes, seconds },
    routes: parts
      .routes()
      .map((route) => toRoute(route, byRoute.get(route.name) ?? []))
      .sort(compareRoutes),
    unmatched: byRoute.get(undefined)?.length ?? 0,
  };
}
function toRates(rates: RouteRates | undefined): RouteOverview['rates'] {
  if (rates === undefined) return null;
  const { until, accepted, failed, rejected } = rates;
  return {
    intervalSeconds: RATE_INTERVAL_MS / 1_000,
    until: toInstant(until),
    accepted: [...accepted],
    failed: [...failed],
    rejected: [...rejected],
  };
}

/** The worst first; equal ones in the order of the config. */
function compareRoutes({ lastMinutes: a }: RouteOverview, { lastMinutes: b }: RouteOverview): number {
  const toShare = (count: number, requests: number): number => count / Math.max(1, requests);
  return (
    toShare(b.failed, b.requests) - toShare(a.failed, a.requests) ||
    toShare(b.rejected, b.requests) - toShare(a.rejected, a.requests)
  );
}

interface MetricSample {
  readonly labels: Readonly<Record<string, string | number | undefined>>;
  readonly value: number;
}

async function readSamples(registers: readonly Registry[], name: string): Promise<readonly MetricSample[]> {
  const found = await registers[0]?.getSingleMetric(name)?.get();
  return (found?.values ?? []) as readonly MetricSample[];
}

function toTotals(samples: readonly MetricSample[]): RouteOverview['sinceStart'] {
  const totals = { accepted: 0, rejected: {} as Record<string, number>, observed: {} as Record<string, number> };
  for (const { labels, value } of samples) {
    const reason = String(labels['reason']);
    if (labels['decision'] === 'allow') totals.accepted += value;
    else if (value > 0) totals[labels['decision'] === 'deny' ? 'rejected' : 'observed'][reason] = value;
  }
  return totals;
}

function toRecent(entries: readonly JournalEntry[], seconds: number): RouteOverview['recent'] {
  const outcomes = Map.groupBy(entries, toOutcome);
  const timed = entries.flatMap(({ line: { upstreamMs, durationMs, reason }, details }) =>
    upstreamMs === undefined || reason === 'upstream_connect' || details?.queuedAs !== undefined
      ? []
      : [{ app: upstreamMs, overhead: durationMs - upstreamMs }],
  );
  return {
    requests: entries.length,
    perSecond: seconds > 0 ? entries.length / seconds : 0,
    outcomes: Object.fromEntries(OUTCOMES.map((name) => [name, outcomes.get(name)?.length ?? 0])) as Record<
      RequestOutcome,
      number
    >,
    rejected: countReasons(outcomes.get('rejected') ?? []),
    overheadMs: toPercentiles(timed.map(({ overhead }) => overhead)),
    appMs: toPercentiles(timed.map(({ app }) => app)),
    skew: toSkewBuckets(entries),
  };
}

function countReasons(entries: readonly JournalEntry[]): Record<string, number> {
  const reasons = Map.groupBy(entries, ({ line }) => line.reason);
  return Object.fromEntries([...reasons].map(([reason, all]) => [reason, all.length]));
}

/** The nearest rank. */
function toPercentiles(values: readonly number[]): RouteOverview['recent']['appMs'] {
  if (values.length === 0) return null;
  const sorted = values.toSorted((a, b) => a - b);
  const at = (share: number): number => sorted[Math.ceil(share * sorted.length) - 1] as number;
  return { p50: at(0.5), p95: at(0.95), p99: at(0.99) };
}

function toSkewBuckets(entries: readonly JournalEntry[]): RouteOverview['recent']['skew'] {
  const skews = entries
    .flatMap((entry) => (isClaimedOnly(entry) ? [] : (toSkew(entry) ?? [])))
    .map((skew) => Math.abs(skew) / 1_000);
  const buckets = [...SKEW_BOUNDS, null].map((upToSeconds) => ({ upToSeconds, count: 0 }));
  for (const skew of skews) {
    const bucket = buckets.find(({ upToSeconds }) => upToSeconds === null || skew <= upToSeconds);
    if (bucket !== undefined) bucket.count++;
  }
  return buckets;
}

function toKey(name: string, { matches, lastUsed }: KeyUse): RouteOverview['keys'][number] {
  return { name, matches, lastUsed: lastUsed === undefined ? null : toInstant(lastUsed) };
}

// The requests of the last minutes by route, summed over the replicas: each shares its own while a console is open.

/** The figures of other replicas. */
interface OtherReplica {
  readonly replica: string;
  readonly routes: ReadonlyMap<string, RouteFigures>;
  /** When they arrived in the store, by its clock in Unix milliseconds. */
  readonly at: number;
}

/** The requests that the journal has. */
interface RecentRequests {
  /** Undefined: without a route. */
  readonly byRoute: ReadonlyMap<string | undefined, readonly JournalEntry[]>;
  /** The time that they span. */
  readonly seconds: number;
}

/** Reads them once for all routes. */
function readRecent({ clock, journal }: Readonly<{ clock: Clock; journal: Pick<Journal, 'find' | 'size'> }>): RecentRequests {
  const entries = journal.find({ limit: Math.max(1, journal.size) });
  const oldest = entries.at(-1);
  const seconds = oldest === undefined ? 0 : Math.max(0, clock.now() - oldest.at) / 1_000;
  return { byRoute: Map.groupBy(entries, ({ line }) => line.route), seconds };
}

/** The others keep sharing for so long after the last request to a console. */
export const WATCH_MS: Milliseconds = 60_000;
/** A replica that shared nothing for so long has ended. */
const EXPIRES_MS: Milliseconds = 3 * RATE_INTERVAL_MS;
/** Each has up to 200 routes, of about 200 bytes. */
const MAX_REPLICAS = 100;
/** Of hosts and routes. */
const MAX_NAME_LENGTH = 256;

const batch = z.strictObject({
  instance: z.string(),
  replica: z.string().max(MAX_NAME_LENGTH),
  routes: z.array(z.tuple([z.string().max(MAX_NAME_LENGTH), routeFigures])).max(MAX_RATED_ROUTES),
});

/** Shares the figures of this replica, and reads those of the others. */
export class ReplicaFigures {
  readonly #instance: string;
  readonly #parts;
  readonly #others = new Map<string, OtherReplica>();
  #readUpTo = '0';
  #reading: Promise<void> | undefined;
  #sharedAt: Milliseconds = Number.NEGATIVE_INFINITY;

  constructor(
    instance: string,
    parts: {
      readonly clock: Clock;
      readonly journal: Pick<Journal, 'find' | 'size'>;
      readonly rates: { of(route: string): RouteRates | undefined };
      readonly replica: string;
      readonly routes: () => readonly { readonly name: string }[];
      /** Undefined without Redis. */
      readonly shared: SharedStreams | undefined;
    },
  ) {
    this.#instance = instance;
    this.#parts = parts;
  }

  /** Those of this replica, by route. */
  toOwn({ byRoute, seconds }: RecentRequests): ReadonlyMap<string, RouteFigures> {
    const { rates, routes } = this.#parts;
    return new Map(routes().map(({ name }) => [name, toFigures(rates.of(name), byRoute.get(name) ?? [], seconds)]));
  }

  /** Publishes those of this replica, at an interval. */
  async share(shared: SharedStreams): Promise<void> {
    const now = this.#parts.clock.monotonic();
    if (now - this.#sharedAt < RATE_INTERVAL_MS) return;
    this.#sharedAt = now;
    const used = [...this.toOwn(readRecent(this.#parts))].filter(
      ([, { lastMinutes, lastAt }]) => lastMinutes.requests > 0 || lastAt !== null,
    );
    const routes = used.slice(0, MAX_RATED_ROUTES);
    await shared.publish('figures', JSON.stringify({ instance: this.#instance, replica: this.#parts.replica, routes }));
  }

  /** Of the other replicas; none while the store does not respond. */
  async readOthers(): Promise<readonly OtherReplica[]> {
    const { shared } = this.#parts;
    if (shared === undefined) return [];
    // Two reads at once would both take the same batches.
    this.#reading ??= this.#read(shared);
    await this.#reading;
    return [...this.#others.values()];
  }

  async #read(shared: SharedStreams): Promise<void> {
    try {
      await shared.watch(WATCH_MS);
      // Its own batch is the newest, so that those of replicas that have ended are older by the clock of the store.
      await this.share(shared);
      for (const { id, text } of await shared.read('figures', this.#readUpTo)) {
        this.#readUpTo = id;
        this.#take(text, Number.parseInt(id, 10));
      }
      const newest = Number.parseInt(this.#readUpTo, 10);
      for (const [instance, { at }] of this.#others) if (newest - at > EXPIRES_MS) this.#others.delete(instance);
    } catch {
      this.#others.clear();
      this.#readUpTo = '0';
    }
    this.#reading = undefined;
  }

  /** Ignores what a replica of another version wrote. */
  #take(text: string, at: number): void {
    const data = parseJson(text, batch);
    if (data === undefined || data.instance === this.#instance) return;
    const { instance, replica, routes } = data;
    if (this.#others.size < MAX_REPLICAS || this.#others.has(instance))
      this.#others.set(instance, { replica, routes: new Map(routes), at });
  }
}

/** The figures of a route in all replicas. */
function sumFigures(all: readonly RouteFigures[]): RouteFigures {
  const add = (name: 'perSecond' | 'requests' | 'failed' | 'rejected'): number =>
    sum(all.map(({ lastMinutes }) => lastMinutes[name]));
  return {
    lastMinutes: {
      seconds: Math.max(0, ...all.map(({ lastMinutes }) => lastMinutes.seconds)),
      perSecond: add('perSecond'),
      requests: add('requests'),
      failed: add('failed'),
      rejected: add('rejected'),
    },
    lastAt:
      all
        .flatMap(({ lastAt }) => lastAt ?? [])
        .toSorted()
        .at(-1) ?? null,
  };
}

/** From the journal while there are no rates. */
function toFigures(rates: RouteRates | undefined, recent: readonly JournalEntry[], seconds: number): RouteFigures {
  const lastAt = recent[0] === undefined ? null : toInstant(recent[0].at);
  if (rates === undefined || rates.accepted.length === 0) {
    const count = (outcome: RequestOutcome): number => recent.filter((entry) => toOutcome(entry) === outcome).length;
    return { lastMinutes: toLastMinutes(seconds, recent.length, count('failed'), count('rejected')), lastAt };
  }
  const [accepted, failed, rejected] = [rates.accepted, rates.failed, rates.rejected].map(sum) as [number, number, number];
  const span = (rates.accepted.length * RATE_INTERVAL_MS) / 1_000;
  return { lastMinutes: toLastMinutes(span, accepted + failed + rejected, failed, rejected), lastAt };
}

function toLastMinutes(seconds: number, requests: number, failed: number, rejected: number): RouteFigures['lastMinutes'] {
  return { seconds, perSecond: seconds > 0 ? requests / seconds : 0, requests, failed, rejected };
}

function sum(counts: readonly number[]): number {
  return counts.reduce((total, count) => total + count, 0);
}
