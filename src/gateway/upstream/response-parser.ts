/** A strict parser for the app's responses (RFC 9112): anything ambiguous is an error. */
import type { RawHeaders } from '../../core/headers.ts';
import { parseTrailers, type ResponseHead, ResponseHeads } from './response-head.ts';

/** Receives the parsed parts of a response, as they arrive. */
export interface ParserEvents {
  /** A 1xx response other than 100 and 101. */
  onInformation(status: number, headers: RawHeaders): void;
  /** The app accepted the requested protocol; all bytes that follow arrive by `onBody`. */
  onUpgrade(headers: RawHeaders): void;
  onHead(head: ResponseHead): void;
  /** The chunk is valid only during the call: its memory is overwritten afterwards. */
  onBody(chunk: Buffer): void;
}

/**
 * The state after a `push`. `more`: the response is incomplete. `complete`: it is complete. `overrun`: there are bytes after its end, or
 * no response was expected. `malformed`: it is invalid. After the last three, the parser takes no bytes until `expect`.
 */
export type Progress = 'more' | 'complete' | 'overrun' | 'malformed';

type State = 'idle' | 'malformed' | 'head' | 'length' | 'chunk-size' | 'chunk-data' | 'chunk-end' | 'trailers' | 'until-close';

const NO_HEADERS: RawHeaders = [];
const CR = 13;
const LF = 10;
const HEAD_END = Buffer.from('\r\n\r\n');
const LINE_END = Buffer.from('\r\n');
/** RFC 9112 §7.1.1: extensions may follow the size, and are ignored. */
const CHUNK_SIZE = /^([0-9A-Fa-f]{1,8})(?:[\t ]*;[\t\x20-\x7e\x80-\xff]*)?$/;
/** Limits a size line with its extensions: otherwise a few bytes of body could cost a lot of parsing. */
const MAX_SIZE_LINE_BYTES = 1_024;
const MAX_INFORMATIONAL = 16;

/** Parses consecutive responses from the bytes of a connection, split at any position. */
export class ResponseParser {
  readonly #events: ParserEvents;
  readonly #maxHeadBytes: number;
  readonly #heads: ResponseHeads;
  #state: State = 'idle';
  #isHeadRequest = false;
  #mayUpgrade = false;
  #pending: Buffer | undefined;
  #remaining = 0;
  #informational = 0;
  #trailers: RawHeaders = NO_HEADERS;
  #problem = '';

  /** `heads`: what the connections to one app share. */
  constructor(events: ParserEvents, maxHeadBytes: number, heads = new ResponseHeads()) {
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

  /** Parses bytes, which may be overwritten after the call. */
  push(chunk: Buffer): Progress {
    let rest: Buffer | undefined = chunk;
    if (this.#pending !== undefined) {
      rest = Buffer.concat([this.#pending, chunk]);
      this.#pending = undefined;
    }
    while (rest !== undefined && rest.length > 0) {
      if (this.#state === 'idle') return 'overrun';
      rest = this.#step(rest);
    }
    if (this.#state === 'malformed') return 'malformed';
    return this.#state === 'idle' ? 'complete' : 'more';
  }

  /** The app closed its side cleanly: returns true if that ends the response (RFC 9112 §6.3, no length given). */
  end(): boolean {
    if (this.#state !== 'until-close') return false;
    this.#state = 'idle';
    return true;
  }

  /** Parses one element. Returns the remaining bytes, or undefined if more are needed. */
  #step(bytes: Buffer): Buffer | undefined {
    switch (this.#state) {
      case 'head':
        return this.#readHead(bytes);
      case 'length':
        return this.#readBody(bytes, 'idle');
      case 'chunk-size':
        return this.#readChunkSize(bytes);
      case 'chunk-data':
        return this.#readBody(bytes, 'chunk-end');
      case 'chunk-end':
        return this.#readChunkEnd(bytes);
      case 'trailers':
        return this.#readTrailers(bytes);
      case 'until-close':
        this.#events.onBody(bytes);
        return undefined;
      default:
        return undefined;
    }
  }

  #readHead(bytes: Buffer): Buffer | undefined {
    const end = bytes.indexOf(HEAD_END);
    if (end === -1 || end > this.#maxHeadBytes) return this.#wait(bytes, this.#maxHeadBytes, 'the head is too large');
    const head = this.#heads.parse(bytes.toString('latin1', 0, end));
    if (typeof head === 'string') return this.#fail(head);
    if (head.status < 200) this.#readInformation(head);
    else this.#readFinalHead(head);
    return bytes.subarray(end + HEAD_END.length);
  }

  #readInformation({ status, headers }: ResponseHead): void {
    if (status === 101 && this.#mayUpgrade) {
      this.#state = 'until-close';
      this.#events.onUpgrade(headers);
    } else if (status === 101) this.#fail('the app switched protocols without being asked');
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

  #readBody(bytes: Buffer, next: State): Buffer | undefined {
    const { length } = bytes;
    if (length < this.#remaining) {
      this.#remaining -= length;
      this.#events.onBody(bytes);
      return undefined;
    }
    const size = this.#remaining;
    this.#state = next;
    this.#events.onBody(length === size ? bytes : bytes.subarray(0, size));
    return length === size ? undefined : bytes.subarray(size);
  }

  #readChunkSize(bytes: Buffer): Buffer | undefined {
    const end = bytes.indexOf(LINE_END);
    if (end === -1 || end > MAX_SIZE_LINE_BYTES) return this.#wait(bytes, MAX_SIZE_LINE_BYTES, 'a chunk size line is too long');
    const size = CHUNK_SIZE.exec(bytes.toString('latin1', 0, end));
    if (size === null) return this.#fail('a chunk size is malformed');
    this.#remaining = Number.parseInt(size[1] as string, 16);
    this.#state = this.#remaining === 0 ? 'trailers' : 'chunk-data';
    return bytes.subarray(end + LINE_END.length);
  }

  #readChunkEnd(bytes: Buffer): Buffer | undefined {
    if (bytes.length < 2) return this.#wait(bytes, 2, '');
    if (bytes[0] !== CR || bytes[1] !== LF) return this.#fail('a chunk is longer than its size');
    this.#state = 'chunk-size';
    return bytes.subarray(2);
  }

  #readTrailers(bytes: Buffer): Buffer | undefined {
    if (bytes.length >= 2 && bytes[0] === CR && bytes[1] === LF) {
      this.#state = 'idle';
      return bytes.subarray(2);
    }
    const end = bytes.indexOf(HEAD_END);
    if (end === -1 || end > this.#maxHeadBytes) return this.#wait(bytes, this.#maxHeadBytes, 'the trailers are too large');
    const trailers = parseTrailers(bytes.toString('latin1', 0, end));
    if (trailers === undefined) return this.#fail('a trailer line is malformed');
    this.#trailers = trailers;
    this.#state = 'idle';
    return bytes.subarray(end + HEAD_END.length);
  }

  /** Keeps a copy of the bytes for the next push, unless there are already too many. */
  #wait(bytes: Buffer, max: number, detail: string): undefined {
    if (bytes.length > max) return this.#fail(detail);
    this.#pending = Buffer.from(bytes);
  }

  #fail(detail: string): undefined {
    this.#state = 'malformed';
    this.#problem = detail;
  }
}
