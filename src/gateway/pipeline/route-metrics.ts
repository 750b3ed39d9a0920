/** The metrics of routes: of their requests, and of their claims, order and capacity. */
import type { Registry } from '@prometheus-io/client';
import type { EpochMilliseconds, Milliseconds } from '../../core/clock.ts';
import type { Reason } from '../../core/refusal.ts';
import type { FailureKind } from '../../http/dial/dial.ts';
import {
  BoundCounters,
  BoundGauge,
  BoundHistogram,
  createFamilies,
  type Exemplar,
  type Families,
  OWN_BUCKETS,
  PerRoute,
  type RouteIdentity,
  type RouteSeries,
  Tally,
  toCodeLabel,
  toMethodLabel,
} from '../../telemetry/metrics/series.ts';

/** The properties of a route that decide which series it has from the start. */
export interface RouteLabels extends RouteIdentity {
  readonly keys: readonly string[];
  readonly methods: readonly string[];
  /** In observe mode: it forwards all requests and only reports what it would have rejected. */
  readonly isObserved?: boolean;
  /** Its senders sign a timestamp. */
  readonly signsTime?: boolean;
  /** It requires a password. */
  readonly requiresPassword?: boolean;
}

/** How often and when a key was used. */
export interface KeyUse {
  readonly matches: number;
  /** Undefined: not used since the start. */
  readonly lastUsed: EpochMilliseconds | undefined;
}

/** `observe`: a rejection or a duplicate that the route did not enforce, because it is in observe mode. */
type DecisionLabel = 'allow' | 'deny' | 'observe';

/** The metrics of a route. */
export interface RouteMetrics {
  /** Counts a finished request; the exemplar links to its trace. */
  request(method: string, status: number, duration: Milliseconds, exemplar?: Exemplar): void;
  decision(decision: DecisionLabel, reason: Reason): void;
  /** How many requests got the decision since the start. */
  decided(decision: DecisionLabel): number;
  /** How many responses had a status of 400 or more since the start, from the app or from sidegate. */
  errors(): number;
  /** The time that the app took, and the gate's own part of the request's duration. */
  upstream(upstream: Milliseconds, overhead: Milliseconds, exemplar?: Exemplar): void;
  upstreamError(kind: FailureKind): void;
  /** Time of arrival minus signed time. */
  skew(skew: Milliseconds): void;
  keyUsed(key: string, at: EpochMilliseconds): void;
  /** Another thread counted uses of the key, the last one at `at`. */
  keySeen(key: string, at: EpochMilliseconds): void;
  /** How the key, or user source, was used since the start. */
  keyUse(key: string): KeyUse;
  /** Whether all secrets of the route are usable. */
  ready(isReady: boolean): void;
}

/** At the end of the ID of a counter of requests. */
const ERROR_CODE = / [45]\w\w$/;
/** Methods with series from the start, for routes that allow more than two: series for all of them would be wasteful. */
const COMMON_METHODS = ['GET', 'POST'];
/** Upstream errors that alerts use. */
const ALERTED_ERRORS: readonly FailureKind[] = ['connect', 'timeout'];

interface KeyTallies {
  readonly matches: Tally;
  /** In seconds. */
  readonly lastUsed: Tally;
}

/** The bound series of one route. */
class BoundRoute implements RouteMetrics, RouteSeries<RouteLabels> {
  readonly #families: RouteFamilies;
  readonly #route: string;
  readonly #requests: BoundCounters;
  readonly #decisions: BoundCounters;
  readonly #upstreamErrors: BoundCounters;
  readonly #serverErrors: Tally;
  readonly #duration: BoundHistogram;
  readonly #upstream: BoundHistogram;
  readonly #overhead: BoundHistogram;
  readonly #skew: BoundHistogram;
  readonly #ready: BoundGauge;
  readonly #observed: BoundGauge;
  readonly #keys = new Map<string, KeyTallies>();
  #isRemoved = false;

