/** The pool of kept-alive connections to one app. */
import type { CancelTimer, Clock, Milliseconds } from '../../core/clock.ts';
import { ResponseHeads } from '../../http/client/response-head.ts';
import { Connection, type ConnectionOwner, type Job } from './connection.ts';
import { ReadBuffers } from './read-buffers.ts';
import type { Upstream, UpstreamExchange, UpstreamListener, UpstreamOptions, UpstreamRequest } from './upstream.ts';

/** The precision of timeouts: one timer for all connections, none for each request. */
const SWEEP_MS: Milliseconds = 50;

/** Creates the pool. */
export function createUpstream(options: UpstreamOptions, clock: Clock): Upstream {
  return new Pool(options, clock);
}

class Pool implements Upstream, ConnectionOwner {
  readonly options: UpstreamOptions;
  readonly buffers = new ReadBuffers();
  readonly heads = new ResponseHeads();
  readonly clock: Clock;
  readonly #connections = new Set<Connection>();
  /** Their number is limited only by the number of clients: they do not count towards `maxConnections`. */
  readonly #upgraded = new Set<Connection>();
  /** The most recently used connection is last: the app is least likely to close it. */
  readonly #free: Connection[] = [];
  readonly #waiting = new Set<PooledJob>();
  #stopSweep: CancelTimer | undefined;
  #isClosed = false;

  constructor(options: UpstreamOptions, clock: Clock) {
    this.options = options;
    this.clock = clock;
  }

  send(request: UpstreamRequest, listener: UpstreamListener): UpstreamExchange {
    const job = new PooledJob(this, request, listener);
    const now = this.clock.monotonic();
    let connection = request.isUpgrade === true ? undefined : this.#free.pop();
    // The sweep may be late if the process was busy. Treat an overdue connection as closed by the app.
    while (connection?.isOverdue(now)) {
      connection.expire();
      connection = this.#free.pop();
    }
    if (connection !== undefined) connection.send(job);
    else if (this.#connections.size < this.options.maxConnections) this.#open(job);
    else this.#wait(job, now);
    return job;
  }

  close(): void {
    this.#isClosed = true;
    for (const connection of this.#free.splice(0)) connection.destroy();
  }

  destroy(): void {
    this.#isClosed = true;
    this.#waiting.clear();
    for (const connection of [...this.#connections, ...this.#upgraded]) connection.destroy();
  }

  onFree(connection: Connection): void {
    const next = this.#takeWaiting();
    if (next !== undefined) connection.send(next);
    else if (this.#isClosed) connection.destroy();
    else this.#free.push(connection);
  }

  onUpgraded(connection: Connection): void {
    this.#connections.delete(connection);
    this.#upgraded.add(connection);
    this.#openWaiting();
  }

  onClosed(connection: Connection): void {
    this.#connections.delete(connection);
    this.#upgraded.delete(connection);
    const at = this.#free.indexOf(connection);
    if (at !== -1) this.#free.splice(at, 1);
    this.#openWaiting();
    if (this.#connections.size + this.#upgraded.size > 0) return;
    this.#stopSweep?.();
    this.#stopSweep = undefined;
  }

  onDeadOnReuse(job: Job): void {
    // Never on another reused connection, which may be dead, too.
    this.#open(job);
  }

  /** The job was canceled before it got a connection. */
  cancel(job: PooledJob): void {
    this.#waiting.delete(job);
  }

  #wait(job: PooledJob, now: Milliseconds): void {
    job.waitsUntil = now + this.options.responseTimeout;
    this.#waiting.add(job);
  }

  #takeWaiting(): Job | undefined {
    const [next] = this.#waiting;
    if (next !== undefined) this.#waiting.delete(next);
    return next;
  }

  #openWaiting(): void {
    if (this.#connections.size >= this.options.maxConnections) return;
    const next = this.#takeWaiting();
    if (next !== undefined) this.#open(next);
  }

  #open(job: Job): void {
    this.#connections.add(new Connection(this, job));
    this.#stopSweep ??= this.clock.every(SWEEP_MS, () => this.#sweep());
  }

  #sweep(): void {
    const now = this.clock.monotonic();
    for (const connection of [...this.#connections, ...this.#upgraded]) if (connection.isOverdue(now)) connection.expire();
    for (const job of this.#waiting) {
      // All jobs wait equally long, so the jobs after the first one that is not overdue are not overdue either.
      if (now < job.waitsUntil) return;
      this.#waiting.delete(job);
      const detail = `no connection was free within ${this.options.responseTimeout} ms`;
      job.listener.onFailure({ kind: 'timeout', nothingSent: true, detail });
    }
  }
}

/** A request in the pool, from `send` to the end of the exchange. */
class PooledJob implements Job, UpstreamExchange {
  readonly request: UpstreamRequest;
  readonly listener: UpstreamListener;
  connection: Connection | undefined = undefined;
  isSent = false;
  waitsUntil: Milliseconds = 0;
  readonly #pool: Pool;

  constructor(pool: Pool, request: UpstreamRequest, listener: UpstreamListener) {
    this.#pool = pool;
    this.request = request;
    this.listener = listener;
  }

  abort(): void {
    if (this.connection === undefined) this.#pool.cancel(this);
    else this.connection.destroy();
  }
}
