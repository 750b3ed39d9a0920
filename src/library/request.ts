/** Turns a Request, or the parts of one, into the head that the gates check. The body is read only when a gate asks for it, and bounded. */

import { type EpochMilliseconds, type Milliseconds, systemClock } from '../core/clock.ts';
import { HeaderFields, parseTarget } from '../core/head.ts';
import { Refusal, refuse } from '../core/refusal.ts';
import type { ParsedHead, RequestBody } from '../core/request.ts';
import type { RawRequest } from './types.ts';

const ORIGIN = /^https?:\/\/[^/?#]*/i;
const DIGITS = /^\d{1,15}$/;
/** Names and values as HTTP allows them (RFC 9110 §5.1, §5.5). */
const NAME = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;
const VALUE = /^[\t\x20-\x7e\x80-\xff]*$/;
const LATIN1 = /^[\0-\xff]*$/;
const METHOD = /^[A-Z]{1,32}$/;
/** For a whole body: the default of `limits.bodyTimeout` of the gate, and of Node, which has none over HTTP/2. */
export const BODY_TIMEOUT_MS: Milliseconds = 300_000;

/** The head of a request, or why it cannot be one. */
export function toHead(given: Request | RawRequest, now: EpochMilliseconds, requestId: string): ParsedHead | Refusal {
  const { method = 'POST', url = '/' } = given;
  const fields = toFields(given.headers);
  const target = parseTarget(toTargetText(url));
  if ('problem' in target) return malformed(target.problem);
  if (!METHOD.test(method)) return malformed('the method is not 1 to 32 capital letters');
  const problem = fields.find(([name, value]) => !NAME.test(name) || !VALUE.test(value));
  if (problem !== undefined) return malformed('a header has a name or a value that HTTP does not allow');
  const headers = new HeaderFields(fields.flat());
  const body = toBody(given, headers);
  if (body instanceof Refusal) return body;
  const scheme = /^http:/i.test(url) ? 'http' : 'https';
  return {
    requestId,
    method,
    client: { address: '', peer: '', viaTrustedProxy: false, viaIdentityProxy: false, scheme },
    receivedAt: now,
    startedAt: 0,
    target,
    headers,
    body,
  };
}

/** Platforms write absolute URLs, and apps often have only the path. The fragment never leaves a client. */
function toTargetText(url: string): string {
  const [text = ''] = url.replace(ORIGIN, '').split('#', 1);
  return text.startsWith('/') ? text : `/${text}`;
}

function toFields(headers: RawRequest['headers']): (readonly [string, string])[] {
  if (Symbol.iterator in headers) return [...headers].map(([name, value]) => [String(name), toValue(value)]);
  return Object.entries(headers).flatMap(([name, value]) =>
    (typeof value === 'string' ? [value] : (value ?? [])).map((each) => [name, toValue(each)] as const),
  );
}

/** Some platforms decode values as UTF-8. The gates know bytes, in latin1. */
function toValue(value: unknown): string {
  const text = String(value);
  return LATIN1.test(text) ? text : Buffer.from(text).toString('latin1');
}

function toBody(given: Request | RawRequest, headers: HeaderFields): LibraryBody | Refusal {
  const lengths = headers.all('content-length');
  if (lengths.length > 1 || !lengths.every((text) => DIGITS.test(text))) return malformed('Content-Length is not one number');
  const [length] = lengths.map(Number);
  const { body, bodyUsed } = given as { readonly body: unknown; readonly bodyUsed?: boolean };
  const isAbsent = body === null || ((BODILESS.has(given.method ?? '') || length === 0) && isEmptyBody(body));
  const source = isStream(body) ? body : isAbsent ? Buffer.alloc(0) : toBuffer(body);
  const { locked, readableDidRead, readableEnded } = source as ReadMarks;
  if (bodyUsed === true || locked === true || readableDidRead === true || readableEnded === true)
    return new LibraryBody(
      new TypeError('the body of the request was read already: verify the request first, and use the body of the result'),
      length,
    );
  return new LibraryBody(source, Buffer.isBuffer(source) ? Math.max(source.length, length ?? 0) : length);
}

/** A client can choose a Content-Type that the app's framework parses, or skips, so an unusable body is reported when it is read: with a response. */
function toBuffer(body: unknown): Buffer | TypeError {
  const bytes = toBytes(body);
  return bytes instanceof TypeError ? bytes : Buffer.from(bytes);
}

/** Platforms give requests with these methods, or without content, no body, and frameworks an empty object. */
const BODILESS: ReadonlySet<string> = new Set(['GET', 'HEAD', 'OPTIONS']);

function isEmptyBody(body: unknown): boolean {
  return (
    body === undefined || (Object.prototype.toString.call(body) === '[object Object]' && Object.keys(body as object).length === 0)
  );
}

/** How streams say that something reads them, or has read them: those of the web, and those of Node. */
interface ReadMarks {
  readonly locked?: boolean;
  readonly readableDidRead?: boolean;
  readonly readableEnded?: boolean;
}

/** Of any class: adapters and packages bring their own. */
type Stream = Pick<ReadableStream<unknown>, 'getReader'> | AsyncIterable<unknown>;

function isStream(body: unknown): body is Stream {
  return typeof body === 'object' && body !== null && ('getReader' in body || Symbol.asyncIterator in body);
}

interface NodeStream {
  iterator?(options: { readonly destroyOnReturn: boolean }): AsyncIterator<unknown>;
  resume?(): unknown;
}

interface Reader {
  read(): Promise<IteratorResult<unknown, unknown>>;
  cancel(): Promise<unknown>;
}

function toReader(stream: Stream): Reader {
  if ('getReader' in stream) return stream.getReader() as Reader;
  // A stream of Node would be destroyed at the end of its iterator, and the connection that the response needs with it. Unread, it would block the connection.
  const node = stream as NodeStream;
  const iterator = node.iterator?.({ destroyOnReturn: false }) ?? stream[Symbol.asyncIterator]();
  const cancel = async (): Promise<void> => {
    await iterator.return?.();
    node.resume?.();
  };
  return { read: () => iterator.next(), cancel };
}

/** The bytes of text, or of a buffer of any class or realm. A parsed body must not count as an empty one. */
function toBytes(value: unknown): Uint8Array | TypeError {
  if (typeof value === 'string') return Buffer.from(value);
  try {
    const view = ArrayBuffer.isView(value) ? value : new DataView(value as ArrayBuffer);
    return new Uint8Array(view.buffer, view.byteOffset, view.byteLength);
  } catch {
    return new TypeError(
      `the body of the request is neither bytes nor text nor a stream of them (${typeof value}): was it parsed? Pass the bytes that were received`,
    );
  }
}

const TOO_LARGE = refuse('body_too_large', 'body_too_large');

function cutOff(detail: string): Refusal {
  return refuse('request_timeout', 'body_aborted', detail);
}

/** A body in memory, or a stream of which no more than the limit is read. */
class LibraryBody implements RequestBody {
  readonly declaredLength: number | undefined;
  readonly network = '';
  readonly isCheapToDrain = true;
  #source: Buffer | Stream | TypeError | undefined;
  #read: Promise<Buffer | Refusal> | undefined;
  content: Buffer | Refusal | undefined;

  constructor(source: Buffer | Stream | TypeError, declaredLength: number | undefined) {
    this.#source = source;
    this.declaredLength = declaredLength;
  }

  get received(): number {
    return Buffer.isBuffer(this.content) ? this.content.length : 0;
  }

  get pauses(): never {
    throw new Error('the library pauses no streams');
  }

  read(maxBytes: number): Promise<Buffer | Refusal> {
    this.#read ??= this.#gather(maxBytes).then((content) => {
      const { declaredLength = 0 } = this;
      // A body that something else took, wholly or in part, must not count as the one that was sent.
      const isWhole = content instanceof Refusal || content.length >= declaredLength;
      this.content = isWhole ? content : cutOff(`${content.length} of ${declaredLength} bytes: was the body read before?`);
      return this.content;
    });
    return this.#read;
  }

  open(): never {
    throw new Error('the library forwards nothing');
  }

  free(): void {
    this.#source = undefined;
  }

  discard(): void {
    this.free();
  }

  async #gather(maxBytes: number): Promise<Buffer | Refusal> {
    const source = this.#source;
    this.#source = undefined;
    if (source === undefined) return Buffer.alloc(0);
    if (source instanceof TypeError) throw source;
    if (Buffer.isBuffer(source)) return source.length > maxBytes ? TOO_LARGE : source;
    const reader = toReader(source);
    const late = Promise.withResolvers<Refusal>();
    const stop = systemClock.after(BODY_TIMEOUT_MS, () => {
      late.resolve(cutOff('the body took more than 5 minutes'));
      reader.cancel().catch(() => undefined);
    });
    try {
      return await Promise.race([readAll(reader, maxBytes), late.promise]);
    } finally {
      stop();
    }
  }
}

async function readAll(reader: Reader, maxBytes: number): Promise<Buffer | Refusal> {
  // One growing buffer: an array of chunks takes 200 bytes for each of them, and a client may send chunks of one byte.
  const buffer = new ArrayBuffer(0, { maxByteLength: maxBytes });
  const bytes = new Uint8Array(buffer);
  while (true) {
    const next = await reader.read().catch(() => undefined);
    if (next === undefined) return cutOff('the body was cut off');
    if (next.done) return Buffer.from(bytes);
    const chunk = toBytes(next.value);
    if (chunk instanceof TypeError) throw chunk;
    const at = bytes.length;
    if (at + chunk.length > maxBytes) {
      await reader.cancel().catch(() => undefined);
      return TOO_LARGE;
    }
    buffer.resize(at + chunk.length);
    bytes.set(chunk, at);
  }
}

function malformed(detail: string): Refusal {
  return refuse('malformed_request', 'malformed', detail);
}
