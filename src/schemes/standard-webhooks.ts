/** The Standard Webhooks scheme: `id.timestamp.body` signed by HMAC-SHA256 (v1) or Ed25519 (v1a). */
import {
  createHmac,
  createPrivateKey,
  createPublicKey,
  createSecretKey,
  type KeyObject,
  sign as signBytes,
  verify as verifyBytes,
} from 'node:crypto';
import { isEqualInConstantTime, parseBase64, parseHex } from '../core/bytes.ts';
import type { EpochMilliseconds } from '../core/clock.ts';
import { SidegateError } from '../core/errors.ts';
import type { ParsedSignature, SignedHead } from '../core/exchange.ts';
import type { HeaderFields } from '../core/headers.ts';
import { type Refusal, refuse } from '../core/refusal.ts';
import type { Secret } from '../core/secret.ts';
import type { HeadOptions, KeyParsed, KeyProblem, Scheme, SecretEncoding, SignRequest, VerifyKey } from './scheme.ts';

const ID = 'webhook-id';
const TIMESTAMP = 'webhook-timestamp';
const SIGNATURE = 'webhook-signature';
const HEADER_NAMES = [ID, TIMESTAMP, SIGNATURE];

/** The names that Svix's libraries use for the same three fields, and read first. */
const TWINS = new Map([
  [ID, 'svix-id'],
  [TIMESTAMP, 'svix-timestamp'],
  [SIGNATURE, 'svix-signature'],
]);

const VALID_ID = /^[\x21-\x7e]{1,256}$/;
/** Digits only: `1700000000junk`, signs, fractions and exponents are read by lenient parsers, each in its own way. */
const VALID_TIMESTAMP = /^[0-9]{1,12}$/;
const MOST_SIGNATURES = 10;
const V1_LENGTH = 32;
const V1A_LENGTH = 64;
/** The specification asks for 24 to 64 bytes. */
const SHORT_SECRET = 24;
const SECRET_PREFIX = 'whsec_';
const PUBLIC_PREFIX = 'whpk_';
const PRIVATE_PREFIX = 'whsk_';
const ED25519_KEY_LENGTH = 32;
/** What stands before the 32 raw bytes in the DER forms (RFC 8410 §4 and §7). */
const SPKI_HEAD = Buffer.from('302a300506032b6570032100', 'hex');
const PKCS8_HEAD = Buffer.from('302e020100300506032b657004220420', 'hex');

/** Prepared key material; private, so that no print or serialisation shows it. */
class Material {
  readonly version: 'v1' | 'v1a';
  readonly #key: KeyObject;

  constructor(version: 'v1' | 'v1a', key: KeyObject) {
    this.version = version;
    this.#key = key;
  }

  get key(): KeyObject {
    return this.#key;
  }
}

function isRefusal(value: ParsedSignature[] | Refusal): value is Refusal {
  return 'code' in value;
}

function malformed(detail: string): Refusal {
  return refuse('malformed_signature', 'malformed_signature', detail);
}

function readHead(headers: HeaderFields, options: HeadOptions): SignedHead | Refusal {
  for (const name of HEADER_NAMES) {
    // First or last wins, or both are joined: parsers differ, so a repeated security header is refused.
    if (headers.count(name) > 1) return malformed(`${name} is repeated`);
    if (isContradicted(headers, name)) return malformed(`${TWINS.get(name)} says something else`);
  }
  const id = headers.get(ID) ?? '';
  const timestampText = headers.get(TIMESTAMP) ?? '';
  const list = headers.get(SIGNATURE) ?? '';
  if (id === '' || timestampText === '' || list === '') return refuse('missing_signature', 'missing_signature');
  if (!VALID_ID.test(id)) return malformed('the id is not 1 to 256 visible ASCII characters');
  // `a.1` + `.2.body` and `a` + `.1.2.body` are the same signed bytes.
  if (!options.allowDotInId && id.includes('.')) return malformed('the id has a dot');
  if (!VALID_TIMESTAMP.test(timestampText)) return malformed('the timestamp is not 1 to 12 digits');
  const signatures = parseSignatures(list);
  if (isRefusal(signatures)) return signatures;
  return { id, timestampText, timestamp: Number(timestampText) * 1000, signatures };
}