  constructor(families: RouteFamilies, { name, scheme }: RouteIdentity) {
    this.#families = families;
    this.#route = name;
    this.#requests = new BoundCounters(families.requests, name);
    this.#decisions = new BoundCounters(families.decisions, name, scheme);
    this.#upstreamErrors = new BoundCounters(families.upstreamErrors, name);
    this.#serverErrors = families.serverErrors.series(name);
    this.#duration = new BoundHistogram(families.duration, name);
    this.#upstream = new BoundHistogram(families.upstream, name);
    this.#overhead = new BoundHistogram(families.overhead, name);
    this.#skew = new BoundHistogram(families.skew, name);
    this.#ready = new BoundGauge(families.ready, name);
    this.#observed = new BoundGauge(families.observed, name);
    this.#duration.get();
  }

  /** An alert must see the increase from 0 to the first failure. */
  initialize(labels: RouteLabels): void {
    this.#forgetKeys(labels.keys);
    for (const [decision, reason] of toAlerted(labels)) this.#decisions.get(`${decision} ${reason}`);
    const { methods } = labels;
    for (const method of methods.length > 2 ? methods.filter((each) => COMMON_METHODS.includes(each)) : methods)
      this.#toRequest(method, 200);
    for (const kind of ALERTED_ERRORS) this.#upstreamErrors.get(kind);
    this.#upstream.get();
    this.#overhead.get();
    for (const key of labels.keys) this.#toKey(key);
    if (labels.signsTime === true) this.#skew.get();
    this.ready(true);
    this.#observed.set(labels.isObserved === true ? 1 : undefined);
  }

