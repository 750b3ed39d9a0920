/** Parses public keys: in PEM, from a certificate, as a JWK, or in the encoding of their sender. */
import { createPublicKey, type JsonWebKey, type KeyObject, X509Certificate } from 'node:crypto';
import { parseBase64Key, parseHex } from '../../core/bytes.ts';
import type { EpochMilliseconds } from '../../core/clock.ts';
import { parseStrictJson } from '../../core/strict-json.ts';
import { RSA_BYTES } from './algorithms.ts';
import type { Algorithm } from './description.ts';
import type { PublicKeyDescription } from './key-description.ts';
import type { KeyFault, VerifyKey } from './scheme.ts';

/** A public key, with the dates and the name that its source gives it. */
interface PublicKey {
  readonly key: KeyObject;
  readonly validity?: Validity;
  /** The `kid` of a JWK. */
  readonly id?: string;
  /** If the key is that of a certificate. */
  readonly certificate?: X509Certificate;
}

const ED25519_KEY_LENGTH = 32;
/** The bytes before the 32 raw bytes in DER (RFC 8410 §4). */
export const SPKI_HEAD = Buffer.from('302a300506032b6570032100', 'hex');
export const PEM = /^-----BEGIN ([A-Z0-9 ]+)-----/;
const PUBLIC_PEM = /^-----BEGIN (?:[A-Z0-9]+ )?(?:PUBLIC KEY|CERTIFICATE)-----/;
const DER_SEQUENCE = 0x30;
const PRIVATE_PEM = /^-----BEGIN [A-Z ]*PRIVATE KEY/;
const CERTIFICATE = '-----BEGIN CERTIFICATE-----';
/** FIPS 186-5 §5.1: with a small exponent anyone could sign (1), or errors of the signer matter more. */
const MIN_RSA_EXPONENT = 65_537n;
const BITS_PER_BYTE = 8;
const JWK_BOUNDS = { maxDepth: 4, maxValues: 64 };

interface KeyKind {
  readonly type: string;
  readonly curve?: string;
  readonly title: string;
}

const RSA: KeyKind = { type: 'rsa', title: 'an RSA' };

/** The kind of key that an algorithm requires. */
const KINDS: Readonly<Record<string, KeyKind>> = {
  ed25519: { type: 'ed25519', title: 'an Ed25519' },
  'ecdsa-p256': { type: 'ec', curve: 'prime256v1', title: 'an ECDSA P-256' },
  'rsa-sha256': RSA,
  'rsa-sha512': RSA,
  'rsa-pss-sha256': RSA,
  'rsa-pss-sha512': RSA,
};

/** A validity period; undefined bounds are open. */
export type Validity = Required<Pick<VerifyKey, 'notBefore' | 'notAfter'>>;

const DATE_TIME = /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(?:\.\d{1,9})?(?:Z|[+-]\d{2}:\d{2})$/;
/** As seconds this is the year 5138, so larger numbers are milliseconds: read as seconds, the key would never expire. */
const MAX_SECONDS = 100_000_000_000;

/** The kind in words, such as `an RSA`. */
export function toKindTitle(algorithm: Algorithm): string {
  return KINDS[algorithm]?.title ?? 'another';
}

/** Whether a key is of the kind that the algorithm requires. */
export function isOfKind(key: KeyObject, algorithm: Algorithm): boolean {
  const wanted = KINDS[algorithm];
  return key.asymmetricKeyType === wanted?.type && key.asymmetricKeyDetails?.namedCurve === wanted?.curve;
}

/** Why a key of the right kind is not safe, or costs too much; undefined if it is fine. */
export function findWeakKey({ asymmetricKeyType, asymmetricKeyDetails }: KeyObject): KeyFault | undefined {
  if (asymmetricKeyType !== 'rsa') return undefined;
  const { modulusLength = 0, publicExponent = 0n } = asymmetricKeyDetails ?? {};
  const [min, max] = RSA_BYTES.map((bytes) => bytes * BITS_PER_BYTE) as [number, number];
  if (modulusLength < min || modulusLength > max)
    return { problem: `the RSA key has ${modulusLength} bits`, hint: `the sender must use a key of ${min} to ${max} bits` };
  if (publicExponent >= MIN_RSA_EXPONENT) return undefined;
  return { problem: `the exponent of the RSA key is ${publicExponent}`, hint: 'the sender must use 65537, which is usual' };
}

