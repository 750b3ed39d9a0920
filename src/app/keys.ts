/** Reads the keys that the config refers to, at the start and whenever a secret's file changes. */

import { findNamedPreset } from '../config/rules/validate-scheme.ts';
import type { IdentityConfig, KeyConfig, RouteConfig } from '../config/schema/config.ts';
import { readSecret, readUrlCredentials, unwrapSecret } from '../config/sources/secrets.ts';
import { type EpochMilliseconds, toInstant } from '../core/clock.ts';
import { error, type Path, type Problem, under, unwrap, warning } from '../core/problem.ts';
import type { Secret } from '../core/secret.ts';
import { type IdentityKey, parseIdentityKey } from '../gateway/upstream/headers.ts';
import type { WatchedKey } from '../telemetry/log/key-evidence.ts';
import { compileScheme } from '../verify/schemes/compile.ts';
import { isSameKey, type KeyRing, type KeySet } from '../verify/schemes/keys.ts';
import type { Scheme, VerifyKey } from '../verify/schemes/scheme.ts';
import type { CompiledRoute } from './compiled-route.ts';

/** The result of reading a route's secrets. */
export interface KeysRead {
  readonly set: KeySet;
  readonly problems: readonly Problem[];
}

/** Shorter tokens can be guessed by repeated requests. */
const MIN_TOKEN_BYTES = 16;
/** The name in log lines, beside those of keys. */
const URL_CREDENTIALS = 'urlCredentials';
/** The scheme of a webhook section that names none. */
const DEFAULT_SCHEME = 'standard-webhooks';

/** Reads all secrets of a route; an unusable secret is listed as unavailable and does not affect the others. */
export async function readKeys({ config: route, webhook }: CompiledRoute, index: number): Promise<KeysRead> {
  if (webhook === undefined) return { set: { keys: [], unavailable: [] }, problems: [] };
  const { scheme } = webhook;
  const keys: VerifyKey[] = [];
  const unavailable: string[] = [];
  const problems: Problem[] = [];
  for (const [position, config] of webhook.config.keys.entries()) {
    const read = await readKey(scheme, config, route);
    problems.push(...under(['routes', index, 'webhook', 'keys', position, 'secret'], read.problems));
    if (read.key === undefined) unavailable.push(config.name);
    else keys.push(read.key);
  }
  const handshakeToken = await readHandshakeToken(route, ['routes', index, 'webhook', 'handshake', 'verifyToken'], problems);
  const urlCredentials = await readCredentials(route, ['routes', index, 'webhook', 'urlCredentials'], problems);
  // Without them no signature matches, and that is not the sender's fault.
  if (webhook.config.urlCredentials !== undefined && urlCredentials === undefined) unavailable.push(URL_CREDENTIALS);
  const secrets = { ...(handshakeToken && { handshakeToken }), ...(urlCredentials && { urlCredentials }) };
  return { set: { keys, unavailable, ...secrets }, problems };
}

/** Keys that are not used any more by the date of their certificate or JWK; a date in the config is reported with the config. */
export function findExpiredKeys(
  { config: route }: CompiledRoute,
  { set }: KeysRead,
  index: number,
  now: EpochMilliseconds,
): Problem[] {
  const { keys = [] } = route.webhook ?? {};
  return set.keys.flatMap(({ name, notAfter }): Problem[] => {
    const position = keys.findIndex((each) => each.name === name);
    if (notAfter === undefined || now < notAfter || keys[position]?.notAfter !== undefined) return [];
    const path = ['routes', index, 'webhook', 'keys', position, 'secret'];
    const message = `the certificate or JWK of the key ${name} expired on ${toInstant(notAfter)}`;
    return [warning(path, message, 'get the current one from the sender')];
  });
}

/** If the token is missing, only the handshake fails; deliveries are not affected. */
async function readHandshakeToken({ webhook }: RouteConfig, path: Path, problems: Problem[]): Promise<Secret | undefined> {
  const source = webhook?.handshake?.verifyToken;
  const token = source && unwrapSecret(await readSecret(source), path, problems);
  if (token !== undefined && token.length < MIN_TOKEN_BYTES)
    problems.push(warning(path, `the token has ${token.length} bytes; use at least ${MIN_TOKEN_BYTES}`));
  return token;
}

async function readCredentials({ webhook }: RouteConfig, path: Path, problems: Problem[]): Promise<Secret | undefined> {
  const source = webhook?.urlCredentials;
  return source && unwrapSecret(await readUrlCredentials(source), path, problems);
}

/** The name of the key that a problem of a route concerns, for messages. */
export function toKeyName({ webhook }: RouteConfig, { path }: Problem): string {
  const [, , , part, position] = path;
  return part === 'keys' ? (webhook?.keys[Number(position)]?.name ?? '') : String(part);
}

/** Names of the keys that are new in `after`, or have another secret there. */
export function findReplacedKeys(before: KeyRing, after: KeyRing | undefined): readonly string[] {
  const replaced = after?.all.filter((key) => !before.all.some((known) => isSameKey(known, key))) ?? [];
  return replaced.map(({ name }) => name);
}

