/** The kept-alive connections to all endpoints. Endpoints never share one, so that none can answer the deliveries of another. */
import type { Socket } from 'node:net';
import type { CancelTimer, Clock, Milliseconds } from '../../core/clock.ts';
import { type ConnectionTarget, type OpenParts, openSocket } from '../../http/dial/open-socket.ts';
import type { Opening } from '../../http/dial/opening.ts';
import { Connection, type ConnectionOwner, type Exchange } from './connection.ts';

/** An endpoint with its idle connections; the most recently used is last, as the endpoint is least likely to close it. */
export interface PooledTarget extends ConnectionTarget {
  readonly idle: Connection<PooledTarget>[];
  /** No connection is kept any more. */
  isRetired: boolean;
}

/** The precision of deadlines and cancellations: one timer for all connections, none for each attempt. */
const CHECK_INTERVAL_MS: Milliseconds = 50;
/** A check that comes this long after the one before: the process was busy, or its CPU was throttled. */
const LATE_CHECK_MS: Milliseconds = 250;
/** An idle TLS connection holds about 40 KiB. */
const MAX_IDLE_CONNECTIONS = 1024;
const READ_BUFFER_BYTES = 65_536;

/** The pool. */
export class ConnectionPool implements ConnectionOwner<PooledTarget> {
  readonly readBuffer = Buffer.allocUnsafeSlow(READ_BUFFER_BYTES);
  #parts: OpenParts;
  readonly #clock: Clock;
  readonly #connections = new Set<Connection<PooledTarget>>();
  /** The one that became idle first is first. */
  readonly #idle = new Set<Connection<PooledTarget>>();
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

  open(target: PooledTarget, opening: Opening): Promise<Socket> {
    return openSocket(target, opening, this.#parts);
  }

  onFree(connection: Connection<PooledTarget>): void {
    const { target } = connection;
    if (target.isRetired) return connection.destroy();
    target.idle.push(connection);
    this.#idle.add(connection);
    if (this.#idle.size <= MAX_IDLE_CONNECTIONS) return;
    const [oldest] = this.#idle;
    oldest?.destroy();
  }

  onClosed(connection: Connection<PooledTarget>): void {
    this.#connections.delete(connection);
    if (this.#idle.delete(connection)) {
      const at = connection.target.idle.indexOf(connection);
      if (at !== -1) connection.target.idle.splice(at, 1);
    }
    if (this.#connections.size > 0) return;
    this.#stopChecks?.();
    this.#stopChecks = undefined;
  }

  onDeadOnReuse({ target }: Connection<PooledTarget>, exchange: Exchange): void {
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
