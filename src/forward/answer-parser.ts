/** A strict parser of what an app answers (RFC 9112): whatever can be read in two ways is an error, never a guess. */
import type { RawHeaders } from '../core/headers.ts';

/** Told what was read; after onComplete or onProtocolError the parser takes no more until `expect`. */
export interface AnswerEvents {
  /** A 1xx other than 100 and 101. */
  onInformation(status: number, headers: RawHeaders): void;
  onHead(head: AnswerHead): void;
  onContent(chunk: Buffer): void;
  onComplete(trailers: RawHeaders): void;
  onProtocolError(detail: string): void;
}

/** The answer's head. */
export interface AnswerHead {
  readonly status: number;
  readonly statusText: string;
  readonly headers: RawHeaders;
  /** The connection may carry another request after this answer. */
  readonly keepsAlive: boolean;
  /** The app's own idle timeout in seconds (`Keep-Alive: timeout=`), where it says one. */
  readonly idleSeconds: number | undefined;
}

type State = 'idle' | 'head' | 'length' | 'chunk-size' | 'chunk-data' | 'chunk-end' | 'trailers' | 'until-close';

const NO_HEADERS: RawHeaders = [];
const CR = 13;
const LF = 10;
const HEAD_END = Buffer.from('\r\n\r\n');
const LINE_END = Buffer.from('\r\n');
const STATUS_LINE = /^HTTP\/1\.([01]) ([1-5][0-9]{2})(?: ([\t\x20-\x7e\x80-\xff]*))?$/;
const FIELD_LINE = /^([!#$%&'*+.^_`|~0-9A-Za-z-]+):[\t ]*([\t\x20-\x7e\x80-\xff]*?)[\t ]*$/;
const CHUNK_SIZE = /^([0-9A-Fa-f]{1,8})[\t ]*(?:;[\t\x20-\x7e\x80-\xff]*)?$/;
const LENGTH = /^[0-9]{1,15}$/;
/** A size line with its extensions (RFC 9112 §7.1.1: limited, and otherwise ignored). */
const LONGEST_SIZE_LINE = 1_024;
const MOST_INFORMATION = 16;

/** Reads one answer after another from a connection's bytes, split anywhere. */
export class AnswerParser {
  readonly #events: AnswerEvents;
  readonly #maxHeadBytes: number;
  #state: State = 'idle';
  #isHead = false;
  #pending: Buffer | undefined;
  #left = 0;
  #informations = 0;

  constructor(events: AnswerEvents, maxHeadBytes: number) {
    this.#events = events;
    this.#maxHeadBytes = maxHeadBytes;
  }

  /** A request with this method was sent: an answer is due. */
  expect(method: string): void {
    this.#state = 'head';
    this.#isHead = method === 'HEAD';
    this.#informations = 0;
    this.#pending = undefined;
  }

  /** Takes bytes; true when bytes were left over that belong to no answer. */
  push(chunk: Buffer): boolean {
    let rest: Buffer | undefined = chunk;
    if (this.#pending !== undefined) {
      rest = Buffer.concat([this.#pending, chunk]);
      this.#pending = undefined;
    }
    while (rest !== undefined && rest.length > 0) {
      if (this.#state === 'idle') return true;
      rest = this.#step(rest);
    }
    return false;
  }

  /** The app closed its side; true where that ends the answer (RFC 9112 §6.3, no length given). */
  end(): boolean {
    if (this.#state !== 'until-close') return false;
    this.#complete(NO_HEADERS);
    return true;
  }

  /** Reads one element; what is left of the bytes, or undefined when more are needed. */
  #step(bytes: Buffer): Buffer | undefined {
    switch (this.#state) {
      case 'head':
        return this.#readHead(bytes);
      case 'length':
        return this.#readContent(bytes, () => this.#complete(NO_HEADERS));
      case 'chunk-size':
        return this.#readLine(bytes, LONGEST_SIZE_LINE, (line) => this.#readChunkSize(line));
      case 'chunk-data':
        return this.#readContent(bytes, () => {
          this.#state = 'chunk-end';
        });
      case 'chunk-end':
        return this.#readChunkEnd(bytes);
      case 'trailers':
        return this.#readTrailers(bytes);
      default:
        this.#events.onContent(bytes);
        return undefined;
    }
  }

  #readHead(bytes: Buffer): Buffer | undefined {
    const end = bytes.indexOf(HEAD_END);
    if (end === -1 || end > this.#maxHeadBytes) return this.#wait(bytes, this.#maxHeadBytes, 'the head is too large');
    const lines = bytes.toString('latin1', 0, end).split('\r\n');
    const statusLine = STATUS_LINE.exec(lines[0] as string);
    const headers = statusLine === null ? undefined : toHeaders(lines, 1);
    if (statusLine === null || headers === undefined)
      return this.#fail(statusLine === null ? 'the status line is malformed' : 'a header line is malformed');
    const status = Number(statusLine[2]);
    if (status < 200) this.#readInformation(status, headers);
    else this.#readFinalHead(status, statusLine[3] ?? '', headers, statusLine[1] === '1');
    return bytes.subarray(end + HEAD_END.length);
  }

  #readInformation(status: number, headers: RawHeaders): void {
    // We never ask for another protocol, so nobody may switch to one.
    if (status === 101) this.#fail('the app switched protocols unasked');
    else if (++this.#informations > MOST_INFORMATION) this.#fail('too many 1xx answers');
    else if (status !== 100) this.#events.onInformation(status, headers);
  }

  #readFinalHead(status: number, statusText: string, headers: RawHeaders, isCurrent: boolean): void {
    const framing = toFraming(headers);
    if (typeof framing === 'string') {
      this.#fail(framing);
      return;
    }
    if (framing.isChunked && !isCurrent) {
      this.#fail('Transfer-Encoding on HTTP/1.0');
      return;
    }
    // RFC 9112 §6.3 rule 1: whatever the fields say, these have no content.
    const hasContent = !this.#isHead && status !== 204 && status !== 304;
    const isOpenEnded = hasContent && !framing.isChunked && framing.length === undefined;
    const keepsAlive = isCurrent && !framing.closes && !isOpenEnded;
    this.#events.onHead({ status, statusText, headers, keepsAlive, idleSeconds: framing.idleSeconds });
    if (!hasContent || framing.length === 0) this.#complete(NO_HEADERS);
    else if (framing.isChunked) this.#state = 'chunk-size';
    else if (framing.length === undefined) this.#state = 'until-close';
    else {
      this.#state = 'length';
      this.#left = framing.length;
    }
  }

  #readContent(bytes: Buffer, onEnd: () => void): Buffer | undefined {
    if (bytes.length < this.#left) {
      this.#left -= bytes.length;
      this.#events.onContent(bytes);
      return undefined;
    }
    const rest = bytes.subarray(this.#left);
    this.#events.onContent(bytes.length === this.#left ? bytes : bytes.subarray(0, this.#left));
    onEnd();
    return rest;
  }

  #readChunkSize(line: string): void {
    const size = CHUNK_SIZE.exec(line);
    if (size === null) {
      this.#fail('a chunk size is malformed');
      return;
    }
    this.#left = Number.parseInt(size[1] as string, 16);
    this.#state = this.#left === 0 ? 'trailers' : 'chunk-data';
  }

  #readChunkEnd(bytes: Buffer): Buffer | undefined {
    if (bytes.length < 2) return this.#wait(bytes, 2, '');
    if (bytes[0] !== CR || bytes[1] !== LF) return this.#fail('a chunk is longer than its size');
    this.#state = 'chunk-size';
    return bytes.subarray(2);
  }

  #readTrailers(bytes: Buffer): Buffer | undefined {
    if (bytes.length >= 2 && bytes[0] === CR && bytes[1] === LF) {
      this.#complete(NO_HEADERS);
      return bytes.subarray(2);
    }
    const end = bytes.indexOf(HEAD_END);
    if (end === -1 || end > this.#maxHeadBytes) return this.#wait(bytes, this.#maxHeadBytes, 'the trailers are too large');
    const trailers = toHeaders(bytes.toString('latin1', 0, end).split('\r\n'), 0);
    if (trailers === undefined) return this.#fail('a trailer line is malformed');
    this.#complete(trailers);
    return bytes.subarray(end + HEAD_END.length);
  }

  #readLine(bytes: Buffer, longest: number, onLine: (line: string) => void): Buffer | undefined {
    const end = bytes.indexOf(LINE_END);
    if (end === -1 || end > longest) return this.#wait(bytes, longest, 'a chunk size line is too long');
    onLine(bytes.toString('latin1', 0, end));
    return this.#state === 'idle' ? undefined : bytes.subarray(end + LINE_END.length);
  }

  /** Keeps the bytes for the next push, unless they are too many already. */
  #wait(bytes: Buffer, most: number, detail: string): undefined {
    if (bytes.length > most) return this.#fail(detail);
    this.#pending = bytes;
  }

  #complete(trailers: RawHeaders): void {
    this.#state = 'idle';
    this.#events.onComplete(trailers);
  }

  #fail(detail: string): undefined {
    this.#state = 'idle';
    this.#pending = undefined;
    this.#events.onProtocolError(detail);
  }
}