/** Parses the text of a public key. */
export function readPublicKey(text: string, form: PublicKeyDescription, algorithm: Algorithm): PublicKey | KeyFault {
  const { prefix = '', privatePrefix } = form;
  if ((privatePrefix !== undefined && text.startsWith(privatePrefix)) || PRIVATE_PEM.test(text)) {
    const what = PEM.test(text) ? 'this' : `a ${privatePrefix} secret`;
    return toPrivateProblem(what, prefix);
  }
  const read = readAnyForm(text, form, algorithm);
  if ('problem' in read) return read;
  if (!isOfKind(read.key, algorithm)) return toWrongForm(form, algorithm);
  return findWeakKey(read.key) ?? read;
}

/** Parses a root for `jwt.chain`. */
export function readRoot(text: string): PublicKey | KeyFault {
  const read = readCertificate(text);
  return 'problem' in read ? read : (findWeakKey(read.key) ?? read);
}

/** Parses a certificate in PEM: the key of its subject is pinned. */
function readCertificate(text: string): PublicKey | KeyFault {
  if (text.split(CERTIFICATE).length !== 2 || !text.startsWith(CERTIFICATE))
    return { problem: 'this is not one certificate in PEM', hint: 'configure each certificate as a separate key' };
  try {
    const certificate = new X509Certificate(text);
    return { key: certificate.publicKey, validity: toValidity(certificate), certificate };
  } catch {
    return { problem: 'the certificate cannot be parsed', hint: 'copy the whole certificate, in PEM' };
  }
}

/** The validity period of a certificate. */
export function toValidity({ validFrom, validTo }: X509Certificate): {
  notBefore: EpochMilliseconds;
  notAfter: EpochMilliseconds;
} {
  // The last second belongs to the period (RFC 5280 §4.1.2.5).
  return { notBefore: Date.parse(validFrom), notAfter: Date.parse(validTo) + 1_000 };
}

/** The key of a JWK (RFC 7517 §4, RFC 8037 §2); undefined if it is not a public key that verifies by this algorithm. */
export function toJwkKey(jwk: JsonWebKey, algorithm: Algorithm): PublicKey | undefined {
  const { use, kid, key_ops: operations } = jwk as { use?: unknown; kid?: unknown; key_ops?: unknown };
  if ((use !== undefined && use !== 'sig') || jwk['d'] !== undefined || isForOther(jwk['alg'], algorithm)) return undefined;
  if (operations !== undefined && !(Array.isArray(operations) && operations.includes('verify'))) return undefined;
  const validity = parseValidity(jwk);
  if (validity === undefined) return undefined;
  try {
    const key = createPublicKey({ key: jwk, format: 'jwk' });
    if (!isOfKind(key, algorithm) || findWeakKey(key) !== undefined) return undefined;
    return { key, validity, ...(typeof kid === 'string' ? { id: kid } : undefined) };
  } catch {
    return undefined;
  }
}

/** Whether a text is a JWK, or a set of them, without a secret. */
export function isPublicJwk(text: string): boolean {
  if (!text.trimStart().startsWith('{')) return false;
  try {
    const { kty, keys } = JSON.parse(text) as { kty?: unknown; keys?: unknown };
    return Array.isArray(keys) || (typeof kty === 'string' && kty !== 'oct');
  } catch {
    return false;
  }
}

/** Whether this is a public key: everyone knows it, so everyone could sign with it, if it became the secret of an HMAC. */
export function isPublicKey(bytes: Buffer): boolean {
  const text = bytes.toString('latin1').trim();
  return PUBLIC_PEM.test(text) || isPublicJwk(text) || [bytes, parseBase64Key(text)].some(isPublicDer);
}

function isPublicDer(der: Buffer | undefined): boolean {
  if (der?.[0] !== DER_SEQUENCE) return false;
  const parsers = [
    () => createPublicKey({ key: der, format: 'der', type: 'spki' }),
    () => createPublicKey({ key: der, format: 'der', type: 'pkcs1' }),
    () => new X509Certificate(der),
  ];
  return parsers.some((parse) => {
    try {
      parse();
      return true;
    } catch {
      return false;
    }
  });
}

/** The names of the algorithms in JSON Web Signatures (RFC 7518 §3.1, RFC 8037 §3.1). */
export const JWS_NAMES: Readonly<Record<Algorithm, string | undefined>> = {
  'hmac-sha1': undefined,
  'hmac-sha256': 'HS256',
  'hmac-sha384': 'HS384',
  'hmac-sha512': 'HS512',
  'sha256-secret-first': undefined,
  'sha256-secret-last': undefined,
  ed25519: 'EdDSA',
  'ecdsa-p256': 'ES256',
  'rsa-sha256': 'RS256',
  'rsa-sha512': 'RS512',
  'rsa-pss-sha256': 'PS256',
  'rsa-pss-sha512': 'PS512',
  token: undefined,
};

