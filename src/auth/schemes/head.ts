/** Parses the signature headers strictly, before anything is verified. */
import { parseBase64, parseBase64Url, parseHex } from '../../core/bytes.ts';
import type { ParsedSignature, SignedHead } from '../../core/event.ts';
import type { HeaderFields } from '../../core/headers.ts';
import { Refusal, refuse } from '../../core/refusal.ts';
import { ALGORITHMS } from './algorithms.ts';
import type { SchemeDescription, SignatureDescription, SignatureEncoding, SignatureForm } from './description.ts';
import { compileKind } from './kind.ts';
import { compilePieceRules, type PieceRules } from './layout.ts';
import type { HeadOptions } from './scheme.ts';
import { TIMESTAMP_FORMATS } from './timestamp.ts';
import { compileTwinTest, describeMixture, renameToTwins } from './twins.ts';

/** Parses the signature headers, or returns the refusal `missing_signature` or `malformed_signature`. */
export type ReadHead = (headers: HeaderFields, options: HeadOptions) => SignedHead | Refusal;

/** The form of an ID in a header. */
export const VALID_ID = /^[\x21-\x7e]{1,256}$/;
/** Entries of a signature header, including that of the timestamp. Bounds the work for an unverified sender. */
export const MAX_SIGNATURE_ENTRIES = 10;

const DECODERS: Readonly<Record<SignatureEncoding, (text: string) => Buffer | undefined>> = {
  hex: parseHex,
  base64: parseBase64,
  base64url: parseBase64Url,
  text: (text) => Buffer.from(text, 'latin1'),
};

function malformed(detail: string): Refusal {
  return refuse('malformed_signature', 'malformed_signature', detail);
}

/** The names of headers, lower-cased. */
interface Names {
  readonly signature: string | undefined;
  readonly id: string | undefined;
  readonly timestamp: string | undefined;
}

/** The headers of a scheme, which must not be repeated. */
export function toHeaderNames(description: SchemeDescription): string[] {
  const { id, timestamp, signature } = toNames(description);
  const { kind = [] } = description;
  return [id, timestamp, signature, ...kind.map((name) => name.toLowerCase())].filter((name) => name !== undefined);
}

function toNames({ signature, id, timestamp }: SchemeDescription): Names {
  return {
    signature: signature?.content === undefined ? signature?.header.toLowerCase() : undefined,
    id: id !== undefined && 'header' in id ? id.header.toLowerCase() : undefined,
    timestamp: timestamp !== undefined && 'header' in timestamp.from ? timestamp.from.header.toLowerCase() : undefined,
  };
}

/** Compiles the parser of a scheme's headers. */
export function compileHead(description: SchemeDescription): ReadHead {
  const readOwn = compileNames(description);
  if (description.acceptsTwins === undefined) return readOwn;
  const usesTwins = compileTwinTest(description);
  const readTwins = compileNames(renameToTwins(description));
  return (headers, options) => (usesTwins(headers) ? readTwins : readOwn)(headers, options);
}

/** Compiles the parser for one set of header names. */
function compileNames(description: SchemeDescription): ReadHead {
  const names = toNames(description);
  const findRepeated = compileFieldCheck(description);
  const rules = compilePieceRules(description);
  const readId = compileId(description, rules);
  const readTime = compileTime(description, rules);
  const readSignatures = compileSignatures(description.signature);
  const readKind = description.kind === undefined ? undefined : compileKind(description.kind);
  return (headers, options) => {
    const repeated = findRepeated(headers);
    if (repeated !== undefined) return repeated;
    const id = readId(toField(headers, names.id), options);
    if (typeof id === 'object') return id;
    const list = toField(headers, names.signature);
    if (list === '') return refuse('missing_signature', 'missing_signature');
    const entries = toEntries(list, description.signature?.list);
    if (entries === undefined) return malformed(`more than ${MAX_SIGNATURE_ENTRIES} signatures`);
    const time = readTime(toField(headers, names.timestamp), entries);
    if (time instanceof Refusal) return time;
    const signatures = readSignatures(entries);
    if (signatures instanceof Refusal) return signatures;
    const head = { id, ...time, signatures };
    return readKind === undefined ? head : withKind(head, readKind(headers));
  };
}

function withKind(head: SignedHead, kind: string | undefined): SignedHead | Refusal {
  return kind === undefined
    ? malformed('the kind of event contains characters other than A-Z a-z 0-9 / . _ : - and spaces')
    : { ...head, kind };
}

/** Undefined if the scheme has no such header; empty if the request has none. */
function toField(headers: HeaderFields, name: string | undefined): string | undefined {
  return name === undefined ? undefined : (headers.get(name) ?? '');
}

