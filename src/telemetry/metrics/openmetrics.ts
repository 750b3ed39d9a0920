/** Renders metrics as OpenMetrics 1.0. The client library's own renderer renames the metrics, so one registry could not serve both formats. */
import type { MetricObjectWithValues, MetricValue, Registry } from '@prometheus-io/client';

/** The formats that a scraper can request. */
export type ExpositionFormat = 'text' | 'openmetrics';

const OPENMETRICS_TYPE = 'application/openmetrics-text; version=1.0.0; charset=utf-8';

/** A sample of the registry; the library's type lacks the fields of histograms. */
interface ParsedSample {
  readonly labels: Readonly<Record<string, string | number>>;
  readonly value: number;
  readonly metricName?: string;
  readonly exemplar?: {
    readonly labelSet: Readonly<Record<string, string | number>>;
    readonly value: number;
    readonly timestamp: number;
  };
}

/** Metrics that can be scraped. */
export interface Exposition {
  /** Renders the metrics: in the Prometheus text format, or as OpenMetrics, which includes exemplars. */
  exposition(format?: ExpositionFormat): Promise<{ contentType: string; text: string }>;
}

/** Renders a registry in the given format. */
export async function toExposition(registry: Registry, format: ExpositionFormat): Promise<{ contentType: string; text: string }> {
  if (format === 'text') return { contentType: registry.contentType, text: await registry.metrics() };
  return { contentType: OPENMETRICS_TYPE, text: toOpenMetrics(await registry.getMetricsAsJSON()) };
}

function toOpenMetrics(metrics: readonly MetricObjectWithValues<MetricValue<string>>[]): string {
  return `${metrics.flatMap(toFamily).join('\n')}\n# EOF\n`;
}

function toFamily({ name, help, type, values }: MetricObjectWithValues<MetricValue<string>>): string[] {
  // The name of a counter family omits the `_total` suffix of its samples.
  const family = type === 'counter' ? name.replace(/_total$/, '') : name;
  const samples = values.map((value) => toSample(value as ParsedSample, type === 'counter' ? `${family}_total` : name));
  return [`# TYPE ${family} ${type}`, `# HELP ${family} ${toEscaped(help)}`, ...samples];
}

function toSample({ labels, value, metricName, exemplar }: ParsedSample, name: string): string {
  const sample = `${metricName ?? name}${toLabels(labels)} ${toNumber(value)}`;
  if (exemplar === undefined) return sample;
  return `${sample} # ${toLabels(exemplar.labelSet) || '{}'} ${toNumber(exemplar.value)} ${exemplar.timestamp}`;
}

function toLabels(labels: ParsedSample['labels']): string {
  const pairs = Object.entries(labels).map(([name, value]) => `${name}="${toEscaped(String(value))}"`);
  return pairs.length === 0 ? '' : `{${pairs.join(',')}}`;
}

function toEscaped(text: string): string {
  return text.replaceAll('\\', '\\\\').replaceAll('\n', '\\n').replaceAll('"', '\\"');
}

function toNumber(value: number): string {
  if (Number.isNaN(value)) return 'NaN';
  if (Number.isFinite(value)) return String(value);
  return value > 0 ? '+Inf' : '-Inf';
}
