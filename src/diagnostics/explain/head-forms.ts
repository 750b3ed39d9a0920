/** The ways to interpret the head of a request: as the route's scheme does, and as the sender may have meant it. */

import { HeaderFields } from '../../core/head.ts';
import { ALGORITHMS } from '../../verify/schemes/algorithms.ts';
import { TIMESTAMP_FORMATS, TIMESTAMP_UNITS } from '../../verify/schemes/coverage.ts';
import type {
  Algorithm,
  Piece,
  SchemeDescription,
  SignatureDescription,
  TimestampUnit,
} from '../../verify/schemes/description.ts';
import { MAX_SIGNATURE_ENTRIES, toHeaderNames } from '../../verify/schemes/head.ts';
import type { Scheme } from '../../verify/schemes/scheme.ts';
import type { AnalysisInput } from './analysis.ts';
import type { ExplainCause } from './explain-metrics.ts';
import { toUrlForms, type UrlForm } from './url-forms.ts';

/** One interpretation. */
export interface HeadForm {
  /** Undefined for that of the route's scheme. */
  readonly cause: ExplainCause | undefined;
  /** "it matches …" */
  readonly text: string;
  readonly scheme: Scheme;
  readonly headers: HeaderFields;
  /** Empty if the scheme signs no URL. */
  readonly url: string;
  /** More specific than that of the cause. */
  readonly fix?: string | undefined;
}

/** Yields all interpretations, that of the route's scheme first; undefined where other work can run. */
export function* toHeadForms(analysisInput: AnalysisInput): Generator<HeadForm | undefined> {
  const { scheme, request } = analysisInput;
  const urls: Iterator<UrlForm | undefined> & Iterable<UrlForm | undefined> = scheme.signsUrl
    ? toUrlForms(analysisInput)
    : [].values();
  const url = urls.next().value?.url ?? '';
  const base = { scheme, headers: request.headers, url };
  yield { ...base, cause: undefined, text: 'as the scheme of the route expects' };
  yield* toFamilyForms(analysisInput, base);
  yield* toLenientForms(analysisInput, base);
  for (const form of urls) yield form && { ...base, cause: 'url', text: `over ${form.text}`, url: form.url, fix: form.fix };
  yield* toTimestampForms(analysisInput, base);
  yield* toSignedPartForms(analysisInput, base);
  yield* toPresetForms(analysisInput);
}

type Base = Omit<HeadForm, 'cause' | 'text'>;

/** A preset whose headers are in the request. */
interface SeenPreset {
  readonly preset: SchemeDescription;
  /** Its name, and those of presets with the same signature format. */
  readonly names: string;
}

/** Whether the header of a token does not name its sender. */
function isUnspecific({ jwt, signature }: SchemeDescription): boolean {
  return jwt !== undefined && signature?.header.toLowerCase() === 'authorization';
}

/** The presets whose headers are in the request, except the route's own scheme. */
export function toSeenPresets({ scheme, presets, request: { headers } }: AnalysisInput): readonly SeenPreset[] {
  const own = toShape(scheme.description);
  const byShape = new Map<string, SchemeDescription[]>();
  for (const preset of presets) {
    const shape = toShape(preset);
    if (preset.signature === undefined || preset.name === scheme.name || shape === own || isUnspecific(preset)) continue;
    if (headers.get(toSignatureName(preset)) === undefined) continue;
    byShape.set(shape, [...(byShape.get(shape) ?? []), preset]);
  }
  return [...byShape.values()].map((alike) => {
    // GitHub and Meta use the same signature format, but only GitHub sends the ID in a header.
    const known = alike.filter(
      ({ id }) => id !== undefined && 'header' in id && headers.get(id.header.toLowerCase()) !== undefined,
    );
    const seen = known.length > 0 ? known : alike;
    return { preset: seen[0] as SchemeDescription, names: seen.map(({ name }) => name).join(' or ') };
  });
}

