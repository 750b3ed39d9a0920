/** Turns the config's secret references into keys, now and whenever a secret's file changes. */
import type { KeyConfig, RouteConfig } from '../config/config.ts';
import { readSecret } from '../config/secrets.ts';
import type { KeySet } from '../gates/key-ring.ts';
import type { WatchedKey } from '../observe/key-evidence.ts';
import { compileScheme } from '../schemes/compile.ts';
import type { Scheme, VerifyKey } from '../schemes/scheme.ts';
import type { Trouble } from './trouble.ts';

/** Trouble with one key's secret; never holds the secret. */
export interface KeyTrouble extends Trouble {
  readonly route: string;
  readonly key: string;
}

/** What reading a route's secrets gave. */
export interface KeysRead {
  readonly set: KeySet;
  readonly troubles: readonly KeyTrouble[];
}

/** Reads all secrets of a route; a secret that cannot be used is listed as unavailable, it never makes the others unusable. */
export async function readKeys(route: RouteConfig, index: number): Promise<KeysRead> {
  const { webhook } = route;
  if (webhook === undefined) return { set: { keys: [], unavailable: [] }, troubles: [] };
  const scheme = compileScheme(webhook.description);
  const keys: VerifyKey[] = [];
  const unavailable: string[] = [];
  const troubles: KeyTrouble[] = [];
  for (const [position, config] of webhook.keys.entries()) {
    const path = `routes.${index}.webhook.keys.${position}.secret`;
    const read = await readKey(scheme, config);
    for (const message of read.warnings)
      troubles.push({ severity: 'warning', path, route: route.name, key: config.name, message });
    if (read.key !== undefined) {
      keys.push(read.key);
      continue;
    }
    unavailable.push(config.name);
    troubles.push({ severity: 'error', path, route: route.name, key: config.name, ...read.problem });
  }
  return { set: { keys, unavailable }, troubles };
}

/** The files a route's secrets come from. */
export function toSecretFiles(route: RouteConfig): string[] {
  return (route.webhook?.keys ?? []).flatMap(({ secret }) => ('file' in secret ? [secret.file] : []));
}

/** The route's keys, as what is known of them is kept. */
export function toWatchedKeys({ name, webhook }: RouteConfig): WatchedKey[] {
  return (webhook?.keys ?? []).map(({ name: key, secret }) => ({ route: name, key, source: JSON.stringify(secret) }));
}

interface KeyRead {
  readonly key?: VerifyKey;
  readonly warnings: readonly string[];
  readonly problem: { readonly message: string; readonly hint?: string };
}

const NO_PROBLEM = { message: '' };

async function readKey(scheme: Scheme, config: KeyConfig): Promise<KeyRead> {
  const read = await readSecret(config.secret);
  if ('problem' in read) return { warnings: [], problem: { message: read.problem, hint: read.hint } };
  const parsed = scheme.parseKey(config.name, read.secret, config.secret.encoding, config.notAfter);
  if ('problem' in parsed) return { warnings: read.warnings, problem: { message: parsed.problem, hint: parsed.hint } };
  const warnings = parsed.warning === undefined ? read.warnings : [...read.warnings, parsed.warning];
  return { key: { ...parsed.key, notBefore: config.notBefore }, warnings, problem: NO_PROBLEM };
}
