/** The pool of kept-alive connections to one app. */
import type { CancelTimer, Clock, Milliseconds } from '../core/clock.ts';
import { Connection, type ConnectionOwner, type Job } from './connection.ts';
import type { AnswerListener, Upstream, UpstreamExchange, UpstreamOptions, UpstreamRequest } from './upstream.ts';

/** How exactly times are kept: one timer for all connections, none for each request. */
const SWEEP_MS: Milliseconds = 50;

/** Builds the pool. */
export function createUpstream(options: UpstreamOptions, clock: Clock): Upstream {
  return new Pool(options, clock);
}

class Pool implements Upstream, ConnectionOwner {
  readonly #options: UpstreamOptions;
  readonly #clock: Clock;
  readonly #connections = new Set<Connection>();
  /** The most recently used last: it is the least likely to be closed by the app. */
  readonly #free: Connection[] = [];
  readonly #waiting = new Set<Job>();
  #stopSweep: CancelTimer | undefined;
  #isClosed = false;

  constructor(options: UpstreamOptions, clock: Clock) {
    this.#options = options;
    this.#clock = clock;
  }

  send(request: UpstreamRequest, listener: AnswerListener): UpstreamExchange {
    const job: Job = { request, listener, wasRepeated: false };
    this.#dispatch(job);
    return {
      resume: () => this.#find(job)?.resume(),
      abort: () => {
        this.#waiting.delete(job);
        this.#find(job)?.destroy();
      },
    };
  }

  close(): void {
    this.#isClosed = true;
    for (const connection of this.#free.splice(0)) connection.destroy();
  }

  destroy(): void {
    this.#isClosed = true;
    this.#waiting.clear();
    for (const connection of this.#connections) connection.destroy();
  }

  now(): Milliseconds {
    return this.#clock.monotonic();
  }

  onFree(connection: Connection): void {
    const [next] = this.#waiting;
    if (next !== undefined) {
      this.#waiting.delete(next);
      connection.send(next);
    } else if (this.#isClosed) {
      connection.destroy();
    } else {
      this.#free.push(connection);
    }
  }

  onGone(connection: Connection): void {
    this.#connections.delete(connection);
    const at = this.#free.indexOf(connection);
    if (at !== -1) this.#free.splice(at, 1);
    const [next] = this.#waiting;
    if (next !== undefined) {
      this.#waiting.delete(next);
      this.#open(next);
    }
    if (this.#connections.size > 0) return;
    this.#stopSweep?.();
    this.#stopSweep = undefined;
  }

  onDeadOnReuse(job: Job): void {
    // Never on another reused one: it may be just as dead.
    this.#open(job);
  }

  #dispatch(job: Job): void {
    const connection = this.#free.pop();
    if (connection !== undefined) connection.send(job);
    else if (this.#connections.size < this.#options.maxConnections) this.#open(job);
    else this.#waiting.add(job);
  }

  #open(job: Job): void {
    this.#connections.add(new Connection(this, this.#options, job));
    this.#stopSweep ??= this.#clock.every(SWEEP_MS, () => this.#sweep());
  }

  #sweep(): void {
    const now = this.#clock.monotonic();
    for (const connection of this.#connections) connection.checkDeadline(now);
  }

  #find(job: Job): Connection | undefined {
    for (const connection of this.#connections) if (connection.job === job) return connection;
    return undefined;
  }
}
