/** `sidegate overview`: shows the state of a running sidegate: its config, its store and each route. */
import type { Overview, RouteOverview } from '../admin/console/schemas.ts';
import { keepAlive, type Milliseconds, pause, systemClock } from '../core/clock.ts';
import { toPrintable } from '../core/text.ts';
import type { ApiClient } from './api-client.ts';
import { type ApiCommand, FORMAT } from './api-command.ts';
import { formatMembers, formatTable } from './api-output.ts';
import { EXIT } from './io.ts';

const HASH_LENGTH = 12;
/** Other replicas look every two seconds whether a console is open. */
const SHARED_AFTER_MS: Milliseconds = 3_000;

export const OVERVIEW: ApiCommand<unknown> & { readonly api: 'admin' } = {
  description:
    'show the config, the store and the routes of a running sidegate; exit 1 if its last reload failed or its store is down',
  api: 'admin',
  options: [FORMAT],
  async run({ client, print }) {
    const overview = await read(client);
    print(overview, formatOverview);
    return overview.config.lastReload.isSuccessful && overview.store.isUp ? EXIT.ok : EXIT.failed;
  },
};

/** With Redis, the first call asks the other replicas for their figures. */
async function read(client: ApiClient): Promise<Overview> {
  const first = (await client.request('GET', '/overview')) as Overview;
  if (first.store.kind === 'memory' || !first.store.isUp || first.replicas.length > 1) return first;
  const release = keepAlive();
  await pause(systemClock, SHARED_AFTER_MS);
  release();
  return (await client.request('GET', '/overview')) as Overview;
}

function formatOverview({ replica, replicas, version, config, store, routes, unmatched }: Overview): string {
  const { hash, loadedAt, lastReload } = config;
  return [
    formatMembers([
      ['replica', `${replica}, sidegate ${version}`],
      ['requests of', replicas.length > 1 ? `${replicas.length} replicas: ${replicas.join(', ')}` : undefined],
      ['config', `${hash.slice(0, HASH_LENGTH)}, loaded ${loadedAt}`],
      ['last reload', lastReload.isSuccessful ? undefined : `failed ${lastReload.at}`],
      ['store', `${store.kind}, ${store.isUp ? 'up' : 'down'}`],
      ['without a route', `${unmatched} recent requests`],
    ]),
    lastReload.problems.map((problem) => `${problem.split('\n').map(toPrintable).join('\n')}\n`).join(''),
    formatTable(routes, [
      ['ROUTE', ({ name }) => name],
      ['MODE', ({ mode }) => mode],
      ['RATE', ({ lastMinutes }) => `${lastMinutes.perSecond.toFixed(1)}/s`],
      ['FAILED', ({ lastMinutes: { failed, requests } }) => formatShare(failed, requests)],
      ['REJECTED', ({ lastMinutes: { rejected, requests } }) => formatShare(rejected, requests)],
      ['APP P95', ({ recent }) => formatP95(recent.appMs)],
      ['SIDEGATE P95', ({ recent }) => formatP95(recent.overheadMs)],
      ['LAST SEEN', ({ lastAt }) => lastAt ?? ''],
      ['RECENTLY REJECTED', ({ recent }) => formatReasons(recent.rejected)],
    ]),
  ]
    .filter((part) => part !== '')
    .join('\n');
}

function formatReasons(counts: Readonly<Record<string, number>>): string {
  const sorted = Object.entries(counts).sort(([, a], [, b]) => b - a);
  return sorted.map(([reason, count]) => `${count} ${reason}`).join(', ');
}

function formatP95(percentiles: RouteOverview['recent']['appMs']): string {
  return percentiles === null ? '' : `${percentiles.p95.toFixed(1)} ms`;
}

function formatShare(count: number, of: number): string {
  return count === 0 ? '0' : `${count} (${Math.ceil((100 * count) / of)} %)`;
}
