/** Tries what a config connects to: the store, and the app of every route. Only `sidegate check --connect` does; nothing is written. */
import { randomBytes } from 'node:crypto';
import type { LoadedConfig } from '../../config/load/load.ts';
import type { Problem } from '../../config/schema/problem.ts';
import type { SocketAddress } from '../../config/schema/scalars.ts';
import type { Clock, Milliseconds } from '../../core/clock.ts';
import { toErrorText } from '../../core/errors.ts';
import { toAddressText } from '../../core/listen-address.ts';
import { formatAddress, toCause } from '../../state/redis/outage.ts';
import { DialFailure, dial, systemResolve } from '../egress-proxy/dial.ts';
import { openStore, type StoreSettings } from './store.ts';

/** What is tried. */
interface Connecting {
  readonly loaded: LoadedConfig;
  readonly store: StoreSettings;
}

/** What the attempts showed. */
export interface ConnectionReport {
  /** One error for each connection that failed. */
  readonly problems: readonly Problem[];
  /** One line for each that succeeded. */
  readonly notes: readonly string[];
}

interface Attempt {
  readonly path: string;
  readonly title: string;
  readonly hint: string;
  /** Undefined after a success. */
  readonly failure: string | undefined;
}

/** Tries everything at once, each within its own timeout of the config. */
export async function tryConnections(file: string, { loaded, store }: Connecting, clock: Clock): Promise<ConnectionReport> {
  const { routes } = loaded.config;
  const upstreams = new Map(
    routes.map(({ upstream, connectTimeout }, index) => [
      `http://${toAddressText(upstream.host, upstream.port)}`,
      { upstream, connectTimeout, index },
    ]),
  );
  const attempts = await Promise.all([
    ...(store.redis === undefined ? [] : [tryStore(store, store.redis, clock)]),
    ...[...upstreams].map(([title, { upstream, connectTimeout, index }]) =>
      tryUpstream(upstream, connectTimeout, { title, index }, clock),
    ),
  ]);
  const failed = attempts.filter(({ failure }) => failure !== undefined);
  return {
    problems: failed.map(({ path, failure = '', hint }) => ({
      severity: 'error',
      file,
      ...loaded.locate(path),
      path,
      message: failure,
      hint,
    })),
    notes: attempts.filter(({ failure }) => failure === undefined).map(({ title }) => `${title}: connected`),
  };
}

async function tryUpstream(
  { host, port }: SocketAddress,
  timeout: Milliseconds,
  { title, index }: { readonly title: string; readonly index: number },
  clock: Clock,
): Promise<Attempt> {
  const attempt = { path: `routes.${index}.upstream`, title, hint: 'start the app, or name the address that it listens on' };
  try {
    (await dial(await systemResolve(host), port, timeout, clock)).destroy();
    return { ...attempt, failure: undefined };
  } catch (thrown) {
    const cause = thrown instanceof DialFailure && thrown.isTimeout ? thrown.message : toCause(thrown as NodeJS.ErrnoException);
    return { ...attempt, failure: `the app at ${title} cannot be reached: ${cause}` };
  }
}

/** Looks up an id that does not exist: this proves the address, TLS, the password and the right to run scripts. */
async function tryStore(settings: StoreSettings, redis: NonNullable<StoreSettings['redis']>, clock: Clock): Promise<Attempt> {
  const title = `Redis at ${formatAddress(redis.topology)}`;
  const attempt = { path: 'store.redis', title, hint: 'start Redis, or correct its address, user, password or TLS' };
  let onSettled: (failure?: string) => void = () => undefined;
  const settled = new Promise<string | undefined>((resolve) => {
    onSettled = resolve;
  });
  const store = openStore(settings, clock, {
    onUp: () => onSettled(),
    onDown: ({ message }) => onSettled(message),
    onWarning: () => undefined,
    onAttemptsFull: () => undefined,
  });
  const cancel = clock.after(redis.connectTimeout + redis.commandTimeout, () => onSettled(`${title} does not reply in time`));
  try {
    const failure = await settled;
    if (failure === undefined) await store.seenIds.forget(`check:${randomBytes(16).toString('hex')}`);
    return { ...attempt, failure };
  } catch (thrown) {
    return { ...attempt, failure: toErrorText(thrown) };
  } finally {
    cancel();
    await store.close();
  }
}