/** The files that a route's secrets are read from. */
export function toSecretFiles(route: RouteConfig): string[] {
  const { keys = [], handshake, urlCredentials } = route.webhook ?? {};
  const sources = [...keys.map(({ secret }) => secret), handshake?.verifyToken, urlCredentials];
  return sources.flatMap((source) => (source !== undefined && 'file' in source ? [source.file] : []));
}

/** The route's keys, in the form in which the evidence about them is kept. */
export function toWatchedKeys({ name, webhook }: RouteConfig): WatchedKey[] {
  const { jwks = [], keys = [] } = webhook ?? {};
  return [
    ...jwks.map(({ name: key, url }) => ({ route: name, key, source: url })),
    ...keys.map(({ name: key, secret }) => ({ route: name, key, source: JSON.stringify(secret) })),
  ];
}

interface KeyRead {
  readonly key?: VerifyKey;
  /** Paths are relative to the secret. */
  readonly problems: readonly Problem[];
}

async function readKey(scheme: Scheme, config: KeyConfig, route: RouteConfig): Promise<KeyRead> {
  const read = await readSecret(config.secret);
  if ('problem' in read) return { problems: [error([], read.problem, read.hint)] };
  const parsed = scheme.parseKey(config.name, read.secret, config.secret.encoding, config.notAfter);
  if ('problem' in parsed) {
    if (parsed.isCertain === true) return { problems: [error([], parsed.problem, parsed.hint)] };
    const hint = toOtherSchemeHint(scheme, read.secret, config, route) ?? parsed.hint;
    return { problems: [...toWarnings(read.warnings), error([], parsed.problem, hint)] };
  }
  const problems = toWarnings([...read.warnings, parsed.warning, findHexadecimal(scheme, read.secret, config)]);
  return { key: { ...parsed.key, notBefore: toLater(config.notBefore, parsed.key.notBefore) }, problems };
}

function toWarnings(messages: readonly (string | undefined)[]): Problem[] {
  return messages.flatMap((message) => (message === undefined ? [] : [warning([], message)]));
}

/** 32 bytes; base64 of 48 bytes has the same length, and practically never only these digits. */
const HEX_TEXT = /^[0-9a-f]{64}$/i;

function findHexadecimal(
  { description: { secret } }: Scheme,
  text: Secret,
  { secret: { encoding } }: KeyConfig,
): string | undefined {
  const isExpected = encoding === undefined && secret.encoding === 'base64';
  return isExpected && HEX_TEXT.test(text.expose().toString('latin1').slice(secret.prefix?.length))
    ? 'the secret is hexadecimal where base64 is expected: if signatures do not match, set encoding: hex or utf8'
    : undefined;
}

/** A certificate is not valid before its own date either. */
function toLater(a: EpochMilliseconds | undefined, b: EpochMilliseconds | undefined): EpochMilliseconds | undefined {
  return a === undefined || b === undefined ? (a ?? b) : Math.max(a, b);
}

/** Usually such a secret is valid, but the route has the default scheme instead of its sender's. */
function toOtherSchemeHint(scheme: Scheme, secret: Secret, config: KeyConfig, { name, match }: RouteConfig): string | undefined {
  const { secret: source } = config;
  const where = 'env' in source ? source.env : source.file;
  const preset = findNamedPreset([name, match.path ?? match.pathPrefix ?? '', config.name, where], scheme.name);
  const isValid = preset !== undefined && 'key' in compileScheme(preset).parseKey(config.name, secret, source.encoding);
  if (isValid) return `if ${preset.from?.title} sends this, set scheme: ${preset.name}`;
  if (scheme.name !== DEFAULT_SCHEME) return undefined;
  return 'write it as the sender shows it, whsec_ and base64; if the sender does not use Standard Webhooks, set its scheme, for example scheme: github';
}

// Reads the key that forwarded requests are signed with.

/** The result of reading the key, which is undefined if there was an error. */
export interface IdentityRead {
  readonly key: IdentityKey | undefined;
  readonly problems: readonly Problem[];
}

const PATH = ['identity', 'key', 'secret'];

/** Reads the key; undefined if requests are not signed. */
export async function readIdentity(config: IdentityConfig | undefined): Promise<IdentityRead | undefined> {
  if (config === undefined) return undefined;
  const { algorithm, key } = config;
  const problems: Problem[] = [];
  const read = unwrap(await readSecret(key.secret), PATH, problems);
  const source = { name: key.name, algorithm, encoding: key.secret.encoding };
  const parsed = read && unwrap(parseIdentityKey(source, read.secret), PATH, problems);
  if (parsed !== undefined) for (const message of read?.warnings ?? []) problems.push(warning(PATH, message));
  return { key: parsed, problems };
}

/** The files to watch. */
export function toIdentityFiles(config: IdentityConfig | undefined): string[] {
  return config !== undefined && 'file' in config.key.secret ? [config.key.secret.file] : [];
}
