/** The ways in which the head of a request can be read: as the route's scheme does, and as it might have been meant. */

import { compileScheme } from '../../auth/schemes/compile.ts';
import type { Piece, SchemeDescription } from '../../auth/schemes/description.ts';
import type { Scheme } from '../../auth/schemes/scheme.ts';
import { HeaderFields } from '../../core/headers.ts';
import type { ExplainCause } from '../../telemetry/metrics/labels.ts';
import { readLoosely } from './signature-forms.ts';
import type { Suspect } from './suspect.ts';
import { toUrlForms } from './url-forms.ts';

/** One reading. */
export interface Reading {
  /** Undefined for the route's own. */
  readonly cause: ExplainCause | undefined;
  /** "read …" */
  readonly text: string;
  readonly scheme: Scheme;
  readonly headers: HeaderFields;
  /** Empty where none is signed. */
  readonly url: string;
}

/** All readings, the route's own first. */
export function* toReadings(suspect: Suspect): Generator<Reading> {
  const { scheme, request, publicUrl } = suspect;
  const urls = scheme.signsUrl ? toUrlForms(publicUrl, request) : [];
  const url = urls[0]?.url ?? '';
  const base = { scheme, headers: request.headers, url };
  yield { ...base, cause: undefined, text: 'as the scheme of the route has it' };
  yield* toFamilyReadings(suspect, base);
  yield* toLooseReadings(suspect, base);
  for (const form of urls.slice(1)) yield { ...base, cause: 'url', text: `over ${form.text}`, url: form.url };
  yield* toTimeReadings(suspect, base);
  yield* toPieceReadings(suspect, base);
  yield* toPresetReadings(suspect);
}

type Base = Omit<Reading, 'cause' | 'text'>;

/** A preset whose headers a request has. */
export interface SeenPreset {
  readonly preset: SchemeDescription;
  /** Its own, and those of presets that sign alike. */
  readonly names: string;
}

/** The presets whose headers the request has, other than the route's own scheme. */
export function toSeenPresets({ scheme, presets, request: { headers } }: Suspect): readonly SeenPreset[] {
  const own = toShape(scheme.description);
  const byShape = new Map<string, SchemeDescription[]>();
  for (const preset of presets) {
    const shape = toShape(preset);
    if (preset.signature === undefined || preset.name === scheme.name || shape === own) continue;
    if (headers.get(toSignatureName(preset)) === undefined) continue;
    byShape.set(shape, [...(byShape.get(shape) ?? []), preset]);
  }
  return [...byShape.values()].map((alike) => {
    // GitHub and Meta sign alike, but only GitHub has a header with the id.
    const known = alike.filter(
      ({ id }) => id !== undefined && 'header' in id && headers.get(id.header.toLowerCase()) !== undefined,
    );
    const seen = known.length > 0 ? known : alike;
    return { preset: seen[0] as SchemeDescription, names: seen.map(({ name }) => name).join(' or ') };
  });
}

/** What two presets share that cannot be told apart by a request. */
function toShape({ signature, signed, separator, timestamp }: SchemeDescription): string {
  return JSON.stringify([signature, signed, separator, timestamp]).toLowerCase();
}

/** The names of the other family that the scheme's headers have (Svix). */
export function toTwins({ twins = {} }: SchemeDescription): ReadonlySet<string> {
  return new Set(Object.values(twins).map((name) => name.toLowerCase()));
}

/** With both families there, each by itself. */
function* toFamilyReadings({ scheme: { description }, request: { headers } }: Suspect, base: Base): Generator<Reading> {
  const twins = toTwins(description);
  const isMixed = headers.names.some((name) => twins.has(name)) && headers.get(toSignatureName(description)) !== undefined;
  if (!isMixed) return;
  const text = 'by the headers of its own family alone';
  yield { ...base, cause: 'header_family', text, headers: without(headers, (name) => twins.has(name)) };
}

function toSignatureName({ signature }: SchemeDescription): string {
  return signature?.header.toLowerCase() ?? '';
}

