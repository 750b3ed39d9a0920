/** A strict parser for the app's responses (RFC 9112): anything ambiguous is an error. */
import type { OnReadOpts } from 'node:net';
import type { RawHeaders } from '../../core/head.ts';
import { guardCallback, guardDecision } from '../../core/safe-events.ts';

// The read buffers of connections: one shared buffer for short responses, and lent buffers for streamed bodies.

const READ_BYTES = 65_536;
/** Smaller chunks are copied, because a lent buffer is held as a whole until its chunk is written. */
const MIN_LENT_BYTES = READ_BYTES / 2;
/** The maximum number of returned buffers that are kept for reuse. */
const MAX_FREE_BUFFERS = 16;
/** Makes a read fail, which closes the socket. */
const EMPTY = Buffer.alloc(0);

/** Ends the loan of a buffer; the callback of a write, which Node never calls for a socket that is being destroyed: nothing else may refer to the buffer. After an error, a broken connection may still use the memory, so it is not reused. */
export type ReleaseBuffer = (error?: Error | null) => void;

/** The buffers of all connections of a client. */
export class ReadBuffers {
  /** Overwritten by the next read of any connection. */
  readonly shared = Buffer.allocUnsafeSlow(READ_BYTES);
  readonly #free: Buffer[] = [];

  take(): Buffer {
    return this.#free.pop() ?? Buffer.allocUnsafeSlow(READ_BYTES);
  }

  keep(buffer: Buffer): void {
    if (this.#free.length < MAX_FREE_BUFFERS) this.#free.push(buffer);
  }

  lend(buffer: Buffer): ReleaseBuffer {
    let isLent = true;
    return guardCallback((error?: Error | null) => {
      if (isLent && (error === undefined || error === null)) this.keep(buffer);
      isLent = false;
    });
  }
}

/**
 * The read buffer of one connection. A large chunk is passed on in the buffer that it was read into, and the next read gets another
 * one: copying took more than a third of a download's CPU, mostly to allocate and free memory (ADR 23).
 */
export class ConnectionReader {
  readonly #buffers: ReadBuffers;
  #current: Buffer;
  #isStreaming = false;
  #isLent = false;

  constructor(buffers: ReadBuffers) {
    this.#buffers = buffers;
    this.#current = buffers.shared;
  }

  /** The `onread` option of the socket. `take` returns whether it needs more. */
  toOnRead(take: (bytes: Buffer) => boolean): OnReadOpts {
    return {
      buffer: guardDecision(() => this.next(), EMPTY),
      callback: guardDecision((length: number, buffer: Uint8Array) => take((buffer as Buffer).subarray(0, length)), false),
    };
  }

