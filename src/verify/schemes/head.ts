/** Parses the signature headers, and those that name the kind of an event, strictly, before anything is verified. */
import { parseBase64, parseBase64Url, parseHex } from '../../core/bytes.ts';
import type { ParsedSignature, SignedHead } from '../../core/event.ts';
import type { HeaderFields } from '../../core/head.ts';
import { Refusal, refuse } from '../../core/refusal.ts';
import { ALGORITHMS } from './algorithms.ts';
import { listFieldHeaders, TIMESTAMP_FORMATS } from './coverage.ts';
import type {
  Algorithm,
  EntrySource,
  SchemeDescription,
  SignatureDescription,
  SignatureEncoding,
  SignatureForm,
  TimestampDescription,
} from './description.ts';
import { compilePieceRules, type PieceRules } from './layout.ts';
import type { HeadOptions } from './scheme.ts';

// Parses the entries of signature headers and fields strictly, before anything is verified.

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

/** Supabase writes a comma before each space; no signature and no token of such a list ends with one. */
const SPACE = /,? /;

/** Splits a value into its entries; undefined if there are too many. */
export function toEntries(value: string | undefined, list: SignatureDescription['list']): string[] | undefined {
  if (value === undefined) return [];
  if (list === undefined) return [value];
  const entries = value.split(list === ' ' ? SPACE : list);
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

/** Parses the signature headers, or returns the refusal `missing_signature` or `malformed_signature`. */
export type ReadHead = (headers: HeaderFields, options: HeadOptions, query?: string) => SignedHead | Refusal;

/** The form of an ID in a header. */
export const VALID_ID = /^[\x21-\x7e]{1,256}$/;

/** The names of headers, lower-cased. */
interface HeadFieldNames {
  readonly signature: string | undefined;
  readonly id: string | undefined;
  readonly timestamp: string | undefined;
}

/** The headers of a scheme, which must not be repeated. */
export function toHeaderNames(description: SchemeDescription): string[] {
  const { id, timestamp, signature } = toNames(description);
  const { kind = [], certificate } = description;
  const fields = certificate === undefined ? kind : [...kind, certificate.header];
  const others = [...listFieldHeaders(description), ...fields].map((name) => name.toLowerCase());
  return [...new Set([id, timestamp, signature, ...others].filter((name) => name !== undefined))];
}

function toNames({ signature, id, timestamp }: SchemeDescription): HeadFieldNames {
  return {
    signature: signature === undefined || signature.header === '' ? undefined : signature.header.toLowerCase(),
    id: id !== undefined && 'header' in id ? id.header.toLowerCase() : undefined,
    timestamp: timestamp !== undefined && 'header' in timestamp.from ? timestamp.from.header.toLowerCase() : undefined,
  };
}

/** Compiles the parser of a scheme with ID, timestamp and signatures in one header each (others: field-head.ts). */
export function compileHead(description: SchemeDescription): ReadHead {
  const readOwn = compileNames(description);
  if (description.acceptsTwins === undefined) return readOwn;
  const usesTwins = compileTwinTest(description);
  const readTwins = compileNames(renameToTwins(description));
  return (headers, options, query) => (usesTwins(headers) ? readTwins : readOwn)(headers, options, query);
}

/** Compiles the parser for one set of header names. */
function compileNames(description: SchemeDescription): ReadHead {
  const names = toNames(description);
  const findRepeated = compileFieldCheck(description);
  const rules = compilePieceRules(description);
  const readId = compileId(description, rules);
  const readTime = compileTime(description, rules);
  const readSignatures = compileSignatures(description.signature);
  const addKind = compileKindReader(description);
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
    return addKind === undefined ? head : addKind(head, headers);
  };
}

/** Compiles the function that adds the kind to a head; undefined if the scheme has no kinds. */
export function compileKindReader({
  kind: names,
}: SchemeDescription): ((head: SignedHead, headers: HeaderFields) => SignedHead | Refusal) | undefined {
  if (names === undefined) return undefined;
  const read = compileKind(names);
  return (head, headers) => {
    const kind = read(headers);
    return kind === undefined
      ? malformed('the kind of event contains characters other than A-Z a-z 0-9 / . _ : - and spaces')
      : { ...head, kind };
  };
}

/** Undefined if the scheme has no such header; empty if the request has none. */
function toField(headers: HeaderFields, name: string | undefined): string | undefined {
  return name === undefined ? undefined : (headers.get(name) ?? '');
}

