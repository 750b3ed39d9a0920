/** Writes values into the body or the query of a request that is about to be signed. */
import type { JsonPath } from '../../core/json-path.ts';
import { toMediaForm } from '../../core/media-type.ts';
import { BodyContent, BodyProblem, compileBodyPlace, toPath, toPlaceTitle } from './body-values.ts';
import type { BodyPlace } from './description.ts';
import { cannotSign } from './sign.ts';
import { foldName, isAlike, parseStrictForm, parseStrictQuery } from './strict-form.ts';

const BOUNDARY = 'sidegate-form-boundary';

/** A form that is written again; pairs in latin1. */
type Pairs = [name: string, value: string][];

/** Writes bodies in the format of the sender. */
export class SignedBodyWriter {
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
export function writeParameter(url: string, name: string, value: string): string {
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
    define(target, step, next);
    target = next as Record<string | number, unknown>;
  }
  define(target, steps.at(-1) ?? '', value);
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

/** Assignment to `__proto__` would change the prototype. */
function define(target: object, name: string | number, value: unknown): void {
  Object.defineProperty(target, name, { value, enumerable: true, writable: true, configurable: true });
}
