/** The series of one route, bound when the config is loaded, so that counting a request builds no label set. */
import type { EpochMilliseconds, Milliseconds } from '../../core/clock.ts';
import type { Reason } from '../../core/refusal.ts';
import type { Families, RouteLabels } from './families.ts';
import { type ExplainCause, toCodeLabel, toMethodLabel, UNMATCHED, type UpstreamErrorLabel } from './labels.ts';
import { type CounterFamily, type Distribution, type Exemplar, Tally } from './series.ts';

/** A response of the forward-auth endpoint. */
export interface AuthzResponse {
  readonly method: string;
  readonly status: number;
  readonly reason: Reason;
}

/** How often and when a key was used. */
export interface KeyUse {
  readonly matches: number;
  /** Undefined: not used since the start. */
  readonly lastUsed: EpochMilliseconds | undefined;
}

/** `observe`: a rejection or a duplicate that the route did not enforce, because it is in observe mode. */
export type Decision = 'allow' | 'deny' | 'observe';

/** The metrics of a route. */
export interface RouteMetrics {
  /** Counts a finished request; the exemplar links to its trace. */
  request(method: string, status: number, duration: Milliseconds, exemplar?: Exemplar): void;
  /** Counts a response of the forward-auth endpoint. */
  authz(response: AuthzResponse, duration: Milliseconds, exemplar?: Exemplar): void;
  decision(decision: Decision, reason: Reason): void;
  /** The time that the app took, and the gate's own part of the request's duration. */
  upstream(upstream: Milliseconds, overhead: Milliseconds, exemplar?: Exemplar): void;
  upstreamError(kind: UpstreamErrorLabel): void;
  /** Time of arrival minus signed time. */
  skew(skew: Milliseconds): void;
  keyUsed(key: string, at: EpochMilliseconds): void;
  /** Counts a cause that the analysis of a rejection found. */
  explained(cause: ExplainCause): void;
  /** How the key, or user source, was used since the start. */
  keyUse(key: string): KeyUse;
  /** Whether all secrets of the route are usable. */
  ready(isReady: boolean): void;
}

/** Methods with series from the start, for routes that allow more than two: series for all of them would be wasteful. */
const COMMON_METHODS = ['GET', 'POST'];
/** Upstream errors that alerts use. */
const ALERTED_ERRORS: readonly UpstreamErrorLabel[] = ['connect', 'timeout'];

interface KeyTallies {
  readonly matches: Tally;
  /** In seconds. */
  readonly lastUsed: Tally;
}

/** The bound series of one route. */
export class RouteSeries implements RouteMetrics {
  readonly #families: Families;
  readonly #route: string;
  readonly #scheme: string;
  readonly #requests = new Map<string, Tally>();
  readonly #authz = new Map<string, Tally>();
  readonly #decisions = new Map<string, Tally>();
  readonly #explained = new Map<string, Tally>();
  readonly #keys = new Map<string, KeyTallies>();
  readonly #upstreamErrors = new Map<string, Tally>();
  readonly #duration: Distribution;
  readonly #serverErrors: Tally;
  #isRemoved = false;

  constructor(families: Families, labels: Pick<RouteLabels, 'name' | 'scheme'> | undefined) {
    this.#families = families;
    this.#route = labels?.name ?? UNMATCHED;
    this.#scheme = labels?.scheme ?? 'none';
    this.#duration = families.duration.series(this.#route);
    this.#serverErrors = families.serverErrors.series(this.#route);
  }

  /** The scheme label of its decisions. */
  get scheme(): string {
    return this.#scheme;
  }

  /** Exports series at 0 from the start: an alert must see the increase from 0 to the first failure. */
  initialise(labels: RouteLabels): void {
    for (const [decision, reason] of toAlerted(labels)) this.#toDecision(decision, reason);
    const { methods } = labels;
    for (const method of methods.length > 2 ? methods.filter((each) => COMMON_METHODS.includes(each)) : methods)
      this.#toRequest(method, 200);
    if (labels.authz === true) for (const response of toAlertedResponses(labels)) this.#toAuthz(response);
    for (const kind of ALERTED_ERRORS) this.#toUpstreamError(kind);
    this.#families.upstream.series(this.#route);
    this.#families.overhead.series(this.#route);
    for (const key of labels.keys) this.#toKey(key);
    if (labels.signsTime === true) this.#families.skew.series(this.#route);
    this.ready(true);
    if (labels.isObserved === true) this.#families.observed.series(this.#route).value = 1;
    else this.#families.observed.remove(this.#route);
  }

  /** Removes the series of keys that are not in `kept`. */
  forgetKeys(kept: readonly string[]): void {
    for (const key of this.#keys.keys()) {
      if (kept.includes(key)) continue;
      this.#keys.delete(key);
      this.#families.keyUsed.remove(this.#route, key);
      this.#families.keyMatches.remove(this.#route, key);
    }
  }

