/** The state of the gate and of each route. */
import type { JSX } from 'preact';
import type { Overview } from '../../console/schemas.ts';
import { usePolled } from '../api.ts';
import { ColumnHeads, ErrorNotice, Facts } from '../elements.tsx';
import { formatBytes, formatMs, formatTime } from '../format.ts';
import type { PageLocation } from '../location.ts';
import { toRate } from './rate-chart.tsx';
import { RouteOverview } from './route-overview.tsx';

const INTERVAL_MS = 5_000;
const HASH_LENGTH = 12;

/** The view. */
export function OverviewView({ place }: { readonly place: PageLocation }): JSX.Element {
  const { data, error } = usePolled<Overview>('/overview', INTERVAL_MS);
  return (
    <>
      <h1>Overview</h1>
      <ErrorNotice error={error} />
      {data === undefined ? error === undefined && <p>Loading…</p> : <Content overview={data} place={place} />}
    </>
  );
}

function Content({ overview, place }: { readonly overview: Overview; readonly place: PageLocation }): JSX.Element {
  const { config, store, journal, replicas, routes, unmatched } = overview;
  const { lastReload } = config;
  const name = place.query.get('route');
  const shown = routes.find((route) => route.name === name) ?? routes[0];
  return (
    <>
      {!lastReload.isSuccessful && (
        <section class="notice bad">
          <h2>The reload at {formatTime(lastReload.at)} failed</h2>
          {lastReload.problems.map((problem) => (
            <pre key={problem}>{problem}</pre>
          ))}
          <p>The config before it stays in use. Fix the file: sidegate reads it again when it changes.</p>
        </section>
      )}
      {!store.isUp && (
        <p class="notice bad">
          The store ({store.kind}) does not respond. Routes follow their setting <code>onStoreError</code>; check Redis and the
          network to it.
        </p>
      )}
      {routes.length === 0 && <p class="empty">The config has no routes. Add one, and sidegate reloads it.</p>}
      {shown !== undefined && (
        <>
          <RouteTable routes={routes} replicas={replicas.length} shown={shown} onShow={(route) => place.go({ route })} />
          <RouteOverview key={shown.name} route={shown} />
        </>
      )}
      <Facts
        facts={[
          ['Config', `${config.hash.slice(0, HASH_LENGTH)}, loaded ${formatTime(config.loadedAt)}`],
          ['Store', `${store.kind}, ${store.isUp ? 'up' : 'down'}`],
          [
            'Recent requests',
            `${journal.kept.toLocaleString('en')} of ${journal.recorded.toLocaleString('en')} are kept (${formatBytes(journal.bytes)})`,
          ],
          ['Without a route', unmatched === 0 ? null : <a href="/?route=_unmatched">{unmatched} recent requests</a>],
        ]}
      />
    </>
  );
}

interface TableProps {
  /** Whose requests the table sums. */
  readonly replicas: number;
  readonly routes: Overview['routes'];
  readonly shown: Overview['routes'][number];
  readonly onShow: (route: string) => void;
}

/** Shares lead to the requests. */
function RouteTable({ routes, replicas, shown, onShow }: TableProps): JSX.Element {
  const total = { seconds: 0, perSecond: 0, requests: 0, failed: 0, rejected: 0 };
  for (const { lastMinutes } of routes) {
    for (const name of ['perSecond', 'requests', 'failed', 'rejected'] as const) total[name] += lastMinutes[name];
    total.seconds = Math.max(total.seconds, lastMinutes.seconds);
  }
  const minutes = Math.max(1, Math.round(total.seconds / 60));
  return (
    <table class="list routes">
      <caption>
        The last {minutes === 1 ? 'minute' : `${minutes} minutes`}
        {replicas > 1 && ` of ${replicas} replicas`}, worst route first
      </caption>
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
  readonly figures: Overview['routes'][number]['lastMinutes'];
}

function Figures({ route, figures }: FiguresProps): JSX.Element {
  const { perSecond, requests } = figures;
  return (
    <>
      <td class="number" data-label="Rate">
        {toRate(perSecond)}
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
