/** The label selectors of all queries of a dashboard. */

/** For series of a route. */
export const OF_ROUTE = 'cluster=~"$cluster",namespace=~"$namespace",route=~"$route"';
/** For series of a whole gate. */
export const OF_GATE = 'cluster=~"$cluster",namespace=~"$namespace"';

/** The rate per second of a counter, over the interval that Grafana chooses for the graph. */
export function rate(metric: string, labels: string): string {
  return `rate(${metric}{${labels}}[$__rate_interval])`;
}

/** A quantile of a histogram, grouped by these labels in addition to the bucket. */
export function quantile(share: number, metric: string, labels: string, by = ''): string {
  const kept = by === '' ? 'le' : `${by}, le`;
  return `histogram_quantile(${share}, sum by (${kept}) (${rate(`${metric}_bucket`, labels)}))`;
}

/** One rate as a share of another. */
export function share(part: string, whole: string): string {
  return `${part} / (${whole} > 0)`;
}
