/** Reads a request body once: into one Buffer, limited in size, rate and in the memory of all requests together, or as a stream. */

import type { Milliseconds } from '../../core/clock.ts';
import { toClientNetwork } from '../../core/ip-address.ts';
import { freeChunk, GrowingBuffer, type PauseOwner, type Pauses, ReadPause } from '../../core/reading.ts';
import { type Reason, type Refusal, refuse, refuseBody } from '../../core/refusal.ts';
import type { BodyConsumer, BodyStream, ClientResponse, RequestBody } from '../../core/request.ts';
import { onEvent } from '../../core/safe-events.ts';
import { type BodyReceiver, type BodySource, isCutOff } from './body-source.ts';
import type { BodyInProgress, BodyWatch, BufferedBody } from './limits.ts';
import { type BodyState, SMALL_BODY } from './memory-guard.ts';

/** In bytes; reading this much and discarding it costs less than another TCP and TLS handshake. */
const CHEAP_TO_DRAIN = 64 * 1024;
const EMPTY = Buffer.alloc(0);
/** In bytes; what Node reads of a body that nobody reads, before it stops. */
const MAX_UNREAD = 128 * 1024;
/** The bytes that a chunk costs in addition to its bytes until it is garbage collected. */
const CHUNK_OVERHEAD = 400;

/** The body of a request. */
export class IncomingBody implements RequestBody, BufferedBody, BodyReceiver {
  readonly declaredLength: number | undefined;
  startedAt: Milliseconds = 0;
  lastByteAt: Milliseconds = 0;
  readonly isBuffered = true;
  /** It waits for a slot among the large bodies. */
  isPaused = false;
  /** The address of the client, if it is not the peer of the connection; its network shares the budget with others. */
  client = '';
  route: string | undefined;
  #network: string | undefined;
  held = 0;
  state: BodyState = 'small';
  listIndex: number | undefined;
  #received = 0;
  #stream: IncomingStream | undefined;
  /** It may be cut off while the gates still run, before it is read. */
  #brokenBy: Reason | undefined;
  readonly #source: BodySource;
  readonly #watch: BodyWatch;
  readonly #bytes = new GrowingBuffer();
  #maxBytes = 0;
  /** It is among the buffered bodies, although its reading has not begun. */
  #isUnread = false;
  #isFreed = false;
  #onFreed: (() => void) | undefined;
  #settle: ((result: Buffer | Refusal) => void) | undefined;
  #result: Buffer | Refusal | Promise<Buffer | Refusal> | undefined;
  #content: Buffer | Refusal | undefined;

  constructor(source: BodySource, watch: BodyWatch) {
    this.#source = source;
    this.#watch = watch;
    this.declaredLength = source.declaredLength;
  }

  get content(): Buffer | Refusal | undefined {
    return this.#content;
  }

  get network(): string {
    this.#network ??= toClientNetwork(this.client === '' ? this.#source.peer : this.client);
    return this.#network;
  }

  get pauses(): Pauses {
    return this.#watch.pauses;
  }

  get received(): number {
    return this.#stream?.received ?? this.#received;
  }

  get isCheapToDrain(): boolean {
    const { isComplete, isMultiplexed, expectsContinue } = this.#source;
    if (isComplete || isMultiplexed) return true;
    // A client that waits for 100 may send the body or not: only closing the connection is unambiguous (RFC 9110 §10.1.1).
    return !expectsContinue && this.declaredLength !== undefined && this.declaredLength <= CHEAP_TO_DRAIN;
  }

  read(maxBytes: number, route?: string): Buffer | Refusal | Promise<Buffer | Refusal> {
    this.#result ??= this.#start(maxBytes, route);
    return this.#result;
  }

