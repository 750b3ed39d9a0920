/** Verifies the chain of certificates in a token's header (`x5c`) up to a root that the route pins. */
import { type KeyObject, X509Certificate } from 'node:crypto';
import { parseBase64 } from '../../../core/bytes.ts';
import type { EpochMilliseconds } from '../../../core/clock.ts';
import { readElement } from '../../../core/der.ts';
import type { Algorithm } from '../description.ts';
import type { ChainDescription } from '../key-description.ts';
import type { Material } from '../keys.ts';
import { findWeakKey, isOfKind, toValidity } from '../public-keys.ts';
import type { VerifyKey } from '../scheme.ts';

/** The rules for a chain. */
export interface ChainRules {
  readonly chain: ChainDescription;
  /** The algorithm of the signer's key. */
  readonly algorithm: Algorithm;
  readonly at: EpochMilliseconds;
}

/** The key of the signer, and the root that vouches for it. */
export interface Leaf {
  readonly key: VerifyKey;
  readonly publicKey: KeyObject;
}

const MAX_CERTIFICATE_CHARS = 8_192;
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
    return top.checkIssued(certificate) && top.verify(certificate.publicKey);
  });
  if (root === undefined) return undefined;
  for (let index = issued.length - 1; index > 0; index--) {
    const issuer = issued[index];
    if (issuer === undefined || issued[index - 1]?.verify(issuer.publicKey) !== true) return undefined;
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
    const digits = [number & 0x7f];
    for (let left = number >>> 7; left > 0; left >>>= 7) digits.unshift((left & 0x7f) | 0x80);
    return digits;
  });
  return Buffer.from(bytes);
}
