/** Checks passwords off the event loop, on a bounded number of threads with a bounded queue. */

import { Worker } from 'node:worker_threads';
import type { Bytes } from '../core/bytes.ts';
import { toSite } from '../core/ip-address.ts';
import { onEvent, runDetached } from '../core/safe-events.ts';
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

/** The client that sent the password. Realms share the threads, and so do the client networks of a realm. */
export interface HashOwner {
  readonly realm: string;
  readonly network: string;
  /** The network sent the password before, and it was right, so this is not a guess. */
  readonly isKnown: boolean;
}

/** Index of the matching hash, or -1 if none matches; `busy` if the owner's share of the queue is full. */
type HashResult = number | 'busy';

/** Bounds of the pool. */
export interface HashPoolLimits {
  readonly threads: number;
  /** Maximum number of queued jobs, not counting those of known passwords. */
  readonly queue: number;
}

interface WaitingJob {
  readonly job: HashJob;
  readonly resolve: (result: HashResult) => void;
  readonly reject: (error: Error) => void;
}

/** The worker's file is next to this one, in the sources and in the bundle. */
const WORKER = new URL(`./password-worker.${import.meta.url.endsWith('.ts') ? 'ts' : 'cjs'}`, import.meta.url);

/** Otherwise users with valid passwords that are not cached could keep all others from logging in. */
const MAX_KNOWN_IN_SUCCESSION = 3;

/** In MiB. A thread keeps almost no data, so its heap can be small; the memory of a hash is not part of the heap. */
const RESOURCE_LIMITS = { maxYoungGenerationSizeMb: 1, maxOldGenerationSizeMb: 16, stackSizeMb: 1 };

/** A bulkhead: password guesses can occupy only these threads. */
export class HashPool {
  readonly #limits: HashPoolLimits;
  readonly #idle: Worker[] = [];
  readonly #busy = new Map<Worker, WaitingJob>();
  /** First in turn, and without a limit, so that guesses lock out nobody who is working. The cache bounds how many passwords are known. */
  readonly #known = new HashQueue<WaitingJob>();
  readonly #unknown = new HashQueue<WaitingJob>();
  #knownInSuccession = 0;
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
  check(job: HashJob, owner: HashOwner): Promise<HashResult> {
    if (this.#isClosed) return Promise.reject(new Error('the pool is closed'));
    return new Promise((resolve, reject) => {
      const waiting = { job, resolve, reject };
      const worker = this.#idle.pop() ?? this.#spawn();
      if (worker !== undefined) this.#start(worker, waiting);
      else this.#enqueue(waiting, owner);
    });
  }

  #enqueue(waiting: WaitingJob, { realm, network, isKnown }: HashOwner): void {
    // An IPv6 subscriber has many networks.
    const path = [realm, toSite(network), network];
    if (isKnown) return this.#known.add(path, waiting);
    if (this.#unknown.size >= this.#limits.queue) {
      const displaced = this.#unknown.displace(path);
      if (displaced === undefined) return waiting.resolve('busy');
      displaced.resolve('busy');
    }
    this.#unknown.add(path, waiting);
  }

