/** Metrics of several threads, exposed by one of them: what the others count is added to its series, and its gauges combine those of all. */
import type { Metric, Registry } from '@prometheus-io/client';
import { CounterFamily, HistogramFamily, type SeriesChange } from './series.ts';

/** The increases of one family since the last report of a thread. */
export interface FamilyChanges {
  readonly name: string;
  readonly changes: readonly SeriesChange[];
}

/** How the gauges of a family are combined. */
type Combination = 'sum' | 'max' | 'min';
export type Combinations = Readonly<Record<string, Combination>>;

/** A value of a gauge. */
interface GaugeValue {
  readonly labels: Readonly<Record<string, string | number>>;
  readonly value: number;
}

/** The gauges of a thread, by name. */
export type Gauges = ReadonlyMap<string, readonly GaugeValue[]>;

/** The part of the library's metrics that is used here. */
interface Readable {
  get(): Promise<{ readonly values: readonly GaugeValue[] }>;
}

/** Takes what was counted since the last call. */
export function takeChanges(registry: Registry): FamilyChanges[] {
  return toFamilies(registry).flatMap((family) => {
    const changes = family.takeChanges();
    return changes.length === 0 ? [] : [{ name: family.name, changes }];
  });
}

/** Adds what another thread counted. */
export function addChanges(registry: Registry, added: readonly FamilyChanges[]): void {
  const changes = new Map(added.map((family) => [family.name, family.changes]));
  for (const family of toFamilies(registry)) family.addChanges(changes.get(family.name) ?? []);
}

/** The current values of the gauges with these names. */
export async function readGauges(registry: Registry, combinations: Combinations): Promise<Gauges> {
  const gauges = new Map<string, readonly GaugeValue[]>();
  for (const name of Object.keys(combinations)) {
    const { values } = (await findMetric(registry, name)?.get()) ?? { values: [] };
    gauges.set(
      name,
      values.map(({ labels, value }) => ({ labels, value })),
    );
  }
  return gauges;
}

/** From now on the gauges with these names also stand for those that `readOthers` returns. */
export function combineGauges(registry: Registry, combinations: Combinations, readOthers: () => readonly Gauges[]): void {
  for (const [name, combination] of Object.entries(combinations)) {
    const metric = findMetric(registry, name);
    if (metric === undefined) continue;
    const read = metric.get.bind(metric);
    const getAll: typeof read = async () => {
      const own = await read();
      const others = readOthers().map((gauges) => new Map((gauges.get(name) ?? []).map((each) => [toKey(each), each.value])));
      const values = own.values.map((each) => {
        const all = [each.value, ...others.flatMap((other) => other.get(toKey(each)) ?? [])];
        return { ...each, value: combine(all, combination) };
      });
      return { ...own, values };
    };
    metric.get = getAll;
  }
}

function combine(values: readonly number[], combination: Combination): number {
  if (combination === 'sum') return values.reduce((sum, value) => sum + value, 0);
  return combination === 'max' ? Math.max(...values) : Math.min(...values);
}

function toFamilies(registry: Registry): (CounterFamily | HistogramFamily)[] {
  const metrics: readonly unknown[] = registry.getMetricsAsArray();
  return metrics.filter((metric) => metric instanceof CounterFamily || metric instanceof HistogramFamily);
}

function findMetric(registry: Registry, name: string): Readable | undefined {
  const metric: Metric | undefined = registry.getSingleMetric(name);
  return metric as Readable | undefined;
}

function toKey({ labels }: GaugeValue): string {
  return JSON.stringify(labels);
}