function toHeaders(lines: readonly string[], from: number): string[] | undefined {
  const headers: string[] = [];
  for (let i = from; i < lines.length; i++) {
    const field = FIELD_LINE.exec(lines[i] as string);
    if (field === null) return undefined;
    headers.push(field[1] as string, field[2] as string);
  }
  return headers;
}

interface Framing {
  isChunked: boolean;
  length: number | undefined;
  closes: boolean;
  idleSeconds: number | undefined;
}

/** How the content is delimited, or why that cannot be told. */
function toFraming(headers: RawHeaders): Framing | string {
  const framing: Framing = { isChunked: false, length: undefined, closes: false, idleSeconds: undefined };
  for (let i = 0; i < headers.length; i += 2) {
    const problem = readFramingField(framing, (headers[i] as string).toLowerCase(), headers[i + 1] as string);
    if (problem !== undefined) return problem;
  }
  // RFC 9112 §6.3: an attempt to smuggle, or a bug; either way two readers could differ.
  return framing.isChunked && framing.length !== undefined ? 'Content-Length beside Transfer-Encoding' : framing;
}

function readFramingField(framing: Framing, name: string, value: string): string | undefined {
  switch (name) {
    case 'content-length':
      if (framing.length !== undefined) return 'repeated Content-Length';
      if (!LENGTH.test(value)) return 'Content-Length is malformed';
      framing.length = Number(value);
      return undefined;
    case 'transfer-encoding':
      if (framing.isChunked || value.toLowerCase() !== 'chunked') return 'Transfer-Encoding is not just chunked';
      framing.isChunked = true;
      return undefined;
    case 'connection':
      framing.closes ||= /(?:^|,)[\t ]*close[\t ]*(?:,|$)/i.test(value);
      return undefined;
    case 'keep-alive':
      framing.idleSeconds = toIdleSeconds(value);
      return undefined;
    default:
      return undefined;
  }
}

function toIdleSeconds(value: string): number | undefined {
  const timeout = /(?:^|,)[\t ]*timeout=([0-9]{1,6})/i.exec(value);
  return timeout === null ? undefined : Number(timeout[1]);
}
