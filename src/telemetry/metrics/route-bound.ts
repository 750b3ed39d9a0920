/** The series of one route, bound when the config is loaded, so that counting a request builds no label set. */
import { type CounterFamily, Distribution, type GaugeFamily, type HistogramFamily, Tally } from './series.ts';

/** The route label of requests that matched no route; not a valid route name. */
export const UNMATCHED = '_unmatched';

/** The counters of one family that have some labels in common; the others are an ID, joined by spaces. */
export class BoundCounters {
  readonly #family: CounterFamily;
  readonly #common: readonly string[];
  readonly #bound = new Map<string, Tally>();
  #isRemoved = false;

  constructor(family: CounterFamily, ...common: readonly string[]) {
    this.#family = family;
    this.#common = common;
  }

  /** Exported from now on; of a removed route, a counter that is not exported. */
  get(id: string): Tally {
    const known = this.#bound.get(id);
    if (known !== undefined) return known;
    const series = this.#isRemoved ? new Tally() : this.#family.series(...this.#common, ...id.split(' '));
    this.#bound.set(id, series);
    return series;
  }

  /** The sum of the counters with such an ID. */
  sum(isIncluded: (id: string) => boolean): number {
    let sum = 0;
    for (const [id, { value }] of this.#bound) if (isIncluded(id)) sum += value;
    return sum;
  }

  /** Stops exporting all of them; requests in flight do not add them again. */
  remove(): void {
    this.#isRemoved = true;
    for (const id of this.#bound.keys()) this.#family.remove(...this.#common, ...id.split(' '));
  }
}

/** One histogram. */
export class BoundHistogram {
  readonly #family: HistogramFamily;
  readonly #labels: readonly string[];
  #series: Distribution | undefined;

  constructor(family: HistogramFamily, ...labels: readonly string[]) {
    this.#family = family;
    this.#labels = labels;
  }

  /** Exported from the first call on. */
  get(): Distribution {
    this.#series ??= this.#family.series(...this.#labels);
    return this.#series;
  }

  /** Stops exporting it; requests in flight do not add it again. */
  remove(): void {
    this.#series ??= new Distribution([]);
    this.#family.remove(...this.#labels);
  }
}

/** One gauge. */
export class BoundGauge {
  readonly #family: GaugeFamily;
  readonly #labels: readonly string[];
  #isRemoved = false;

  constructor(family: GaugeFamily, ...labels: readonly string[]) {
    this.#family = family;
    this.#labels = labels;
  }

  /** Exports the value; undefined: none. */
  set(value: number | undefined): void {
    if (value === undefined) this.#family.remove(...this.#labels);
    else if (!this.#isRemoved) this.#family.series(...this.#labels).value = value;
  }

  /** Stops exporting it permanently. */
  remove(): void {
    this.#isRemoved = true;
    this.#family.remove(...this.#labels);
  }
}

/** The series of one route. */
export interface RouteSeries<Labels> {
  /** Exports series at 0 from the start, and removes those that the new config does not name. */
  initialize(labels: Labels): void;
  remove(): void;
}

/** Identifies a route across reloads: a route with the same identity keeps its series. */
export interface RouteIdentity {
  readonly name: string;
  readonly scheme: string;
}

/** The series of all routes of an area. */
export class PerRoute<Labels extends RouteIdentity, Series extends RouteSeries<Labels>> {
  readonly #create: (route: RouteIdentity) => Series;
  readonly #routes = new Map<string, { readonly scheme: string; readonly series: Series }>();
  readonly #unmatched: Series;

  constructor(create: (route: RouteIdentity) => Series) {
    this.#create = create;
    this.#unmatched = create({ name: UNMATCHED, scheme: 'none' });
  }

  /** Exports the series of these routes, starting at 0, and removes those of all other routes. */
  set(routes: readonly Labels[]): void {
    const schemes = new Map(routes.map(({ name, scheme }) => [name, scheme]));
    for (const [name, { scheme, series }] of this.#routes) {
      if (schemes.get(name) === scheme) continue;
      series.remove();
      this.#routes.delete(name);
    }
    for (const labels of routes) {
      const { name, scheme } = labels;
      const kept = this.#routes.get(name) ?? { scheme, series: this.#create(labels) };
      kept.series.initialize(labels);
      this.#routes.set(name, kept);
    }
  }

  /** The series of a route; `undefined`: of requests that matched no route. */
  get(name: string | undefined): Series {
    return (name === undefined ? undefined : this.#routes.get(name)?.series) ?? this.#unmatched;
  }
}

// Label values of HTTP requests: no untrusted input can add a series.

const METHODS = new Set(['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'TRACE', 'CONNECT']);

/** The method, or `_OTHER`: clients can send any token as the method. */
export function toMethodLabel(method: string): string {
  return METHODS.has(method) ? method : '_OTHER';
}

/** The status as three digits; `000` if the app sent an invalid one. */
export function toCodeLabel(status: number): string {
  return Number.isInteger(status) && status >= 100 && status <= 599 ? String(status) : '000';
}