  #take(): WaitingJob | undefined {
    const isKnownNext = this.#unknown.size === 0 || this.#knownInSuccession < MAX_KNOWN_IN_SUCCESSION;
    const known = isKnownNext ? this.#known.take() : undefined;
    this.#knownInSuccession = known === undefined ? 0 : this.#knownInSuccession + 1;
    return known ?? this.#unknown.take();
  }

  /** Number of running and queued jobs. */
  get pending(): number {
    return this.#busy.size + this.#known.size + this.#unknown.size;
  }

  /** Ends the threads; unfinished jobs reject. */
  async close(): Promise<void> {
    this.#isClosed = true;
    const workers = [...this.#idle.splice(0), ...this.#busy.keys()];
    await Promise.all(workers.map((worker) => worker.terminate()));
    for (let left = this.#take(); left !== undefined; left = this.#take()) left.reject(new Error('the pool is closed'));
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

  #start(worker: Worker, waiting: WaitingJob): void {
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
    while (!this.#isClosed && this.#known.size + this.#unknown.size > 0) {
      const worker = this.#idle.pop() ?? this.#spawn();
      const next = worker === undefined ? undefined : this.#take();
      if (worker === undefined || next === undefined) return;
      this.#start(worker, next);
    }
  }
}

function endThread(worker: Worker | undefined): void {
  if (worker !== undefined) runDetached(worker.terminate());
}

/**
 * A queue in which groups take turns, such as realms and their client networks: one with many entries delays only its own. Groups may contain
 * groups. All paths must have the same length.
 */
class HashQueue<Entry> {
  /** The next one first. */
  readonly #groups = new Map<string, HashQueue<Entry>>();
  /** Of the innermost group, oldest first. */
  readonly #entries: Entry[] = [];
  #size = 0;

  get size(): number {
    return this.#size;
  }

  add([name, ...rest]: readonly string[], entry: Entry): void {
    this.#size++;
    if (name === undefined) {
      this.#entries.push(entry);
      return;
    }
    const group = this.#groups.get(name) ?? new HashQueue<Entry>();
    this.#groups.set(name, group);
    group.add(rest, entry);
  }

  /** Takes the oldest entry of the group whose turn it is. */
  take(): Entry | undefined {
    if (this.#size === 0) return undefined;
    this.#size--;
    const [next] = this.#groups;
    if (next === undefined) return this.#entries.shift();
    const [name, group] = next;
    const entry = group.take();
    this.#groups.delete(name);
    if (group.#size > 0) this.#groups.set(name, group);
    return entry;
  }

  /**
   * Makes room for an entry at this path: takes the newest entry of the group that has most. Undefined if that is the entry's own group,
   * or would be with the entry.
   */
  displace([name, ...rest]: readonly string[]): Entry | undefined {
    const [, largest] = this.#findLargest() ?? [];
    if (name === undefined || largest === undefined) return undefined;
    const own = this.#groups.get(name);
    const entry = largest.size > (own?.size ?? 0) + 1 ? largest.#takeNewest() : own?.displace(rest);
    if (entry !== undefined) this.#size--;
    return entry;
  }

  #takeNewest(): Entry | undefined {
    this.#size--;
    const found = this.#findLargest();
    if (found === undefined) return this.#entries.pop();
    const [name, group] = found;
    const entry = group.#takeNewest();
    if (group.#size === 0) this.#groups.delete(name);
    return entry;
  }

  /** Of several, the one whose turn is last. */
  #findLargest(): readonly [string, HashQueue<Entry>] | undefined {
    let largest: readonly [string, HashQueue<Entry>] | undefined;
    for (const each of this.#groups) if (each[1].size >= (largest?.[1].size ?? 0)) largest = each;
    return largest;
  }
}

// The memory of password hashing: each thread needs a fixed amount, plus the memory of the hash.

/** The stack, heap and code of one thread: the measured growth of the process per thread, minus the memory of its hash (docs/adr/0006). */
const THREAD_BYTES: Bytes = 16 * 1024 * 1024;
/** The rest is for request bodies, connections and the heap. */
const CONTAINER_SHARE = 0.4;

/** The share of the container's memory that password hashing may use; undefined if the container has no limit. */
export function toHashBudget(containerBytes: Bytes | undefined): Bytes | undefined {
  return containerBytes === undefined ? undefined : Math.floor(containerBytes * CONTAINER_SHARE);
}

/** The largest hash that one thread can check within the budget. */
export function toLargestHash(budget: Bytes | undefined): Bytes {
  return budget === undefined ? Number.POSITIVE_INFINITY : Math.max(0, budget - THREAD_BYTES);
}

/** How many threads may check hashes of up to `largestHash` at once; at least one. */
export function toThreadCount(wanted: number, budget: Bytes | undefined, largestHash: Bytes): number {
  if (budget === undefined) return wanted;
  return Math.max(1, Math.min(wanted, Math.floor(budget / (THREAD_BYTES + largestHash))));
}
