/** An HTTP/2 stream with the interface of node:http's response, its fields, the idle time of its session, and the streams that a client may have rejected. */
import { constants, type OutgoingHttpHeaders, type ServerHttp2Session, type ServerHttp2Stream } from 'node:http2';
import type { CancelTimer, Clock, Milliseconds } from '../../core/clock.ts';
import { acceptsTrailers, type HeaderFields, type RawHeaders } from '../../core/head.ts';
import { freeChunk } from '../../core/reading.ts';
import type { ClientResponse, ResponseEvent } from '../../core/request.ts';
import { onceEvent, onEvent } from '../../core/safe-events.ts';

/** RFC 8297. */
const EARLY_HINTS = 103;

/** Lists (RFC 9110 §8.4, §8.5) that node:http2 accepts only in a single field line. */
const JOINED: ReadonlySet<string> = new Set(['content-encoding', 'content-language']);
/** Fields that node:http2 throws for if they are repeated. */
const SINGLE_VALUED: ReadonlySet<string> = new Set([
  'access-control-allow-credentials',
  'access-control-max-age',
  'age',
  'authorization',
  'content-location',
  'content-md5',
  'content-range',
  'content-type',
  'date',
  'dnt',
  'etag',
  'expires',
  'from',
  'host',
  'last-modified',
  'location',
  'retry-after',
  'tk',
  'x-content-type-options',
]);

/** When a stream is checked again whose response has not ended yet; after that, twice as long each time up to a limit. */
const FIRST_CHECK_MS: Milliseconds = 10;
const MAX_CHECK_MS: Milliseconds = 500;

/** The response to an HTTP/2 request. */
export class Http2Response implements ClientResponse {
  readonly req = { httpVersionMinor: 1 };
  /** Has no effect: the stream does not own the connection. */
  shouldKeepAlive = true;
  /** HTTP/2 has no reason phrase (RFC 9113 §8.3.2). */
  statusMessage = '';
  readonly #stream: ServerHttp2Stream;
  readonly #acceptsTrailers: boolean;
  readonly #clock: Clock;
  #hasLength = false;
  #trailers: OutgoingHttpHeaders = {};
  readonly #preset: OutgoingHttpHeaders = {};
  readonly #counted: CountedStream;
  #isEnded = false;
  /** Not by the client. */
  #isDestroyed = false;