/** Presets with equal shapes cannot be distinguished by the signature of a request. */
function toShape({ signature, signed, separator, timestamp }: SchemeDescription): string {
  return JSON.stringify([signature, signed, separator, timestamp]).toLowerCase();
}

/** The alternative names of the scheme's headers (Svix). */
export function toTwins({ twins = {} }: SchemeDescription): ReadonlySet<string> {
  return new Set(Object.values(twins).map((name) => name.toLowerCase()));
}

/** If the request has both sets of header names: with one set alone. */
function* toFamilyForms({ scheme: { description }, request: { headers } }: AnalysisInput, base: Base): Generator<HeadForm> {
  const twins = toTwins(description);
  const isMixed = headers.names.some((name) => twins.has(name)) && headers.get(toSignatureName(description)) !== undefined;
  const text = 'with only the headers of the naming scheme of the route';
  if (isMixed) yield { ...base, cause: 'header_family', text, headers: without(headers, (name) => twins.has(name)) };
  if (description.acceptsTwins === undefined) return;
  const own = new Set(toHeaderNames(description));
  const others = without(headers, (name) => own.has(name));
  if (others.size < headers.size)
    yield { ...base, cause: 'header_family', text: 'with only the headers of the other naming scheme', headers: others };
}

function toSignatureName({ signature }: SchemeDescription): string {
  return signature?.header.toLowerCase() ?? '';
}

/** Conventional signature headers; header names that an untrusted client invents are never shown. */
export const CONVENTIONAL_HEADERS: readonly string[] = [
  'x-hub-signature',
  'x-hub-signature-256',
  'x-signature',
  'x-signature-256',
  'x-webhook-signature',
  'x-webhook-signature-256',
  'x-hmac-signature',
  'x-hmac-sha256',
  'signature',
  'webhook-signature',
];

function* toLenientForms(
  { scheme: { description }, request: { headers }, presets, compile }: AnalysisInput,
  base: Base,
): Generator<HeadForm> {
  const name = toSignatureName(description);
  // The signature is in the query or in the body.
  if (name === '') return;
  const value = headers.get(name);
  if (value !== undefined && value !== '') {
    const lenient = parseLeniently(value, description);
    if (lenient === undefined) return;
    const scheme = compile({ ...description, signature: lenient.signature });
    return yield { ...base, cause: lenient.cause, text: lenient.text, scheme, headers: withField(headers, name, lenient.value) };
  }
  const names = new Set([...CONVENTIONAL_HEADERS, ...presets.map(toSignatureName)]);
  const twins = toTwins(description);
  for (const other of names) {
    const found = other === name || twins.has(other) ? undefined : headers.get(other);
    if (found === undefined) continue;
    const text = `with the header ${other} instead of ${name}`;
    yield { ...base, cause: 'signature_header', text, headers: withField(headers, name, found) };
    const lenient = parseLeniently(found, description);
    if (lenient === undefined) continue;
    const scheme = compile({ ...description, signature: lenient.signature });
    const moved = withField(headers, name, lenient.value);
    yield { ...base, cause: 'signature_header', text: `${text}, ${lenient.text}`, scheme, headers: moved };
  }
}

