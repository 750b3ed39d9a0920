/** Chooses the metrics format from a scraper's Accept header (RFC 9110 §12.5.1). */
import type { ExpositionFormat } from '../telemetry/metrics/openmetrics.ts';

interface MediaRange {
  readonly type: string;
  readonly version: string | undefined;
  readonly quality: number;
}

/** OpenMetrics if the scraper accepts it and does not prefer the text format; otherwise the text format, which every scraper reads. */
export function toFormat(accept: string | undefined): ExpositionFormat {
  const ranges = (accept ?? '').split(',').map(toRange);
  const best = (matches: (range: MediaRange) => boolean): number =>
    Math.max(0, ...ranges.filter(matches).map(({ quality }) => quality));
  const openMetrics = best(({ type, version }) => type === 'application/openmetrics-text' && (version ?? '1.0.0') === '1.0.0');
  const text = best(({ type, version }) => type === 'text/plain' && (version ?? '0.0.4') === '0.0.4');
  return openMetrics > 0 && openMetrics >= text ? 'openmetrics' : 'text';
}

function toRange(text: string): MediaRange {
  const [type = '', ...rest] = text.split(';').map((piece) => piece.trim().toLowerCase());
  const parameters = new Map(rest.map((piece) => [piece.split('=')[0] ?? '', piece.split('=')[1]?.replaceAll('"', '')]));
  const quality = Number(parameters.get('q') ?? 1);
  return { type, version: parameters.get('version'), quality: quality >= 0 && quality <= 1 ? quality : 0 };
}
