/** Parses a signature header more leniently than any scheme, to find out how it differs from what the scheme expects. */
import { ALGORITHMS } from '../../verify/schemes/algorithms.ts';
import type { Algorithm, SchemeDescription, SignatureDescription } from '../../verify/schemes/description.ts';
import { MAX_SIGNATURE_ENTRIES } from '../../verify/schemes/signature-entries.ts';

/** The leniently parsed header: a rewritten value, and a description that matches it. */
interface LenientSignature {
  readonly cause: 'signature_algorithm' | 'signature_encoding' | 'signature_prefix';
  /** How it differs. */
  readonly text: string;
  readonly value: string;
  readonly signature: SignatureDescription;
}

/** HMAC algorithms by length; 64 bytes may also be an Ed25519 signature. */
const BY_LENGTH: Readonly<Record<number, Algorithm>> = { 20: 'hmac-sha1', 32: 'hmac-sha256', 64: 'hmac-sha512' };
const ANY_PREFIX = /^[A-Za-z0-9_-]{1,16}\s*[=,:]\s*/;
const HEX = /^(?:[0-9A-Fa-f]{2})+$/;
const BASE64 = /^[A-Za-z0-9+/_-]+={0,2}$/;
/** A prefix that makes the rewritten value unambiguous. */
const MARK = 'sg=';

/** Returns the first entry that looks like a signature, although not one of the scheme. */
export function parseLeniently(value: string, { signature }: SchemeDescription): LenientSignature | undefined {
  if (signature === undefined || signature.encoding === 'text') return undefined;
  const entries = (signature.list === undefined ? [value] : value.split(signature.list)).slice(0, MAX_SIGNATURE_ENTRIES);
  for (const [index, entry] of entries.entries()) {
    const found = parseEntry(entry.trim(), signature);
    if (found === undefined) continue;
    const rewritten = entries.with(index, `${MARK}${found.bytes.toString('hex')}`).join(signature.list ?? '');
    return {
      cause: found.cause,
      text: found.text,
      value: rewritten,
      signature: { ...signature, encoding: 'hex', forms: [{ prefix: MARK, algorithm: found.algorithm }] },
    };
  }
  return undefined;
}

interface SignatureEntry {
  readonly cause: LenientSignature['cause'];
  readonly text: string;
  readonly algorithm: Algorithm;
  readonly bytes: Buffer;
}

function parseEntry(entry: string, signature: SignatureDescription): SignatureEntry | undefined {
  const own = signature.forms.find(({ prefix }) => entry.startsWith(prefix));
  const prefixes = own === undefined ? [ANY_PREFIX.exec(entry)?.[0] ?? '', ''] : [own.prefix, ANY_PREFIX.exec(entry)?.[0] ?? ''];
  for (const prefix of prefixes) {
    const decoded = decode(entry.slice(prefix.length));
    if (decoded === undefined) continue;
    const form = own ?? signature.forms[0];
    const algorithm = toAlgorithm(decoded.bytes.length, form?.algorithm);
    if (algorithm === undefined) continue;
    return compare({ prefix, algorithm, ...decoded }, signature, form);
  }
  return undefined;
}

function toAlgorithm(length: number, own: Algorithm | undefined): Algorithm | undefined {
  const [least, most] = own === undefined ? [0, 0] : ALGORITHMS[own].lengths;
  return length >= least && length <= most ? own : BY_LENGTH[length];
}

interface Decoded {
  readonly bytes: Buffer;
  /** The encoding whose canonical form is closest. */
  readonly encoding: 'hex' | 'base64' | 'base64url';
  readonly isCanonical: boolean;
}

function decode(text: string): Decoded | undefined {
  if (HEX.test(text) && BY_LENGTH[text.length / 2] !== undefined)
    return { bytes: Buffer.from(text, 'hex'), encoding: 'hex', isCanonical: true };
  if (!BASE64.test(text)) return undefined;
  const bytes = Buffer.from(text, 'base64');
  const encoding = /[-_]/.test(text) || bytes.toString('base64url') === text ? 'base64url' : 'base64';
  return BY_LENGTH[bytes.length] === undefined ? undefined : { bytes, encoding, isCanonical: bytes.toString(encoding) === text };
}

function compare(
  found: Decoded & { readonly prefix: string; readonly algorithm: Algorithm },
  signature: SignatureDescription,
  form: SignatureDescription['forms'][number] | undefined,
): SignatureEntry | undefined {
  const { algorithm, bytes, encoding, isCanonical, prefix } = found;
  const differences: [LenientSignature['cause'], string][] = [];
  if (algorithm !== form?.algorithm) differences.push(['signature_algorithm', `as ${algorithm}, according to its length`]);
  if (encoding !== signature.encoding)
    differences.push(['signature_encoding', `as ${encoding} instead of ${signature.encoding}`]);
  else if (!isCanonical) differences.push(['signature_encoding', `as ${encoding} with different padding`]);
  if (signature.forms.every((each) => each.prefix !== prefix))
    differences.push([
      'signature_prefix',
      `${prefix === '' ? 'without a prefix' : 'with another prefix'} instead of ${form?.prefix}`,
    ]);
  const [first] = differences;
  return first && { cause: first[0], text: differences.map(([, text]) => text).join(' and '), algorithm, bytes };
}
