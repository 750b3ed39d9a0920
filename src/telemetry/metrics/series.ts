/**
 * Metrics that every request touches. prom-client finds a series by its labels at each observation, which cost a twentieth of
 * a request; here a series is found once, counting is an addition, and the registry asks for the sums when it is scraped.
 */
import type { Metric, Registry } from '@prometheus-io/client';
import type { EpochMilliseconds } from '../../core/clock.ts';

/** One request that stands for a bucket: what leads from a latency to its trace. */
export interface Exemplar {
  readonly traceId: string;
  readonly at: EpochMilliseconds;
}

type Labels = Readonly<Record<string, string | number>>;

/** A line of the exposition, as prom-client's registry takes it. */
interface Value {
  readonly labels: Labels;
  readonly value: number;
  /** Where it is not the family's. */
  readonly metricName?: string;
  readonly exemplar?: { readonly labelSet: Labels; readonly value: number; readonly timestamp: number };
}

/** What is the same for all series of a metric. */
export interface FamilyOptions {
  readonly name: string;
  readonly help: string;
  readonly labelNames?: readonly string[];
  readonly registers: readonly Registry[];
}

/** A metric and its series. */
abstract class Family<S> {
  readonly name: string;
  readonly help: string;
  readonly aggregator = 'sum';
  readonly #labelNames: readonly string[];
  readonly #series = new Map<string, { readonly labels: Labels; readonly series: S }>();
  abstract readonly type: 'counter' | 'gauge' | 'histogram';

  constructor(options: FamilyOptions) {
    this.name = options.name;
    this.help = options.help;
    this.#labelNames = options.labelNames ?? [];
    // The registry names its own classes, but asks nothing of a metric beyond `get`.
    for (const registry of options.registers) registry.registerMetric(this as unknown as Metric);
  }

  /** The series with these labels, shown from now on: an alert on a series that appears with its first failure cannot fire on it. */
  series(...labels: readonly string[]): S {
    const id = labels.join('\n');
    const known = this.#series.get(id);
    if (known !== undefined) return known.series;
    const series = this.create();
    this.#series.set(id, { labels: Object.fromEntries(this.#labelNames.map((name, i) => [name, labels[i] ?? ''])), series });
    return series;
  }

  /** Shows it no more. */
  remove(...labels: readonly string[]): void {
    this.#series.delete(labels.join('\n'));
  }

  /** Called by the registry at each scrape. */
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
}

/** A number that is shown: a counter only grows, a gauge is also set. */
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
}

/** Counters of one name. */
export class CounterFamily extends TallyFamily {
  readonly type = 'counter';
}

/** Gauges of one name. */
export class GaugeFamily extends TallyFamily {
  readonly type = 'gauge';
}

/** How often each bucket was hit, not yet cumulated; the last is the one without an upper bound. */
export class Distribution {
  readonly #bounds: readonly number[];
  readonly counts: number[];
  /** By bucket, the last one each. */
  readonly exemplars: Value['exemplar'][] = [];
  sum = 0;

  constructor(bounds: readonly number[]) {
    this.#bounds = bounds;
    this.counts = Array.from({ length: bounds.length + 1 }, () => 0);
  }

  /** The exemplar is of a request whose trace was recorded: an id that leads nowhere helps nobody. */
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

/** As OpenMetrics writes bounds, in either format: a series must not change its name with the scraper's Accept. */
function toBound(bound: number | undefined): string {
  if (bound === undefined) return '+Inf';
  return Number.isInteger(bound) ? `${bound}.0` : String(bound);
}