  /** Removes all series of the route; requests in flight do not add them again. */
  remove(): void {
    const families = this.#families;
    const route = this.#route;
    this.#isRemoved = true;
    for (const id of this.#requests.keys()) families.requests.remove(route, ...id.split(' '));
    for (const id of this.#authz.keys()) families.authzRequests.remove(route, ...id.split(' '));
    for (const id of this.#decisions.keys()) families.decisions.remove(route, this.#scheme, ...id.split(' '));
    for (const kind of this.#upstreamErrors.keys()) families.upstreamErrors.remove(route, kind);
    for (const cause of this.#explained.keys()) families.explained.remove(route, cause);
    const { duration, serverErrors, authzDuration, upstream, overhead, skew, ready, observed } = families;
    for (const family of [duration, serverErrors, authzDuration, upstream, overhead, skew, ready, observed]) family.remove(route);
    this.forgetKeys([]);
  }

  request(method: string, status: number, duration: Milliseconds, exemplar?: Exemplar): void {
    this.#toRequest(method, status).add();
    if (status >= 500) this.#serverErrors.add();
    this.#duration.observe(duration / 1000, exemplar);
  }

  authz(response: AuthzResponse, duration: Milliseconds, exemplar?: Exemplar): void {
    this.#toAuthz(response).add();
    if (!this.#isRemoved) this.#families.authzDuration.series(this.#route).observe(duration / 1000, exemplar);
  }

  decision(decision: Decision, reason: Reason): void {
    this.#toDecision(decision, reason).add();
  }

  upstream(upstream: Milliseconds, overhead: Milliseconds, exemplar?: Exemplar): void {
    if (this.#isRemoved) return;
    this.#families.upstream.series(this.#route).observe(upstream / 1000, exemplar);
    this.#families.overhead.series(this.#route).observe(overhead / 1000, exemplar);
  }

  upstreamError(kind: UpstreamErrorLabel): void {
    this.#toUpstreamError(kind).add();
  }

  skew(skew: Milliseconds): void {
    if (!this.#isRemoved) this.#families.skew.series(this.#route).observe(skew / 1000);
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
    (this.#explained.get(cause) ?? this.#bind(this.#explained, cause, this.#families.explained, [this.#route])).add();
  }

  ready(isReady: boolean): void {
    if (!this.#isRemoved) this.#families.ready.series(this.#route).value = isReady ? 1 : 0;
  }

  #toRequest(method: string, status: number): Tally {
    const id = `${toMethodLabel(method)} ${toCodeLabel(status)}`;
    return this.#requests.get(id) ?? this.#bind(this.#requests, id, this.#families.requests, [this.#route]);
  }

  #toDecision(decision: Decision, reason: Reason): Tally {
    const id = `${decision} ${reason}`;
    return this.#decisions.get(id) ?? this.#bind(this.#decisions, id, this.#families.decisions, [this.#route, this.#scheme]);
  }

  #toAuthz({ method, status, reason }: AuthzResponse): Tally {
    const id = `${toMethodLabel(method)} ${toCodeLabel(status)} ${reason}`;
    return this.#authz.get(id) ?? this.#bind(this.#authz, id, this.#families.authzRequests, [this.#route]);
  }

  #toUpstreamError(kind: UpstreamErrorLabel): Tally {
    return this.#upstreamErrors.get(kind) ?? this.#bind(this.#upstreamErrors, kind, this.#families.upstreamErrors, [this.#route]);
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

  /** Creates the series with these labels and those in the ID; for a removed route, one that is not exported. */
  #bind(bound: Map<string, Tally>, id: string, family: CounterFamily, labels: readonly string[]): Tally {
    const series = this.#isRemoved ? new Tally() : family.series(...labels, ...id.split(' '));
    bound.set(id, series);
    return series;
  }
}

/** The responses to other proxies that alerts use, including the successful ones for ratios. */
function toAlertedResponses({ asksPassword }: RouteLabels): AuthzResponse[] {
  const method = 'GET';
  const wrong: readonly AuthzResponse[] = [
    { method, status: 401, reason: 'bad_credentials' },
    { method, status: 403, reason: 'banned' },
  ];
  return [{ method, status: 200, reason: 'ok' }, ...(asksPassword === true ? wrong : [])];
}

/** The decisions that alerts use, if the route can make them. */
function toAlerted({ scheme, signsTime, asksPassword }: RouteLabels): (readonly [Decision, Reason])[] {
  const isSigned = scheme !== 'none' && scheme !== 'basic';
  return [
    ['allow', 'ok'],
    ...(isSigned ? SIGNED : []),
    ...(signsTime === true ? TIMED : []),
    ...(asksPassword === true ? BY_PASSWORD : []),
  ];
}

const SIGNED: readonly (readonly [Decision, Reason])[] = [
  ['deny', 'missing_signature'],
  ['deny', 'bad_signature'],
];
const TIMED: readonly (readonly [Decision, Reason])[] = [
  ['deny', 'timestamp_old'],
  ['deny', 'timestamp_future'],
];
const BY_PASSWORD: readonly (readonly [Decision, Reason])[] = [
  ['deny', 'bad_credentials'],
  ['deny', 'banned'],
];
