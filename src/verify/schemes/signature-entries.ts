/** Parses the entries of signature headers and fields strictly, before anything is verified. */
import { parseBase64, parseBase64Url, parseHex } from '../../core/bytes.ts';
import type { ParsedSignature } from '../../core/event.ts';
import { type Refusal, refuse } from '../../core/refusal.ts';
import { ALGORITHMS } from './algorithms.ts';
import type { Algorithm, SignatureDescription, SignatureEncoding, SignatureForm } from './description.ts';

/** Entries of all signature headers, including that of the timestamp. Bounds the work for an unverified sender. */
export const MAX_SIGNATURE_ENTRIES = 10;

/** Each asymmetric signature costs another hash of the body. Senders use two during a rotation of their key. */
const MAX_ASYMMETRIC = 4;

const DECODERS: Readonly<Record<SignatureEncoding, (text: string) => Buffer | undefined>> = {
  hex: parseHex,
  base64: parseBase64,
  base64url: parseBase64Url,
  text: (text) => Buffer.from(text, 'latin1'),
  // Tokens are read by token.ts.
  jwt: () => undefined,
};

/** The refusal of a head or body that is not as the scheme describes it. */
export function malformed(detail: string): Refusal {
  return refuse('malformed_signature', 'malformed_signature', detail);
}

/** Splits a value into its entries; undefined if there are too many. */
export function toEntries(value: string | undefined, list: SignatureDescription['list']): string[] | undefined {
  if (value === undefined) return [];
  if (list === undefined) return [value];
  const entries = value.split(list);
  if (entries.length > MAX_SIGNATURE_ENTRIES) return undefined;
  // Spaces around the separators of a list are allowed (RFC 9110 §5.6.1).
  return list === ' ' ? entries : entries.map((entry) => entry.trim());
}

/** The parts of an entry; undefined if it has another number of them. */
export function toParts(entry: string, { separator, count }: NonNullable<SignatureDescription['parts']>): string[] | undefined {
  // A limit: only the number of parts matters.
  const parts = entry.split(separator, count + 1);
  return parts.length === count ? parts : undefined;
}

/** Entries of other forms and malformed entries are ignored: an unexpected entry must not invalidate a valid one next to it. */
export function compileSignatures(
  signature: SignatureDescription | undefined,
): (entries: readonly string[]) => ParsedSignature[] | Refusal {
  if (signature === undefined || signature.content !== undefined) return () => [];
  const { header, encoding, forms, parts } = signature;
  // The names of authentication schemes are case-insensitive (RFC 9110 §11.1).
  const fold = header.toLowerCase() === 'authorization' ? (text: string) => text.toLowerCase() : (text: string) => text;
  const readers = forms.map((form) => compileForm(form, encoding, fold));
  const wanted = forms.map(({ prefix, algorithm }) => `${prefix}… (${algorithm})`).join(' or ');
  const read = (entries: readonly string[]): ParsedSignature[] | Refusal => {
    const signatures: ParsedSignature[] = [];
    let asymmetric = 0;
    for (const entry of entries) {
      for (const readEntry of readers) {
        const found = readEntry(entry);
        if (found === undefined || (ALGORITHMS[found.algorithm as Algorithm].isAsymmetric && ++asymmetric > MAX_ASYMMETRIC))
          continue;
        signatures.push(found);
      }
    }
    return signatures.length === 0 ? malformed(`no entry is ${wanted} in ${encoding}`) : signatures;
  };
  if (parts === undefined) return read;
  return (entries) => read(entries.flatMap((entry) => toParts(entry, parts)?.[parts.signature] ?? []));
}

function compileForm(
  { prefix, algorithm }: SignatureForm,
  encoding: SignatureEncoding,
  fold: (text: string) => string,
): (entry: string) => ParsedSignature | undefined {
  const decode = DECODERS[encoding];
  const [min, max] = ALGORITHMS[algorithm].lengths;
  const start = fold(prefix);
  return (entry) => {
    if (fold(entry.slice(0, prefix.length)) !== start) return undefined;
    const bytes = decode(entry.slice(prefix.length));
    return bytes !== undefined && bytes.length >= min && bytes.length <= max ? { algorithm, bytes } : undefined;
  };
}
