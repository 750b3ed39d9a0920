/** Takes up what changed in files beside the config: webhook secrets, users, certificates. Requests under way keep what they started with. */
import type { AdminAccess } from '../../admin/access.ts';
import type { KeyRing } from '../../auth/keys/key-ring.ts';
import { type Config, type ListenTlsConfig, realmsOf } from '../../config/schema/config.ts';
import { toTlsFiles } from '../../config/sources/tls-files.ts';
import { toUserFiles } from '../../config/sources/user-sources.ts';
import type { Clock, Milliseconds } from '../../core/clock.ts';
import type { KeyEvidence } from '../../telemetry/log/key-evidence.ts';
import type { Logger } from '../../telemetry/log/logger.ts';
import type { Metrics } from '../../telemetry/metrics/metrics.ts';
import type { TlsContexts } from '../server/tls.ts';
import { readTls, reportNextUpdate } from '../server/tls-settings.ts';
import type { IdentitySigner } from '../upstream/identity-token.ts';
import { readAdminToken, toAdminFiles } from './admin.ts';
import { readIdentity, toIdentityFiles } from './identity.ts';
import { type KeyTrouble, readKeys, toSecretFiles } from './keys.ts';
import type { Realms } from './realms.ts';
import { type RealmRead, readRealms } from './users.ts';

/** A port whose certificates may be rotated. */
export interface TlsPort {
  /** Its config path. */
  readonly section: string;
  readonly config: ListenTlsConfig;
  readonly contexts: TlsContexts;
  refreshTls(): void;
}

/** What may be replaced, and who is told. */
export interface ReloadParts {
  readonly config: Config;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly metrics: Metrics;
  readonly rings: ReadonlyMap<string, KeyRing>;
  readonly keyEvidence: KeyEvidence;
  readonly adminAccess: AdminAccess;
  readonly realms: Realms;
  readonly signer: IdentitySigner;
  /** Each port with TLS. */
  readonly ports: readonly TlsPort[];
}

/** The files that the config refers to. */
export function toFiles(config: Config): string[] {
  const { routes, listen, proxy, authz, identity, admin } = config;
  return [
    ...toAdminFiles(admin),
    ...routes.flatMap(toSecretFiles),
    ...realmsOf(config).flatMap(({ realm }) => (realm.users ?? []).flatMap(toUserFiles)),
    ...toIdentityFiles(identity),
    ...[listen, proxy, authz].flatMap((port) => toTlsFiles(port?.tls)),
  ];
}

/** Replaces what comes from the changed files. Returns those that could not be read and must be read again later. */
export async function reloadFiles(changed: readonly string[], parts: ReloadParts): Promise<readonly string[]> {
  await reloadKeys(changed, parts);
  const unread = await reloadUsers(changed, parts);
  await reloadIdentity(changed, parts);
  await reloadTls(changed, parts);
  await reloadAdminToken(changed, parts);
  return unread;
}

/** Only the routes whose secrets changed get new keys; a secret that is gone takes its own route down and no other. */
async function reloadKeys(
  changed: readonly string[],
  { config, logger, metrics, rings, keyEvidence }: ReloadParts,
): Promise<void> {
  for (const [index, route] of config.routes.entries()) {
    if (!toSecretFiles(route).some((file) => changed.includes(file))) continue;
    const { set, troubles } = await readKeys(route, index);
    rings.get(route.name)?.replace(set);
    for (const { name, secret } of route.webhook?.keys ?? [])
      if ('file' in secret && changed.includes(secret.file)) keyEvidence.renew(route.name, name);
    metrics.route(route.name).ready(!troubles.some(({ severity }) => severity === 'error'));
    tellTroubles(route.name, troubles, logger);
    logger.info('secret_reloaded', { route: route.name, keys: set.keys.length, unavailable: set.unavailable.length });
  }
}