  /** `headers`: the request header; `counted`: counts the stream if it is rejected, or reset by the client. */
  constructor(stream: ServerHttp2Stream, headers: HeaderFields, counted: CountedStream, clock: Clock) {
    this.#stream = stream;
    this.#counted = counted;
    this.#clock = clock;
    this.#acceptsTrailers = acceptsTrailers(headers);
    onceEvent(stream, 'wantTrailers', () => this.#sendTrailers());
    onceEvent(stream, 'finish', () => this.#endUnread());
    onceEvent(stream, 'close', () => {
      if (!this.#isEnded && !this.#isDestroyed) counted.reject();
    });
  }

  get headersSent(): boolean {
    return this.#stream.headersSent;
  }

  get writableEnded(): boolean {
    return this.#isEnded;
  }

  get writableLength(): number {
    return this.#stream.writableLength;
  }

  get destroyed(): boolean {
    return this.#stream.destroyed || this.#stream.closed;
  }

  get chunkedEncoding(): boolean {
    return !this.#hasLength;
  }

  setHeader(name: string, value: string): void {
    this.#preset[name.toLowerCase()] = value;
  }

  writeHead(status: number, _statusText: string | undefined, fields: string[]): void {
    const headers: OutgoingHttpHeaders = { ...this.#preset, ...toHeaders(fields) };
    // Node ends the stream with this head; the content that an app gives is not sent (RFC 9110 §15.3.6).
    if (status === constants.HTTP_STATUS_RESET_CONTENT) headers['content-length'] = '0';
    this.#hasLength = headers['content-length'] !== undefined;
    headers[':status'] = status;
    if (!this.destroyed) this.#stream.respond(headers, { waitForTrailers: this.#acceptsTrailers && !this.#hasLength });
  }

  flushHeaders(): void {
    // Heads are always sent immediately.
  }

  writeEarlyHints({ link }: { link: string[] }): void {
    if (!this.destroyed && !this.headersSent) this.#stream.additionalHeaders({ ':status': EARLY_HINTS, link });
  }

  write(chunk: Buffer, onWritten?: (error?: Error | null) => void): boolean {
    if (!this.destroyed) return this.#stream.write(chunk, onWritten);
    onWritten?.(new Error('the stream is closed'));
    return true;
  }

  addTrailers(trailers: readonly [string, string][]): void {
    this.#trailers = toHeaders(withoutConflicts(trailers));
  }

  end(last?: string, encoding: 'latin1' = 'latin1'): void {
    this.#isEnded = true;
    if (this.destroyed) return;
    this.#discardRequest();
    // Node has ended the response to HEAD before anything listened.
    if (this.#stream.writableFinished) this.#endUnread();
    else if (last === undefined) this.#stream.end();
    else this.#stream.end(last, encoding);
  }

  /**
   * Destroys the stream with an error instead of ending it, so that the client does not take a partial response for a complete
   * one.
   */
  destroy(): void {
    this.#isDestroyed = true;
    this.#stream.destroy(new Error('the response was cut off'));
  }

  /** Nothing has been done for the request, so the client may send it again (RFC 9113 §8.7). `counts`: it has too many. */
  refuseStream(counts: boolean): void {
    if (counts) this.#counted.reject();
    this.#isDestroyed = true;
    this.#stream.close(constants.NGHTTP2_REFUSED_STREAM);
  }

  onRejected(): void {
    this.#counted.reject();
  }

  /** The listener comes from `onEvent`: if it were guarded again, `off` would not find it. */
  on(event: ResponseEvent, listener: () => void): void {
    this.#stream.on(event, listener);
  }

  off(event: ResponseEvent, listener: () => void): void {
    this.#stream.off(event, listener);
  }

  /** The rest of the request may still arrive. */
  get #isUnread(): boolean {
    return !this.#stream.endAfterHeaders && !this.#stream.readableEnded;
  }

  /**
   * Node keeps what arrives and nobody reads: a whole window for each stream, as long as the client does not take the response. The
   * stream is closed once it has.
   */
  #discardRequest(): void {
    if (this.#isUnread && this.#stream.listenerCount('data') === 0) onEvent(this.#stream, 'data', freeChunk);
  }

  /**
   * The rest of the request is not needed, and would use up the flow control window of all streams. The stream is reset only after END_STREAM
   * (RFC 9113 §8.1): a client takes a response without it for one that was cut off. Node does not say when it sends that, which can wait for
   * the client.
   */
  #endUnread(delay: Milliseconds = FIRST_CHECK_MS): void {
    if (!this.#isUnread || this.destroyed) return;
    if (this.#stream.state.localClose === 1) this.#stream.close(constants.NGHTTP2_NO_ERROR);
    else this.#clock.after(delay, () => this.#endUnread(Math.min(2 * delay, MAX_CHECK_MS)));
  }

  /** The body is complete without trailers, so trailers that Node rejects are not sent. */
  #sendTrailers(): void {
    try {
      this.#stream.sendTrailers(this.#trailers);
    } catch {
      this.#stream.sendTrailers({});
    }
  }
}

/** Removes single-valued fields that are repeated with different values: none of the values can be trusted. */
function withoutConflicts(trailers: readonly [string, string][]): string[] {
  const values = new Map<string, string>();
  const conflicting = new Set<string>();
  for (const [name, value] of trailers) {
    const key = name.toLowerCase();
    if (SINGLE_VALUED.has(key) && (values.get(key) ?? value) !== value) conflicting.add(key);
    values.set(key, value);
  }
  return trailers.filter(([name]) => !conflicting.has(name.toLowerCase())).flat();
}

/**
 * Lower-case names, and repeated fields as arrays. A single-valued field that is repeated with the same value is sent once; with
 * different values it remains an array, which `respond` rejects.
 */
function toHeaders(fields: readonly string[]): OutgoingHttpHeaders {
  const headers: Record<string, string | string[]> = Object.create(null);
  for (let i = 0; i < fields.length; i += 2) {
    const name = (fields[i] as string).toLowerCase();
    const value = fields[i + 1] as string;
    const before = headers[name];
    if (before === undefined) headers[name] = value;
    else if (JOINED.has(name)) headers[name] = `${before}, ${value}`;
    else if (SINGLE_VALUED.has(name) && before === value) continue;
    else headers[name] = Array.isArray(before) ? [...before, value] : [before, value];
  }
  return headers;
}

/** So many streams a client may have rejected at once, and per second after that. A stream costs a quarter to a half of a millisecond. */
const BURST = 1_000;
const PER_SECOND = 500;
/** A stream costs as much as so many header fields or trailers. */
const FIELDS_PER_STREAM = 100;
const MAX_CLIENTS = 1_024;

interface RejectionBudget {
  /** Streams that may still be rejected. */
  left: number;
  at: Milliseconds;
}

/**
 * Limits the streams of one client that are rejected, or that it gives up.
 * A connection can open 100 streams with one small packet, as compression makes hundreds of fields a byte each, and all connections of a
 * client together thousands. In HTTP/1.1 each connection has one request at a time, so the limit on connections is enough.
 */
export class RejectedStreams {
  readonly #clock: Clock;
  /** The one that was used longest ago is first. */
  readonly #budgets = new Map<string, RejectionBudget>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Whether the client has used up its budget. */
  isSpent(client: string): boolean {
    const budget = this.#budgets.get(client);
    return budget !== undefined && this.#toLeft(budget) < 1;
  }

  /** Counts a rejected stream with its fields, or fields alone. Returns false if the client has used up its budget. */
  take(client: string, streams: number, fields: number): boolean {
    const before = this.#budgets.get(client);
    const left = (before === undefined ? BURST : this.#toLeft(before)) - streams - fields / FIELDS_PER_STREAM;
    this.#budgets.delete(client);
    this.#budgets.set(client, { left: Math.max(0, left), at: this.#clock.monotonic() });
    if (this.#budgets.size > MAX_CLIENTS) this.#forgetFirst();
    return left >= 0;
  }

  #toLeft({ left, at }: RejectionBudget): number {
    return Math.min(BURST, left + ((this.#clock.monotonic() - at) / 1_000) * PER_SECOND);
  }

  /** Its budget is most likely full again. */
  #forgetFirst(): void {
    for (const client of this.#budgets.keys()) {
      this.#budgets.delete(client);
      return;
    }
  }
}

/** A stream that counts once it is rejected or given up. */
export class CountedStream {
  readonly #count: (streams: number, fields: number) => void;
  #fields: number;
  #isRejected = false;

  constructor(fields: number, count: (streams: number, fields: number) => void) {
    this.#fields = fields;
    this.#count = count;
  }

  /** Trailers arrived; they reach no app. */
  addFields(fields: number): void {
    if (this.#isRejected) this.#count(0, fields);
    else this.#fields += fields;
  }

  /** Counts the stream, the first time that it is called. */
  reject(): void {
    if (this.#isRejected) return;
    this.#isRejected = true;
    this.#count(1, this.#fields);
  }
}

/** nghttp2 cuts a session after 10,000 invalid heads, and 330 per second. */
const MAX_INVALID_HEADS = 5_000;
const INVALID_HEADS_PER_SECOND = 300;
const INVALID_CHECK_MS: Milliseconds = 250;

/**
 * Ends the session of a proxy, after the requests in flight, before its clients have sent too many invalid heads. They never become streams that
 * Node shows. Returns what to call for each stream that does.
 */
export function limitInvalidHeads(session: ServerHttp2Session, clock: Clock): () => void {
  let requests = 0;
  let before = 0;
  let invalid = 0;
  const stop = clock.every(INVALID_CHECK_MS, () => {
    const count = ((session.state.lastProcStreamID ?? 0) + 1) / 2 - requests;
    invalid = Math.max(0, invalid + count - before - (INVALID_HEADS_PER_SECOND * INVALID_CHECK_MS) / 1_000);
    before = count;
    if (invalid >= MAX_INVALID_HEADS) session.close();
  });
  onceEvent(session, 'close', stop);
  return () => {
    requests++;
  };
}

/** Bytes that each field counts in addition to its name and value. */
const FIELD_OVERHEAD = 32;

/** The size of the fields after decompression in bytes, as RFC 9113 §6.5.2 counts it. */
export function toHeadBytes(raw: RawHeaders): number {
  return raw.reduce((bytes, text) => bytes + text.length, (raw.length / 2) * FIELD_OVERHEAD);
}

/** Converts the fields to HTTP/1.1: `:authority` as Host, and a single Cookie (RFC 9113 §8.2.3, §8.3.1). */
export function toFields(raw: RawHeaders, authority: string | undefined): string[] {
  const fields: string[] = authority === undefined ? [] : ['host', authority];
  const cookies: string[] = [];
  for (let i = 0; i < raw.length; i += 2) {
    const name = raw[i] as string;
    const value = raw[i + 1] as string;
    if (name === 'cookie') cookies.push(value);
    // A Host equal to `:authority` is redundant; a different one is rejected as repeated.
    else if (!name.startsWith(':') && !(name === 'host' && value === authority)) fields.push(name, value);
  }
  if (cookies.length > 0) fields.push('cookie', cookies.join('; '));
  return fields;
}

/** Runs while no stream is in flight, so pings alone do not keep a session open. */
export class IdleTimer {
  readonly #start: () => CancelTimer;
  #streams = 0;
  #cancel: CancelTimer;

  constructor(clock: Clock, delay: Milliseconds, onIdle: () => void) {
    const start = (): CancelTimer => clock.after(delay, onIdle);
    this.#start = start;
    this.#cancel = start();
  }

  enter(): void {
    this.#streams++;
    this.#cancel();
  }

  leave(): void {
    this.#streams--;
    if (this.#streams === 0) this.#cancel = this.#start();
  }

  stop(): void {
    this.#streams = Number.POSITIVE_INFINITY;
    this.#cancel();
  }
}
