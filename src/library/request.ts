/** Turns a Request, or the parts of one, into the head that the gates check. The body is read only when a gate asks for it, and bounded. */

import type { EpochMilliseconds } from '../core/clock.ts';
import { HeaderFields, parseTarget } from '../core/head.ts';
import { Refusal, refuse } from '../core/refusal.ts';
import type { ParsedHead, RequestBody } from '../core/request.ts';
import type { RawRequest } from './types.ts';

const ORIGIN = /^https?:\/\/[^/?#]*/i;
const DIGITS = /^\d{1,15}$/;
/** Names and values as HTTP allows them (RFC 9110 §5.1, §5.5), in latin1: other text would become other bytes. */
const NAME = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;
const VALUE = /^[\t\x20-\x7e\x80-\xff]*$/;
const METHOD = /^[A-Z]{1,32}$/;

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
  if (Symbol.iterator in headers) return [...headers].map(([name, value]) => [String(name), String(value)]);
  return Object.entries(headers).flatMap(([name, value]) =>
    (typeof value === 'string' ? [value] : (value ?? [])).map((each) => [name, String(each)] as const),
  );
}

function toBody(given: Request | RawRequest, headers: HeaderFields): LibraryBody | Refusal {
  const lengths = headers.all('content-length');
  if (lengths.length > 1 || !lengths.every((text) => DIGITS.test(text))) return malformed('Content-Length is not one number');
  const { body } = given;
  if (body === null || body instanceof ReadableStream) {
    if (body !== null && (body.locked || (given as Request).bodyUsed))
      throw new TypeError('the body of the request was read already: verify the request first, and use the body of the result');
    const isEmpty = body === null && lengths.length === 0;
    return new LibraryBody(body ?? undefined, isEmpty ? 0 : lengths.map(Number)[0]);
  }
  const bytes = typeof body === 'string' ? Buffer.from(body) : Buffer.from(new Uint8Array(body));
  return new LibraryBody(bytes, bytes.length);
}

const TOO_LARGE = refuse('body_too_large', 'body_too_large');

/** A body in memory, or a stream of which no more than the limit is read. */
class LibraryBody implements RequestBody {
  readonly declaredLength: number | undefined;
  readonly network = '';
  readonly isCheapToDrain = true;
  #source: Buffer | ReadableStream<Uint8Array> | undefined;
  #read: Promise<Buffer | Refusal> | undefined;
  content: Buffer | Refusal | undefined;

  constructor(source: Buffer | ReadableStream<Uint8Array> | undefined, declaredLength: number | undefined) {
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
      this.content = content;
      return content;
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
    if (!(source instanceof ReadableStream)) return source.length > maxBytes ? TOO_LARGE : source;
    const reader = source.getReader();
    // One growing buffer: an array of chunks takes 200 bytes for each of them, and a client may send chunks of one byte.
    const buffer = new ArrayBuffer(0, { maxByteLength: maxBytes });
    const bytes = new Uint8Array(buffer);
    try {
      for (let next = await reader.read(); !next.done; next = await reader.read()) {
        const at = bytes.length;
        if (at + next.value.length > maxBytes) {
          await reader.cancel().catch(() => undefined);
          return TOO_LARGE;
        }
        buffer.resize(at + next.value.length);
        bytes.set(next.value, at);
      }
    } catch {
      return refuse('request_timeout', 'body_aborted', 'the body was cut off');
    }
    return Buffer.from(bytes);
  }
}

function malformed(detail: string): Refusal {
  return refuse('malformed_request', 'malformed', detail);
}