/** Compiles the check that no header of the scheme is repeated, or contradicted by its alternative name. */
export function compileFieldCheck(description: SchemeDescription): (headers: HeaderFields) => Refusal | undefined {
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

/** Compiles the check of an ID. A signed ID is required. An unsigned ID is optional; without it the digest identifies the event. */
export function compileId(
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

/** A timestamp, and the text that was signed. */
export type Time = Pick<SignedHead, 'timestampText' | 'timestamp'>;

/** Of a scheme without a time in the head. */
export const NO_TIME: Time = { timestampText: undefined, timestamp: undefined };

/** Compiles the parser of a timestamp that is signed as text. */
export function compileTimeText({ unit }: TimestampDescription, { timeDigits }: PieceRules): (text: string) => Time | Refusal {
  const format = TIMESTAMP_FORMATS[unit];
  return (text) => {
    const timestamp = format.parse(text);
    if (timestamp === undefined) return malformed(`the timestamp is not ${format.form}`);
    if (timeDigits !== undefined && text.length !== timeDigits)
      return malformed(`the timestamp does not have ${timeDigits} digits`);
    return { timestampText: text, timestamp };
  };
}

/** Reads the time from its header or from an entry of the signature header. A time in the body is read after verification (identity.ts). */
function compileTime(
  { timestamp: time }: SchemeDescription,
  rules: PieceRules,
): (field: string | undefined, entries: readonly string[]) => Time | Refusal {
  if (time === undefined || !('header' in time.from || 'entry' in time.from)) return () => NO_TIME;
  const read = compileTimeText(time, rules);
  if ('header' in time.from)
    return (field = '') => (field === '' ? refuse('missing_signature', 'missing_signature') : read(field));
  const readEntry = compileEntryTime(time.from, read);
  return (_, entries) => readEntry(entries);
}

/** Compiles the parser of a timestamp that is an entry of the signature header. */
export function compileEntryTime(
  { entry: prefix, first: isFirst }: EntrySource,
  read: (text: string) => Time | Refusal,
): (entries: readonly string[]) => Time | Refusal {
  return (entries) => {
    const candidates = isFirst === true ? entries.slice(0, 1) : entries;
    const [first, ...others] = candidates.filter((entry) => entry.startsWith(prefix));
    if (first === undefined) return malformed(`${prefix} is missing`);
    return others.length > 0 ? malformed(`${prefix} is repeated`) : read(first.slice(prefix.length));
  };
}

// Kinds of events in unsigned headers. Their spellings are normalized, because otherwise each spelling would count as a new event.

/** Allowed characters of a kind. Apps could fold others (NBSP, full-width letters, other alphabets) in ways that differ from ours. */
const KIND = /^[A-Za-z0-9 /._:-]{1,128}$/;
/** Senders' libraries treat these as equal: Shopify's turns `orders/create` and `orders.create` into ORDERS_CREATE. */
const SEPARATORS = /[ /._:-]+/g;
const OUTER_SEPARATORS = /^_|_$/g;
/** No kind contains this separator, so the values of two headers cannot run into each other. */
const BETWEEN = '\n';

/** Reads the normalized kind of a delivery from its headers; undefined if a header contains other characters. */
type ReadKind = (headers: HeaderFields) => string | undefined;

/** Compiles the function for these headers. A missing header is a separate kind. */
function compileKind(names: readonly string[]): ReadKind {
  const lowered = names.map((name) => name.toLowerCase());
  return (headers) => {
    const values = lowered.map((name) => headers.get(name) ?? '');
    return values.every((value) => value === '' || KIND.test(value)) ? values.map(foldKind).join(BETWEEN) : undefined;
  };
}

/** Returns which kinds a route accepts, or what is wrong with its list. In an entry, commas separate the values of several headers. */
export function parseKinds(
  names: readonly string[],
  entries: readonly string[],
): readonly string[] | { readonly problem: string } {
  const kinds: string[] = [];
  for (const entry of entries) {
    const values = entry.split(',').map((value) => value.trim());
    if (values.length !== names.length)
      return { problem: `"${entry}" must have one value for each of these headers, separated by commas: ${names.join(', ')}` };
    if (!values.every((value) => value === '' || KIND.test(value)))
      return { problem: `"${entry}" has characters other than A-Z a-z 0-9 / . _ : - and spaces` };
    kinds.push(values.map(foldKind).join(BETWEEN));
  }
  return kinds;
}

/** Normalizes the spelling. */
function foldKind(value: string): string {
  return value.toLowerCase().replace(SEPARATORS, '_').replace(OUTER_SEPARATORS, '');
}

// Alternative names of a scheme's headers: senders that use Svix write `svix-*`, or `webhook-*` if they configured it.

/** The description with each header under its alternative name. */
export function renameToTwins(description: SchemeDescription): SchemeDescription {
  const { twins = {}, signature, id, timestamp } = description;
  const rename = (name: string): string => twins[name] ?? name;
  const renameSource = <T extends object>(source: T): T =>
    'header' in source ? { ...source, header: rename(String(source.header)) } : source;
  return {
    ...description,
    ...(signature === undefined ? undefined : { signature: { ...signature, header: rename(signature.header) } }),
    ...(id === undefined ? undefined : { id: renameSource(id) }),
    ...(timestamp === undefined ? undefined : { timestamp: { ...timestamp, from: renameSource(timestamp.from) } }),
    twins: Object.fromEntries(Object.entries(twins).map(([own, twin]) => [twin, own])),
  };
}

/**
 * Compiles the test whether the gate reads a request under the alternative names. A single header under its own name decides against
 * it: a mixture could be one delivery for the gate and another for the app, because libraries prefer one set of names.
 */
export function compileTwinTest({ twins, acceptsTwins }: SchemeDescription): (headers: HeaderFields) => boolean {
  if (twins === undefined || acceptsTwins === undefined) return () => false;
  const own = Object.keys(twins).map((name) => name.toLowerCase());
  const others = Object.values(twins).map((name) => name.toLowerCase());
  return (headers) =>
    own.every((name) => headers.get(name) === undefined) && others.some((name) => headers.get(name) !== undefined);
}

/** Names the headers that only have their alternative name; undefined if all have their own. */
function describeMixture({ twins = {} }: SchemeDescription, headers: HeaderFields): string | undefined {
  const isPresent = (name: string): boolean => headers.get(name.toLowerCase()) !== undefined;
  const missing = Object.keys(twins).filter((name) => !isPresent(name));
  const others = Object.values(twins).filter(isPresent);
  if (missing.length === 0) return undefined;
  return `the request has ${others.join(', ')}, but not ${missing.join(', ')}; all headers must have names of one kind`;
}
