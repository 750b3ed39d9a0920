/** The state of the gate and of each route. */
import type { JSX } from 'preact';
import type { Overview } from '../../console/overview-schemas.ts';
import { Facts } from '../facts.tsx';
import { formatBytes, formatTime } from '../format.ts';
import { ErrorNotice } from '../notices.tsx';
import { usePolled } from '../use-polled.ts';
import { RouteOverview } from './route-overview.tsx';

const INTERVAL_MS = 5_000;
const HASH_LENGTH = 12;

/** The view. */
export function OverviewView(): JSX.Element {
  const { data, error } = usePolled<Overview>('/overview', INTERVAL_MS);
  return (
    <>
      <h1>Overview</h1>
      <ErrorNotice error={error} />
      {data === undefined ? error === undefined && <p>Loading…</p> : <Content overview={data} />}
    </>
  );
}

function Content({ overview }: { readonly overview: Overview }): JSX.Element {
  const { config, store, journal, routes, unmatched } = overview;
  const { lastReload } = config;
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
      {routes.length === 0 && <p class="empty">The config has no routes. Add one, and sidegate reloads it.</p>}
      {routes.map((route) => (
        <RouteOverview key={route.name} route={route} />
      ))}
    </>
  );
}
