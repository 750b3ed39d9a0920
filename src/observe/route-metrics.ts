/** The series of one route, bound once at load, so that counting a request builds no label set. */
import type { EpochMilliseconds, Milliseconds } from '../core/clock.ts';
import type { Reason } from '../core/refusal.ts';
import type { Families, RouteLabels } from './families.ts';
import { type ExplainCause, toCodeLabel, toMethodLabel, UNMATCHED, UPSTREAM_ERRORS, type UpstreamErrorLabel } from './labels.ts';
import type { Distribution, Tally } from './series.ts';

/** What the caller of the forward-auth endpoint was told about a request. */
export interface AuthzAnswer {
  readonly method: string;
  readonly status: number;
  readonly reason: Reason;
}

/** How much a key was needed. */
export interface KeyUse {
  readonly matches: number;
  /** Undefined: not since the start. */
  readonly lastUsed: EpochMilliseconds | undefined;
}
/** `observe`: would have been a `deny`, or a duplicate, had the route not been told to let everything through. */
export type Decision = 'allow' | 'deny' | 'observe';

/** What is counted of a route's requests. */
export interface RouteMetrics {
  /** One finished request; `traceId` where its trace is sampled. */
  request(method: string, status: number, duration: Milliseconds, traceId?: string): void;
  /** One question of the forward-auth endpoint, answered. */
  authz(answer: AuthzAnswer, duration: Milliseconds): void;
  decision(decision: Decision, reason: Reason): void;
  /** Time spent with the app, and the rest of the request's time, which is our own. */
  upstream(upstream: Milliseconds, overhead: Milliseconds): void;
  upstreamError(kind: UpstreamErrorLabel): void;
  /** Received minus signed time. */
  skew(skew: Milliseconds): void;
  keyUsed(key: string, at: EpochMilliseconds): void;
  /** What an analysis found out about a refusal. */
  explained(cause: ExplainCause): void;
  /** How the key, or source of users, was used since the start. */
  keyUse(key: string): KeyUse;
  /** All secrets of the route are usable, or not. */
  ready(isReady: boolean): void;
}

/** The decisions that alerts divide by: shown as 0 from the start. */
const ALERTED: readonly (readonly [Decision, Reason])[] = [
  ['allow', 'ok'],
  ['allow', 'duplicate'],
  ['deny', 'bad_signature'],
  ['deny', 'timestamp_old'],
  ['deny', 'timestamp_future'],
];

interface KeyTallies {
  readonly matches: Tally;
  /** In seconds. */
  readonly lastUsed: Tally;
}

/** Holds the bound series of one route. */
export class RouteSeries implements RouteMetrics {
  readonly #families: Families;
  readonly #route: string;
  readonly #scheme: string;
  readonly #requests = new Map<string, Tally>();
  readonly #authz = new Map<string, Tally>();
  readonly #decisions = new Map<string, Tally>();
  readonly #explained = new Map<string, Tally>();
  readonly #keys = new Map<string, KeyTallies>();
  readonly #duration: Distribution;
  readonly #upstream: Distribution;
  readonly #overhead: Distribution;
  readonly #skew: Distribution;

  constructor(families: Families, labels: Pick<RouteLabels, 'name' | 'scheme'> | undefined) {
    this.#families = families;
    this.#route = labels?.name ?? UNMATCHED;
    this.#scheme = labels?.scheme ?? 'none';
    this.#duration = families.duration.series(this.#route);
    this.#upstream = families.upstream.series(this.#route);
    this.#overhead = families.overhead.series(this.#route);
    this.#skew = families.skew.series(this.#route);
  }

  /** Shows what is known beforehand as 0. */
  initialise(labels: RouteLabels): void {
    for (const [decision, reason] of ALERTED) this.#toDecision(decision, reason);
    for (const method of labels.methods) this.#toRequest(method, 200);
    if (labels.authz === true) this.#toAuthz({ method: 'GET', status: 200, reason: 'ok' });
    for (const kind of UPSTREAM_ERRORS) this.#families.upstreamErrors.inc({ route: this.#route, kind }, 0);
    for (const key of labels.keys) this.#toKey(key);
    this.ready(true);
    this.#families.observed.set({ route: this.#route }, labels.isObserved === true ? 1 : 0);
  }