  remove(): void {
    this.#isRemoved = true;
    for (const counters of [this.#requests, this.#decisions, this.#upstreamErrors]) counters.remove();
    for (const histogram of [this.#duration, this.#upstream, this.#overhead, this.#skew]) histogram.remove();
    for (const gauge of [this.#ready, this.#observed]) gauge.remove();
    this.#families.serverErrors.remove(this.#route);
    this.#forgetKeys([]);
  }

  request(method: string, status: number, duration: Milliseconds, exemplar?: Exemplar): void {
    this.#toRequest(method, status).add();
    if (status >= 500) this.#serverErrors.add();
    this.#duration.get().observe(duration / 1000, exemplar);
  }

  decision(decision: DecisionLabel, reason: Reason): void {
    this.#decisions.get(`${decision} ${reason}`).add();
  }

  decided(decision: DecisionLabel): number {
    return this.#decisions.sum((id) => id.startsWith(`${decision} `));
  }

  errors(): number {
    return this.#requests.sum((id) => ERROR_CODE.test(id));
  }

  upstream(upstream: Milliseconds, overhead: Milliseconds, exemplar?: Exemplar): void {
    this.#upstream.get().observe(upstream / 1000, exemplar);
    this.#overhead.get().observe(overhead / 1000, exemplar);
  }

  upstreamError(kind: FailureKind): void {
    this.#upstreamErrors.get(kind).add();
  }

  skew(skew: Milliseconds): void {
    this.#skew.get().observe(skew / 1000);
  }

  keyUsed(key: string, at: EpochMilliseconds): void {
    const { matches, lastUsed } = this.#toKey(key);
    matches.add();
    lastUsed.value = at / 1000;
  }

  keySeen(key: string, at: EpochMilliseconds): void {
    const { lastUsed } = this.#toKey(key);
    lastUsed.value = Math.max(lastUsed.value, at / 1000);
  }

  keyUse(key: string): KeyUse {
    const { matches, lastUsed } = this.#toKey(key);
    return { matches: matches.value, lastUsed: matches.value === 0 ? undefined : Math.round(lastUsed.value * 1000) };
  }

  ready(isReady: boolean): void {
    this.#ready.set(isReady ? 1 : 0);
  }

  #toRequest(method: string, status: number): Tally {
    return this.#requests.get(`${toMethodLabel(method)} ${toCodeLabel(status)}`);
  }

  #toKey(key: string): KeyTallies {
    const known = this.#keys.get(key);
    if (known !== undefined) return known;
    const { keyMatches, keyUsed } = this.#families;
    if (this.#isRemoved) return { matches: new Tally(), lastUsed: new Tally() };
    const tallies = { matches: keyMatches.series(this.#route, key), lastUsed: keyUsed.series(this.#route, key) };
    this.#keys.set(key, tallies);
    return tallies;
  }

  /** Removes the series of keys that are not in `kept`. */
  #forgetKeys(kept: readonly string[]): void {
    for (const key of this.#keys.keys()) {
      if (kept.includes(key)) continue;
      this.#keys.delete(key);
      this.#families.keyUsed.remove(this.#route, key);
      this.#families.keyMatches.remove(this.#route, key);
    }
  }
}

/** The metrics of all routes. */
export interface RoutesMetrics {
  /** The series of a route; `undefined`: of requests that matched no route. */
  route(name: string | undefined): RouteMetrics;
}

/** Registers the metrics. */
export function createRoutesMetrics(
  registers: Registry[],
): RoutesMetrics & { readonly setRoutes: (routes: readonly RouteLabels[]) => void } {
  const families = createRouteFamilies(createFamilies(registers));
  const routes = new PerRoute<RouteLabels, BoundRoute>((route) => new BoundRoute(families, route));
  return { route: (name) => routes.get(name), setRoutes: (next) => routes.set(next) };
}

/** The decisions that alerts use, if the route can make them. */
function toAlerted({ scheme, signsTime, requiresPassword }: RouteLabels): (readonly [DecisionLabel, Reason])[] {
  const isSigned = scheme !== 'none' && scheme !== 'basic';
  return [
    ['allow', 'ok'],
    ...(isSigned ? SIGNED : []),
    ...(signsTime === true ? TIMED : []),
    ...(requiresPassword === true ? BY_PASSWORD : []),
  ];
}

const SIGNED: readonly (readonly [DecisionLabel, Reason])[] = [
  ['deny', 'missing_signature'],
  ['deny', 'bad_signature'],
];
const TIMED: readonly (readonly [DecisionLabel, Reason])[] = [
  ['deny', 'timestamp_old'],
  ['deny', 'timestamp_future'],
];
const BY_PASSWORD: readonly (readonly [DecisionLabel, Reason])[] = [
  ['deny', 'bad_credentials'],
  ['deny', 'banned'],
];

// The metric families of requests: name, help, labels and buckets.

/** Seconds, based on OpenTelemetry's recommendation for HTTP: fast apps, and the timeouts of senders. */
const HTTP_BUCKETS = [0.005, 0.025, 0.1, 0.5, 1, 2.5, 5, 10];
/** The same for the app's part, which the request duration includes. */
const APP_BUCKETS = [0.005, 0.05, 0.25, 1, 5];
/** Seconds, on both sides of 0: a wrong local clock shifts the distribution, replays form a tail. */
const SKEW_BUCKETS = [-5, 5, 60, 300];

/** Registers the families. */
function createRouteFamilies({ counter, gauge, histogram }: Families) {
  return {
    keyUsed: gauge(
      'sidegate_secret_last_used_timestamp_seconds{route,key}',
      'When this key, or user source, last verified a request; 0: not since the start.',
    ),
    keyMatches: counter('sidegate_key_matches_total{route,key}', 'Requests that this key, or user source, verified.'),
    observed: gauge(
      'sidegate_route_observed{route}',
      '1 while the route forwards all requests and only reports what it would have rejected (mode: observe).',
    ),
    ready: gauge('sidegate_route_ready{route}', '1 while all secrets of the route are usable.'),
    requests: counter(
      'sidegate_http_requests_total{route,method,code}',
      'Responses sent, by configured route (`_unmatched`: no route matched), method and status.',
    ),
    serverErrors: counter(
      'sidegate_http_server_errors_total{route}',
      'Responses with status 5xx, from the app or from sidegate. Exported from the start, so that alerts see the first one.',
    ),
    decisions: counter(
      'sidegate_auth_decisions_total{route,scheme,decision,reason}',
      'Decisions on requests. A duplicate counts as `allow`, because its sender was verified. `observe`: forwarded although it would have been rejected.',
    ),
    upstreamErrors: counter('sidegate_upstream_errors_total{route,kind}', 'Failed requests to the app.'),
    duration: histogram(
      'sidegate_http_request_duration_seconds{route}',
      'Time from the end of the request head to the end of the response.',
      HTTP_BUCKETS,
    ),
    upstream: histogram('sidegate_upstream_duration_seconds{route}', 'Time that the app took.', APP_BUCKETS),
    overhead: histogram(
      'sidegate_overhead_seconds{route}',
      'The request duration minus the time that the app took.',
      OWN_BUCKETS,
    ),
    skew: histogram(
      'sidegate_timestamp_skew_seconds{route}',
      'Time of arrival minus the signed timestamp; positive: the timestamp is in the past.',
      SKEW_BUCKETS,
    ),
  };
}

/** The metric families with a route label. */
type RouteFamilies = ReturnType<typeof createRouteFamilies>;

// The metrics of claims, order and capacity.

/** How a dedup operation ended. */
export const DEDUP_OUTCOMES = [
  'new',
  'duplicate',
  'in_progress',
  'taken_over',
  'confirmed',
  'released',
  'held',
  'fenced',
  'id_reused',
  'kinds_exhausted',
  'replayed_under_new_id',
  'unidentified',
  'bypassed',
  'unavailable',
  'settle_retried',
  'settle_lost',
] as const;
type DedupOutcome = (typeof DEDUP_OUTCOMES)[number];

/** The outcomes that alerts and dashboards use; exported from the start. */
const WATCHED_DEDUP_OUTCOMES: readonly DedupOutcome[] = [
  'new',
  'duplicate',
  'taken_over',
  'confirmed',
  'id_reused',
  'kinds_exhausted',
  'replayed_under_new_id',
  'unidentified',
  'bypassed',
  'unavailable',
];

/** How an ordered event ended. */
export const ORDER_OUTCOMES = [
  'entered',
  'stale',
  'busy',
  'unordered',
  'confirmed',
  'released',
  'held',
  'fenced',
  'bypassed',
  'unavailable',
  'settle_retried',
  'settle_lost',
] as const;
type OrderOutcome = (typeof ORDER_OUTCOMES)[number];

/** The same for `order`. */
const WATCHED_ORDER_OUTCOMES: readonly OrderOutcome[] = ['entered', 'stale', 'busy', 'unordered', 'bypassed'];

export interface StoreMetrics {
  dedup(outcome: DedupOutcome): void;
  dedupDuration(duration: Milliseconds): void;
  order(outcome: OrderOutcome): void;
  storeUp(isUp: boolean): void;
  inFlight(delta: 1 | -1): void;
  queued(delta: 1 | -1): void;
}

/** Registers the metrics. */
export function createStoreMetrics(registers: Registry[]): StoreMetrics & { readonly showOrder: () => void } {
  const { counter, gauge, histogram } = createFamilies(registers);
  const families = {
    dedup: counter('sidegate_dedup_operations_total{outcome}', 'Claims and settlements of event IDs.'),
    dedupDuration: histogram('sidegate_dedup_duration_seconds', 'Duration of a claim in the store.', OWN_BUCKETS),
    order: counter('sidegate_order_operations_total{outcome}', 'Events of routes with `order`, by outcome.'),
    dedupUp: gauge('sidegate_dedup_up', '1 while the store is available.'),
    inFlight: gauge('sidegate_http_requests_in_flight', 'Requests that an app is handling.'),
    queued: gauge('sidegate_http_requests_queued', 'Verified requests that wait for capacity.'),
  };
  for (const outcome of WATCHED_DEDUP_OUTCOMES) families.dedup.series(outcome);
  const dedupDuration = families.dedupDuration.series();
  const up = families.dedupUp.series();
  const inFlight = families.inFlight.series();
  const queued = families.queued.series();
  return {
    dedup: (outcome) => families.dedup.series(outcome).add(),
    dedupDuration: (duration) => dedupDuration.observe(duration / 1000),
    order: (outcome) => families.order.series(outcome).add(),
    storeUp(isUp) {
      up.value = isUp ? 1 : 0;
    },
    inFlight: (delta) => inFlight.add(delta),
    queued: (delta) => queued.add(delta),
    showOrder() {
      for (const outcome of WATCHED_ORDER_OUTCOMES) families.order.series(outcome);
    },
  };
}