/** A key that its owner limits to one algorithm must not verify others (RFC 7517 §4.4). */
function isForOther(name: unknown, algorithm: Algorithm): boolean {
  // RFC 9864 renames EdDSA with this curve.
  return name !== undefined && name !== JWS_NAMES[algorithm] && !(algorithm === 'ed25519' && name === 'Ed25519');
}

function readAnyForm(text: string, form: PublicKeyDescription, algorithm: Algorithm): PublicKey | KeyFault {
  if (text.trimStart().startsWith('{')) return readJwkText(text, algorithm);
  if (text.startsWith(CERTIFICATE)) return readCertificate(text);
  try {
    return { key: PEM.test(text) ? createPublicKey(text) : toPublicKey(text, form) };
  } catch {
    return toWrongForm(form, algorithm);
  }
}

function readJwkText(text: string, algorithm: Algorithm): PublicKey | KeyFault {
  const parsed = parseStrictJson(Buffer.from(text.trim(), 'latin1'), JWK_BOUNDS);
  if (parsed.kind === 'problem') return { problem: `the JWK cannot be parsed: ${parsed.problem}`, hint: 'copy the whole JWK' };
  const jwk = parsed.value as JsonWebKey;
  if (Array.isArray(jwk['keys']))
    return { problem: 'this is a JWK Set', hint: 'configure each of its keys separately, or its URL under jwks' };
  if (jwk['d'] !== undefined) return toPrivateProblem('this', '');
  const hint = `the JWK must be the public key that signs webhooks: ${toKindTitle(algorithm)} key, with alg ${JWS_NAMES[algorithm]} or none`;
  return toJwkKey(jwk, algorithm) ?? { problem: 'the JWK is not a key of this scheme', hint };
}

function toPrivateProblem(what: string, prefix: string): KeyFault {
  const hint = `verification needs the public key${prefix === '' ? '' : `, ${prefix}…`}`;
  return { problem: `${what} is a private key`, hint };
}

function toWrongForm({ prefix = '', encoding, format }: PublicKeyDescription, algorithm: Algorithm): KeyFault {
  const what = format === 'raw' ? '32 bytes' : `${toKindTitle(algorithm)} key in DER`;
  const where = prefix === '' ? 'the key' : `the text after ${prefix}`;
  return {
    problem: `${where} is not ${encoding} of ${what}`,
    hint: 'copy the whole public key, as the sender shows it, or in PEM',
  };
}

function toPublicKey(text: string, { prefix = '', encoding, format }: PublicKeyDescription): KeyObject {
  const digits = text.startsWith(prefix) ? text.slice(prefix.length) : '';
  const raw = encoding === 'hex' ? parseHex(digits) : parseBase64Key(digits);
  if (raw === undefined || (format === 'raw' && raw.length !== ED25519_KEY_LENGTH))
    throw new Error('not a public key of this scheme');
  return createPublicKey({ key: format === 'raw' ? Buffer.concat([SPKI_HEAD, raw]) : raw, format: 'der', type: 'spki' });
}

/**
 * Reads the validity period that a JWK names: `nbf` and `exp` as in a JWT (RFC 7519 §4.1), or `not_before` and `not_after`; Plaid writes
 * `expired_at`. Undefined if a bound cannot be interpreted: a key that its sender limits must not become an unlimited one.
 */
function parseValidity(jwk: JsonWebKey): Validity | undefined {
  const starts = readDates(jwk, ['nbf', 'not_before']);
  const ends = readDates(jwk, ['exp', 'not_after', 'expired_at']);
  if (starts === undefined || ends === undefined) return undefined;
  return {
    notBefore: starts.length === 0 ? undefined : Math.max(...starts),
    notAfter: ends.length === 0 ? undefined : Math.min(...ends),
  };
}

function readDates(jwk: JsonWebKey, names: readonly string[]): EpochMilliseconds[] | undefined {
  const dates = names.flatMap((name) => (jwk[name] === undefined || jwk[name] === null ? [] : [readDate(jwk[name])]));
  return dates.includes(Number.NaN) ? undefined : dates;
}

/** NaN if the value is neither a number of seconds nor a time as in RFC 3339. */
function readDate(value: unknown): EpochMilliseconds {
  if (typeof value === 'number' && Number.isFinite(value)) return value < MAX_SECONDS ? value * 1_000 : value;
  return typeof value === 'string' && DATE_TIME.test(value) ? Date.parse(value) : Number.NaN;
}