function tellTroubles(route: string, troubles: readonly KeyTrouble[], logger: Logger): void {
  for (const { severity, key, message } of troubles) {
    if (severity === 'error') logger.error('secret_unavailable', { route, key, message });
    else logger.warn('secret_warning', { route, key, message });
  }
}

/** How often, and after what pause, users are read again that may be missing only while somebody replaces their file. */
const MAX_READS = 4;
const READ_PAUSE_MS: Milliseconds = 100;

/**
 * Applies what is usable: removed users lose access at once, whatever else is wrong with the file, and so do users whose entry is
 * broken. If a file is missing or empty, its realm gets 503 until it is back.
 */
async function reloadUsers(
  changed: readonly string[],
  { config, clock, logger, realms }: ReloadParts,
): Promise<readonly string[]> {
  const reads = await readSettledRealms(config, changed, clock);
  for (const read of reads) {
    const broken = read.troubles.filter(({ severity }) => severity === 'error');
    for (const { realm, message } of broken) logger.error('users_reload_failed', { realm, message });
    realms.replace(read);
    logger.info('users_reloaded', { realm: read.realm, users: read.set.size, rejected: read.rejected });
  }
  return reads.filter(({ isUnread }) => isUnread).flatMap(({ files }) => files);
}

/** A Secret's files are swapped at once, but other tools empty a file before they write it, or remove it before they move the new one. */
async function readSettledRealms(config: Config, changed: readonly string[], clock: Clock): Promise<readonly RealmRead[]> {
  for (let reads = 1; ; reads++) {
    const realms = await readRealms(config, changed);
    if (reads === MAX_READS || realms.every(({ set }) => set.size > 0)) return realms;
    await new Promise<void>((resolve) => {
      clock.after(READ_PAUSE_MS, resolve);
    });
  }
}

/** A broken key leaves the one before it in use: an app that checks would refuse what is not signed. */
async function reloadIdentity(changed: readonly string[], { config, logger, signer }: ReloadParts): Promise<void> {
  const { identity } = config;
  if (identity === undefined || !toIdentityFiles(identity).some((file) => changed.includes(file))) return;
  const read = await readIdentity(identity);
  for (const { severity, message } of read?.troubles ?? [])
    if (severity === 'error') logger.error('identity_reload_failed', { message });
  if (read?.key === undefined) return;
  signer.replace(read.key, identity);
  logger.info('identity_reloaded', { key: read.key.name });
}

/** A broken token leaves the one before it in use: without one, whoever is on this machine could ask. */
async function reloadAdminToken(changed: readonly string[], { config, logger, adminAccess }: ReloadParts): Promise<void> {
  if (!toAdminFiles(config.admin).some((file) => changed.includes(file))) return;
  const { token, troubles } = await readAdminToken(config.admin);
  for (const { message } of troubles) logger.error('admin_token_reload_failed', { message });
  if (token === undefined) return;
  adminAccess.replace(token);
  logger.info('admin_token_reloaded');
}

/** Without `changed`, reads all files: after a config reload, which notes their state as seen but applies none of them. */
export async function reloadTls(changed: readonly string[] | undefined, parts: ReloadParts): Promise<void> {
  const { clock, logger, metrics, ports } = parts;
  for (const port of ports) {
    if (changed !== undefined && !toTlsFiles(port.config).some((file) => changed.includes(file))) continue;
    const read = await readTls(port.config, port.section, clock);
    const broken = read?.troubles.filter(({ severity }) => severity === 'error') ?? [];
    for (const { path, message } of broken) logger.error('tls_reload_failed', { path, message });
    if (read === undefined || broken.length > 0) continue;
    if (!port.contexts.replace(read.settings)) continue;
    for (const { path, message, hint } of read.troubles) logger.warn('tls_warning', { path, message, hint });
    reportNextUpdate(port.section, read.settings, metrics);
    port.refreshTls();
    logger.info('tls_reloaded', { section: port.section });
  }
}
