/** A connection to an endpoint, with one attempt at a time: opened, used, kept alive, closed. */
import type { Socket } from 'node:net';
import type { Milliseconds } from '../../core/clock.ts';
import { onEvent, runDetached } from '../../core/safe-events.ts';
import { writeBuffered } from '../../gateway/upstream/body-writer.ts';
import { toIdleTimeout } from '../../gateway/upstream/connection.ts';
import type { ResponseHead } from '../../http/client/response-head.ts';
import { type ParserEvents, ResponseParser } from '../../http/client/response-parser.ts';
import { OpenFailure, type Opening, toCode } from '../../http/dial/opening.ts';
import type { AttemptOutcome } from './attempt.ts';

/** An attempt, as its connection sees it. */
export interface Exchange {
  /** The head and, after it, the body of the request. */
  readonly head: string;
  readonly body: Buffer;
  readonly connectTimeout: Milliseconds;
  readonly timeout: Milliseconds;
  /** When the timeout ends, monotonic. */
  readonly deadline: Milliseconds;
  readonly signal: AbortSignal;
  /** Bytes were written, if only to a connection that turned out to be dead. */
  isSent: boolean;
  /** The final response; it decides the result of the attempt, even if the body breaks off. */
  onHead(head: ResponseHead): void;
  /** The response is complete, or the rest of it does not matter. */
  onEnd(): void;
  onFailure(outcome: AttemptOutcome, detail: string): void;
}

/** The part of the pool that a connection uses. */
export interface ConnectionOwner<T> {
  /** Shared by all connections: the bytes of a read are parsed before the next one. */
  readonly readBuffer: Buffer;
  now(): Milliseconds;
  open(target: T, opening: Opening): Promise<Socket>;
  /** The attempt is over, and the connection can be used again. */
  onFree(connection: Connection<T>): void;
  onClosed(connection: Connection<T>): void;
  /** The connection died while it was idle, before it received any byte of a response: the attempt can be sent again. */
  onDeadOnReuse(connection: Connection<T>, exchange: Exchange): void;
}

const MAX_HEAD_BYTES = 16_384;
/** Bodies of responses are not used. Reading a short one keeps the connection usable. */
const MAX_RESPONSE_BYTES = 65_536;
/** Below the keep-alive timeout of common servers (Node: 5 s), or requests would race with their close. */
const IDLE_TIMEOUT_MS: Milliseconds = 4_000;
/** Then a new connection follows changes of the DNS. */
const MAX_AGE_MS: Milliseconds = 300_000;

const CLOSED = 'ECONNRESET';
/** An alert may follow the handshake, such as the one about a missing client certificate. */
const TLS_ERROR = /^ERR_(?:SSL|TLS)_/;

/** A connection. */
export class Connection<T> implements ParserEvents {
  readonly target: T;
  readonly #owner: ConnectionOwner<T>;
  readonly #parser = new ResponseParser(this, MAX_HEAD_BYTES);
  readonly #opening: Opening;
  readonly #startedAt: Milliseconds;
  #exchange: Exchange | undefined;
  #socket: Socket | undefined;
  #isClosed = false;
  #isReused = false;
  #hasHead = false;
  #keepsAlive = false;
  #responseBytes = 0;
  #idleTimeout = IDLE_TIMEOUT_MS;
  #deadline: Milliseconds;

  constructor(owner: ConnectionOwner<T>, target: T, exchange: Exchange) {
    this.target = target;
    this.#owner = owner;
    this.#exchange = exchange;
    this.#startedAt = owner.now();
    this.#deadline = Math.min(this.#startedAt + exchange.connectTimeout, exchange.deadline);
    this.#opening = {
      phase: 'dns',
      socket: undefined,
      isCanceled: false,
      timeout: this.#deadline - this.#startedAt,
      readBuffer: owner.readBuffer,
      onBytes: (bytes) => this.#onBytes(bytes),
    };
    runDetached(this.#open());
  }

  /** Sends an attempt on an idle connection. */
  send(exchange: Exchange): void {
    this.#exchange = exchange;
    this.#isReused = true;
    this.#write(exchange);
  }

