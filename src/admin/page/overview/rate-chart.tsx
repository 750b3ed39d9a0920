/** A chart of rates over time. The lines differ by dashes, too, and the figures are also in a text. */
import type { JSX } from 'preact';
import { useState } from 'preact/hooks';
import { formatTime } from '../format.ts';
import type { RatePoint } from './rate-history.ts';

const WIDTH = 600;
const HEIGHT = 140;
const SERIES = ['accepted', 'rejected'] as const;
/** Steps of the scale: 1, 2 or 5 times a power of ten. */
const STEPS = [1, 2, 5, 10] as const;

/** Shows the newest point, or the one under the pointer. */
export function RateChart({ points, route }: { readonly points: readonly RatePoint[]; readonly route: string }): JSX.Element {
  const [pointed, setPointed] = useState<number>();
  const shown = points[Math.min(pointed ?? points.length - 1, points.length - 1)];
  if (shown === undefined || points.length < 2) return <p class="hint">The rate appears here after a few seconds.</p>;
  const top = toTop(Math.max(...points.flatMap(({ accepted, rejected }) => [accepted, rejected])));
  const toX = (index: number): number => (WIDTH * index) / (points.length - 1);
  const toY = (rate: number): number => HEIGHT - (HEIGHT * rate) / top;
  const follow = ({ clientX, currentTarget }: PointerEvent): void => {
    const { left, width } = (currentTarget as SVGElement).getBoundingClientRect();
    setPointed(Math.round(((clientX - left) / width) * (points.length - 1)));
  };
  return (
    <figure class="chart">
      <figcaption>
        {formatTime(new Date(shown.at).toISOString()).slice(0, -4)}:{' '}
        <span class="key accepted">{toRate(shown.accepted)} accepted</span>{' '}
        <span class="key rejected">{toRate(shown.rejected)} rejected</span>
      </figcaption>
      <svg
        viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
        preserveAspectRatio="none"
        role="img"
        aria-label={`Requests per second of ${route}, newest ${toRate(shown.accepted)} accepted, ${toRate(shown.rejected)} rejected`}
        onPointerMove={follow}
        onPointerLeave={() => setPointed(undefined)}
      >
        {[0, 0.5, 1].map((share) => (
          <line key={share} class="grid" x1="0" x2={WIDTH} y1={toY(top * share)} y2={toY(top * share)} />
        ))}
        {SERIES.map((name) => (
          <polyline
            key={name}
            class={name}
            points={points.map((point, index) => `${toX(index)},${toY(point[name])}`).join(' ')}
          />
        ))}
        {pointed !== undefined && (
          <line class="cursor" x1={toX(points.indexOf(shown))} x2={toX(points.indexOf(shown))} y1="0" y2={HEIGHT} />
        )}
      </svg>
      <div class="scale" aria-hidden="true">
        <span>{formatTime(new Date(points[0]?.at ?? 0).toISOString()).slice(0, -4)}</span>
        <span>scale: 0 to {toRate(top)}</span>
        <span>now</span>
      </div>
    </figure>
  );
}

function toRate(perSecond: number): string {
  return `${perSecond < 10 ? perSecond.toFixed(1) : Math.round(perSecond)}/s`;
}

/** A round value above the largest one. */
function toTop(largest: number): number {
  const power = 10 ** Math.floor(Math.log10(Math.max(largest, 1)));
  return power * (STEPS.find((step) => step * power >= largest) ?? 10);
}