  /** The buffer for the next read. */
  next(): Buffer {
    if (!this.#isStreaming) this.#current = this.#buffers.shared;
    else if (this.#isLent || this.#current === this.#buffers.shared) this.#current = this.#buffers.take();
    this.#isLent = false;
    return this.#current;
  }

  /** Lends the current buffer together with a chunk of the last read; undefined if the chunk must be copied instead. */
  lend(piece: Buffer): ReleaseBuffer | undefined {
    if (piece.length < MIN_LENT_BYTES) return undefined;
    this.#isStreaming = true;
    if (this.#isLent || this.#current === this.#buffers.shared) return undefined;
    this.#isLent = true;
    return this.#buffers.lend(this.#current);
  }

  /** The response is complete. The next one is assumed to be short. */
  endResponse(): void {
    if (this.#isStreaming && !this.#isLent && this.#current !== this.#buffers.shared) this.#buffers.keep(this.#current);
    this.#isStreaming = false;
    this.#isLent = true;
  }
}

/** Receives the parsed parts of a response, as they arrive. */
export interface ParserEvents {
  /** A 1xx response other than 100 and 101. */
  onInformation(status: number, headers: RawHeaders): void;
  /** The app accepted the requested protocol; all bytes that follow arrive by `onBody`. */
  onUpgrade(headers: RawHeaders): void;
  onHead(head: ResponseHead): void;
  /** At most once for each push. The bytes are valid only during the call: their memory is overwritten afterwards. */
  onBody(content: Buffer): void;
}

/**
 * The state after a `push`. `more`: the response is incomplete. `complete`: it is complete. `overrun`: there are bytes after its end, or
 * no response was expected. `malformed`: it is invalid. After the last three, the parser takes no bytes until `expect`.
 */
type ParserProgress = 'more' | 'complete' | 'overrun' | 'malformed';

type ParserState =
  | 'idle'
  | 'malformed'
  | 'head'
  | 'length'
  | 'chunk-size'
  | 'chunk-data'
  | 'chunk-end'
  | 'trailers'
  | 'until-close';

const NO_HEADERS: RawHeaders = [];
const CR = 13;
const LF = 10;
const HEAD_END = Buffer.from('\r\n\r\n');
const LINE_END = Buffer.from('\r\n');
const MAX_SIZE_DIGITS = 8;
/** RFC 9112 §7.1.1: extensions may follow the size, and are ignored. */
const EXTENSIONS = /^[\t ]*;[\t\x20-\x7e\x80-\xff]*$/;
/** Limits a size line with its extensions: otherwise a few bytes of body could cost a lot of parsing. */
const MAX_SIZE_LINE_BYTES = 1_024;
const MAX_INFORMATIONAL = 16;

/** Parses consecutive responses from the bytes of a connection, split at any position. */
export class ResponseParser {
  readonly #events: ParserEvents;
  readonly #maxHeadBytes: number;
  readonly #heads: HeadParser;
  #state: ParserState = 'idle';
  #isHeadRequest = false;
  #mayUpgrade = false;
  #pending: Buffer | undefined;
  #remaining = 0;
  /** Chunks that began in the current push. */
  chunks = 0;
  #informational = 0;
  /** Where the content of the current push is in its bytes; the end is 0 while there is none. */
  #contentStart = 0;
  #contentEnd = 0;
  #trailers: RawHeaders = NO_HEADERS;
  #problem = '';

  /** `heads`: what the connections to one app share. */
  constructor(events: ParserEvents, maxHeadBytes: number, heads: HeadParser = new ResponseHeads()) {
    this.#events = events;
    this.#heads = heads;
    this.#maxHeadBytes = maxHeadBytes;
  }

  /** The trailers of a complete response. */
  get trailers(): RawHeaders {
    return this.#trailers;
  }

  /** Why the response is malformed; for the log. */
  get problem(): string {
    return this.#problem;
  }

  /** Expects the response to a request with this method. `mayUpgrade`: the request asked for another protocol. */
  expect(method: string, mayUpgrade: boolean): void {
    this.#mayUpgrade = mayUpgrade;
    this.#state = 'head';
    this.#isHeadRequest = method === 'HEAD';
    this.#informational = 0;
    this.#trailers = NO_HEADERS;
  }

  /** Parses bytes, which this call overwrites, and which may be overwritten after it. */
  push(chunk: Buffer): ParserProgress {
    const bytes = this.#pending === undefined ? chunk : Buffer.concat([this.#pending, chunk]);
    this.#pending = undefined;
    this.#contentEnd = 0;
    this.chunks = 0;
    let at = 0;
    while (at < bytes.length && this.#state !== 'idle' && this.#state !== 'malformed') at = this.#step(bytes, at);
    const { length } = bytes;
    const [start, end] = [this.#contentStart, this.#contentEnd];
    if (end !== 0) this.#events.onBody(start === 0 && end === length ? bytes : bytes.subarray(start, end));
    if (this.#state === 'malformed') return 'malformed';
    if (this.#state !== 'idle') return 'more';
    return at < length ? 'overrun' : 'complete';
  }

  /** The app closed its side cleanly: returns true if that ends the response (RFC 9112 §6.3, no length given). */
  end(): boolean {
    if (this.#state !== 'until-close') return false;
    this.#state = 'idle';
    return true;
  }

  /** Parses one element. Returns where the next one begins; the end if more bytes are needed. */
  #step(bytes: Buffer, at: number): number {
    switch (this.#state) {
      case 'head':
        return this.#readHead(bytes, at);
      case 'length':
        return this.#readBody(bytes, at, 'idle');
      case 'chunk-size':
        return this.#readChunkSize(bytes, at);
      case 'chunk-data':
        return this.#readBody(bytes, at, 'chunk-end');
      case 'chunk-end':
        return this.#readChunkEnd(bytes, at);
      case 'trailers':
        return this.#readTrailers(bytes, at);
      case 'until-close':
        return this.#addContent(bytes, at, bytes.length);
      default:
        return bytes.length;
    }
  }

  #readHead(bytes: Buffer, at: number): number {
    const end = bytes.indexOf(HEAD_END, at);
    if (end === -1 || end - at > this.#maxHeadBytes) return this.#wait(bytes, at, this.#maxHeadBytes, 'the head is too large');
    const head = this.#heads.parse(bytes.toString('latin1', at, end));
    if (typeof head === 'string') return this.#fail(head);
    if (head.status < 200) this.#readInformation(head);
    else this.#readFinalHead(head);
    return end + HEAD_END.length;
  }

  #readInformation({ status, headers }: ResponseHead): void {
    if (status === 101 && this.#mayUpgrade) {
      this.#state = 'until-close';
      this.#events.onUpgrade(headers);
    } else if (status === 101) this.#fail('the server switched protocols without being asked');
    else if (++this.#informational > MAX_INFORMATIONAL) this.#fail('too many 1xx responses');
    else if (status !== 100) this.#events.onInformation(status, headers);
  }

  #readFinalHead(head: ResponseHead): void {
    // RFC 9112 §6.3 rule 1: these have no body, regardless of the fields.
    const hasBody = !this.#isHeadRequest && head.status !== 204 && head.status !== 304;
    if (!hasBody || head.length === 0) this.#state = 'idle';
    else if (head.isChunked) this.#state = 'chunk-size';
    else if (head.length === undefined) this.#state = 'until-close';
    else {
      this.#state = 'length';
      this.#remaining = head.length;
    }
    this.#events.onHead(head);
  }

  #readBody(bytes: Buffer, at: number, next: ParserState): number {
    const end = Math.min(at + this.#remaining, bytes.length);
    this.#remaining -= end - at;
    if (this.#remaining === 0) this.#state = next;
    return this.#addContent(bytes, at, end);
  }

  /**
   * Moves content next to that of earlier chunks, over the framing between them. Each piece that is passed on costs a buffer and a write,
   * which for chunks of a few bytes would take a hundred times the memory of the content.
   */
  #addContent(bytes: Buffer, at: number, end: number): number {
    if (this.#contentEnd === 0) this.#contentStart = at;
    else bytes.copyWithin(this.#contentEnd, at, end);
    this.#contentEnd = this.#contentEnd === 0 ? end : this.#contentEnd + end - at;
    return end;
  }

  #readChunkSize(bytes: Buffer, at: number): number {
    // Digit by digit: a regular expression for each line took most of the CPU of a body in small chunks.
    let digitsEnd = at;
    let size = 0;
    for (
      let digit = toHexValue(bytes[at]);
      digit >= 0 && digitsEnd - at < MAX_SIZE_DIGITS;
      digit = toHexValue(bytes[++digitsEnd])
    )
      size = size * 16 + digit;
    const isOnlySize = bytes[digitsEnd] === CR && bytes[digitsEnd + 1] === LF;
    const end = isOnlySize ? digitsEnd : bytes.indexOf(LINE_END, at);
    if (end === -1 || end - at > MAX_SIZE_LINE_BYTES)
      return this.#wait(bytes, at, MAX_SIZE_LINE_BYTES, 'a chunk size line is too long');
    if (digitsEnd === at || (!isOnlySize && !EXTENSIONS.test(bytes.toString('latin1', digitsEnd, end))))
      return this.#fail('a chunk size is malformed');
    this.#remaining = size;
    this.chunks++;
    this.#state = size === 0 ? 'trailers' : 'chunk-data';
    return end + LINE_END.length;
  }

  #readChunkEnd(bytes: Buffer, at: number): number {
    if (bytes.length - at < 2) return this.#wait(bytes, at, 2, '');
    if (bytes[at] !== CR || bytes[at + 1] !== LF) return this.#fail('a chunk is longer than its size');
    this.#state = 'chunk-size';
    return at + 2;
  }

  #readTrailers(bytes: Buffer, at: number): number {
    if (bytes[at] === CR && bytes[at + 1] === LF) {
      this.#state = 'idle';
      return at + 2;
    }
    const end = bytes.indexOf(HEAD_END, at);
    if (end === -1 || end - at > this.#maxHeadBytes)
      return this.#wait(bytes, at, this.#maxHeadBytes, 'the trailers are too large');
    const trailers = parseTrailers(bytes.toString('latin1', at, end));
    if (trailers === undefined) return this.#fail('a trailer line is malformed');
    this.#trailers = trailers;
    this.#state = 'idle';
    return end + HEAD_END.length;
  }

  /** Keeps a copy of the rest for the next push, unless it is already too long. */
  #wait(bytes: Buffer, at: number, max: number, detail: string): number {
    if (bytes.length - at > max) return this.#fail(detail);
    this.#pending = Buffer.from(bytes.subarray(at));
    return bytes.length;
  }

  /** Nothing that follows is parsed, so the position does not matter. */
  #fail(detail: string): number {
    this.#state = 'malformed';
    this.#problem = detail;
    return 0;
  }
}

/** The value of a hexadecimal digit in ASCII; -1 for any other byte. */
function toHexValue(byte = 0): number {
  if (byte >= 48 && byte <= 57) return byte - 48;
  const letter = byte | 32;
  return letter >= 97 && letter <= 102 ? letter - 87 : -1;
}

// The head of a response (RFC 9112 §4, §5): its fields, unchanged, and how its body is framed.

/** The head of a response. */
export interface ResponseHead {
  readonly status: number;
  readonly statusText: string;
  readonly headers: RawHeaders;
  /** Framed by `Transfer-Encoding: chunked`. */
  readonly isChunked: boolean;
  /** Content-Length in bytes, if present. */
  readonly length: number | undefined;
  /** The connection can carry another request after this response, as far as the head shows. */
  readonly keepsAlive: boolean;
  /** The app's idle timeout in seconds (`Keep-Alive: timeout=`), if it sends one. */
  readonly idleSeconds: number | undefined;
}

/** Why a head is invalid; for the log. */
type HeadProblem = string;

const STATUS_LINE = /^HTTP\/1\.([01]) ([1-5][0-9]{2})(?: (.*))?$/;
const TOKEN = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;
/** Control bytes, and a bare CR or LF, which only some parsers treat as the end of a line (RFC 9112 §2.2). */
const FORBIDDEN = /[^\t\r\n\x20-\x7e\x80-\xff]|\r(?!\n)|(?<!\r)\n/;
const LENGTH = /^[0-9]{1,15}$/;
const CLOSE_OPTION = /(?:^|,)[\t ]*close[\t ]*(?:,|$)/i;
const IDLE_SECONDS = /(?:^|,)[\t ]*timeout=([0-9]{1,6})/i;
const NEWLINE = '\r\n';
const isSpace = (code: number): boolean => code === 32 || code === 9;

export type HeadParser = Pick<ResponseHeads, 'parse'>;
/** In characters; longer heads are parsed each time, and heads of 1xx responses, of which one response may have many. */
const MAX_REMEMBERED_HEAD = 4_096;
/** A power of 2. */
const REMEMBERED_HEADS = 8;

/**
 * Parses the heads of one app, and remembers the latest ones: most responses to deliveries have the same head, until the next second
 * changes its Date. Parsing a head costs 2 µs, and the same headers need no new decision on what is passed on (gateway/upstream/headers.ts).
 */
export class ResponseHeads {
  readonly #texts: string[] = Array<string>(REMEMBERED_HEADS).fill('');
  readonly #heads: (ResponseHead | undefined)[] = [];

  /** See `parseResponseHead`. */
  parse(text: string): ResponseHead | HeadProblem {
    const place = text.length & (REMEMBERED_HEADS - 1);
    const known = this.#heads[place];
    if (known !== undefined && this.#texts[place] === text) return known;
    const head = parseResponseHead(text);
    if (typeof head === 'string' || head.status < 200 || text.length > MAX_REMEMBERED_HEAD) return head;
    this.#texts[place] = text;
    this.#heads[place] = head;
    return head;
  }
}

/** Parses a head without the empty line that ends it. */
export function parseResponseHead(text: string): ResponseHead | HeadProblem {
  if (FORBIDDEN.test(text)) return 'the head has a control byte';
  const end = text.indexOf(NEWLINE);
  const line = STATUS_LINE.exec(end === -1 ? text : text.slice(0, end));
  if (line === null) return 'the status line is malformed';
  const headers = end === -1 ? [] : toFields(text, end + NEWLINE.length);
  if (headers === undefined) return 'a header line is malformed';
  const framing = toFraming(headers);
  if (typeof framing === 'string') return framing;
  const isCurrent = line[1] === '1';
  // RFC 9112 §6.1: an old hop in between may have framed the body differently.
  if (framing.isChunked && !isCurrent) return 'Transfer-Encoding on HTTP/1.0';
  return {
    status: Number(line[2]),
    statusText: line[3] ?? '',
    headers,
    isChunked: framing.isChunked,
    length: framing.length,
    keepsAlive: isCurrent && !framing.closes,
    idleSeconds: framing.idleSeconds,
  };
}

/** Parses trailer lines without the empty line that ends them; undefined if one is malformed. */
export function parseTrailers(text: string): string[] | undefined {
  return FORBIDDEN.test(text) ? undefined : toFields(text, 0);
}

/** Name, value, name, value, … of the lines from `at`. A folded line (RFC 9112 §5.2) has no name and is malformed. */
function toFields(text: string, at: number): string[] | undefined {
  const fields: string[] = [];
  let start = at;
  while (start <= text.length) {
    const newline = text.indexOf(NEWLINE, start);
    const end = newline === -1 ? text.length : newline;
    const colon = text.indexOf(':', start);
    // A line without a colon has no name, which is malformed, too.
    const name = colon === -1 ? '' : text.slice(start, colon);
    if (!TOKEN.test(name)) return undefined;
    fields.push(name, sliceTrimmed(text, colon + 1, end));
    start = end + NEWLINE.length;
  }
  return fields;
}

/** Not a regular expression: optional space at both ends takes quadratic time over a long run of spaces. */
function sliceTrimmed(text: string, from: number, to: number): string {
  let start = from;
  let end = to;
  while (start < end && isSpace(text.charCodeAt(start))) start++;
  while (end > start && isSpace(text.charCodeAt(end - 1))) end--;
  return text.slice(start, end);
}

interface Framing {
  isChunked: boolean;
  length: number | undefined;
  closes: boolean;
  idleSeconds: number | undefined;
}

/** How the body is framed, or why that is ambiguous. */
function toFraming(headers: RawHeaders): Framing | HeadProblem {
  const framing: Framing = { isChunked: false, length: undefined, closes: false, idleSeconds: undefined };
  for (let i = 0; i < headers.length; i += 2) {
    const problem = readFramingField(framing, headers[i] as string, headers[i + 1] as string);
    if (problem !== undefined) return problem;
  }
  // RFC 9112 §6.3: request smuggling, or a bug; in either case two parsers could disagree.
  return framing.isChunked && framing.length !== undefined ? 'both Content-Length and Transfer-Encoding' : framing;
}

/** The length of a name excludes most fields before a comparison must fold their case. */
function readFramingField(framing: Framing, name: string, value: string): HeadProblem | undefined {
  switch (name.length) {
    case 10:
      readHopField(framing, name.toLowerCase(), value);
      return undefined;
    case 14:
      return name.toLowerCase() === 'content-length' ? readLength(framing, value) : undefined;
    case 17:
      return name.toLowerCase() === 'transfer-encoding' ? readCoding(framing, value) : undefined;
    default:
      return undefined;
  }
}

function readHopField(framing: Framing, name: string, value: string): void {
  if (name === 'connection') framing.closes ||= CLOSE_OPTION.test(value);
  else if (name === 'keep-alive') {
    const timeout = IDLE_SECONDS.exec(value);
    if (timeout !== null) framing.idleSeconds = Number(timeout[1]);
  }
}

function readLength(framing: Framing, value: string): HeadProblem | undefined {
  if (framing.length !== undefined) return 'repeated Content-Length';
  if (!LENGTH.test(value)) return 'Content-Length is malformed';
  framing.length = Number(value);
  return undefined;
}

function readCoding(framing: Framing, value: string): HeadProblem | undefined {
  if (framing.isChunked || value.toLowerCase() !== 'chunked') return 'Transfer-Encoding is not just chunked';
  framing.isChunked = true;
  return undefined;
}
