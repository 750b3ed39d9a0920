/** Signs requests whose signature, or signed values, are in the body, in the query, or in several headers. */

import { HeaderFields, toMediaForm } from '../../core/head.ts';
import type { JsonPath } from '../../core/json-path.ts';
import { defineMember } from '../../core/json-scan.ts';
import { Refusal } from '../../core/refusal.ts';
import { ALGORITHMS } from './algorithms.ts';
import { toSignaturePlace } from './body-head.ts';
import { BodyContent, BodyProblem, compileBodyPlace, isBodyPlace, toPath, toPlaceTitle } from './body-values.ts';
import { isFieldPiece, TIMESTAMP_FORMATS } from './coverage.ts';
import type { BodyPlace, IdSource, SchemeDescription, SignatureDescription, TimestampSource } from './description.ts';
import { listRequired } from './header-list.ts';
import type { Assemble } from './layout.ts';
import type { Scheme, SignedRequest, SignRequest } from './scheme.ts';
import { cannotSign, type EncodedKey, readSigningMaterial, toEntry } from './sign.ts';
import { foldName, isAlike, parseStrictForm, parseStrictQuery } from './strict-form.ts';
import { toQuery } from './url.ts';

const OPTIONS = { allowDotInId: true, allowQuery: true };

/**
 * Signs a request: first with a placeholder, which is read like a received signature, then with the signature of what was read. Takes the
 * compiled parts of a scheme that signing shares with verification, so that both read a request in the same way.
 */
export function signAnywhere(
  {
    description,
    readHead,
    readBody,
    assemble,
    toUrls,
  }: Pick<Scheme, 'description' | 'readHead' | 'readBody'> & {
    readonly assemble: Assemble;
    readonly toUrls: (url: string) => readonly string[];
  },
  request: SignRequest,
  key: EncodedKey,
): SignedRequest {
  const { signature } = description;
  if (signature === undefined) throw cannotSign('this scheme has no signature');
  const material = readSigningMaterial(description, key);
  const draft = new Draft(description, signature, request);
  const [length] = ALGORITHMS[material.algorithm].lengths;
  const { headers, url, body } = draft.toRequest(toEntry(signature, material, ['\0'.repeat(length)]));
  const head = readHead(new HeaderFields([...(request.headers?.raw ?? []), ...headers.flat()]), OPTIONS, toQuery(url));
  const whole = head instanceof Refusal || readBody === undefined ? head : readBody(head, body, OPTIONS);
  if (whole instanceof Refusal) throw cannotSign(`the request cannot be signed: ${whole.detail ?? 'a signed part is missing'}`);
  const [signedUrl = ''] = toUrls(url);
  const chunks = assemble(whole, { method: request.method ?? 'POST', url, body })(signedUrl);
  if (chunks === undefined) throw cannotSign('the request cannot be signed: a signed part is missing');
  return draft.toRequest(toEntry(signature, material, chunks));
}

/** A request with everything but the signature. */
class Draft {
  readonly #description: SchemeDescription;
  readonly #signature: SignatureDescription;
  readonly #given: SignRequest;
  readonly #headers: [string, string][] = [];
  readonly #body: SignedBodyWriter;
  /** The parts of the signature; the others are unknown to the gate. */
  readonly #parts: string[];
  readonly #timeText: string;
  #url: string;

  constructor(description: SchemeDescription, signature: SignatureDescription, request: SignRequest) {
    const { timestamp } = description;
    this.#description = description;
    this.#signature = signature;
    this.#given = request;
    this.#body = new SignedBodyWriter(request.body, description.contentTypes);
    this.#url = request.url ?? '';
    this.#parts = Array.from({ length: signature.parts?.count ?? 0 }, () => 'sidegate');
    this.#timeText = timestamp === undefined ? '' : TIMESTAMP_FORMATS[timestamp.unit].format(request.timestamp);
    if (description.id !== undefined) this.#placeId(description.id, request.id);
    if (timestamp !== undefined) this.#placeTime(timestamp.from);
    for (const piece of description.signed) {
      if (isFieldPiece(piece)) this.#placeField(piece);
      else if (typeof piece === 'object' && 'sortedForm' in piece) this.#placeUnsigned(piece.sortedForm);
    }
    this.#placeHeaderLists();
  }

