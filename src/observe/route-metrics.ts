/** The series of one route, bound once at load, so that counting a request builds no label set. */
import type { EpochMilliseconds, Milliseconds } from '../core/clock.ts';
import type { Reason } from '../core/refusal.ts';
import type { Families, RouteLabels } from './families.ts';
import { toCodeLabel, toMethodLabel, UNMATCHED, UPSTREAM_ERRORS, type UpstreamErrorLabel } from './labels.ts';

/** What is counted of a route's requests. */
export interface RouteMetrics {
  /** One finished request. */
  request(method: string, status: number, duration: Milliseconds): void;
  decision(decision: 'allow' | 'deny', reason: Reason): void;
  /** Time spent with the app, and the rest of the request's time, which is our own. */
  upstream(upstream: Milliseconds, overhead: Milliseconds): void;
  upstreamError(kind: UpstreamErrorLabel): void;
  /** Received minus signed time. */
  skew(skew: Milliseconds): void;
  keyUsed(key: string, at: EpochMilliseconds): void;
  /** All secrets of the route are usable, or not. */
  ready(isReady: boolean): void;
}

type Count = (value?: number) => void;
/** The decisions that alerts divide by: shown as 0 from the start. */
const ALERTED: readonly (readonly ['allow' | 'deny', Reason])[] = [
  ['allow', 'ok'],
  ['allow', 'duplicate'],
  ['deny', 'bad_signature'],
  ['deny', 'timestamp_old'],
  ['deny', 'timestamp_future'],
];

/** Holds the bound series of one route. */
export class RouteSeries implements RouteMetrics {
  readonly #families: Families;
  readonly #route: string;
  readonly #scheme: string;
  readonly #requests = new Map<string, Count>();
  readonly #decisions = new Map<string, Count>();
  readonly #keys = new Set<string>();
  readonly #duration: (value: number) => void;
  readonly #upstream: (value: number) => void;
  readonly #overhead: (value: number) => void;
  readonly #skew: (value: number) => void;

  constructor(families: Families, labels: Pick<RouteLabels, 'name' | 'scheme'> | undefined) {
    this.#families = families;
    this.#route = labels?.name ?? UNMATCHED;
    this.#scheme = labels?.scheme ?? 'none';
    this.#duration = families.duration.labels(this.#route).observe;
    this.#upstream = families.upstream.labels(this.#route).observe;
    this.#overhead = families.overhead.labels(this.#route).observe;
    this.#skew = families.skew.labels(this.#route).observe;
  }

  /** Shows what is known beforehand as 0. */
  initialise(labels: RouteLabels): void {
    for (const [decision, reason] of ALERTED) this.#toDecision(decision, reason)(0);
    for (const method of labels.methods) this.#toRequest(method, 200)(0);
    for (const kind of UPSTREAM_ERRORS) this.#families.upstreamErrors.inc({ route: this.#route, kind }, 0);
    for (const key of labels.keys) {
      if (this.#keys.has(key)) continue;
      this.#keys.add(key);
      this.#families.keyUsed.set({ route: this.#route, key }, 0);
    }
    this.ready(true);
  }

  /** Drops the series of keys that are not in `kept`. */
  forgetKeys(kept: readonly string[]): void {
    for (const key of this.#keys) {
      if (kept.includes(key)) continue;
      this.#keys.delete(key);
      this.#families.keyUsed.remove(this.#route, key);
    }
  }

  /** Drops all series of the route. */
  remove(): void {
    const { requests, decisions, upstreamErrors, duration, upstream, overhead, skew, ready } = this.#families;
    const route = this.#route;
    for (const id of this.#requests.keys()) requests.remove(route, ...id.split(' '));
    for (const id of this.#decisions.keys()) decisions.remove(route, this.#scheme, ...id.split(' '));
    for (const kind of UPSTREAM_ERRORS) upstreamErrors.remove(route, kind);
    for (const family of [duration, upstream, overhead, skew, ready]) family.remove(route);
    this.forgetKeys([]);
  }

  request(method: string, status: number, duration: Milliseconds): void {
    this.#toRequest(method, status)(1);
    this.#duration(duration / 1000);
  }

  decision(decision: 'allow' | 'deny', reason: Reason): void {
    this.#toDecision(decision, reason)(1);
  }

  upstream(upstream: Milliseconds, overhead: Milliseconds): void {
    this.#upstream(upstream / 1000);
    this.#overhead(overhead / 1000);
  }

  upstreamError(kind: UpstreamErrorLabel): void {
    this.#families.upstreamErrors.inc({ route: this.#route, kind });
  }

  skew(skew: Milliseconds): void {
    this.#skew(skew / 1000);
  }

  keyUsed(key: string, at: EpochMilliseconds): void {
    this.#families.keyUsed.set({ route: this.#route, key }, at / 1000);
  }

  ready(isReady: boolean): void {
    this.#families.ready.set({ route: this.#route }, isReady ? 1 : 0);
  }

  #toRequest(method: string, status: number): Count {
    const id = `${toMethodLabel(method)} ${toCodeLabel(status)}`;
    const bound = this.#requests.get(id);
    if (bound !== undefined) return bound;
    const count = this.#families.requests.labels(this.#route, ...id.split(' ')).inc;
    this.#requests.set(id, count);
    return count;
  }

  #toDecision(decision: 'allow' | 'deny', reason: Reason): Count {
    const id = `${decision} ${reason}`;
    const bound = this.#decisions.get(id);
    if (bound !== undefined) return bound;
    const count = this.#families.decisions.labels(this.#route, this.#scheme, decision, reason).inc;
    this.#decisions.set(id, count);
    return count;
  }
}
