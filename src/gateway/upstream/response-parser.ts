/** A strict parser of what an app answers (RFC 9112): whatever can be read in two ways is an error, never a guess. */
import type { RawHeaders } from '../../core/headers.ts';
import { parseResponseHead, parseTrailers, type ResponseHead } from './response-head.ts';

/** Told what was read, as it is read. */
export interface ParserEvents {
  /** A 1xx other than 100 and 101. */
  onInformation(status: number, headers: RawHeaders): void;
  /** The protocol that was asked for is granted; all that follows comes as content. */
  onUpgrade(headers: RawHeaders): void;
  onHead(head: ResponseHead): void;
  /** The bytes are only lent: they are overwritten after the call. */
  onBody(chunk: Buffer): void;
}

/**
 * What bytes led to: `more` is due; the answer is `complete`; it is complete and there are bytes beyond it (`overrun`), or
 * none was due; it is `malformed`. After the last three, nothing more is taken until `expect`.
 */
export type Progress = 'more' | 'complete' | 'overrun' | 'malformed';

type State = 'idle' | 'malformed' | 'head' | 'length' | 'chunk-size' | 'chunk-data' | 'chunk-end' | 'trailers' | 'until-close';

const NO_HEADERS: RawHeaders = [];
const CR = 13;
const LF = 10;
const HEAD_END = Buffer.from('\r\n\r\n');
const LINE_END = Buffer.from('\r\n');
/** RFC 9112 §7.1.1: extensions may follow the size; their content is of no interest. */
const CHUNK_SIZE = /^([0-9A-Fa-f]{1,8})(?:[\t ]*;[\t\x20-\x7e\x80-\xff]*)?$/;
/** A size line with its extensions: limited, or they would make a few bytes of content dear to read. */
const MAX_SIZE_LINE_BYTES = 1_024;
const MAX_INFORMATIONAL = 16;

/** Reads one answer after another from a connection's bytes, split anywhere. */
export class ResponseParser {
  readonly #events: ParserEvents;
  readonly #maxHeadBytes: number;
  #state: State = 'idle';
  #isHeadRequest = false;
  #mayUpgrade = false;
  #pending: Buffer | undefined;
  #remaining = 0;
  #informational = 0;
  #trailers: RawHeaders = NO_HEADERS;
  #problem = '';

  constructor(events: ParserEvents, maxHeadBytes: number) {
    this.#events = events;
    this.#maxHeadBytes = maxHeadBytes;
  }

  /** The fields behind the content of a complete answer. */
  get trailers(): RawHeaders {
    return this.#trailers;
  }

  /** What is malformed, for the operator's log. */
  get problem(): string {
    return this.#problem;
  }

  /** A request with this method was sent, which may have asked for another protocol: an answer is due. */
  expect(method: string, mayUpgrade: boolean): void {
    this.#mayUpgrade = mayUpgrade;
    this.#state = 'head';
    this.#isHeadRequest = method === 'HEAD';
    this.#informational = 0;
    this.#trailers = NO_HEADERS;
  }

  /** Takes bytes, which may be overwritten after the call. */
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

  /** The app closed its side in good order: true where that completes the answer (RFC 9112 §6.3, no length given). */
  end(): boolean {
    if (this.#state !== 'until-close') return false;
    this.#state = 'idle';
    return true;
  }

  /** Reads one element; what is left of the bytes, or undefined when more are needed. */
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
    const head = parseResponseHead(bytes.toString('latin1', 0, end));
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
    // RFC 9112 §6.3 rule 1: whatever the fields say, these have no content.
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

  /** Keeps a copy of the bytes for the next push, unless they are too many already. */
  #wait(bytes: Buffer, max: number, detail: string): undefined {
    if (bytes.length > max) return this.#fail(detail);
    this.#pending = Buffer.from(bytes);
  }

  #fail(detail: string): undefined {
    this.#state = 'malformed';
    this.#problem = detail;
  }
}