  /** Ends what has timed out or was aborted. */
  check(now: Milliseconds): void {
    const exchange = this.#exchange;
    if (exchange?.signal.aborted === true) this.#fail('aborted', 'the attempt was canceled');
    else if (now < this.#deadline) return;
    else if (exchange === undefined) this.destroy();
    else if (this.#socket === undefined)
      this.#fail(this.#opening.phase, `no connection within ${Math.round(this.#opening.timeout)} ms`);
    else this.#fail('timeout', `no response within ${exchange.timeout} ms`);
  }

  /** Returns whether the connection has been idle for too long; the process may have been too busy to close it. */
  isOverdue(now: Milliseconds): boolean {
    return now >= this.#deadline;
  }

  /** Closes the connection, and informs only the pool. */
  destroy(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#exchange = undefined;
    this.#opening.isCanceled = true;
    this.#opening.socket?.destroy();
    this.#socket?.destroy();
    this.#owner.onClosed(this);
  }

  /** Called by the parser. */
  onInformation(): void {
    // 1xx responses change nothing.
  }

  /** Called by the parser. */
  onUpgrade(): void {
    // Never asked for.
  }

  /** Called by the parser. */
  onHead(head: ResponseHead): void {
    this.#hasHead = true;
    this.#keepsAlive = head.keepsAlive;
    this.#idleTimeout = head.idleSeconds === undefined ? IDLE_TIMEOUT_MS : toIdleTimeout(head.idleSeconds, IDLE_TIMEOUT_MS);
    this.#exchange?.onHead(head);
  }

  /** Called by the parser. */
  onBody(): void {
    // Not used.
  }

  async #open(): Promise<void> {
    try {
      const socket = await this.#owner.open(this.target, this.#opening);
      if (this.#isClosed) socket.destroy();
      else this.#onOpen(socket);
    } catch (thrown) {
      const isExpected = thrown instanceof OpenFailure;
      this.#fail(isExpected ? thrown.outcome : this.#opening.phase, isExpected ? thrown.message : toCode(thrown));
    }
  }

  #onOpen(socket: Socket): void {
    this.#socket = socket;
    onEvent(socket, 'end', () => this.#onEnd());
    onEvent(socket, 'error', (error) => this.#onLost(toCode(error)));
    onEvent(socket, 'close', () => this.#onLost(CLOSED));
    if (socket.destroyed) this.#onLost(CLOSED);
    else if (this.#exchange !== undefined) this.#write(this.#exchange);
  }

  #write(exchange: Exchange): void {
    const { head, body, deadline } = exchange;
    const socket = this.#socket as Socket;
    exchange.isSent = true;
    this.#responseBytes = 0;
    this.#hasHead = false;
    this.#deadline = deadline;
    this.#parser.expect('POST', false);
    writeBuffered(socket, head, body);
  }

  #onBytes(bytes: Buffer): void {
    if (this.#isClosed) return;
    // Nobody asked for them; the next request would take them for its response (response desync).
    if (this.#exchange === undefined) return this.destroy();
    if (this.#socket === undefined) return this.#fail('protocol', 'the endpoint sent bytes before the request');
    this.#responseBytes += bytes.length;
    const progress = this.#parser.push(bytes);
    if (progress === 'malformed') this.#fail('protocol', this.#parser.problem);
    else if (progress !== 'more') this.#complete(progress === 'complete');
    else if (this.#hasHead && this.#responseBytes > MAX_RESPONSE_BYTES) this.#complete(false);
  }

  /** Called only after all bytes were parsed: bytes after the response would be read as the next response. */
  #complete(isClean: boolean): void {
    const exchange = this.#exchange;
    this.#exchange = undefined;
    const now = this.#owner.now();
    const isReusable = isClean && this.#keepsAlive && this.#socket?.writableLength === 0 && now - this.#startedAt < MAX_AGE_MS;
    if (isReusable) {
      this.#deadline = now + this.#idleTimeout;
      this.#owner.onFree(this);
    } else this.destroy();
    exchange?.onEnd();
  }

  #onEnd(): void {
    if (this.#parser.end()) this.#complete(false);
    else this.#onLost(CLOSED);
  }

  #onLost(code: string): void {
    const exchange = this.#exchange;
    if (this.#isClosed || exchange === undefined) return this.destroy();
    if (!this.#isReused || this.#responseBytes > 0)
      return this.#fail(TLS_ERROR.test(code) ? 'tls' : 'reset', `the connection was lost (${code})`);
    // At most once, because the next connection is a new one. The receiver recognizes the ID if it did see the request.
    this.destroy();
    this.#owner.onDeadOnReuse(this, exchange);
  }

  #fail(outcome: AttemptOutcome, detail: string): void {
    const exchange = this.#exchange;
    this.destroy();
    exchange?.onFailure(outcome, detail);
  }
}