  /** The request with this entry as its signature. */
  toRequest(entry: string): SignedRequest {
    const { header, query, list } = this.#signature;
    const value = `${this.#toTimeEntry(list)}${this.#joinParts(entry)}`;
    const place = toSignaturePlace(this.#signature);
    if (place !== undefined) this.#body.write(place, value);
    const { mediaType, body } = this.#body;
    const headers: [string, string][] = [...this.#headers, ...(header === '' ? [] : [[header, value] as [string, string]])];
    if (mediaType !== undefined) headers.unshift(['Content-Type', mediaType]);
    return { headers, url: query === undefined ? this.#url : writeParameter(this.#url, query, value), body };
  }

  #toTimeEntry(list = ''): string {
    const from = this.#description.timestamp?.from;
    return from !== undefined && 'entry' in from ? `${from.entry}${this.#timeText}${list}` : '';
  }

  #joinParts(entry: string): string {
    const { parts } = this.#signature;
    return parts === undefined ? entry : this.#parts.with(parts.signature, entry).join(parts.separator);
  }

  #placeId(id: IdSource, text: string): void {
    if ('header' in id) {
      const { index, separator } = id.part ?? { index: 0, separator: '' };
      this.#addHeader(id.header, [...Array.from({ length: index }, () => 'sidegate'), text].join(separator));
    } else if ('query' in id) this.#addParameter(id.query, text);
    else if ('signaturePart' in id) this.#parts[id.signaturePart] = text;
    // An ID that the body has is kept.
    else if (isBodyPlace(id) && this.#description.signed.includes('id')) this.#addToBody(id, text);
  }

  #placeTime(from: TimestampSource): void {
    if ('header' in from) this.#headers.push([from.header, this.#timeText]);
    else if ('query' in from) this.#url = writeParameter(this.#url, from.query, this.#timeText);
    else if ('signaturePart' in from) this.#parts[from.signaturePart] = this.#timeText;
    else if (isBodyPlace(from) && this.#description.signed.includes('timestamp')) {
      const isNumber = typeof this.#body.read(from) === 'number';
      this.#body.write(from, isNumber ? Number(this.#timeText) : this.#timeText);
    }
  }

  /** A field that the request lacks gets the ID as its value; one in the body must be there. */
  #placeField(piece: object): void {
    const { id } = this.#given;
    if ('header' in piece) this.#addHeader(String(piece.header), id);
    else if ('query' in piece) this.#addParameter(String(piece.query), id);
    else if ('signaturePart' in piece && this.#parts[Number(piece.signaturePart)] === 'sidegate')
      this.#parts[Number(piece.signaturePart)] = id;
  }

