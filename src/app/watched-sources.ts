/** Reloads the files that the config refers to: webhook secrets, users, keys, certificates, tokens. Requests in flight keep what they started with. */
import { isDeepStrictEqual } from 'node:util';
import type { AdminAccess } from '../admin/router.ts';
import { type Config, type ListenTlsConfig, type RouteConfig, realmsOf } from '../config/schema/config.ts';
import { toProviderFiles } from '../config/sources/provider-files.ts';
import { readTls, toTlsFiles, toUserFiles } from '../config/sources/secrets.ts';
import type { Clock, Milliseconds } from '../core/clock.ts';
import { isError, type Path, type Problem } from '../core/problem.ts';
import { reportNextUpdate } from '../gateway/server-metrics.ts';
import type { IdentitySigner } from '../gateway/upstream/headers.ts';
import type { TlsContexts, TlsSettings } from '../http/server/tls.ts';
import type { Provider } from '../provider/runtime/provider.ts';
import type { KeyEvidence } from '../telemetry/log/key-evidence.ts';
import type { KeyRing, KeySet } from '../verify/schemes/keys.ts';
import { readAdminToken, toAdminFiles } from './admin.ts';
import type { CompiledRoute } from './compiled-route.ts';
import { type KeysRead, readIdentity, readKeys, toIdentityFiles, toKeyName, toSecretFiles } from './keys.ts';
import type { GateLogger } from './log-events.ts';
import type { Metrics } from './metrics.ts';
import { readProvider } from './provider-settings.ts';
import type { Realms } from './realms.ts';
import { separateSecrets } from './shared-secrets.ts';
import { type OpenedStore, readStoreSettings, toStoreFiles } from './store.ts';
import { type RealmRead, readRealms } from './users.ts';

/** A port whose certificates may be rotated. */
export interface WatchedTlsPort {
  /** Its config path. */
  readonly section: string;
  readonly config: ListenTlsConfig;
  readonly contexts: TlsContexts;
  refreshTls(): void;
}

/** The parts that a reload may replace, and the telemetry. */
export interface ReloadParts {
  readonly config: Config;
  readonly routes: readonly CompiledRoute[];
  readonly clock: Clock;
  readonly logger: GateLogger;
  readonly metrics: Metrics;
  readonly rings: ReadonlyMap<string, KeyRing>;
  readonly keyEvidence: KeyEvidence;
  readonly adminAccess: AdminAccess;
  readonly realms: Realms;
  readonly signer: IdentitySigner;
  readonly store: Pick<OpenedStore, 'update'>;
  readonly provider: Pick<Provider, 'apply'> | undefined;
  /** Each port with TLS. */
  readonly ports: readonly WatchedTlsPort[];
}

/** One kind of file that the config refers to. */
interface WatchedSource {
  readonly toFiles: (config: Config) => readonly string[];
  /** Applies what changed; returns the files that could not be read and must be read again later. */
  readonly reload: (changed: readonly string[], parts: ReloadParts) => Promise<readonly string[]>;
}

const SOURCES: readonly WatchedSource[] = [
  { toFiles: toAllSecretFiles, reload: reloadKeys },
  {
    toFiles: (config) => realmsOf(config).flatMap(({ realm }) => (realm.users ?? []).flatMap(toUserFiles)),
    reload: reloadUsers,
  },
  { toFiles: ({ identity }) => toIdentityFiles(identity), reload: reloadIdentity },
  {
    toFiles: ({ listen, proxy, authz, provider }) => [listen, proxy, authz, provider].flatMap((port) => toTlsFiles(port?.tls)),
    reload: reloadTls,
  },
  { toFiles: ({ admin }) => toAdminFiles(admin), reload: reloadAdminToken },
  { toFiles: ({ provider }) => toProviderFiles(provider), reload: reloadProvider },
  { toFiles: ({ store }) => toStoreFiles(store), reload: reloadStore },
];

/** A route may have to be closed or opened because of another secret (separateSecrets). */
function toAllSecretFiles({ routes, identity, admin, provider }: Config): readonly string[] {
  return [...routes.flatMap(toSecretFiles), ...toIdentityFiles(identity), ...toAdminFiles(admin), ...toProviderFiles(provider)];
}

/** The files that the config refers to. */
export function toFiles(config: Config): string[] {
  return SOURCES.flatMap((source) => source.toFiles(config));
}

