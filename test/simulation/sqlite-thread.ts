/** The thread of a SQLite queue, within the simulation: the real store on a real file, with messages that take virtual time. */
import { EventEmitter } from 'node:events';
import { copyFileSync, existsSync, renameSync, rmSync } from 'node:fs';
import type { Worker } from 'node:worker_threads';
import { SidegateError } from '../../src/core/errors.ts';
import { runDetached } from '../../src/core/safe-events.ts';
import type { Batch, Opened, WorkerSettings } from '../../src/provider/queue/messages.ts';
import { Store } from '../../src/provider/queue/sql/store.ts';
import { executeBatch } from '../../src/provider/queue/sqlite/batch.ts';
import { SqliteDatabase } from '../../src/provider/queue/sqlite/sqlite-database.ts';
import type { Owner, Scheduler } from './scheduler.ts';

/** How long the disk takes, and whether it fails. */
export interface Disk {
  delay(owner: Owner): number;
}

/** The files of a database; with an exclusive lock, SQLite has no others. */
const SUFFIXES = ['', '-wal'];

export class SimulatedThread extends EventEmitter {
  readonly #scheduler: Scheduler;
  readonly #owner: Owner;
  readonly #disk: Disk;
  readonly #path: string;
  #database: SqliteDatabase | undefined;
  #store: Store | undefined;
  #lastReply = 0;

  constructor(scheduler: Scheduler, owner: Owner, disk: Disk, settings: WorkerSettings) {
    super();
    this.#scheduler = scheduler;
    this.#owner = owner;
    this.#disk = disk;
    this.#path = settings.path;
    this.#later(() => runDetached(this.#open(settings)));
  }

  postMessage(message: Batch | 'close'): void {
    if (message === 'close') {
      this.#later(() => this.#close());
      this.#later(() => this.emit('exit', 0));
      return;
    }
    // As between threads: the sender no longer has the bodies.
    const batch = structuredClone(message, { transfer: [message.bodies] });
    this.#later(() => runDetached(this.#run(batch)));
  }

  ref(): void {
    // Virtual processes do not end by themselves.
  }

  unref(): void {
    // See above.
  }

  terminate(): Promise<number> {
    this.#close();
    return Promise.resolve(0);
  }

  /** The process is killed: what was committed stays on the disk, as it is at this moment. */
  kill(): void {
    if (this.#database === undefined) return;
    for (const suffix of SUFFIXES)
      if (existsSync(this.#path + suffix)) copyFileSync(this.#path + suffix, `${this.#path}.killed${suffix}`);
    this.#close();
    for (const suffix of SUFFIXES) {
      rmSync(this.#path + suffix, { force: true });
      if (existsSync(`${this.#path}.killed${suffix}`)) renameSync(`${this.#path}.killed${suffix}`, this.#path + suffix);
    }
  }

  toWorker(): Worker {
    return this as unknown as Worker;
  }

  async #open(settings: WorkerSettings): Promise<void> {
    try {
      const database = await SqliteDatabase.open(settings.path);
      this.#database = database;
      this.#store = new Store(database, settings.bounds);
      this.#later(() => this.emit('message', { isOpen: true, unreadCommits: database.unreadCommits } satisfies Opened));
    } catch (thrown) {
      if (!(thrown instanceof SidegateError)) throw thrown;
      const { kind, code, message } = thrown;
      this.#later(() => this.emit('message', { isOpen: false, kind, code, message } satisfies Opened));
    }
  }

  /** SQLite answers at once, so that this ends before anything else happens in the simulation. */
  async #run(batch: Batch): Promise<void> {
    if (this.#store === undefined) return;
    const reply = await executeBatch(this.#store, batch);
    this.#later(() => this.emit('message', reply));
  }

  #close(): void {
    this.#database?.close();
    this.#database = undefined;
    this.#store = undefined;
  }

  /** Messages keep their order. */
  #later(run: () => void): void {
    const { now } = this.#scheduler;
    this.#lastReply = Math.max(this.#lastReply + 0.001, now + this.#disk.delay(this.#owner));
    this.#scheduler.after(this.#lastReply - now, this.#owner, run);
  }
}
