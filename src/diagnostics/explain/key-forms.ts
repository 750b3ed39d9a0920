/** Whose key it may have been, and how else the text of a secret can be read. */

import type { SecretEncoding } from '../../auth/schemes/description.ts';
import type { Scheme, VerifyKey } from '../../auth/schemes/scheme.ts';
import { Secret } from '../../core/secret.ts';
import { trimEnds } from '../../core/trim.ts';
import type { ExplainCause } from '../../telemetry/metrics/labels.ts';
import type { Suspect, SuspectKey } from './suspect.ts';

/** One key, or one reading of its secret. */
export interface KeyForm {
  /** Undefined for the route's live keys as they are. */
  readonly cause: ExplainCause | undefined;
  /** "with the key …" */
  readonly text: string;
  /** As `scheme` takes it; empty where it does not. */
  readonly toKeys: (scheme: Scheme) => readonly VerifyKey[];
}

/** Everything to try, the likely first: the live keys, those out of their time, other readings of them, other routes'. */
export function* toKeyForms({ scheme, keys, others, request: { receivedAt } }: Suspect): Generator<KeyForm> {
  const live = keys.filter((key) => isLive(key, receivedAt));
  for (const key of live) yield toOwnForm(undefined, `the key ${key.name}`, key, scheme);
  for (const key of keys) {
    if (isLive(key, receivedAt)) continue;
    const isExpired = key.notAfter !== undefined && key.notAfter <= receivedAt;
    const when = isExpired ? 'which has expired' : 'which is not valid yet';
    yield toOwnForm(isExpired ? 'key_expired' : 'key_not_yet_valid', `the key ${key.name}, ${when}`, key, scheme);
  }
  for (const key of live) yield* toReadings(key);
  for (const key of others) yield* toForeignForms(key);
}

function isLive({ notBefore, notAfter }: SuspectKey, now: number): boolean {
  return (notBefore === undefined || notBefore <= now) && (notAfter === undefined || now < notAfter);
}

function toOwnForm(cause: ExplainCause | undefined, text: string, key: SuspectKey, own: Scheme): KeyForm {
  const toKeys = (scheme: Scheme): readonly VerifyKey[] => {
    if (scheme === own && key.key !== undefined) return [key.key];
    // Another preset may write secrets in its own way: whsec_ is decoded here, and taken as it stands there.
    return [
      ...parse(scheme, key.secret, key.encoding),
      ...(key.encoding === undefined ? [] : parse(scheme, key.secret, undefined)),
    ];
  };
  return { cause, text, toKeys };
}

function* toForeignForms({ route, name, secret, encoding, key }: SuspectKey): Generator<KeyForm> {
  const text = `the key ${name} of the route ${route}`;
  yield {
    cause: 'other_route_key',
    text,
    toKeys: (scheme) => [
      ...(key === undefined ? [] : [key]),
      ...parse(scheme, secret, encoding),
      ...(encoding === undefined ? [] : parse(scheme, secret, undefined)),
    ],
  };
}

/** One reading of a secret's text. */
interface Reading {
  readonly cause: ExplainCause;
  readonly how: string;
  readonly bytes: Buffer | undefined;
}

function* toReadings({ name, secret }: SuspectKey): Generator<KeyForm> {
  const seen = new Set<string>();
  for (const { cause, how, bytes } of toAllReadings(secret.expose().toString('latin1'))) {
    if (bytes === undefined || bytes.length === 0 || seen.has(bytes.toString('latin1'))) continue;
    seen.add(bytes.toString('latin1'));
    const read = new Secret(bytes);
    yield { cause, text: `the secret of the key ${name} ${how}`, toKeys: (scheme) => parse(scheme, read, 'utf8') };
  }
}

function* toAllReadings(text: string): Generator<Reading> {
  yield* toEncodings(text, 'secret_encoding', '');
  const bare = text.replace(PREFIX, '');
  if (bare !== text) yield { cause: 'secret_prefix', how: 'without its prefix', bytes: toBytes(bare) };
  else yield { cause: 'secret_prefix', how: 'with whsec_ before it', bytes: toBytes(`whsec_${text}`) };
  const clean = trimEnds(text.startsWith(BOM) ? text.slice(BOM.length) : text, WRAPPING);
  if (clean !== text) yield* toEncodings(clean, 'secret_whitespace', ' and without what stands around it');
  yield { cause: 'secret_whitespace', how: 'with a line end after it, which the sender may have', bytes: toBytes(`${text}\n`) };
  // What `kubectl` shows of a Secret is base64 already; pasted into `data` it is encoded twice.
  const inner = BASE64.test(clean) ? Buffer.from(clean, 'base64').toString('latin1').trim() : '';
  if (inner !== '') yield* toEncodings(inner, 'secret_encoding', ', which is base64 of the secret');
}

const PREFIX = /^wh(?:sec|sk)_/;
/** A byte order mark (latin1). */
const BOM = 'ï»¿';
/** Whitespace and quotes. */
const WRAPPING: ReadonlySet<string> = new Set(' \t\r\n"\'`');
const BASE64 = /^[A-Za-z0-9+/_-]+={0,2}$/;
const HEX = /^(?:[0-9A-Fa-f]{2})+$/;

function* toEncodings(text: string, cause: ExplainCause, also: string): Generator<Reading> {
  const bare = text.replace(PREFIX, '');
  yield { cause, how: `taken as utf8${also}`, bytes: toBytes(text) };
  yield { cause, how: `taken as base64${also}`, bytes: BASE64.test(bare) ? Buffer.from(bare, 'base64') : undefined };
  yield { cause, how: `taken as hex${also}`, bytes: HEX.test(bare) ? Buffer.from(bare, 'hex') : undefined };
}

function toBytes(text: string): Buffer {
  return Buffer.from(text, 'latin1');
}

function parse(scheme: Scheme, secret: Secret, encoding: SecretEncoding | undefined): VerifyKey[] {
  const parsed = scheme.parseKey('tried', secret, encoding);
  return 'key' in parsed ? [parsed.key] : [];
}
