/** The connections to endpoints, with one attempt at a time: opened, used, kept alive, closed. */
import type { Socket } from 'node:net';
import type { CancelTimer, Clock, EpochMilliseconds, Milliseconds } from '../../core/clock.ts';
import { onEvent, runDetached } from '../../core/safe-events.ts';
import { writeBuffered } from '../../gateway/upstream/body-writer.ts';
import { toIdleTimeout } from '../../gateway/upstream/connection.ts';
import type { ResponseHead } from '../../http/client/response-head.ts';
import { type ParserEvents, ResponseParser } from '../../http/client/response-parser.ts';
import { DialFailure, Opening, toCode } from '../../http/dial/dial.ts';
import { type ConnectionTarget, type OpenParts, openSocket, type SocketReads } from '../../http/dial/open-socket.ts';
import type { Endpoint } from '../endpoints/endpoint.ts';
import { type AttemptOutcome, type AttemptResult, findRetryAfter, toOutcome } from './attempt.ts';

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
const EMPTY = Buffer.alloc(0);
const MAX_DETAIL_LENGTH = 300;
/** The precision of deadlines and cancellations: one timer for all connections, none for each attempt. */
const CHECK_INTERVAL_MS: Milliseconds = 50;
/** A check that comes this long after the one before: the process was busy, or its CPU was throttled. */
const LATE_CHECK_MS: Milliseconds = 250;
/** An idle TLS connection holds about 40 KiB. */
const MAX_IDLE_CONNECTIONS = 1024;
const READ_BUFFER_BYTES = 65_536;

/** An endpoint with its idle connections; the most recently used is last, as the endpoint is least likely to close it. */
export interface PooledTarget extends ConnectionTarget {
  readonly idle: Connection[];
  /** No connection is kept any more. */
  isRetired: boolean;
}

/** The kept-alive connections to all endpoints. Endpoints never share one, so that none can answer the deliveries of another. */
export class ConnectionPool {
  /** Shared by all connections: the bytes of a read are parsed before the next one. */
  readonly #readBuffer = Buffer.allocUnsafeSlow(READ_BUFFER_BYTES);
  #parts: OpenParts;
  readonly #clock: Clock;
  readonly #connections = new Set<Connection>();
  /** The one that became idle first is first. */
  readonly #idle = new Set<Connection>();
  #stopChecks: CancelTimer | undefined;
  #checkedAt: Milliseconds = 0;
  #wasLate = false;

  constructor(parts: OpenParts) {
    this.#parts = parts;
    this.#clock = parts.clock;
  }

  /** Sends on an idle connection, or on a new one. */
  send(target: PooledTarget, exchange: Exchange): void {
    const now = this.now();
    let connection = target.idle.pop();
    while (connection?.isOverdue(now)) {
      connection.destroy();
      connection = target.idle.pop();
    }
    if (connection === undefined) return this.#start(target, exchange);
    this.#idle.delete(connection);
    connection.send(exchange);
  }

  /** Closes the idle connections of an endpoint, and the busy ones when they are done. */
  retire(target: PooledTarget): void {
    target.isRetired = true;
    for (const connection of target.idle.splice(0)) connection.destroy();
  }

  /** Changes what new connections are checked against, and the proxy that they use. */
  replace(settings: Pick<OpenParts, 'rules' | 'proxy'>): void {
    this.#parts = { ...this.#parts, ...settings };
  }

  now(): Milliseconds {
    return this.#clock.monotonic();
  }

