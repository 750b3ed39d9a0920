/** The state of the gate and of each route. */
import type { JSX } from 'preact';
import type { Overview } from '../../console/overview-schemas.ts';
import { Facts } from '../facts.tsx';
import { formatBytes, formatTime } from '../format.ts';
import type { PageLocation } from '../location.ts';
import { ErrorNotice } from '../notices.tsx';
import { usePolled } from '../use-polled.ts';
import { RouteOverview } from './route-overview.tsx';
import { RouteTable } from './route-table.tsx';

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
  const { config, store, journal, routes, unmatched } = overview;
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
          <RouteTable routes={routes} shown={shown} onShow={(route) => place.go({ route })} />
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
