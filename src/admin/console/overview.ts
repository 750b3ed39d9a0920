/** The overview: per route what arrived, what was rejected and how long it took; the state of config and store. */
import type { Registry } from '@prometheus-io/client';
import { namesOf, type RouteConfig } from '../../config/schema/config.ts';
import { type Clock, type EpochMilliseconds, toInstant } from '../../core/clock.ts';
import type { KeyUse } from '../../gateway/pipeline/route-metrics.ts';
import { defineOperation, type Operation, toJson } from '../../http-api/operation.ts';
import type { Journal, JournalEntry } from '../../telemetry/journal/journal.ts';
import { RATE_INTERVAL_MS, type RateHistory, type RouteRates } from '../rate-history.ts';
import { type ReplicaFigures, readRecent, sumFigures } from './replica-figures.ts';
import { type Overview, overview, type RouteOverview } from './schemas.ts';
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
