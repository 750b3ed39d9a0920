/** Tests the connections of a config, to the store, the queue and the app of every route, for `sidegate check --connect`. */
import type { LoadedConfig } from '../config/load/load.ts';
import type { SocketAddress } from '../config/schema/scalars.ts';
import type { Clock, Milliseconds } from '../core/clock.ts';
import { toAddressText } from '../core/listen-address.ts';
import { error, type LocatedProblem, type Path } from '../core/problem.ts';
import { DialFailure, dial, Opening } from '../http/dial/dial.ts';
import { systemResolve } from '../http/dial/resolve.ts';
import { formatAddress, toCause } from '../state/redis/outage.ts';
import type { ProviderRead } from './provider-settings.ts';
import { openStore, type StoreSettings } from './store.ts';

/** The config to test. */
interface ConnectionTargets {
  readonly loaded: LoadedConfig;
  readonly store: StoreSettings;
  readonly provider: ProviderRead | undefined;
}

/** The results. */
interface ConnectionReport {
  /** One error for each connection that failed. */
  readonly problems: readonly LocatedProblem[];
  /** One line for each that succeeded. */
  readonly notes: readonly string[];
}

interface ConnectionTest {
  readonly path: Path;
  readonly title: string;
  readonly hint: string;
  /** Undefined after a success. */
  readonly failure: string | undefined;
}

/** Tests all connections at once, each with its timeout from the config. */
export async function testConnections({ loaded, store, provider }: ConnectionTargets, clock: Clock): Promise<ConnectionReport> {
  const { routes } = loaded.config;
  const upstreams = new Map(
    routes.map(({ upstream, connectTimeout }, index) => [
      `http://${toAddressText(upstream.host, upstream.port)}`,
      { upstream, connectTimeout, index },
    ]),
  );
  const tests = await Promise.all([
    ...(provider?.testDatabases() ?? []),
    ...(store.redis === undefined ? [] : [testStore(store, store.redis, clock)]),
    ...[...upstreams].map(([title, { upstream, connectTimeout, index }]) =>
      testUpstream(upstream, connectTimeout, { title, index }, clock),
    ),
  ]);
  const failed = tests.filter(({ failure }) => failure !== undefined);
  return {
    problems: failed.map(({ path, failure = '', hint }) => loaded.locate(error(path, failure, hint))),
    notes: tests.filter(({ failure }) => failure === undefined).map(({ title }) => `${title}: connected`),
  };
}

async function testUpstream(
  { host, port }: SocketAddress,
  timeout: Milliseconds,
  { title, index }: { readonly title: string; readonly index: number },
  clock: Clock,
): Promise<ConnectionTest> {
  const test = { path: ['routes', index, 'upstream'], title, hint: 'start the app, or set the address that it listens on' };
  try {
    (await dial(await systemResolve(host), port, new Opening(timeout), clock)).destroy();
    return { ...test, failure: undefined };
  } catch (thrown) {
    const cause =
      thrown instanceof DialFailure && thrown.kind === 'timeout' ? thrown.message : toCause(thrown as NodeJS.ErrnoException);
    return { ...test, failure: `the app at ${title} cannot be reached: ${cause}` };
  }
}

/** The store counts as up once it has executed each operation that a delivery needs, on keys that expire. */
async function testStore(
  settings: StoreSettings,
  redis: NonNullable<StoreSettings['redis']>,
  clock: Clock,
): Promise<ConnectionTest> {
  const title = `Redis at ${formatAddress(redis.topology)}`;
  let onSettled: (result: { readonly failure?: string; readonly hint?: string }) => void = () => undefined;
  const settled = new Promise<Parameters<typeof onSettled>[0]>((resolve) => {
    onSettled = resolve;
  });
  const store = openStore(settings, clock, {
    onUp: () => onSettled({}),
    onDown: ({ message, hint }) => onSettled({ failure: message, hint }),
    onWarning: () => undefined,
    onAttemptsFull: () => undefined,
  });
  const cancel = clock.after(redis.connectTimeout + redis.commandTimeout, () =>
    onSettled({ failure: `${title} did not reply in time` }),
  );
  try {
    const { failure, hint = 'start Redis, or correct its address' } = await settled;
    return { path: ['store', 'redis'], title, hint, failure };
  } finally {
    cancel();
    await store.close();
  }
}
