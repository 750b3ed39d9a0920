/** What every query of a dashboard selects by. */

/** Of one route. */
export const OF_ROUTE = 'cluster=~"$cluster",namespace=~"$namespace",route=~"$route"';
/** Of one gate as a whole. */
export const OF_GATE = 'cluster=~"$cluster",namespace=~"$namespace"';

/** A rate per second of a counter over the interval that suits the graph. */
export function rate(metric: string, labels: string): string {
  return `rate(${metric}{${labels}}[$__rate_interval])`;
}

/** A quantile of a histogram, by these labels beside the bucket. */
export function quantile(share: number, metric: string, labels: string, by = ''): string {
  const kept = by === '' ? 'le' : `${by}, le`;
  return `histogram_quantile(${share}, sum by (${kept}) (${rate(`${metric}_bucket`, labels)}))`;
}

/** One rate as a share of another. */
export function share(part: string, whole: string): string {
  return `${part} / (${whole} > 0)`;
}
