/** Finds all problems that are detectable before the first request: in the config, the secrets, the store's files and the memory. */

import { getHeapStatistics } from 'node:v8';
import { toConfigHeap } from '../config/load/document.ts';
import { type LoadedConfig, loadConfig, type Overrides } from '../config/load/load.ts';
import { describeNeighbors } from '../config/rules/validate-neighbors.ts';
import { describeStoredSecrets } from '../config/rules/validate-provider.ts';
import { type Config, realmsOf } from '../config/schema/config.ts';
import type { SocketAddress } from '../config/schema/scalars.ts';
import { BYTES_PER_ID } from '../config/schema/store-schema.ts';
import { type OtlpRead, readOtlpSettings } from '../config/sources/otlp-settings.ts';
import { readTls, type TlsRead } from '../config/sources/secrets.ts';
import { type Fingerprints, toFingerprints } from '../config/sources/watch.ts';
import type { Clock, Milliseconds } from '../core/clock.ts';
import { toAddressText } from '../core/listen-address.ts';
import { error, isError, type LocatedProblem, type Path, type Problem, warning } from '../core/problem.ts';
import { LARGE_BYTES } from '../core/throttle.ts';
import { DialFailure, dial, Opening } from '../http/dial/dial.ts';
import { systemResolve } from '../http/dial/resolve.ts';
import { readContainerMemory, toFreeBytes, toMemoryBudget } from '../http/server/memory.ts';
import { formatAddress, toCause } from '../state/redis/redis-store.ts';
import { findBcryptProblem } from '../users/password-hash.ts';
import { type AdminTokenRead, readAdminToken } from './admin.ts';
import { type CompiledRoute, compileRoutes, loadBodyModule } from './compiled-route.ts';
import { findExpiredKeys, type IdentityRead, type KeysRead, readIdentity, readKeys } from './keys.ts';
import { type ProviderRead, readProvider } from './provider-settings.ts';
import { separateSecrets } from './shared-secrets.ts';
import { openStore, readStoreSettings, type StoreSettings } from './store.ts';
import { type RealmRead, readRealms } from './users.ts';
import { toFiles } from './watched-sources.ts';
import { FIRST_WORKER, toShare, type WorkerPlace } from './workers/share.ts';

/** A valid config, and the contents of the files and secrets that it refers to. */
export interface PreparedConfig {
  readonly loaded: LoadedConfig;
  readonly routes: readonly CompiledRoute[];
  /** For each route. */
  readonly keys: readonly KeysRead[];
  readonly realms: readonly RealmRead[];
  readonly identity: IdentityRead | undefined;
  readonly tls: TlsRead | undefined;
  readonly proxyTls: TlsRead | undefined;
  readonly authzTls: TlsRead | undefined;
  readonly adminToken: AdminTokenRead;
  readonly tracing: OtlpRead;
  readonly provider: ProviderRead | undefined;
  readonly store: StoreSettings;
  /** Fingerprints of the files, from before they were read. */
  readonly seen: Fingerprints;
  /** Warnings only. */
  readonly problems: readonly LocatedProblem[];
}

/** A prepared config, or the problems that prevent it. */
export type PrepareResult =
  | PreparedConfig
  | { readonly loaded: undefined; readonly seen: Fingerprints; readonly problems: readonly LocatedProblem[] };

/**
 * Loads the config and reads what it refers to; `overrides`: values from the command line that replace the file's. With several workers
 * it is the config of the one at `place`.
 */
export async function prepare(
  file: string,
  clock: Clock,
  overrides?: Overrides,
  place: WorkerPlace = FIRST_WORKER,
  text?: string | LocatedProblem,
): Promise<PrepareResult> {
  const configFingerprint = await toFingerprints([file]);
  const loaded = await loadConfig(file, clock, { overrides }, text);
  if (loaded.config === undefined) {
    const { problems, rest } = loaded;
    // Report all problems at once: read what the valid sections refer to as well.
    const more =
      rest === undefined ? [] : (await readParts({ ...rest, problems: [], hash: '' }, clock, configFingerprint)).problems;
    return { loaded: undefined, seen: configFingerprint, problems: [...problems, ...more] };
  }
  const seen = new Map([...configFingerprint, ...(await toFingerprints(toFiles(loaded.config)))]);
  return readParts(toShare(loaded, place), clock, seen);
}

