/** Finds all problems that are detectable before the first request: in the config, the secrets and the store's files. */

import { type LoadedConfig, loadConfig } from '../config/load/load.ts';
import type { Overrides } from '../config/load/overrides.ts';
import { describeNeighbors } from '../config/rules/validate-neighbors.ts';
import { describeStoredSecrets } from '../config/rules/validate-provider.ts';
import { type Config, realmsOf } from '../config/schema/config.ts';
import { type OtlpRead, readOtlpSettings } from '../config/sources/otlp-settings.ts';
import { readTls, type TlsRead } from '../config/sources/tls-files.ts';
import { type Fingerprints, toFingerprints } from '../config/sources/watch.ts';
import type { Clock } from '../core/clock.ts';
import { error, isError, type LocatedProblem } from '../core/problem.ts';
import { findBcryptProblem } from '../users/native-bcrypt.ts';
import { type AdminTokenRead, readAdminToken } from './admin.ts';
import { type CompiledRoute, compileRoutes, loadBodyModule } from './compiled-route.ts';
import { testConnections } from './connections.ts';
import { type IdentityRead, readIdentity } from './identity.ts';
import { findExpiredKeys, type KeysRead, readKeys } from './keys.ts';
import { findOversize } from './oversize.ts';
import { type ProviderRead, readProvider } from './provider-settings.ts';
import { separateSecrets } from './shared-secrets.ts';
import { readStoreSettings, type StoreSettings } from './store.ts';
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
  const store = await readStoreSettings(loaded.config.store);
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
