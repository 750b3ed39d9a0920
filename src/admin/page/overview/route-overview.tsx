/** One route: rates, outcomes, times, clock differences and keys. */
import type { JSX } from 'preact';
import type { RouteOverview as Route } from '../../console/schemas.ts';
import { ColumnHeads } from '../elements.tsx';
import { formatMs, formatTime, toWords } from '../format.ts';
import { RateChart } from './rate-chart.tsx';

const PERCENTILES = ['p50', 'p95', 'p99'] as const;

/** The section of a route. */
export function RouteOverview({ route }: { readonly route: Route }): JSX.Element {
  const { name, mode, scheme, rates, recent, sinceStart, keys } = route;
  const reasons = sortByCount(recent.rejected);
  return (
    <section class="panel" aria-labelledby={`route-${name}`}>
      <h2 id={`route-${name}`}>
        <a href={`/?route=${encodeURIComponent(name)}`}>{name}</a>{' '}
        <span class="aside">{[scheme, mode === 'observe' ? 'observed only' : null].filter(Boolean).join(', ')}</span>
      </h2>
      <RateChart rates={rates} route={name} />
      <p>
        {sinceStart.accepted.toLocaleString('en')} passed the checks since the start. Recently {recent.requests} requests:{' '}
        {Object.entries(recent.outcomes)
          .filter(([, count]) => count > 0)
          .map(([outcome, count]) => `${count} ${outcome}`)
          .join(', ')}
        .
      </p>
      <div class="columns">
        {reasons.length > 0 && (
          <Bars caption="Recently rejected" kind="rejected" bars={reasons.map(([reason, count]) => [toWords(reason), count])} />
        )}
        <Times recent={recent} />
        {recent.skew.some(({ count }) => count > 0) && (
          <Bars
            caption="Difference of clocks"
            kind="forwarded"
            bars={recent.skew.map(({ upToSeconds, count }) => [toRange(upToSeconds), count])}
          />
        )}
        {keys.length > 0 && <Keys keys={keys} />}
      </div>
      {Object.keys(sinceStart.observed).length > 0 && (
        <p class="notice">
          In observe mode since the start, forwarded although not valid:{' '}
          {sortByCount(sinceStart.observed)
            .map(([reason, count]) => `${count} ${toWords(reason)}`)
            .join(', ')}
          .
        </p>
      )}
    </section>
  );
}

function Times({ recent: { overheadMs, appMs } }: Pick<Route, 'recent'>): JSX.Element | null {
  if (overheadMs === null || appMs === null) return null;
  return (
    <table class="figures">
      <caption>Time</caption>
      <thead>
        <tr>
          <td />
          <ColumnHeads names={PERCENTILES} />
        </tr>
      </thead>
      <tbody>
        {(
          [
            ['sidegate', overheadMs],
            ['app', appMs],
          ] as const
        ).map(([name, values]) => (
          <tr key={name}>
            <th scope="row">{name}</th>
            {PERCENTILES.map((percentile) => (
              <td key={percentile} class="number">
                {formatMs(values[percentile])}
              </td>
            ))}
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function Keys({ keys }: Pick<Route, 'keys'>): JSX.Element {
  return (
    <table class="figures">
      <caption>Keys</caption>
      <tbody>
        {keys.map(({ name, matches, lastUsed }) => (
          <tr key={name}>
            <th scope="row">{name}</th>
            <td>{lastUsed === null ? 'never used' : `used ${formatTime(lastUsed)}`}</td>
            <td class="number">{matches.toLocaleString('en')}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

function toRange(upToSeconds: number | null): string {
  if (upToSeconds === null) return 'more';
  return upToSeconds === 0 ? 'none' : `up to ${upToSeconds} s`;
}

function sortByCount(counts: Readonly<Record<string, number>>): [string, number][] {
  return Object.entries(counts).sort(([, a], [, b]) => b - a);
}

interface BarsProps {
  readonly caption: string;
  readonly bars: readonly (readonly [name: string, count: number])[];
  /** Sets the color. */
  readonly kind: 'forwarded' | 'rejected';
}

/** The longest bar has the whole width. */
function Bars({ caption, bars, kind }: BarsProps): JSX.Element {
  const most = Math.max(1, ...bars.map(([, count]) => count));
  return (
    <table class="bars">
      <caption>{caption}</caption>
      <tbody>
        {bars.map(([name, count]) => (
          <tr key={name}>
            <th scope="row">{name}</th>
            <td class="number">{count.toLocaleString('en')}</td>
            <td class="bar">
              <svg viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">
                <rect class={kind} width={(100 * count) / most} height="10" />
              </svg>
            </td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