  /** Drops the series of keys that are not in `kept`. */
  forgetKeys(kept: readonly string[]): void {
    for (const key of this.#keys.keys()) {
      if (kept.includes(key)) continue;
      this.#keys.delete(key);
      this.#families.keyUsed.remove(this.#route, key);
      this.#families.keyMatches.remove(this.#route, key);
    }
  }

  /** Drops all series of the route. */
  remove(): void {
    const {
      requests,
      authzRequests,
      authzDuration,
      decisions,
      upstreamErrors,
      duration,
      upstream,
      overhead,
      skew,
      ready,
      observed,
    } = this.#families;
    const route = this.#route;
    for (const id of this.#requests.keys()) requests.remove(route, ...id.split(' '));
    for (const id of this.#authz.keys()) authzRequests.remove(route, ...id.split(' '));
    for (const id of this.#decisions.keys()) decisions.remove(route, this.#scheme, ...id.split(' '));
    for (const kind of UPSTREAM_ERRORS) upstreamErrors.remove(route, kind);
    for (const cause of this.#explained.keys()) this.#families.explained.remove(route, cause);
    for (const family of [duration, authzDuration, upstream, overhead, skew, ready, observed]) family.remove(route);
    this.forgetKeys([]);
  }

  request(method: string, status: number, duration: Milliseconds): void {
    this.#toRequest(method, status).add();
    this.#duration.observe(duration / 1000);
  }

  authz(answer: AuthzAnswer, duration: Milliseconds): void {
    this.#toAuthz(answer).add();
    this.#families.authzDuration.series(this.#route).observe(duration / 1000);
  }

  decision(decision: Decision, reason: Reason): void {
    this.#toDecision(decision, reason).add();
  }

  upstream(upstream: Milliseconds, overhead: Milliseconds): void {
    this.#upstream.observe(upstream / 1000);
    this.#overhead.observe(overhead / 1000);
  }

  upstreamError(kind: UpstreamErrorLabel): void {
    this.#families.upstreamErrors.inc({ route: this.#route, kind });
  }

  skew(skew: Milliseconds): void {
    this.#skew.observe(skew / 1000);
  }

  keyUsed(key: string, at: EpochMilliseconds): void {
    const { matches, lastUsed } = this.#toKey(key);
    matches.add();
    lastUsed.value = at / 1000;
  }

  keyUse(key: string): KeyUse {
    const { matches, lastUsed } = this.#toKey(key);
    return { matches: matches.value, lastUsed: matches.value === 0 ? undefined : Math.round(lastUsed.value * 1000) };
  }

  explained(cause: ExplainCause): void {
    toSeries(this.#explained, cause, () => this.#families.explained.series(this.#route, cause)).add();
  }

  ready(isReady: boolean): void {
    this.#families.ready.set({ route: this.#route }, isReady ? 1 : 0);
  }

  #toRequest(method: string, status: number): Tally {
    return toSeries(this.#requests, `${toMethodLabel(method)} ${toCodeLabel(status)}`, (id) =>
      this.#families.requests.series(this.#route, ...id.split(' ')),
    );
  }

  #toDecision(decision: Decision, reason: Reason): Tally {
    return toSeries(this.#decisions, `${decision} ${reason}`, (id) =>
      this.#families.decisions.series(this.#route, this.#scheme, ...id.split(' ')),
    );
  }

  #toAuthz({ method, status, reason }: AuthzAnswer): Tally {
    return toSeries(this.#authz, `${toMethodLabel(method)} ${toCodeLabel(status)} ${reason}`, (id) =>
      this.#families.authzRequests.series(this.#route, ...id.split(' ')),
    );
  }

  #toKey(key: string): KeyTallies {
    return toSeries(this.#keys, key, () => ({
      matches: this.#families.keyMatches.series(this.#route, key),
      lastUsed: this.#families.keyUsed.series(this.#route, key),
    }));
  }
}

function toSeries<Series>(bound: Map<string, Series>, id: string, find: (id: string) => Series): Series {
  const known = bound.get(id);
  if (known !== undefined) return known;
  const series = find(id);
  bound.set(id, series);
  return series;
}