/** An app behind us may read the twin, which nobody verified: another id there would be another event. */
function isContradicted(headers: HeaderFields, name: string): boolean {
  const twin = TWINS.get(name) as string;
  return headers.get(twin) !== undefined && headers.all(twin).some((value) => value !== headers.get(name));
}

/** Unknown versions and malformed entries are skipped: one sender's odd entry must not hide a valid one beside it. */
function parseSignatures(list: string): ParsedSignature[] | Refusal {
  const entries = list.split(' ');
  if (entries.length > MOST_SIGNATURES) return malformed(`more than ${MOST_SIGNATURES} signatures`);
  const signatures: ParsedSignature[] = [];
  for (const entry of entries) {
    const comma = entry.indexOf(',');
    const version = entry.slice(0, Math.max(comma, 0));
    const length = version === 'v1' ? V1_LENGTH : version === 'v1a' ? V1A_LENGTH : 0;
    const bytes = length === 0 ? undefined : parseBase64(entry.slice(comma + 1));
    if (bytes?.length === length) signatures.push({ version, bytes });
  }
  return signatures.length === 0 ? malformed('no entry is a v1 or v1a signature') : signatures;
}

function toSignedPrefix(id: string, timestampText: string): string {
  return `${id}.${timestampText}.`;
}

function verify(head: SignedHead, body: Buffer, keys: readonly VerifyKey[]): VerifyKey | undefined {
  const prefix = toSignedPrefix(head.id, head.timestampText);
  let match: VerifyKey | undefined;
  for (const key of keys) {
    // No early end: how long it takes must not tell which key or signature matched.
    if (isSignedBy(key.material as Material, head, prefix, body)) match ??= key;
  }
  return match;
}

function isSignedBy(material: Material, head: SignedHead, prefix: string, body: Buffer): boolean {
  if (material.version === 'v1a') {
    const signed = Buffer.concat([Buffer.from(prefix, 'latin1'), body]);
    return countMatches(head, 'v1a', (bytes) => verifyBytes(null, signed, material.key, bytes)) > 0;
  }
  const expected = createHmac('sha256', material.key).update(prefix, 'latin1').update(body).digest();
  return countMatches(head, 'v1', (bytes) => isEqualInConstantTime(bytes, expected)) > 0;
}

function countMatches(head: SignedHead, version: string, isMatch: (bytes: Buffer) => boolean): number {
  let count = 0;
  for (const signature of head.signatures) if (signature.version === version && isMatch(signature.bytes)) count++;
  return count;
}

function problem(text: string, hint: string): KeyProblem {
  return { problem: text, hint };
}

function parseKey(
  name: string,
  secret: Secret,
  encoding: SecretEncoding | undefined,
  notAfter?: EpochMilliseconds,
): KeyParsed | KeyProblem {
  const text = secret.expose().toString('latin1');
  if (encoding === undefined && text.startsWith(PRIVATE_PREFIX)) {
    return problem('a whsk_ secret is the private half of a key pair', 'verification needs the public half, whpk_…');
  }
  if (encoding === undefined && text.startsWith(PUBLIC_PREFIX))
    return parsePublicKey(name, text.slice(PUBLIC_PREFIX.length), notAfter);
  const bytes = toSecretBytes(secret, encoding);
  if (!Buffer.isBuffer(bytes)) return bytes;
  const key = { name, material: new Material('v1', createSecretKey(bytes)), notAfter };
  if (bytes.length >= SHORT_SECRET) return { key };
  return { key, warning: `the secret has ${bytes.length} bytes; Standard Webhooks asks for ${SHORT_SECRET} to 64` };
}

