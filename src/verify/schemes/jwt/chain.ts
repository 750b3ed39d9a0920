/** Verifies the chain of certificates in a token's header (`x5c`) up to a root that the route pins. */
import { type KeyObject, X509Certificate } from 'node:crypto';
import { parseBase64, readElement } from '../../../core/bytes.ts';
import type { EpochMilliseconds } from '../../../core/clock.ts';
import type { Algorithm } from '../description.ts';
import type { ChainDescription } from '../key-description.ts';
import type { Material } from '../keys.ts';
import { findWeakKey, isOfKind, toValidity } from '../public-keys.ts';
import type { VerifyKey } from '../scheme.ts';

/** The rules for a chain. */
interface ChainRules {
  readonly chain: ChainDescription;
  /** The algorithm of the signer's key. */
  readonly algorithm: Algorithm;
  readonly at: EpochMilliseconds;
}

/** The key of the signer, and the root that vouches for it. */
interface Leaf {
  readonly key: VerifyKey;
  readonly publicKey: KeyObject;
}

const MAX_CERTIFICATE_CHARS = 8_192;
/** RSASSA-PKCS1-v1_5 and ECDSA with SHA-256, 384 and 512, Ed25519: two certificates can have the same MD5 or SHA-1 (RFC 9155 §1). */
const SIGNATURES: ReadonlySet<string> = new Set(
  [
    ...[11, 12, 13].map((last) => `1.2.840.113549.1.1.${last}`),
    ...[2, 3, 4].map((last) => `1.2.840.10045.4.3.${last}`),
    '1.3.101.112',
  ].map((id) => toIdentifier(id).toString('hex')),
);
const [SEQUENCE, OBJECT_IDENTIFIER, EXTENSIONS] = [0x30, 0x06, 0xa3];

/**
 * Verifies a chain from the signer upwards. Its length is fixed by the extensions that mark its certificates; the root may follow. Checks
 * names and dates first: an unverified sender must not be able to cause signatures to be verified without a chain that looks right.
 */
export function findLeafKey(x5c: unknown, roots: readonly VerifyKey[], { chain, algorithm, at }: ChainRules): Leaf | undefined {
  const { extensions } = chain;
  const certificates = parseChain(x5c, extensions.length);
  if (certificates === undefined) return undefined;
  const issued = certificates.slice(0, extensions.length);
  const isMarked = issued.every((each, index) => isValidAt(each, at) && hasExtension(each, extensions[index] ?? ''));
  const isLinked = issued.slice(1).every((issuer, index) => issuer.ca && issued[index]?.checkIssued(issuer) === true);
  const [leaf, top, given] = [issued[0], issued.at(-1), certificates[extensions.length]];
  if (!isMarked || !isLinked || leaf === undefined || top === undefined) return undefined;
  const root = roots.find(({ material }) => {
    const { certificate } = material as Material;
    if (certificate === undefined || (given !== undefined && !given.raw.equals(certificate.raw))) return false;
    return top.checkIssued(certificate) && isSignedBy(top, certificate);
  });
  if (root === undefined) return undefined;
  for (let index = issued.length - 1; index > 0; index--) {
    const issuer = issued[index];
    const below = issued[index - 1];
    if (issuer === undefined || below === undefined || !isSignedBy(below, issuer)) return undefined;
  }
  const { publicKey } = leaf;
  return isOfKind(publicKey, algorithm) && findWeakKey(publicKey) === undefined ? { key: root, publicKey } : undefined;
}

function parseChain(x5c: unknown, length: number): X509Certificate[] | undefined {
  if (!Array.isArray(x5c) || (x5c.length !== length && x5c.length !== length + 1)) return undefined;
  const found: X509Certificate[] = [];
  for (const text of x5c) {
    const der = typeof text === 'string' && text.length <= MAX_CERTIFICATE_CHARS ? parseBase64(text) : undefined;
    if (der === undefined) return undefined;
    try {
      const certificate = new X509Certificate(der);
      // Nothing may follow the certificate.
      if (!certificate.raw.equals(der)) return undefined;
      found.push(certificate);
    } catch {
      return undefined;
    }
  }
  return found;
}

function isValidAt(certificate: X509Certificate, at: EpochMilliseconds): boolean {
  const { notBefore, notAfter } = toValidity(certificate);
  return notBefore <= at && at < notAfter;
}

function isSignedBy(certificate: X509Certificate, { publicKey }: X509Certificate): boolean {
  return findWeakKey(publicKey) === undefined && isSignedSafely(certificate) && certificate.verify(publicKey);
}

/** OpenSSL verifies any digest. Node has the name of the algorithm only from version 24.9 on. */
function isSignedSafely({ raw }: X509Certificate): boolean {
  const whole = readElement(raw, 0, SEQUENCE);
  const body = whole && readElement(raw, whole.start, SEQUENCE);
  const algorithm = body && readElement(raw, body.end, SEQUENCE);
  const id = algorithm && readElement(raw, algorithm.start, OBJECT_IDENTIFIER);
  return id !== undefined && SIGNATURES.has(raw.toString('hex', id.start, id.end));
}

/** Looks at the extensions only: the rest of a certificate may contain the same bytes, as its owner chooses its key and its names. */
function hasExtension({ raw }: X509Certificate, id: string): boolean {
  const wanted = toIdentifier(id);
  const whole = readElement(raw, 0, SEQUENCE);
  const body = whole && readElement(raw, whole.start, SEQUENCE);
  for (let at = body?.start; body !== undefined && at !== undefined && at < body.end; at = readElement(raw, at)?.end) {
    const extensions = readElement(raw, at, EXTENSIONS);
    const list = extensions && readElement(raw, extensions.start, SEQUENCE);
    if (list !== undefined) return hasIdentifier(raw, list, wanted);
  }
  return false;
}

function hasIdentifier(raw: Buffer, list: { readonly start: number; readonly end: number }, wanted: Buffer): boolean {
  for (let at = list.start; at < list.end; ) {
    const extension = readElement(raw, at, SEQUENCE);
    const name = extension && readElement(raw, extension.start, OBJECT_IDENTIFIER);
    if (extension === undefined || name === undefined) return false;
    if (raw.subarray(name.start, name.end).equals(wanted)) return true;
    at = extension.end;
  }
  return false;
}

/** Encodes an object identifier such as 1.2.840.113635 (X.690 §8.19). */
function toIdentifier(id: string): Buffer {
  const [first = 0, second = 0, ...rest] = id.split('.').map(Number);
  const bytes = [first * 40 + second, ...rest].flatMap((number) => {
    const digits = [number % 0x80];
    // Numbers may have more than 32 bits.
    for (let left = Math.floor(number / 0x80); left > 0; left = Math.floor(left / 0x80)) digits.unshift((left % 0x80) | 0x80);
    return digits;
  });
  return Buffer.from(bytes);
}