/** Reads what a valid config refers to. */
export async function readParts(loaded: LoadedConfig, clock: Clock, seen: Fingerprints): Promise<PrepareResult> {
  const oversize = findOversize(loaded.config);
  // Compiling it would end the process.
  if (oversize.some(isError)) return { loaded: undefined, seen, problems: [...loaded.problems, ...oversize.map(loaded.locate)] };
  const routes = compileRoutes(loaded.config, await loadBodyModule(loaded.config));
  const readSeparately = await Promise.all(routes.map((route, index) => readKeys(route, index)));
  const { keys, others } = await separateSecrets(loaded.config, routes, readSeparately);
  const expired = keys.flatMap((read, index) => findExpiredKeys(routes[index] as CompiledRoute, read, index, clock.now()));
  const realms = await readRealms(loaded.config);
  const [firstRealm] = realmsOf(loaded.config);
  const fault = firstRealm && (await findBcryptProblem());
  const bcrypt = firstRealm === undefined || fault === undefined ? [] : [error(firstRealm.path, fault.problem, fault.hint)];
  const identity = await readIdentity(loaded.config.identity);
  const adminToken = await readAdminToken(loaded.config.admin);
  const tls = await readTls(loaded.config.listen.tls, ['listen', 'tls'], clock);
  const proxyTls = await readTls(loaded.config.proxy?.tls, ['proxy', 'tls'], clock);
  const authzTls = await readTls(loaded.config.authz?.tls, ['authz', 'tls'], clock);
  const tracing = await readOtlpSettings(loaded.config.tracing);
  const provider = await readProvider(loaded.config, clock);
  const store = await readStoreSettings(loaded.config);
  const reads = [...keys, ...realms, identity, adminToken, tls, proxyTls, authzTls, tracing, provider];
  const found = [oversize, expired, bcrypt, ...reads.map((read) => read?.problems ?? []), others, store.problems].flat();
  const problems = [...loaded.problems, ...found.map(loaded.locate)];
  if (problems.some(isError)) return { loaded: undefined, seen, problems };
  return {
    loaded,
    routes,
    keys,
    realms,
    identity,
    adminToken,
    tls,
    proxyTls,
    authzTls,
    tracing,
    provider,
    store,
    seen,
    problems,
  };
}

/** The report of `sidegate check`. */
interface ConfigReport {
  /** Errors and warnings, in the order of the file. */
  readonly problems: readonly LocatedProblem[];
  /** How overlapping routes are distinguished, and what is not encrypted; empty if the config has errors. */
  readonly notes: readonly string[];
}

/** Checks a config file. */
export async function reportConfig(
  file: string,
  clock: Clock,
  options: {
    readonly overrides?: Overrides | undefined;
    /** Also tests the connections to the store and the upstreams, if the config has no errors. */
    readonly connects?: boolean;
    /** The config, or why it could not be read, if it does not come from the file. */
    readonly text?: string | LocatedProblem | undefined;
  } = {},
): Promise<ConfigReport> {
  const ready = await prepare(file, clock, options.overrides, FIRST_WORKER, options.text);
  const { loaded } = ready;
  const connections = options.connects === true && ready.loaded !== undefined ? await testConnections(ready, clock) : undefined;
  const problems = [...ready.problems, ...(connections?.problems ?? [])];
  return {
    problems: problems.sort((a, b) => (a.line ?? 0) - (b.line ?? 0) || (a.column ?? 0) - (b.column ?? 0)),
    notes: loaded === undefined ? [] : toNotes(loaded.config).concat(connections?.notes ?? []),
  };
}