function compileFieldCheck(description: SchemeDescription): (headers: HeaderFields) => Refusal | undefined {
  const twins = new Map(Object.entries(description.twins ?? {}).map(([own, twin]) => [own.toLowerCase(), twin.toLowerCase()]));
  const names = toHeaderNames(description).map((name) => ({ name, twin: twins.get(name) }));
  return (headers) => {
    for (const { name, twin } of names) {
      // Parsers use the first value, the last, or join them, so a repeated security header is rejected.
      if (headers.count(name) > 1) return malformed(`${name} is repeated`);
      if (twin !== undefined && isContradicted(headers, name, twin))
        return malformed(describeMixture(description, headers) ?? `${twin} differs from ${name}`);
    }
    return undefined;
  };
}

/** The app may read the alternative header, which is not verified: a different ID there would be a different event. */
function isContradicted(headers: HeaderFields, name: string, twin: string): boolean {
  return headers.get(twin) !== undefined && headers.all(twin).some((value) => value !== headers.get(name));
}

/** A signed ID is required. An unsigned ID is optional; without it the digest identifies the event. */
function compileId(
  { signed, id: source }: SchemeDescription,
  rules: PieceRules,
): (id: string | undefined, options: HeadOptions) => string | undefined | Refusal {
  const isSigned = signed.includes('id');
  return (id, options) => {
    if (id === undefined || id === '') {
      return isSigned && source !== undefined ? refuse('missing_signature', 'missing_signature') : undefined;
    }
    if (!VALID_ID.test(id)) return malformed('the ID is not 1 to 256 visible ASCII characters');
    // The ID `a.1` before `.2.body` and the ID `a` before `.1.2.body` give the same signed bytes.
    const found = rules.findIdProblem(id, options.allowDotInId);
    return found === undefined ? id : malformed(`the ID contains a ${found === '.' ? 'dot' : found}`);
  };
}

type Time = Pick<SignedHead, 'timestampText' | 'timestamp'>;

const NO_TIME: Time = { timestampText: undefined, timestamp: undefined };

/** Reads the time from its header or from an entry of the signature header. A time in the body is read after verification (identity.ts). */
function compileTime(
  { timestamp: time }: SchemeDescription,
  { timeDigits }: PieceRules,
): (field: string | undefined, entries: readonly string[]) => Time | Refusal {
  if (time === undefined || 'json' in time.from) return () => NO_TIME;
  const format = TIMESTAMP_FORMATS[time.unit];
  const read = (text: string): Time | Refusal => {
    const timestamp = format.parse(text);
    if (timestamp === undefined) return malformed(`the timestamp is not ${format.form}`);
    if (timeDigits !== undefined && text.length !== timeDigits)
      return malformed(`the timestamp does not have ${timeDigits} digits`);
    return { timestampText: text, timestamp };
  };
  if ('header' in time.from)
    return (field = '') => (field === '' ? refuse('missing_signature', 'missing_signature') : read(field));
  const { entry: prefix } = time.from;
  return (_, entries) => {
    const found = entries.filter((entry) => entry.startsWith(prefix));
    const [first] = found;
    if (first === undefined) return malformed(`${prefix} is missing`);
    return found.length > 1 ? malformed(`${prefix} is repeated`) : read(first.slice(prefix.length));
  };
}

function toEntries(header: string | undefined, list: SignatureDescription['list']): string[] | undefined {
  if (header === undefined) return [];
  if (list === undefined) return [header];
  const entries = header.split(list);
  if (entries.length > MAX_SIGNATURE_ENTRIES) return undefined;
  // Spaces around the separators of a list are allowed (RFC 9110 §5.6.1).
  return list === ' ' ? entries : entries.map((entry) => entry.trim());
}

/** Entries of other forms and malformed entries are ignored: an unexpected entry must not invalidate a valid one next to it. */
function compileSignatures(
  signature: SignatureDescription | undefined,
): (entries: readonly string[]) => ParsedSignature[] | Refusal {
  if (signature === undefined || signature.content !== undefined) return () => [];
  const { header, encoding, forms } = signature;
  // The names of authentication schemes are case-insensitive (RFC 9110 §11.1).
  const fold = header.toLowerCase() === 'authorization' ? (text: string) => text.toLowerCase() : (text: string) => text;
  const readers = forms.map((form) => compileForm(form, encoding, fold));
  const wanted = forms.map(({ prefix, algorithm }) => `${prefix}… (${algorithm})`).join(' or ');
  return (entries) => {
    const signatures: ParsedSignature[] = [];
    for (const entry of entries) {
      for (const read of readers) {
        const found = read(entry);
        if (found !== undefined) signatures.push(found);
      }
    }
    return signatures.length === 0 ? malformed(`no entry is ${wanted} in ${encoding}`) : signatures;
  };
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
