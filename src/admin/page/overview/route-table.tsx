/** All routes at a glance, the worst first. */
import type { JSX } from 'preact';
import type { RouteOverview } from '../../console/overview-schemas.ts';
import { ColumnHeads } from '../column-heads.tsx';
import { formatMs, formatTime } from '../format.ts';
import { toRate } from './rate-chart.tsx';

interface TableProps {
  readonly routes: readonly RouteOverview[];
  readonly shown: RouteOverview;
  readonly onShow: (route: string) => void;
}

/** Shares lead to the requests. */
export function RouteTable({ routes, shown, onShow }: TableProps): JSX.Element {
  const total = { seconds: 0, requests: 0, failed: 0, rejected: 0 };
  for (const { lastMinutes } of routes) {
    for (const name of ['requests', 'failed', 'rejected'] as const) total[name] += lastMinutes[name];
    total.seconds = Math.max(total.seconds, lastMinutes.seconds);
  }
  return (
    <table class="list routes">
      <caption>The last {Math.max(1, Math.round(total.seconds / 60))} minutes, worst route first</caption>
      <thead>
        <tr>
          <ColumnHeads names={['Route', 'Rate', 'Failed', 'Rejected', 'App p95', 'Last seen']} />
        </tr>
      </thead>
      <tbody>
        {routes.map(({ name, mode, lastMinutes, lastAt, recent }) => (
          <tr key={name} class={name === shown.name ? 'current' : undefined}>
            <th scope="row">
              <button type="button" class="link" aria-pressed={name === shown.name} onClick={() => onShow(name)}>
                {name}
              </button>{' '}
              {mode === 'observe' && <span class="outcome observed">observe</span>}
            </th>
            <Figures route={name} figures={lastMinutes} />
            <td class="number" data-label="App p95">
              {formatMs(recent.appMs?.p95 ?? null)}
            </td>
            <td class="time" data-label="Last seen">
              {lastAt === null ? '–' : formatTime(lastAt)}
            </td>
          </tr>
        ))}
      </tbody>
      <tfoot>
        <tr>
          <th scope="row">All routes</th>
          <Figures route={undefined} figures={total} />
          <td />
          <td />
        </tr>
      </tfoot>
    </table>
  );
}

interface FiguresProps {
  /** Undefined: of all routes. */
  readonly route: string | undefined;
  readonly figures: RouteOverview['lastMinutes'];
}

function Figures({ route, figures }: FiguresProps): JSX.Element {
  const { seconds, requests } = figures;
  return (
    <>
      <td class="number" data-label="Rate">
        {toRate(seconds === 0 ? 0 : requests / seconds)}
      </td>
      {(['failed', 'rejected'] as const).map((outcome) => (
        <td key={outcome} class="number" data-label={outcome === 'failed' ? 'Failed' : 'Rejected'}>
          {figures[outcome] === 0 ? (
            '0'
          ) : (
            <a class={`outcome ${outcome}`} href={`/?${new URLSearchParams({ ...(route !== undefined && { route }), outcome })}`}>
              {Math.ceil((100 * figures[outcome]) / requests)} %{' '}
              <span class="aside">{figures[outcome].toLocaleString('en')}</span>
            </a>
          )}
        </td>
      ))}
    </>
  );
}