function toNotes(config: Config): string[] {
  return [...describeNeighbors(config.routes), ...describeStoredSecrets(config)];
}

/** All problems of a config file, errors and warnings, in the order of the file. */
export async function checkConfig(file: string, clock: Clock, overrides?: Overrides): Promise<readonly LocatedProblem[]> {
  return (await reportConfig(file, clock, { overrides })).problems;
}

// Finds settings of a config that exceed the memory of the container or the heap.

const MIB = 1024 * 1024;
/** The smallest limit under which floods of large events did not get a sender killed (bench/RESULTS-provider-memory.md). */
const MIN_PROVIDER_BYTES = 192 * MIB;
/** The heap of each while it is in use: 35, 14 and 10 KiB were measured. */
export const [WEBHOOK_ROUTE_BYTES, ROUTE_BYTES, ENDPOINT_BYTES] = [36 * 1024, 16 * 1024, 10 * 1024];
/** A config of this size is accepted with any memory limit. */
const MIN_CONFIG_BYTES = MIB;
/** As often, a delivery of an inbox and an event of the API are in memory while they are stored; measured. */
const [DELIVERY_COPIES, EVENT_COPIES, POSTGRES_COPIES] = [4, 8, 9];
/** The share of the heap that IDs in memory may use without a warning. */
const MAX_IDS_SHARE = 1 / 2;

/**
 * Finds settings that exceed the memory of the container or the heap, with the path, the problem and the fix. An error is a config that would end the
 * process, now or when it is reloaded.
 */
export function findOversize(
  config: Config,
  budget = toMemoryBudget(config.limits, readContainerMemory()),
  heapBytes = getHeapStatistics().heap_size_limit,
): Problem[] {
  const { limit, maxBufferedBytes } = budget;
  const found = findTooMany(config, heapBytes, limit);
  // Each worker has a part of it.
  if (limit !== undefined && (config.limits.maxBufferedBytes ?? 0) * config.workers > toFreeBytes(limit))
    found.push(
      warning(
        ['limits', 'maxBufferedBytes'],
        `${toMebibytes(maxBufferedBytes)} of bodies do not fit into this container: its memory limit is ${toMebibytes(limit)}, and the process itself needs ${toMebibytes(limit - toFreeBytes(limit))}`,
        'omit it, so that it follows the memory limit, or raise the memory limit',
      ),
    );
  if (config.provider !== undefined && limit !== undefined && limit < MIN_PROVIDER_BYTES)
    found.push(
      warning(
        ['provider'],
        `sending webhooks needs ${toMebibytes(MIN_PROVIDER_BYTES)}, and the memory limit of this container is ${toMebibytes(limit)}: many large events at once can get it killed`,
        'raise the memory limit, or lower provider.maxEventSize',
      ),
    );
  if (limit !== undefined) found.push(...findTooLarge(config, limit));
  const { redis, memory } = config.store;
  const idBytes = memory.maxIds * BYTES_PER_ID;
  if (redis === undefined && idBytes > heapBytes * MAX_IDS_SHARE)
    found.push(
      warning(
        ['store', 'memory', 'maxIds'],
        `${memory.maxIds} IDs can use ${toMebibytes(idBytes)}, and the heap of this process has ${toMebibytes(heapBytes)}`,
        'omit it, so that it follows the heap, use Redis, or raise the memory limit',
      ),
    );
  for (const [index, { webhook }] of config.routes.entries()) {
    if (webhook === undefined || webhook.maxBody <= maxBufferedBytes) continue;
    found.push(
      warning(
        ['routes', index, 'webhook', 'maxBody'],
        `a body of ${toMebibytes(webhook.maxBody)} is always rejected with 503, as limits.maxBufferedBytes is ${toMebibytes(maxBufferedBytes)} here`,
        'lower maxBody, or raise limits.maxBufferedBytes and the memory limit',
      ),
    );
  }
  return found;
}

