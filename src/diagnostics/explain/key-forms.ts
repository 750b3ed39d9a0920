/** The keys that may have signed a request, and other ways to decode the text of a secret. */

import { Secret } from '../../core/secret.ts';
import { trimEnds } from '../../core/text.ts';
import type { SecretEncoding } from '../../verify/schemes/description.ts';
import type { Scheme, VerifyKey } from '../../verify/schemes/scheme.ts';
import type { AnalysisInput, CandidateKey } from './analysis.ts';
import type { ExplainCause } from './explain-metrics.ts';

/** One key, or one decoding of its secret. */
export interface KeyForm {
  /** Undefined for an unchanged live key of the route. */
  readonly cause: ExplainCause | undefined;
  /** "with the key …" */
  readonly text: string;
  /** The key, prepared for `scheme`; empty if the scheme cannot use it. */
  readonly toKeys: (scheme: Scheme) => readonly VerifyKey[];
}

/** Everything to try, likely ones first: the live keys, expired and future keys, other decodings, keys of other routes. */
export function* toKeyForms({ scheme, keys, others, request: { receivedAt } }: AnalysisInput): Generator<KeyForm> {
  const live = keys.filter((key) => isLive(key, receivedAt));
  for (const key of live) yield toOwnForm(undefined, `the key ${key.name}`, key, scheme);
  for (const key of keys) {
    if (isLive(key, receivedAt)) continue;
    const isExpired = key.notAfter !== undefined && key.notAfter <= receivedAt;
    const when = isExpired ? 'which has expired' : 'which is not valid yet';
    yield toOwnForm(isExpired ? 'key_expired' : 'key_not_yet_valid', `the key ${key.name}, ${when}`, key, scheme);
  }
  for (const key of live) yield* toSecretForms(key);
  for (const key of others) yield* toForeignForms(key);
}

function isLive({ notBefore, notAfter }: CandidateKey, now: number): boolean {
  return (notBefore === undefined || notBefore <= now) && (notAfter === undefined || now < notAfter);
}

function toOwnForm(cause: ExplainCause | undefined, text: string, key: CandidateKey, own: Scheme): KeyForm {
  const toKeys = (scheme: Scheme): readonly VerifyKey[] => {
    if (scheme === own && key.key !== undefined) return [key.key];
    // Another preset may decode secrets in another way: some decode whsec_, others use it as written.
    return [
      ...parse(scheme, key.secret, key.encoding),
      ...(key.encoding === undefined ? [] : parse(scheme, key.secret, undefined)),
    ];
  };
  return { cause, text, toKeys };
}

function* toForeignForms({ route, name, secret, encoding, key }: CandidateKey): Generator<KeyForm> {
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

/** One decoding of a secret's text. */
interface SecretForm {
  readonly cause: ExplainCause;
  readonly how: string;
  readonly bytes: Buffer | undefined;
}

function* toSecretForms({ name, secret }: CandidateKey): Generator<KeyForm> {
  const seen = new Set<string>();
  for (const { cause, how, bytes } of decodeSecret(secret.expose().toString('latin1'))) {
    if (bytes === undefined || bytes.length === 0 || seen.has(bytes.toString('latin1'))) continue;
    seen.add(bytes.toString('latin1'));
    const decoded = new Secret(bytes);
    yield { cause, text: `the secret of the key ${name} ${how}`, toKeys: (scheme) => parse(scheme, decoded, 'utf8') };
  }
}

function* decodeSecret(text: string): Generator<SecretForm> {
  yield* toEncodings(text, 'secret_encoding', '');
  const bare = text.replace(PREFIX, '');
  if (bare !== text) yield { cause: 'secret_prefix', how: 'without its prefix', bytes: toBytes(bare) };
  else yield { cause: 'secret_prefix', how: 'with whsec_ before it', bytes: toBytes(`whsec_${text}`) };
  const clean = trimEnds(text.startsWith(BOM) ? text.slice(BOM.length) : text, WRAPPING);
  if (clean !== text) yield* toEncodings(clean, 'secret_whitespace', ' and without the characters around it');
  yield {
    cause: 'secret_whitespace',
    how: 'with a trailing line ending, which the sender may have',
    bytes: toBytes(`${text}\n`),
  };
  // kubectl shows the values of a Secret in base64; pasted into `stringData` or a file, they stay encoded.
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

function* toEncodings(text: string, cause: ExplainCause, also: string): Generator<SecretForm> {
  const bare = text.replace(PREFIX, '');
  yield { cause, how: `decoded as utf8${also}`, bytes: toBytes(text) };
  yield { cause, how: `decoded as base64${also}`, bytes: BASE64.test(bare) ? Buffer.from(bare, 'base64') : undefined };
  yield { cause, how: `decoded as hex${also}`, bytes: HEX.test(bare) ? Buffer.from(bare, 'hex') : undefined };
}

function toBytes(text: string): Buffer {
  return Buffer.from(text, 'latin1');
}

function parse(scheme: Scheme, secret: Secret, encoding: SecretEncoding | undefined): VerifyKey[] {
  const parsed = scheme.parseKey('tried', secret, encoding);
  return 'key' in parsed ? [parsed.key] : [];
}
