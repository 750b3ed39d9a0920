/** Checks passwords off the event loop, on a bounded number of threads with a bounded queue. */
import { Worker } from 'node:worker_threads';
import { onEvent, runDetached } from '../../core/safe-events.ts';
import type { PasswordHash } from './password-hash.ts';

/** The parts of a stored hash that a thread needs. */
export type CheckedHash = Pick<PasswordHash, 'algorithm' | 'text'>;

/** A password to check against stored hashes. */
export interface HashJob {
  readonly hashes: readonly CheckedHash[];
  /** Also checked if no hash matches, so that every rejection takes the same time. */
  readonly decoys: readonly CheckedHash[];
  readonly password: Buffer;
}

/** Index of the matching hash, or -1 if none matches; `busy` if the queue is full. */
export type HashResult = number | 'busy';

/** Bounds of the pool. */
export interface HashPoolLimits {
  readonly threads: number;
  /** Maximum number of queued jobs. */
  readonly queue: number;
}

interface Waiting {
  readonly job: HashJob;
  readonly resolve: (result: HashResult) => void;
  readonly reject: (error: Error) => void;
}

/** The worker's file is next to this one, in the sources and in the bundle. */
const WORKER = new URL(`./password-worker.${import.meta.url.endsWith('.ts') ? 'ts' : 'cjs'}`, import.meta.url);

/** In MiB. A thread keeps almost no data, so its heap can be small; the memory of a hash is not part of the heap. */
const RESOURCE_LIMITS = { maxYoungGenerationSizeMb: 1, maxOldGenerationSizeMb: 16, stackSizeMb: 1 };

/** A bulkhead: password guesses can occupy only these threads. */
export class HashPool {
  readonly #limits: HashPoolLimits;
  readonly #idle: Worker[] = [];
  readonly #busy = new Map<Worker, Waiting>();
  readonly #queue: Waiting[] = [];
  #threads: number;
  #isClosed = false;

  constructor(limits: HashPoolLimits) {
    this.#limits = limits;
    this.#threads = limits.threads;
  }

  /** Changes the number of threads, which equals the number of concurrent jobs. Surplus threads end after their current job. */
  resize(threads: number): void {
    this.#threads = threads;
    while (this.#idle.length > 0 && this.#idle.length + this.#busy.size > threads) endThread(this.#idle.pop());
    this.#startWaiting();
  }

  /** Rejects if a thread crashed or the pool is closed; the password is then unchecked. */
  check(job: HashJob): Promise<HashResult> {
    if (this.#isClosed) return Promise.reject(new Error('the pool is closed'));
    return new Promise((resolve, reject) => {
      const waiting = { job, resolve, reject };
      const worker = this.#idle.pop() ?? this.#spawn();
      if (worker !== undefined) this.#start(worker, waiting);
      else if (this.#queue.length < this.#limits.queue) this.#queue.push(waiting);
      else resolve('busy');
    });
  }

  /** Number of running and queued jobs. */
  get pending(): number {
    return this.#busy.size + this.#queue.length;
  }

  /** Ends the threads; unfinished jobs reject. */
  async close(): Promise<void> {
    this.#isClosed = true;
    const workers = [...this.#idle.splice(0), ...this.#busy.keys()];
    await Promise.all(workers.map((worker) => worker.terminate()));
    for (const { reject } of this.#queue.splice(0)) reject(new Error('the pool is closed'));
  }

  #spawn(): Worker | undefined {
    if (this.#idle.length + this.#busy.size >= this.#threads) return undefined;
    const worker = new Worker(WORKER, { resourceLimits: RESOURCE_LIMITS });
    // A thread that waits for work must not keep the process alive.
    worker.unref();
    onEvent(worker, 'message', (result: number) => this.#finish(worker, result));
    onEvent(worker, 'error', (error) => this.#lose(worker, error));
    onEvent(worker, 'exit', () => this.#lose(worker, new Error('a password thread ended')));
    return worker;
  }

  #start(worker: Worker, waiting: Waiting): void {
    this.#busy.set(worker, waiting);
    worker.postMessage(waiting.job);
  }

  #finish(worker: Worker, result: number): void {
    this.#busy.get(worker)?.resolve(result);
    this.#busy.delete(worker);
    // A thread does not return the memory of its hashes, so threads beyond the limit must end.
    if (this.#idle.length + this.#busy.size < this.#threads) this.#idle.push(worker);
    else endThread(worker);
    this.#startWaiting();
  }

  #lose(worker: Worker, error: Error): void {
    this.#busy.get(worker)?.reject(error);
    this.#busy.delete(worker);
    const at = this.#idle.indexOf(worker);
    if (at !== -1) this.#idle.splice(at, 1);
    this.#startWaiting();
  }

  #startWaiting(): void {
    while (!this.#isClosed && this.#queue.length > 0) {
      const worker = this.#idle.pop() ?? this.#spawn();
      const next = worker === undefined ? undefined : this.#queue.shift();
      if (worker === undefined || next === undefined) return;
      this.#start(worker, next);
    }
  }
}

function endThread(worker: Worker | undefined): void {
  if (worker !== undefined) runDetached(worker.terminate());
}
