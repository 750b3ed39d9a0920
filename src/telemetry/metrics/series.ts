/**
 * Metric series for the hot path. The client library looks a series up by its labels at each observation, which took 5 % of a
 * request's CPU. Here a series is looked up once, counting is an addition, and the registry reads the sums on each scrape.
 */
import { Gauge, type Metric, type Registry } from '@prometheus-io/client';
import type { EpochMilliseconds } from '../../core/clock.ts';

/** A sample request of a bucket: it links a latency to a trace. */
export interface Exemplar {
  readonly traceId: string;
  readonly at: EpochMilliseconds;
}

type Labels = Readonly<Record<string, string | number>>;

/** A sample in the form that the registry expects. */
interface Value {
  readonly labels: Labels;
  readonly value: number;
  /** If it differs from the family's name. */
  readonly metricName?: string;
  readonly exemplar?: { readonly labelSet: Labels; readonly value: number; readonly timestamp: number };
}

/** Options of a metric family. */
interface FamilyOptions {
  readonly name: string;
  readonly help: string;
  readonly labelNames?: readonly string[];
  readonly registers: readonly Registry[];
}

/** Histogram buckets, in seconds, for operations that should take microseconds. Each costs one series per route (docs/metrics.md has the budget). */
export const OWN_BUCKETS = [0.0005, 0.0025, 0.01, 0.025, 0.1];

/** A metric and its series. */
abstract class Family<S extends object> {
  readonly name: string;
  readonly help: string;
  readonly aggregator = 'sum';
  readonly #labelNames: readonly string[];
  readonly #series = new Map<string, { readonly labels: Labels; readonly series: S }>();
  /** The sums of each series at the last `takeChanges`. */
  readonly #taken = new WeakMap<S, readonly number[]>();
  abstract readonly type: 'counter' | 'gauge' | 'histogram';

  constructor(options: FamilyOptions) {
    this.name = options.name;
    this.help = options.help;
    this.#labelNames = options.labelNames ?? [];
    // The registry's type names the library's classes, but it only calls `get`.
    for (const registry of options.registers) registry.registerMetric(this as unknown as Metric);
  }

  /** Returns the series with these labels and exports it from now on: an alert cannot fire on the first failure if that creates the series. */
  series(...labels: readonly string[]): S {
    const id = labels.join('\n');
    const known = this.#series.get(id);
    if (known !== undefined) return known.series;
    const series = this.create();
    this.#series.set(id, { labels: Object.fromEntries(this.#labelNames.map((name, i) => [name, labels[i] ?? ''])), series });
    return series;
  }

  /** Stops exporting the series. */
  remove(...labels: readonly string[]): void {
    this.#series.delete(labels.join('\n'));
  }

  /** Returns how much was added to each series since the last call. */
  takeChanges(): SeriesChange[] {
    const changes: SeriesChange[] = [];
    for (const { labels, series } of this.#series.values()) {
      const sums = this.toSums(series);
      const taken = this.#taken.get(series);
      this.#taken.set(series, sums);
      const added = taken === undefined ? sums : sums.map((sum, i) => sum - (taken[i] ?? 0));
      if (added.some((value) => value !== 0))
        changes.push({ labels: Object.values(labels).map(String), added, exemplars: this.toExemplars(series) });
    }
    return changes;
  }

  /** Adds what another thread counted. */
  addChanges(changes: readonly SeriesChange[]): void {
    for (const change of changes) {
      const series = this.find(change.labels);
      if (series !== undefined) this.addChange(series, change);
    }
  }

  /** Where another thread's count is added; undefined if it is dropped. */
  protected find(labels: readonly string[]): S | undefined {
    return this.series(...labels);
  }

  /** Called by the registry on each scrape. */
  async get() {
    const { name, help, type, aggregator } = this;
    return {
      name,
      help,
      type,
      aggregator,
      values: [...this.#series.values()].flatMap((one) => this.read(one.series, one.labels)),
    };
  }

  protected abstract create(): S;
  protected abstract read(series: S, labels: Labels): readonly Value[];
  /** The sums that a series consists of. */
  protected abstract toSums(series: S): number[];
  protected abstract addChange(series: S, change: SeriesChange): void;
  protected toExemplars(_series: S): SeriesChange['exemplars'] {
    return undefined;
  }
}

/** The increase of a series: one number for a counter; for a histogram one for each bucket, and the sum. */
export interface SeriesChange {
  readonly labels: readonly string[];
  readonly added: readonly number[];
  /** Of a histogram, by bucket. */
  readonly exemplars: readonly Value['exemplar'][] | undefined;
}

/** The value of a series: a counter only grows, a gauge can be set. */
export class Tally {
  value = 0;

  add(value = 1): void {
    this.value += value;
  }
}

abstract class TallyFamily extends Family<Tally> {
  protected create(): Tally {
    return new Tally();
  }

  protected read({ value }: Tally, labels: Labels): readonly Value[] {
    return [{ labels, value }];
  }

  protected toSums({ value }: Tally): number[] {
    return [value];
  }

  protected addChange(series: Tally, { added: [value = 0] }: SeriesChange): void {
    series.add(value);
  }
}

/** Counters of one name. */
export class CounterFamily extends TallyFamily {
  readonly type = 'counter';
  /** By the labels that the counters of each have in common: as many in all of them. */
  readonly #owners = new Map<string, BoundCounters>();
  #commonCount = 0;

