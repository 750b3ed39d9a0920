/** Checks passwords off the event loop: on threads of its own, a few more in line, the rest refused. */
import { Worker } from 'node:worker_threads';
import { onEvent, runDetached } from '../../core/safe-events.ts';
import type { PasswordHash } from './password-hash.ts';

/** What a thread needs of a stored hash. */
export type CheckedHash = Pick<PasswordHash, 'algorithm' | 'text'>;

/** One password against some stored hashes. */
export interface HashJob {
  readonly hashes: readonly CheckedHash[];
  /** Checked in vain where none of the hashes fits, so that every refusal costs the same. */
  readonly decoys: readonly CheckedHash[];
  readonly password: Buffer;
}

/** Index of the hash that fits, -1 for none; `busy` where the line is full. */
export type HashResult = number | 'busy';

/** How much of the machine guesses may take. */
export interface HashPoolLimits {
  readonly threads: number;
  /** Jobs in line behind those under way. */
  readonly queue: number;
}

interface Waiting {
  readonly job: HashJob;
  readonly resolve: (result: HashResult) => void;
  readonly reject: (error: Error) => void;
}

/** A file beside this one, in the sources and in the bundle. */
const WORKER = new URL(`./password-worker.${import.meta.url.endsWith('.ts') ? 'ts' : 'cjs'}`, import.meta.url);

/** A thread keeps next to nothing, so its heap need not grow. In MiB; a hash is not part of the heap. */
const RESOURCE_LIMITS = { maxYoungGenerationSizeMb: 1, maxOldGenerationSizeMb: 16, stackSizeMb: 1 };

/** A bulkhead: however many guesses come, they hold these threads and no others. */
export class HashPool {
  readonly #limits: HashPoolLimits;
  readonly #idle: Worker[] = [];
  readonly #busy = new Map<Worker, Waiting>();
  readonly #line: Waiting[] = [];
  #threads: number;
  #isClosed = false;

  constructor(limits: HashPoolLimits) {
    this.#limits = limits;
    this.#threads = limits.threads;
  }

  /** Changes how many threads there may be: as many jobs run at once. Threads beyond end when their job is done. */
  resize(threads: number): void {
    this.#threads = threads;
    while (this.#idle.length > 0 && this.#idle.length + this.#busy.size > threads) endThread(this.#idle.pop());
    this.#startWaiting();
  }

  /** Rejects where a thread died or the pool is closed: then nothing is known of the password. */
  check(job: HashJob): Promise<HashResult> {
    if (this.#isClosed) return Promise.reject(new Error('the pool is closed'));
    return new Promise((resolve, reject) => {
      const waiting = { job, resolve, reject };
      const worker = this.#idle.pop() ?? this.#spawn();
      if (worker !== undefined) this.#start(worker, waiting);
      else if (this.#line.length < this.#limits.queue) this.#line.push(waiting);
      else resolve('busy');
    });
  }

  /** Jobs under way and in line. */
  get pending(): number {
    return this.#busy.size + this.#line.length;
  }

  /** Ends the threads; jobs that are left reject. */
  async close(): Promise<void> {
    this.#isClosed = true;
    const workers = [...this.#idle.splice(0), ...this.#busy.keys()];
    await Promise.all(workers.map((worker) => worker.terminate()));
    for (const { reject } of this.#line.splice(0)) reject(new Error('the pool is closed'));
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
    // The memory of a hash stays with its thread, so threads beyond the limit must end.
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
    while (!this.#isClosed && this.#line.length > 0) {
      const worker = this.#idle.pop() ?? this.#spawn();
      const next = worker === undefined ? undefined : this.#line.shift();
      if (worker === undefined || next === undefined) return;
      this.#start(worker, next);
    }
  }
}

function endThread(worker: Worker | undefined): void {
  if (worker !== undefined) runDetached(worker.terminate());
}