/** Applies the changed files. Returns those that could not be read and must be read again later. */
export async function reloadFiles(changed: readonly string[], parts: ReloadParts): Promise<readonly string[]> {
  const unread: string[] = [];
  for (const source of SOURCES)
    if (hasChanged(source.toFiles(parts.config), changed)) unread.push(...(await source.reload(changed, parts)));
  return unread;
}

function hasChanged(files: readonly string[], changed: readonly string[]): boolean {
  return files.some((file) => changed.includes(file));
}

const ALL_READ: readonly string[] = [];

/**
 * Only the routes whose secrets changed get new keys, and those with a key that has become, or is no longer, the same as another secret. A
 * missing secret makes only its own route unavailable.
 */
async function reloadKeys(
  changed: readonly string[],
  { config, routes, logger, metrics, rings, keyEvidence }: ReloadParts,
): Promise<readonly string[]> {
  const reads = await Promise.all(routes.map((route, index) => readKeys(route, index)));
  const { keys } = await separateSecrets(config, routes, reads);
  const unread: string[] = [];
  for (const [index, route] of routes.entries()) {
    const { name, webhook } = route.config;
    const ring = rings.get(name);
    const { set, problems } = keys[index] as KeysRead;
    const isUnchanged = !hasChanged(toSecretFiles(route.config), changed);
    if (isUnchanged && isDeepStrictEqual(ring?.unavailable, set.unavailable)) continue;
    unread.push(...listUnread(route.config, set, ring));
    ring?.replace(set);
    for (const { name: key, secret } of webhook?.keys ?? [])
      if ('file' in secret && changed.includes(secret.file)) keyEvidence.renew(name, key);
    metrics.route(name).ready(!problems.some(isError));
    reportKeys(route.config, problems, logger);
    logger.info('secret_reloaded', { route: name, keys: set.keys.length, unavailable: set.unavailable.length });
  }
  return unread;
}

/** Files that became unreadable. Maybe only now, as while the process has too many open files: they are read again. */
function listUnread(route: RouteConfig, { unavailable, handshakeToken }: KeySet, before: KeyRing | undefined): string[] {
  const isTokenLost = handshakeToken === undefined && before?.handshakeToken !== undefined;
  const isLost = isTokenLost || !unavailable.every((name) => before?.unavailable.includes(name));
  return isLost ? toSecretFiles(route) : [];
}

function reportKeys(route: RouteConfig, problems: readonly Problem[], logger: GateLogger): void {
  for (const problem of problems) {
    const fields = { route: route.name, key: toKeyName(route, problem), message: problem.message };
    if (isError(problem)) logger.error('secret_unavailable', fields);
    else logger.warn('secret_warning', fields);
  }
}

/** How often, and with what pause, users are read again that may be missing only while their file is being replaced. */
const MAX_READS = 4;
const READ_PAUSE_MS: Milliseconds = 100;

/**
 * Applies what is usable: removed users lose access at once, even if the rest of the file is invalid, and so do users whose entry is
 * invalid. If a file is missing or empty, its realm gets 503 until it is back.
 */
async function reloadUsers(
  changed: readonly string[],
  { config, clock, logger, realms }: ReloadParts,
): Promise<readonly string[]> {
  const reads = await readSettledRealms(config, changed, clock);
  for (const read of reads) {
    const broken = read.problems.filter(isError);
    for (const { message } of broken) logger.error('users_reload_failed', { realm: read.realm, message });
    realms.replace(read);
    logger.info('users_reloaded', { realm: read.realm, users: read.set.size, rejected: read.rejected });
  }
  return reads.filter(({ isUnread }) => isUnread).flatMap(({ files }) => files);
}

/** A Secret's files are replaced atomically, but other tools empty a file before they write it, or remove it before they move the new one. */
async function readSettledRealms(config: Config, changed: readonly string[], clock: Clock): Promise<readonly RealmRead[]> {
  for (let reads = 1; ; reads++) {
    const realms = await readRealms(config, changed);
    if (reads === MAX_READS || realms.every(({ set }) => set.size > 0)) return realms;
    await new Promise<void>((resolve) => {
      clock.after(READ_PAUSE_MS, resolve);
    });
  }
}

/** Errors about secrets that no route has: which of the two changed does not matter. */
async function findSharedSecrets(config: Config): Promise<readonly Problem[]> {
  return toErrors((await separateSecrets(config, [], [])).others);
}

function toErrors(problems: readonly Problem[] = []): readonly Problem[] {
  return problems.filter(isError);
}

