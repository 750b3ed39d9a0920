/** A chart of rates over time. The lines differ by dashes, too, and the figures are also in a text. */
import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import type { RouteOverview } from '../../console/schemas.ts';
import { formatTime } from '../format.ts';

/** Requests per second in an interval. */
interface RatePoint {
  /** The end of the interval, in Unix milliseconds. */
  readonly at: number;
  readonly accepted: number;
  readonly failed: number;
  readonly rejected: number;
}

const WIDTH = 600;
const HEIGHT = 140;
const SERIES = ['accepted', 'failed', 'rejected'] as const;
/** Of the axis of time. */
const TICKS = 6;
/** Steps of the scale: 1, 2 or 5 times a power of ten. */
const STEPS = [1, 2, 5, 10] as const;

interface ChartProps extends Pick<RouteOverview, 'rates'> {
  readonly route: string;
}

/** Shows the newest point, or the one under the pointer or chosen with the arrow keys. */
export function RateChart({ rates, route }: ChartProps): JSX.Element | null {
  const points = rates === null ? [] : toPoints(rates);
  const [pointed, setPointed] = useState<number>();
  const last = points.length - 1;
  const index = Math.min(pointed ?? last, last);
  const shown = points[index];
  const first = points[0];
  const newest = points[last];
  if (rates === null) return null;
  if (shown === undefined || first === undefined || newest === undefined || last < 1)
    return <p class="hint">The rate appears here {2 * rates.intervalSeconds} seconds after the start.</p>;
  const top = toTop(Math.max(...points.flatMap((point) => SERIES.map((name) => point[name]))));
  const follow = ({ clientX, currentTarget }: PointerEvent): void => {
    const { left, width } = (currentTarget as HTMLElement).getBoundingClientRect();
    setPointed(Math.round(((clientX - left) / width) * last));
  };
  const step = (event: KeyboardEvent): void => {
    const to = toStep(event.key, index, last);
    if (to === undefined) return;
    event.preventDefault();
    setPointed(to);
  };
  return (
    <figure class="chart">
      <figcaption>
        {formatTime(toText(shown))}:
        {SERIES.map((name) => (
          <span key={name} class={`key ${name}`}>
            {toRate(shown[name])} {name}
          </span>
        ))}
      </figcaption>
      <div
        role="slider"
        aria-label={`Requests per second of ${route}`}
        aria-valuemin={0}
        aria-valuemax={last}
        aria-valuenow={index}
        aria-valuetext={`${formatTime(toText(shown))}: ${SERIES.map((name) => `${toRate(shown[name])} ${name}`).join(', ')}`}
        tabIndex={0}
        onKeyDown={step}
        onBlur={() => setPointed(undefined)}
        onPointerMove={follow}
        onPointerLeave={() => setPointed(undefined)}
      >
        <Plot points={points} top={top} cursor={pointed === undefined ? undefined : index} />
        <div class="rates" aria-hidden="true">
          {[top, top / 2, 0].map((rate) => (
            <span key={rate}>{toRate(rate)}</span>
          ))}
        </div>
      </div>
      <div class="scale" aria-hidden="true">
        {Array.from({ length: TICKS }, (_, i) => (
          <span key={i}>{formatTime(toText({ at: first.at + ((newest.at - first.at) * i) / (TICKS - 1) }))}</span>
        ))}
      </div>
    </figure>
  );
}

interface PlotProps {
  readonly points: readonly RatePoint[];
  /** The largest rate of the scale. */
  readonly top: number;
  /** The marked point. */
  readonly cursor: number | undefined;
}

function Plot({ points, top, cursor }: PlotProps): JSX.Element {
  const toX = (index: number): number => (WIDTH * index) / (points.length - 1);
  const toY = (rate: number): number => HEIGHT - (HEIGHT * rate) / top;
  return (
    <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" aria-hidden="true">
      {[0, 0.5, 1].map((share) => (
        <line key={share} class="grid" x1="0" x2={WIDTH} y1={toY(top * share)} y2={toY(top * share)} />
      ))}
      {SERIES.map((name) => (
        <polyline key={name} class={name} points={points.map((point, index) => `${toX(index)},${toY(point[name])}`).join(' ')} />
      ))}
      {cursor !== undefined && <line class="cursor" x1={toX(cursor)} x2={toX(cursor)} y1="0" y2={HEIGHT} />}
    </svg>
  );
}

/** In whole seconds. */
function toText({ at }: Pick<RatePoint, 'at'>): string {
  return new Date(at).toISOString().replace(/\.\d+/, '');
}

/** Where a key leads; undefined for other keys. */
function toStep(key: string, from: number, last: number): number | undefined {
  switch (key) {
    case 'ArrowLeft':
      return Math.max(0, from - 1);
    case 'ArrowRight':
      return Math.min(last, from + 1);
    case 'Home':
      return 0;
    case 'End':
      return last;
    default:
      return undefined;
  }
}

function toPoints({ intervalSeconds, until, accepted, failed, rejected }: NonNullable<RouteOverview['rates']>): RatePoint[] {
  const end = Date.parse(until);
  return accepted.map((count, index) => ({
    at: end - (accepted.length - 1 - index) * intervalSeconds * 1_000,
    accepted: count / intervalSeconds,
    failed: (failed[index] ?? 0) / intervalSeconds,
    rejected: (rejected[index] ?? 0) / intervalSeconds,
  }));
}

export function toRate(perSecond: number): string {
  return `${perSecond < 10 ? perSecond.toFixed(1) : Math.round(perSecond)}/s`;
}

/** A round value above the largest one. */
function toTop(largest: number): number {
  const power = 10 ** Math.floor(Math.log10(Math.max(largest, 1)));
  return power * (STEPS.find((step) => step * power >= largest) ?? 10);
}