  open(target: PooledTarget, opening: Opening, onBytes: SocketReads['onBytes']): Promise<Socket> {
    return openSocket(target, opening, { buffer: this.#readBuffer, onBytes }, this.#parts);
  }

  /** The attempt is over, and the connection can be used again. */
  onFree(connection: Connection): void {
    const { target } = connection;
    if (target.isRetired) return connection.destroy();
    target.idle.push(connection);
    this.#idle.add(connection);
    if (this.#idle.size <= MAX_IDLE_CONNECTIONS) return;
    const [oldest] = this.#idle;
    oldest?.destroy();
  }

  onClosed(connection: Connection): void {
    this.#connections.delete(connection);
    if (this.#idle.delete(connection)) {
      const at = connection.target.idle.indexOf(connection);
      if (at !== -1) connection.target.idle.splice(at, 1);
    }
    if (this.#connections.size > 0) return;
    this.#stopChecks?.();
    this.#stopChecks = undefined;
  }

  /** The connection died while it was idle, before it received any byte of a response: the attempt can be sent again. */
  onDeadOnReuse({ target }: Connection, exchange: Exchange): void {
    // Never on another reused connection, which may be dead, too.
    this.#start(target, exchange);
  }

  #start(target: PooledTarget, exchange: Exchange): void {
    this.#connections.add(new Connection(this, target, exchange));
    if (this.#stopChecks !== undefined) return;
    this.#checkedAt = this.now();
    this.#stopChecks = this.#clock.every(CHECK_INTERVAL_MS, () => this.#check());
  }

  #check(): void {
    const now = this.now();
    const isLate = now - this.#checkedAt > LATE_CHECK_MS;
    this.#checkedAt = now;
    // Responses may have arrived in time and wait to be read, which happens before the next check.
    this.#wasLate = isLate && !this.#wasLate;
    if (this.#wasLate) return;
    for (const connection of [...this.#connections]) connection.check(now);
  }
}

/** An attempt, as its connection sees it. Its status counts as soon as the head of the response is complete; nothing that follows changes the result. */
export class Exchange {
  readonly startedAt: EpochMilliseconds;
  readonly timeout: Milliseconds;
  /** When the timeout ends, monotonic. */
  readonly deadline: Milliseconds;
  readonly connectTimeout: Milliseconds;
  readonly signal: AbortSignal;
  /** Bytes were written, if only to a connection that turned out to be dead. */
  isSent = false;
  /** The head and, after it, the body of the request. */
  head = '';
  body: Buffer = EMPTY;
  readonly #clock: Clock;
  readonly #resolve: (result: AttemptResult) => void;
  readonly #started: Milliseconds;
  #response: ResponseHead | undefined;

  constructor(clock: Clock, endpoint: Endpoint, signal: AbortSignal, resolve: (result: AttemptResult) => void) {
    this.#clock = clock;
    this.#resolve = resolve;
    this.signal = signal;
    this.startedAt = clock.now();
    this.#started = clock.monotonic();
    this.timeout = endpoint.timeout;
    this.deadline = this.#started + endpoint.timeout;
    this.connectTimeout = endpoint.connectTimeout;
  }

  /** The final response. */
  onHead(head: ResponseHead): void {
    this.#response = head;
  }

  /** The response is complete, or the rest of it does not matter. */
  onEnd(): void {
    if (this.#response !== undefined) this.#onResponse(this.#response);
    else this.onFailure('protocol', 'the response has no head');
  }

  onFailure(outcome: AttemptOutcome, detail: string): void {
    if (this.#response !== undefined) this.#onResponse(this.#response);
    else this.#finish({ outcome, detail: detail.slice(0, MAX_DETAIL_LENGTH) });
  }

  #onResponse({ status, headers }: ResponseHead): void {
    const outcome = toOutcome(status);
    if (outcome === 'delivered') this.#finish({ outcome, status });
    else
      this.#finish({
        outcome,
        status,
        retryAfter: findRetryAfter(headers, this.#clock.now()),
        detail: outcome === 'redirect' ? `responded ${status}; redirects are not followed` : `responded ${status}`,
      });
  }

  #finish(result: Omit<AttemptResult, 'startedAt' | 'duration' | 'isSent'>): void {
    this.#resolve({
      ...result,
      isSent: this.isSent,
      startedAt: this.startedAt,
      duration: this.#clock.monotonic() - this.#started,
    });
  }
}

/** A connection. */
class Connection implements ParserEvents {
  readonly target: PooledTarget;
  readonly #pool: ConnectionPool;
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

  constructor(pool: ConnectionPool, target: PooledTarget, exchange: Exchange) {
    this.target = target;
    this.#pool = pool;
    this.#exchange = exchange;
    this.#startedAt = pool.now();
    this.#deadline = Math.min(this.#startedAt + exchange.connectTimeout, exchange.deadline);
    this.#opening = new Opening(this.#deadline - this.#startedAt);
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
    this.#opening.cancel();
    this.#socket?.destroy();
    this.#pool.onClosed(this);
  }

  /** Called by the parser, as the next three. */
  onInformation(): void {
    // 1xx responses change nothing.
  }

  onUpgrade(): void {
    // Never asked for.
  }

  onHead(head: ResponseHead): void {
    this.#hasHead = true;
    this.#keepsAlive = head.keepsAlive;
    this.#idleTimeout = head.idleSeconds === undefined ? IDLE_TIMEOUT_MS : toIdleTimeout(head.idleSeconds, IDLE_TIMEOUT_MS);
    this.#exchange?.onHead(head);
  }

  onBody(): void {
    // Not used.
  }

  async #open(): Promise<void> {
    try {
      const socket = await this.#pool.open(this.target, this.#opening, (bytes) => this.#onBytes(bytes));
      if (this.#isClosed) socket.destroy();
      else this.#onOpen(socket);
    } catch (thrown) {
      const isExpected = thrown instanceof DialFailure;
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
    const now = this.#pool.now();
    const isReusable = isClean && this.#keepsAlive && this.#socket?.writableLength === 0 && now - this.#startedAt < MAX_AGE_MS;
    if (isReusable) {
      this.#deadline = now + this.#idleTimeout;
      this.#pool.onFree(this);
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
    this.#pool.onDeadOnReuse(this, exchange);
  }

  #fail(outcome: AttemptOutcome, detail: string): void {
    const exchange = this.#exchange;
    this.destroy();
    exchange?.onFailure(outcome, detail);
  }
}