  #placeUnsigned(fields: Readonly<Record<string, string>>): void {
    for (const [name, value] of Object.entries(fields)) this.#body.write({ form: name }, value);
  }

  /** Lists all headers that the request has so far. */
  #placeHeaderLists(): void {
    for (const piece of this.#description.signed) {
      if (typeof piece !== 'object' || !('headersIn' in piece)) continue;
      const given = this.#given.headers?.names ?? [];
      const names = new Set([...given, ...listRequired(piece.headersIn, this.#description)]);
      this.#headers.push([piece.headersIn, [...names].sort().join(',')]);
    }
  }

  #addHeader(name: string, value: string): void {
    const folded = name.toLowerCase();
    const isPresent = this.#headers.some(([known]) => known.toLowerCase() === folded);
    if (!isPresent && this.#given.headers?.get(folded) === undefined) this.#headers.push([name, value]);
  }

  #addParameter(name: string, value: string): void {
    const isPresent = new URLSearchParams(toQuery(this.#url) ?? '').has(name);
    if (!isPresent) this.#url = writeParameter(this.#url, name, value);
  }

  #addToBody(place: BodyPlace, value: string): void {
    const present = this.#body.read(place);
    if (present === undefined || present === null || present === '') this.#body.write(place, value);
  }
}

const BOUNDARY = 'sidegate-form-boundary';

/** A form that is written again; pairs in latin1. */
type Pairs = [name: string, value: string][];

/** Writes bodies in the format of the sender. */
class SignedBodyWriter {
  /** Set once a multipart body was written. */
  mediaType: string | undefined;
  readonly #isMultipart: boolean;
  #body: Buffer;

  constructor(body: Buffer, contentTypes: readonly string[]) {
    this.#body = body;
    const [first = ''] = contentTypes;
    this.#isMultipart = body.subarray(0, 2).toString('latin1') === '--' || (toMediaForm(first) === 'multipart' && !isPairs(body));
  }

  get body(): Buffer {
    return this.#body;
  }

  /** The value at a place; undefined if there is none. */
  read(place: BodyPlace): unknown {
    const value = compileBodyPlace(place, false)(new BodyContent(this.#body));
    return value instanceof BodyProblem ? undefined : value;
  }

  /** Writes text or a number. Throws SidegateError('user') for a body that has no such place. */
  write(place: BodyPlace, value: string | number): void {
    if ('json' in place) this.#body = writeJson(this.#body, toPath(place.json), value, toPlaceTitle(place));
    else if (place.path === undefined) this.#writeField(place.form, String(value));
    else {
      const inner = Buffer.from(this.#toFieldText(place.form), 'latin1');
      this.#writeField(place.form, writeJson(inner, toPath(place.path), value, toPlaceTitle(place)).toString('latin1'));
    }
  }

  /** A JSON body in place of a form is the value of the form field that contains JSON. */
  #toFieldText(name: string): string {
    if (isJson(this.#body)) return this.#body.toString('latin1');
    const value = new BodyContent(this.#body).field(name);
    return typeof value === 'string' ? value : '{}';
  }

  #writeField(name: string, value: string): void {
    const pairs = this.#toPairs(name);
    const at = pairs.findIndex(([known]) => known === name);
    if (at === -1) pairs.push([name, value]);
    else pairs[at] = [name, value];
    this.#body = this.#isMultipart ? this.#formatMultipart(pairs) : Buffer.from(formatPairs(pairs), 'latin1');
  }

  #toPairs(name: string): Pairs {
    if (isJson(this.#body)) return [[name, '']];
    const parsed = parseStrictForm(this.#body);
    if (parsed.kind === 'problem') throw cannotSign(`the body is not a form that can be signed: ${parsed.problem}`);
    return parsed.fields.map((field) => [field.name, field.value]);
  }

  #formatMultipart(pairs: Pairs): Buffer {
    this.mediaType = `multipart/form-data; boundary=${BOUNDARY}`;
    const parts = pairs.map(
      ([name, value]) => `--${BOUNDARY}\r\nContent-Disposition: form-data; name="${name}"\r\n\r\n${value}\r\n`,
    );
    return Buffer.from(`${parts.join('')}--${BOUNDARY}--\r\n`, 'latin1');
  }
}

/** The URL with this parameter, in place of one of the same name. */
function writeParameter(url: string, name: string, value: string): string {
  const mark = url.indexOf('?');
  const [path, query] = mark === -1 ? [url, ''] : [url.slice(0, mark), url.slice(mark + 1)];
  const parsed = parseStrictQuery(query);
  const folded = foldName(name);
  const kept = parsed.kind === 'fields' ? parsed.fields.filter((field) => !isAlike(field, folded)) : [];
  const others = kept.map(({ span }) => query.slice(span?.from, span?.to));
  return `${path}?${[...others, formatPairs([[name, value]])].join('&')}`;
}

function isJson(body: Buffer): boolean {
  return /^\s*\{/.test(body.subarray(0, 64).toString('latin1'));
}

function isPairs(body: Buffer): boolean {
  return body.length > 0 && !isJson(body);
}

function formatPairs(pairs: Pairs): string {
  return pairs.map(([name, value]) => `${encode(name)}=${encode(value)}`).join('&');
}

/** Percent-encodes each byte but the unreserved characters (RFC 3986 §2.3). */
function encode(text: string): string {
  return text.replace(/[^A-Za-z0-9_.~-]/g, (byte) => `%${byte.charCodeAt(0).toString(16).toUpperCase().padStart(2, '0')}`);
}

function writeJson(body: Buffer, { steps }: JsonPath, value: string | number, title: string): Buffer {
  const content = parseObject(body, title);
  let target: Record<string | number, unknown> = content;
  for (const [index, step] of steps.slice(0, -1).entries()) {
    const inner = Object.hasOwn(target, step) ? target[step] : undefined;
    const next = typeof inner === 'object' && inner !== null ? inner : typeof steps[index + 1] === 'number' ? [] : {};
    defineMember(target, step, next);
    target = next as Record<string | number, unknown>;
  }
  defineMember(target, steps.at(-1) ?? '', value);
  return Buffer.from(JSON.stringify(content));
}

function parseObject(body: Buffer, title: string): Record<string | number, unknown> {
  try {
    const value: unknown = JSON.parse(body.toString('utf8'));
    if (typeof value === 'object' && value !== null) return value as Record<string | number, unknown>;
  } catch {
    // The error below says it.
  }
  throw cannotSign(`${title} cannot be written: the body is not a JSON object`);
}