/** Where signatures stand by convention; what a stranger names otherwise is never shown. */
const USUAL_HEADERS: readonly string[] = [
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

function* toLooseReadings({ scheme: { description }, request: { headers }, presets }: Suspect, base: Base): Generator<Reading> {
  const name = toSignatureName(description);
  const value = headers.get(name);
  if (value !== undefined && value !== '') {
    const loose = readLoosely(value, description);
    if (loose === undefined) return;
    const scheme = compileScheme({ ...description, signature: loose.signature });
    return yield { ...base, cause: loose.cause, text: loose.text, scheme, headers: withField(headers, name, loose.value) };
  }
  const names = new Set([...USUAL_HEADERS, ...presets.map(toSignatureName)]);
  const twins = toTwins(description);
  for (const other of names) {
    const found = other === name || twins.has(other) ? undefined : headers.get(other);
    if (found === undefined) continue;
    const text = `by the header ${other} in place of ${name}`;
    yield { ...base, cause: 'signature_header', text, headers: withField(headers, name, found) };
    const loose = readLoosely(found, description);
    if (loose === undefined) continue;
    const scheme = compileScheme({ ...description, signature: loose.signature });
    const moved = withField(headers, name, loose.value);
    yield { ...base, cause: 'signature_header', text: `${text}, ${loose.text}`, scheme, headers: moved };
  }
}

function* toTimeReadings({ scheme: { description }, request: { headers } }: Suspect, base: Base): Generator<Reading> {
  const { timestamp, id } = description;
  if (timestamp === undefined || 'json' in timestamp.from) return;
  const cause = 'timestamp_unit';
  const toScheme = (unit: 's' | 'ms' | 'rfc3339'): Scheme => compileScheme({ ...description, timestamp: { ...timestamp, unit } });
  for (const unit of ['s', 'ms', 'rfc3339'] as const)
    if (unit !== timestamp.unit) yield { ...base, cause, text: `with the timestamp in ${UNITS[unit]}`, scheme: toScheme(unit) };
  if (!('header' in timestamp.from)) return;
  const name = timestamp.from.header.toLowerCase();
  const value = headers.get(name) ?? '';
  if (/^\d{9,11}$/.test(value)) {
    const text = 'with milliseconds signed, while the header has seconds';
    yield { ...base, cause, text, scheme: toScheme('ms'), headers: withField(headers, name, `${value}000`) };
  }
  if (/^\d{12,14}$/.test(value)) {
    const text = 'with seconds signed, while the header has milliseconds';
    yield { ...base, cause, text, scheme: toScheme('s'), headers: withField(headers, name, value.slice(0, -3)) };
  }
  if (id === undefined || !('header' in id)) return;
  const idName = id.header.toLowerCase();
  const swapped = withField(withField(headers, name, headers.get(idName) ?? ''), idName, value);
  yield { ...base, cause: 'headers_swapped', text: 'with the values of id and timestamp exchanged', headers: swapped };
}

const UNITS = { s: 'seconds', ms: 'milliseconds', rfc3339: 'RFC 3339' } as const;

function* toPieceReadings({ scheme: { description } }: Suspect, base: Base): Generator<Reading> {
  const { signed, timestamp, id } = description;
  const hasTime = timestamp !== undefined && !('json' in timestamp.from);
  const hasId = id !== undefined && 'header' in id;
  if (signed.length === 0) return;
  const variants: [text: string, pieces: Piece[], separator: string, isThere: boolean][] = [
    ['the content alone', ['body'], '', true],
    ['timestamp and content, with a dot between', ['timestamp', 'body'], '.', hasTime],
    ['timestamp and content, with a colon between', ['timestamp', 'body'], ':', hasTime],
    ['timestamp and content, with nothing between', ['timestamp', 'body'], '', hasTime],
    ['id, timestamp and content, with dots between', ['id', 'timestamp', 'body'], '.', hasTime && hasId],
    ['id, timestamp and content, with nothing between', ['id', 'timestamp', 'body'], '', hasTime && hasId],
  ];
  for (const [text, pieces, separator, isThere] of variants) {
    if (!isThere || JSON.stringify([pieces, separator]) === JSON.stringify([signed, description.separator])) continue;
    const { contentDigestParameter: _, ...rest } = description;
    const scheme = compileScheme({ ...rest, signed: pieces, separator });
    yield { ...base, cause: 'signed_pieces', text: `over ${text}`, scheme };
  }
}

function* toPresetReadings(suspect: Suspect): Generator<Reading> {
  const { request, publicUrl, scheme: own } = suspect;
  const twins = toTwins(own.description);
  for (const { preset, names } of toSeenPresets(suspect)) {
    const scheme = compileScheme(preset);
    const isTwin = twins.has(toSignatureName(preset));
    const cause = isTwin ? 'header_family' : 'other_preset';
    const text = `as scheme: ${names} has it`;
    const urls = scheme.signsUrl ? toUrlForms(publicUrl, request) : [{ url: '' }];
    const headers = isTwin ? without(request.headers, (name) => own.headerNames.includes(name)) : request.headers;
    for (const { url } of urls) yield { cause, text, scheme, headers, url };
  }
}

/** The same headers with one field of this name. */
function withField(headers: HeaderFields, name: string, value: string): HeaderFields {
  return new HeaderFields([...without(headers, (each) => each === name).raw, name, value]);
}

function without(headers: HeaderFields, isCut: (name: string) => boolean): HeaderFields {
  return new HeaderFields(headers.raw.filter((_, i) => !isCut(headers.names[i >> 1] as string)));
}