/** Events and deliveries of an inbox that are too large for the memory beside the process, up to where large bodies are rejected: to store, or with the role `deliver` to send. */
function findTooLarge({ provider, routes, limits, workers }: Config, limit: number): Problem[] {
  if (provider === undefined) return [];
  const room = toFreeBytes(limit * limits.memoryShed, workers);
  const isPostgres = provider.queue.postgres !== undefined;
  const sizes = [
    { path: ['provider', 'maxEventSize'], size: provider.maxEventSize, copies: isPostgres ? POSTGRES_COPIES : EVENT_COPIES },
    ...routes.map(({ webhook }, index) => {
      const size = webhook?.ack === 'onAccept' ? webhook.maxBody : 0;
      return { path: ['routes', index, 'webhook', 'maxBody'], size, copies: isPostgres ? POSTGRES_COPIES : DELIVERY_COPIES };
    }),
  ];
  return sizes.flatMap(({ path, size, copies }) => {
    if (size <= LARGE_BYTES || size * copies <= room) return [];
    const fits = Math.max(LARGE_BYTES / MIB, Math.floor(room / copies / MIB));
    const needed = Math.ceil((limit - room / limits.memoryShed + (size * copies) / limits.memoryShed) / MIB);
    return [
      warning(
        path,
        `the sending side has no memory to store or send ${toMebibytes(size)}: with the memory limit of ${toMebibytes(limit)}, ${fits}Mi fit; larger ones get 503 or are not sent, or many at once can get it killed`,
        `lower it to ${fits}Mi, or raise the memory limit to ${needed}Mi`,
      ),
    ];
  });
}

/** A reload holds the config before and the new one, in the heap of each worker. */
function findTooMany({ routes, provider, limits, workers }: Config, heapBytes: number, limit?: number): Problem[] {
  const webhooks = routes.filter(({ webhook }) => webhook !== undefined).length;
  const routeBytes = webhooks * WEBHOOK_ROUTE_BYTES + (routes.length - webhooks) * ROUTE_BYTES;
  const endpointBytes = (provider?.endpoints.length ?? 0) * ENDPOINT_BYTES;
  const hasWorkers = limit !== undefined && workers > 1;
  const room = hasWorkers ? toFreeBytes(limit * limits.memoryShed, workers) / workers / 2 : Number.POSITIVE_INFINITY;
  const most = Math.min(toConfigHeap(heapBytes), Math.max(MIN_CONFIG_BYTES, room));
  if (routeBytes + endpointBytes <= most) return [];
  const isRoutes = routeBytes > endpointBytes;
  const raise = `raise the memory limit${hasWorkers ? ' or lower workers' : ''} (docs/sizing.md)`;
  return [
    error(
      isRoutes ? ['routes'] : ['provider', 'endpoints'],
      `${routes.length} routes and ${provider?.endpoints.length ?? 0} endpoints need ${toMebibytes(routeBytes + endpointBytes)}, and ${hasWorkers ? `each of ${workers} workers` : 'the heap of this process'} has ${toMebibytes(most)} for a config`,
      isRoutes ? `${raise}, or distribute the routes over several deployments` : `${raise}, or create the endpoints with the API`,
    ),
  ];
}

function toMebibytes(bytes: number): string {
  return `${Number((bytes / MIB).toFixed(1))}Mi`;
}

// Tests the connections of a config, to the store, the queue and the app of every route, for `sidegate check --connect`.

interface ConnectionTest {
  readonly path: Path;
  readonly title: string;
  readonly hint: string;
  /** Undefined after a success. */
  readonly failure: string | undefined;
}

/** Tests all connections at once, each with its timeout from the config: one error for each that failed, one note for each that succeeded. */
async function testConnections(
  { loaded, store, provider }: Pick<PreparedConfig, 'loaded' | 'store' | 'provider'>,
  clock: Clock,
): Promise<ConfigReport> {
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
    onFull: () => undefined,
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