function* toTimestampForms(
  { scheme: { description }, request: { headers }, compile }: AnalysisInput,
  base: Base,
): Generator<HeadForm> {
  const { timestamp, id } = description;
  if (timestamp === undefined || !('header' in timestamp.from || 'entry' in timestamp.from)) return;
  const cause = 'timestamp_unit';
  const toScheme = (unit: TimestampUnit): Scheme => compile({ ...description, timestamp: { ...timestamp, unit } });
  for (const unit of TIMESTAMP_UNITS.filter((each) => each !== timestamp.unit))
    yield { ...base, cause, text: `with the timestamp in ${TIMESTAMP_FORMATS[unit].title}`, scheme: toScheme(unit) };
  if (!('header' in timestamp.from)) return;
  const name = timestamp.from.header.toLowerCase();
  const value = headers.get(name) ?? '';
  if (/^\d{9,11}$/.test(value)) {
    const text = 'with a timestamp in milliseconds, although the header has seconds';
    yield { ...base, cause, text, scheme: toScheme('ms'), headers: withField(headers, name, `${value}000`) };
  }
  if (/^\d{12,14}$/.test(value)) {
    const text = 'with a timestamp in seconds, although the header has milliseconds';
    yield { ...base, cause, text, scheme: toScheme('s'), headers: withField(headers, name, value.slice(0, -3)) };
  }
  if (id === undefined || !('header' in id)) return;
  const idName = id.header.toLowerCase();
  const swapped = withField(withField(headers, name, headers.get(idName) ?? ''), idName, value);
  yield { ...base, cause: 'headers_swapped', text: 'with the values of ID and timestamp swapped', headers: swapped };
}

function* toSignedPartForms({ scheme: { description }, compile }: AnalysisInput, base: Base): Generator<HeadForm> {
  const { signed, timestamp, id } = description;
  const hasTime = timestamp !== undefined && ('header' in timestamp.from || 'entry' in timestamp.from);
  const hasId = id !== undefined && 'header' in id;
  if (signed.length === 0) return;
  const variants: [text: string, pieces: Piece[], separator: string, isPossible: boolean][] = [
    ['the body only', ['body'], '', true],
    ['timestamp and body, separated by a dot', ['timestamp', 'body'], '.', hasTime],
    ['timestamp and body, separated by a colon', ['timestamp', 'body'], ':', hasTime],
    ['timestamp and body, without a separator', ['timestamp', 'body'], '', hasTime],
    ['ID, timestamp and body, separated by dots', ['id', 'timestamp', 'body'], '.', hasTime && hasId],
    ['ID, timestamp and body, without separators', ['id', 'timestamp', 'body'], '', hasTime && hasId],
  ];
  for (const [text, pieces, separator, isPossible] of variants) {
    if (!isPossible || JSON.stringify([pieces, separator]) === JSON.stringify([signed, description.separator])) continue;
    const { contentDigestParameter: _, ...rest } = description;
    const scheme = compile({ ...rest, signed: pieces, separator });
    yield { ...base, cause: 'signed_pieces', text: `over ${text}`, scheme };
  }
}

function* toPresetForms(analysisInput: AnalysisInput): Generator<HeadForm | undefined> {
  const { request, scheme: own, compile } = analysisInput;
  const twins = toTwins(own.description);
  for (const { preset, names } of toSeenPresets(analysisInput)) {
    // Tokens are analyzed by what they say (hints.ts).
    if (preset.jwt !== undefined) continue;
    const isTwin = twins.has(toSignatureName(preset));
    if (isTwin && own.description.acceptsTwins === true) continue;
    const scheme = compile(preset);
    const cause = isTwin ? 'header_family' : 'other_preset';
    const text = `with scheme: ${names}`;
    const urls = scheme.signsUrl ? toUrlForms(analysisInput) : [{ url: '' }];
    const headers = isTwin ? without(request.headers, (name) => own.headerNames.includes(name)) : request.headers;
    for (const form of urls) yield form && { cause, text, scheme, headers, url: form.url };
  }
}

/** The same headers with one field of this name. */
function withField(headers: HeaderFields, name: string, value: string): HeaderFields {
  return new HeaderFields([...without(headers, (each) => each === name).raw, name, value]);
}

function without(headers: HeaderFields, isCut: (name: string) => boolean): HeaderFields {
  return new HeaderFields(headers.raw.filter((_, i) => !isCut(headers.names[i >> 1] as string)));
}

// Parses a signature header more leniently than any scheme, to find out how it differs from what the scheme expects.

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
function parseLeniently(value: string, { signature }: SchemeDescription): LenientSignature | undefined {
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