  open(): Buffer | BodyStream {
    if (this.declaredLength === 0) return EMPTY;
    this.#stream = new IncomingStream(this.#source, this.#watch, this, () => this.#endUnread());
    if (this.#brokenBy !== undefined) this.#stream.fail(this.#brokenBy);
    return this.#stream;
  }

  arriving(): Promise<Refusal | undefined> | undefined {
    return this.#stream?.arriving().then((reason) => (reason === undefined ? undefined : toRefusal(reason)));
  }

  get isArriving(): boolean {
    return this.#stream !== undefined && !this.#source.isComplete;
  }

  /** Returns the buffer's bytes to the shared budget; called once the exchange is over. */
  free(): void {
    this.#isFreed = true;
    this.#endUnread();
    this.#watch.release(this);
    const onFreed = this.#onFreed;
    this.#onFreed = undefined;
    onFreed?.();
  }

  /** Calls back once the exchange is over, and no longer refers to the request. */
  afterFree(callback: () => void): void {
    if (this.#isFreed) callback();
    else this.#onFreed = callback;
  }

  /**
   * Call it after the request was handled as far as possible at once. If the body is not read by then, because a gate or the app takes its
   * time, what Node reads of it counts from now on; if there is no memory for it, the client is disconnected. It counts until the response
   * ends, at the latest: a request that was rejected before routing has nothing else that would free its body.
   */
  holdUnread(response: ClientResponse): void {
    const { declaredLength = MAX_UNREAD } = this;
    if (response.writableEnded || response.destroyed || declaredLength === 0) return;
    if (this.#isFreed || this.#result !== undefined || this.#stream?.hasBegun === true) return;
    const bytes = Math.min(declaredLength, MAX_UNREAD);
    this.#isUnread = true;
    this.isPaused = true;
    this.startedAt = this.#watch.now();
    this.#watch.addBuffered(this);
    this.#watch.onBytes(bytes);
    if (!this.#watch.take(this, bytes)) return this.fail('buffer_full');
    onEvent(response, 'close', () => {
      if (!this.#isUnread) return;
      // The gates that still work refer to the stream, with all that it has buffered.
      while (this.#source.stream.read() !== null);
      this.#endUnread();
    });
  }

  #endUnread(): void {
    if (!this.#isUnread) return;
    this.#isUnread = false;
    this.isPaused = false;
    this.#watch.finish(this, 0);
  }

  discard(): void {
    this.free();
    this.#content = undefined;
    this.#bytes.free();
    this.#drain();
  }

  fail(reason: Reason): void {
    this.#brokenBy ??= reason;
    this.#stream?.fail(reason);
    this.#finish(toRefusal(reason));
    if (!this.#isUnread || reason !== 'buffer_full') return;
    this.#watch.onGarbage(this.held);
    this.#endUnread();
    const { stream } = this.#source;
    // The request that waits refers to the stream, with all that it has buffered.
    onEvent(stream, 'data', (chunk: Buffer) => freeChunk(chunk));
    stream.resume();
    stream.destroy();
  }

  #start(maxBytes: number, route: string | undefined): Buffer | Refusal | Promise<Buffer | Refusal> {
    // Before its route is known, for it is counted for none.
    this.#endUnread();
    this.route = route;
    if (this.declaredLength === 0) return EMPTY;
    // The client left while the gates before took their time.
    if (isCutOff(this.#source)) this.#brokenBy ??= 'body_aborted';
    if (this.#brokenBy !== undefined) return toRefusal(this.#brokenBy);
    if (this.declaredLength !== undefined && this.declaredLength > maxBytes)
      return refuse('body_too_large', 'body_too_large', { stage: 'content' });
    this.#maxBytes = maxBytes;
    this.startedAt = this.#watch.now();
    this.lastByteAt = this.startedAt;
    return new Promise((resolve) => {
      this.#settle = resolve;
      onEvent(this.#source.stream, 'error', () => this.fail('body_aborted'));
      onEvent(this.#source.stream, 'close', () => this.fail('body_aborted'));
      this.#watch.addBuffered(this);
      const { declaredLength: size = 0 } = this;
      if (size <= SMALL_BODY) this.#listen();
      else if (!this.#enter(size)) this.fail('buffer_full');
    });
  }

  #enter(size: number): boolean {
    if (!this.#source.isMultiplexed) {
      this.isPaused = true;
      return this.#watch.takeOrWait(this, size, () => this.#listen());
    }
    // A waiting body would block the other streams of its HTTP/2 connection.
    const isTaken = this.#watch.takeLarge(this, size);
    if (isTaken) this.#listen();
    return isTaken;
  }

  #listen(): void {
    this.isPaused = false;
    this.startedAt = this.#watch.now();
    this.lastByteAt = this.startedAt;
    // A sender that waits for 100 gets it only now, after the gates that check only the header (RFC 9110 §10.1.1).
    if (this.#source.expectsContinue) this.#source.sendContinue();
    this.#source.receive(this);
  }

  onChunk(chunk: Buffer): void {
    this.#watch.onBytes(chunk.length + CHUNK_OVERHEAD);
    // The request is already rejected; discard the rest.
    if (this.#settle === undefined) return freeChunk(chunk);
    this.#received += chunk.length;
    if (this.#received > this.#maxBytes) return this.#finish(refuse('body_too_large', 'body_too_large', { stage: 'content' }));
    const { declaredLength: most = this.#maxBytes } = this;
    const capacity = this.#bytes.toCapacity(chunk, most);
    if (capacity > this.held && !this.#grow(capacity)) return this.fail('buffer_full');
    // This body was the one that was evicted.
    if (this.#settle === undefined) return freeChunk(chunk);
    this.lastByteAt = this.#watch.now();
    this.#bytes.append(chunk, most);
  }

  #grow(capacity: number): boolean {
    return capacity > SMALL_BODY ? this.#watch.takeLarge(this, capacity) : this.#watch.take(this, capacity);
  }

  onEnd(): void {
    if (!this.#source.isComplete) return this.fail('body_aborted');
    this.#finish(this.#received === 0 ? EMPTY : this.#bytes.view());
  }

  #finish(result: Buffer | Refusal): void {
    const settle = this.#settle;
    if (settle === undefined) return;
    this.#settle = undefined;
    if (!Buffer.isBuffer(result)) this.#bytes.free();
    this.#watch.finish(this, this.#bytes.capacity);
    this.#content = result;
    settle(result);
  }

  /** Node also copies bytes that nobody reads; without a listener, the copies would wait for the garbage collector. */
  #drain(): void {
    const { stream, isComplete, isMultiplexed } = this.#source;
    if (isComplete || isMultiplexed) return;
    this.#watch.endDrained(stream);
    if (stream.listenerCount('data') > 0) return;
    onEvent(stream, 'data', (chunk: Buffer) => {
      this.#watch.onBytes(chunk.length + CHUNK_OVERHEAD);
      freeChunk(chunk);
    });
  }
}

function toRefusal(reason: Reason): Refusal {
  return refuseBody(reason, { stage: 'content' });
}

/** The body of a request as a stream: limited in rate, not in size, and with only a few chunks in memory. */
class IncomingStream implements BodyStream, BodyInProgress {
  readonly length: number | undefined;
  readonly isBuffered = false;
  readonly owner: PauseOwner;
  startedAt: Milliseconds = 0;
  lastByteAt: Milliseconds = 0;
  received = 0;
  readonly #source: BodySource;
  readonly #watch: BodyWatch;
  #consumer: BodyConsumer | undefined;
  /** Chunks that arrived before there was a consumer. */
  #early: Buffer[] = [];
  readonly #onBegin: () => void;
  #hasBegun = false;
  /** Arriving chunks are kept for a consumer that is not attached yet. */
  #isHeld = false;
  #hasEnded = false;
  #onAvailable: (() => void) | undefined;
  #pause: ReadPause | undefined;
  /** From the first chunk until there is a consumer. */
  #arrival: ReadPause | undefined;
  #brokenBy: Reason | undefined;

  /** `onBegin`: called before it is read. */
  constructor(source: BodySource, watch: BodyWatch, owner: PauseOwner, onBegin: () => void) {
    this.#source = source;
    this.#onBegin = onBegin;
    this.owner = owner;
    this.length = source.declaredLength;
    this.#watch = watch;
  }

  get hasBegun(): boolean {
    return this.#hasBegun;
  }

  get isPaused(): boolean {
    return this.#pause !== undefined;
  }

  start(consumer: BodyConsumer): void {
    this.#consumer = consumer;
    this.#isHeld = false;
    if (isCutOff(this.#source)) this.#brokenBy ??= 'body_aborted';
    // Also if it has ended since: some of it was given up.
    if (this.#brokenBy !== undefined) return this.#finish()?.fail(this.#brokenBy);
    if (!this.#hasBegun) return this.#begin();
    this.#arrival?.end();
    for (const chunk of this.#early.splice(0)) this.#write(consumer, chunk);
    if (this.#hasEnded) this.#finish()?.end();
  }

  /**
   * Starts to read, and resolves with the first bytes, the end, or the reason why neither arrives. Chunks are kept for `start`.
   */
  async arriving(): Promise<Reason | undefined> {
    if (isCutOff(this.#source)) this.#brokenBy ??= 'body_aborted';
    if (this.#brokenBy !== undefined) return this.#brokenBy;
    const available = new Promise<void>((resolve) => {
      this.#onAvailable = resolve;
    });
    this.#isHeld = true;
    this.#begin();
    await available;
    return this.#brokenBy;
  }

  #begin(): void {
    const { stream, expectsContinue } = this.#source;
    this.#hasBegun = true;
    this.#onBegin();
    if (expectsContinue) this.#source.sendContinue();
    this.startedAt = this.#watch.now();
    this.lastByteAt = this.startedAt;
    this.#watch.add(this);
    this.#source.receive({ onChunk: (chunk) => this.#onData(chunk), onEnd: () => this.#onEnd() });
    onEvent(stream, 'error', () => this.fail('body_aborted'));
    onEvent(stream, 'close', () => this.fail('body_aborted'));
  }

  stop(): void {
    this.#finish();
    this.#freeEarly();
    const { stream, isComplete, isMultiplexed } = this.#source;
    stream.resume();
    if (!isComplete && !isMultiplexed) this.#watch.endDrained(stream);
  }

  /** Fails the body; before `start`, it fails on `start`. */
  fail(reason: Reason): void {
    if (this.#hasEnded) return;
    this.#brokenBy ??= reason;
    this.#finish()?.fail(reason);
    this.#freeEarly();
    this.#notifyAvailable();
  }

  #onData(chunk: Buffer): void {
    const consumer = this.#consumer;
    this.#watch.onBytes(chunk.length);
    if (consumer === undefined && !this.#isHeld) return freeChunk(chunk);
    this.received += chunk.length;
    this.lastByteAt = this.#watch.now();
    if (consumer !== undefined) return this.#write(consumer, chunk);
    this.#early.push(chunk);
    this.#arrival ??= new ReadPause(this.owner, chunk.length, this.#watch.limits.streamTimeout, (isEvicted) =>
      this.fail(isEvicted ? 'buffer_full' : 'body_timeout'),
    );
    this.#hold(this.#arrival);
    this.#notifyAvailable();
  }

  #write(consumer: BodyConsumer, chunk: Buffer): void {
    const pause = consumer.write(chunk);
    if (pause !== undefined && this.#consumer !== undefined) this.#hold(pause);
  }

  /** The sender did not cause the pause, so the time of the pause does not count for the limits. */
  #hold(pause: ReadPause): void {
    if (pause.isOver) return;
    const startedAt = this.#watch.now();
    this.#pause = pause;
    pause.hold(this.#source.stream, () => {
      this.#pause = undefined;
      const now = this.#watch.now();
      this.startedAt += now - startedAt;
      this.lastByteAt = now;
    });
  }

  #onEnd(): void {
    if (!this.#source.isComplete) return this.fail('body_aborted');
    this.#hasEnded = true;
    this.#finish()?.end();
    this.#notifyAvailable();
  }

  #freeEarly(): void {
    for (const chunk of this.#early.splice(0)) freeChunk(chunk);
  }

  #notifyAvailable(): void {
    this.#onAvailable?.();
    this.#onAvailable = undefined;
  }

  #finish(): BodyConsumer | undefined {
    const consumer = this.#consumer;
    this.#consumer = undefined;
    this.#isHeld = false;
    this.#pause?.release(this.#source.stream);
    this.#pause = undefined;
    this.#arrival?.end();
    this.#watch.remove(this);
    return consumer;
  }
}