/** A broken key leaves the one before it in use: an app that verifies tokens would reject unsigned requests. */
async function reloadIdentity(_changed: readonly string[], { config, logger, signer }: ReloadParts): Promise<readonly string[]> {
  const { identity } = config;
  const read = await readIdentity(identity);
  const broken = [...toErrors(read?.problems), ...(await findSharedSecrets(config))];
  for (const { message } of broken) logger.error('identity_reload_failed', { message });
  if (read?.key === undefined || broken.length > 0) return ALL_READ;
  signer.replace(read.key, identity);
  logger.info('identity_reloaded', { key: read.key.name });
  return ALL_READ;
}

/** A broken token leaves the one before it in use: without one, any process on this machine could use the admin port. */
async function reloadAdminToken(
  _changed: readonly string[],
  { config, logger, adminAccess }: ReloadParts,
): Promise<readonly string[]> {
  const { token, problems } = await readAdminToken(config.admin);
  const broken = [...problems, ...(await findSharedSecrets(config))];
  for (const { message } of broken) logger.error('admin_token_reload_failed', { message });
  if (token === undefined || broken.length > 0) return ALL_READ;
  adminAccess.replace(token);
  logger.info('admin_token_reloaded');
  return ALL_READ;
}

/** A broken secret leaves all of the section's secrets in use that were there before: deliveries are signed with them. */
async function reloadProvider(
  _changed: readonly string[],
  { config, clock, logger, provider }: ReloadParts,
): Promise<readonly string[]> {
  const read = await readProvider(config, clock);
  const broken = [...toErrors(read?.problems), ...(await findSharedSecrets(config))];
  for (const { path, message } of broken) logger.error('provider_reload_failed', { path: path.join('.'), message });
  if (read === undefined || broken.length > 0) return ALL_READ;
  provider?.apply(read.settings);
  logger.info('provider_reloaded', { endpoints: read.settings.endpoints.length });
  return ALL_READ;
}

/** A broken file leaves the settings before it in use. */
async function reloadStore(_changed: readonly string[], { config, logger, store }: ReloadParts): Promise<readonly string[]> {
  const read = await readStoreSettings(config);
  for (const { path, message } of read.problems) logger.error('store_reload_failed', { path: path.join('.'), message });
  if (read.problems.length > 0) return ALL_READ;
  store.update(read);
  logger.info('store_reloaded');
  return ALL_READ;
}

/** Without `changed`, reads all files: after a config reload, which notes their state as seen but applies none of them. */
export async function reloadTls(changed: readonly string[] | undefined, parts: ReloadParts): Promise<readonly string[]> {
  const { clock, logger, metrics, ports } = parts;
  const unread: string[] = [];
  for (const port of ports) {
    if (changed !== undefined && !hasChanged(toTlsFiles(port.config), changed)) continue;
    const read = await readTls(port.config, port.section.split('.'), clock);
    if (read === undefined) continue;
    if (!read.isComplete) unread.push(...toTlsFiles(port.config));
    const broken = read.problems.filter(isError);
    for (const { path, message } of broken) logger.error('tls_reload_failed', { path: path.join('.'), message });
    const settings = keepUsable(read.settings, broken, port);
    if (!port.contexts.replace(settings)) continue;
    for (const { path, message, hint } of read.problems.filter((each) => !isError(each)))
      logger.warn('tls_warning', { path: path.join('.'), message, hint });
    reportNextUpdate(port.section, settings, metrics);
    port.refreshTls();
    logger.info('tls_reloaded', { section: port.section });
  }
  return unread;
}

/** A part with an error keeps the one before it: a pair must hold up neither the others nor a revocation. */
function keepUsable(settings: TlsSettings, broken: readonly Problem[], { section, contexts }: WatchedTlsPort): TlsSettings {
  const before = contexts.settings;
  const paths = broken.map(({ path }) => path.join('.'));
  const isBroken = (at: Path, files: readonly string[]): boolean =>
    files.some((file) => paths.includes([section, ...at, file].join('.')));
  const { clientCa } = isBroken([], ['clientCaFile']) ? before : settings;
  const { clientCrl } = isBroken([], ['clientCrlFile']) ? before : settings;
  const pairs = before.pairs.map((pair) => {
    if (isBroken(pair.at, ['certFile', 'keyFile'])) return pair;
    return settings.pairs.find(({ at }) => isDeepStrictEqual(at, pair.at)) ?? pair;
  });
  return { ...settings, pairs, clientCa, clientCrl };
}