function parsePublicKey(name: string, base64: string, notAfter: EpochMilliseconds | undefined): KeyParsed | KeyProblem {
  const raw = parseBase64(base64);
  if (raw?.length !== ED25519_KEY_LENGTH) {
    return problem('the text after whpk_ is not base64 of 32 bytes', 'paste the public key whole, as the sender shows it');
  }
  const key = createPublicKey({ key: Buffer.concat([SPKI_HEAD, raw]), format: 'der', type: 'spki' });
  return { key: { name, material: new Material('v1a', key), notAfter } };
}

/** The HMAC key's bytes. A named encoding counts before the prefix: some senders use the whole `whsec_…` text as it stands. */
function toSecretBytes(secret: Secret, encoding: SecretEncoding | undefined): Buffer | KeyProblem {
  if (secret.length === 0) return problem('the secret is empty', 'an empty key would accept what anybody signs');
  if (encoding === 'utf8') return secret.expose();
  const text = secret.expose().toString('latin1');
  if (encoding === undefined && !text.startsWith(SECRET_PREFIX)) {
    return problem('the secret has no whsec_ prefix', 'say how it is written: encoding: utf8, base64 or hex');
  }
  const digits = text.startsWith(SECRET_PREFIX) ? text.slice(SECRET_PREFIX.length) : text;
  const bytes = encoding === 'hex' ? parseHex(digits) : parseBase64(digits);
  if (bytes === undefined) {
    const form = encoding === 'hex' ? 'hex' : 'canonical base64';
    return problem(`the secret is not ${form}`, 'paste it whole, as the sender shows it; or set encoding: utf8, base64 or hex');
  }
  if (bytes.length === 0) return problem('the secret is empty', 'an empty key would accept what anybody signs');
  return bytes;
}

function sign(
  request: SignRequest,
  secret: Secret,
  encoding: SecretEncoding | undefined,
): readonly (readonly [string, string])[] {
  const timestampText = String(Math.floor(request.timestamp / 1000));
  const signed = Buffer.concat([Buffer.from(toSignedPrefix(request.id, timestampText), 'latin1'), request.body]);
  return [
    ['Webhook-Id', request.id],
    ['Webhook-Timestamp', timestampText],
    ['Webhook-Signature', toSignature(signed, secret, encoding)],
  ];
}

function toSignature(signed: Buffer, secret: Secret, encoding: SecretEncoding | undefined): string {
  const text = secret.expose().toString('latin1');
  if (encoding === undefined && text.startsWith(PRIVATE_PREFIX)) {
    return `v1a,${signBytes(null, signed, toPrivateKey(text.slice(PRIVATE_PREFIX.length))).toString('base64')}`;
  }
  if (encoding === undefined && text.startsWith(PUBLIC_PREFIX)) {
    throw new SidegateError('user', 'secret_cannot_sign', 'a whpk_ key only verifies; sign with its whsk_ half');
  }
  const bytes = toSecretBytes(secret, encoding);
  if (!Buffer.isBuffer(bytes)) throw new SidegateError('user', 'secret_cannot_sign', `${bytes.problem}: ${bytes.hint}`);
  return `v1,${createHmac('sha256', bytes).update(signed).digest('base64')}`;
}

/** A seed of 32 bytes, or the 64 that some tools write: seed and public key. */
function toPrivateKey(base64: string): KeyObject {
  const raw = parseBase64(base64);
  if (raw?.length !== ED25519_KEY_LENGTH && raw?.length !== 2 * ED25519_KEY_LENGTH) {
    throw new SidegateError('user', 'secret_cannot_sign', 'the text after whsk_ is not base64 of 32 or 64 bytes');
  }
  const der = Buffer.concat([PKCS8_HEAD, raw.subarray(0, ED25519_KEY_LENGTH)]);
  return createPrivateKey({ key: der, format: 'der', type: 'pkcs8' });
}

/** The scheme (standardwebhooks.com, specification v1). */
export const standardWebhooks: Scheme = {
  name: 'standard-webhooks',
  headerNames: HEADER_NAMES,
  parseKey,
  readHead,
  verify,
  sign,
};