  /** From now on, counts of other threads with these labels are the owner's. */
  bind(common: readonly string[], owner: BoundCounters): void {
    this.#owners.set(common.join('\n'), owner);
    this.#commonCount = common.length;
  }

  unbind(common: readonly string[], owner: BoundCounters): void {
    const id = common.join('\n');
    if (this.#owners.get(id) === owner) this.#owners.delete(id);
  }

  /** Through the owner, which sums and removes its counters. Without one, the route was removed: its series must not come back. */
  protected override find(labels: readonly string[]): Tally | undefined {
    if (this.#commonCount === 0) return super.find(labels);
    const owner = this.#owners.get(labels.slice(0, this.#commonCount).join('\n'));
    return owner?.get(labels.slice(this.#commonCount).join(' '));
  }
}

/** Gauges of one name. */
export class GaugeFamily extends TallyFamily {
  readonly type = 'gauge';
}

/** The counts of each bucket, not cumulative; the last bucket has no upper bound. */
class Distribution {
  readonly #bounds: readonly number[];
  readonly counts: number[];
  /** The latest one of each bucket. */
  readonly exemplars: Value['exemplar'][] = [];
  sum = 0;

  constructor(bounds: readonly number[]) {
    this.#bounds = bounds;
    this.counts = Array.from({ length: bounds.length + 1 }, () => 0);
  }

  /** `exemplar`: only of a request whose trace was recorded. */
  observe(value: number, exemplar?: Exemplar): void {
    let bucket = 0;
    while (bucket < this.#bounds.length && value > (this.#bounds[bucket] as number)) bucket++;
    (this.counts[bucket] as number)++;
    this.sum += value;
    if (exemplar === undefined) return;
    const { traceId, at } = exemplar;
    this.exemplars[bucket] = { labelSet: { trace_id: traceId }, value, timestamp: at / 1000 };
  }
}

/** Histograms of one name and one list of buckets. */
export class HistogramFamily extends Family<Distribution> {
  readonly type = 'histogram';
  readonly #bounds: readonly number[];

  constructor(options: FamilyOptions & { readonly buckets: readonly number[] }) {
    super(options);
    this.#bounds = options.buckets;
  }

  protected create(): Distribution {
    return new Distribution(this.#bounds);
  }

  protected toSums({ counts, sum }: Distribution): number[] {
    return [...counts, sum];
  }

  protected override toExemplars({ exemplars }: Distribution): SeriesChange['exemplars'] {
    return exemplars.length === 0 ? undefined : exemplars;
  }

  protected addChange(series: Distribution, { added, exemplars = [] }: SeriesChange): void {
    for (const [bucket, hits] of series.counts.entries()) series.counts[bucket] = hits + (added[bucket] ?? 0);
    series.sum += added.at(-1) ?? 0;
    for (const [bucket, exemplar] of exemplars.entries()) if (exemplar !== undefined) series.exemplars[bucket] = exemplar;
  }

  protected read({ counts, sum, exemplars }: Distribution, labels: Labels): readonly Value[] {
    const values: Value[] = [];
    let count = 0;
    counts.forEach((hits, i) => {
      count += hits;
      const exemplar = exemplars[i];
      values.push({
        metricName: `${this.name}_bucket`,
        labels: { le: toBound(this.#bounds[i]), ...labels },
        value: count,
        ...(exemplar && { exemplar }),
      });
    });
    values.push(
      { metricName: `${this.name}_sum`, labels, value: sum },
      { metricName: `${this.name}_count`, labels, value: count },
    );
    return values;
  }
}

/** Formats bounds as OpenMetrics requires, in both formats: a series must not depend on the scraper's Accept. */
function toBound(bound: number | undefined): string {
  if (bound === undefined) return '+Inf';
  return Number.isInteger(bound) ? `${bound}.0` : String(bound);
}

/** Creates families in these registers. An ID is the name after `prefix`, with the labels if it has any: `http_requests_total{route,code}`. */
export function createFamilies(registers: readonly Registry[], prefix = '') {
  const toOptions = (id: string, help: string): FamilyOptions => {
    const [name = '', ...labelNames] = id.split(/[{,}]/).filter((part) => part !== '');
    return { name: `${prefix}${name}`, help, labelNames, registers };
  };
  return {
    counter: (id: string, help: string): CounterFamily => new CounterFamily(toOptions(id, help)),
    gauge: (id: string, help: string): GaugeFamily => new GaugeFamily(toOptions(id, help)),
    histogram: (id: string, help: string, buckets: readonly number[]): HistogramFamily =>
      new HistogramFamily({ ...toOptions(id, help), buckets }),
  };
}

/** The functions that create the families of an area. */
export type Families = ReturnType<typeof createFamilies>;

/** A gauge whose value `read` returns on each scrape. */
export function watchGauge(name: string, help: string, registers: Registry[], read: () => number): void {
  new Gauge({
    name,
    help,
    registers,
    collect() {
      this.set(read());
    },
  });
}

// The series of one route, bound when the config is loaded, so that counting a request builds no label set.

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
    family.bind(common, this);
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
    this.#family.unbind(this.#common, this);
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

/** No untrusted input can add a series. */
const METHODS = new Set(['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS', 'TRACE', 'CONNECT']);

/** The method, or `_OTHER`: clients can send any token as the method. */
export function toMethodLabel(method: string): string {
  return METHODS.has(method) ? method : '_OTHER';
}

/** The status as three digits; `000` if the app sent an invalid one. */
export function toCodeLabel(status: number): string {
  return Number.isInteger(status) && status >= 100 && status <= 599 ? String(status) : '000';
}
