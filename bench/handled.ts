/** Follows the log of handled events, to count the events that reached the app. */
import { closeSync, existsSync, openSync, readSync } from 'node:fs';
import { setTimeout as pause } from 'node:timers/promises';
import type { Contestant } from './rivals.ts';

/** The events that reached the app since the last count. */
export interface Handled {
  /** Number of different IDs with the prefix. */
  readonly ids: number;
  /** Number of repetitions of IDs. */
  readonly repeated: number;
  /** Events with another ID. */
  readonly strays: number;
}

const CHUNK_BYTES = 1 << 20;
const LOOK_EVERY_MS = 50;
/** Logs are written at least every 100 ms, so the log is complete after this time without a new line. */
const QUIET_MS = 300;
const LOOK_AT_MOST_MS = 5_000;

/** Reads the log of one rival, each time from the previous end. */
export class HandledLog {
  readonly #contestant: Contestant;
  #offset = 0;
  #rest = '';

  constructor(contestant: Contestant) {
    this.#contestant = contestant;
  }

  /** Forgets what was handled up to now. */
  async skip(): Promise<void> {
    await this.#readUntilQuiet(() => undefined);
  }

  /** Waits until the log no longer grows, and returns the counts. */
  async count(prefix: string): Promise<Handled> {
    const seen = new Set<string>();
    let repeated = 0;
    let strays = 0;
    await this.#readUntilQuiet((id) => {
      if (!id.startsWith(prefix)) strays++;
      else if (seen.has(id)) repeated++;
      else seen.add(id);
    });
    return { ids: seen.size, repeated, strays };
  }

  async #readUntilQuiet(onId: (id: string) => void): Promise<void> {
    const deadline = performance.now() + LOOK_AT_MOST_MS;
    let quietSince = performance.now();
    while (performance.now() < deadline && performance.now() - quietSince < QUIET_MS) {
      if (this.#read(onId)) quietSince = performance.now();
      await pause(LOOK_EVERY_MS);
    }
  }

  /** Returns whether there were new lines. */
  #read(onId: (id: string) => void): boolean {
    const { handledLog, readId } = this.#contestant;
    if (!existsSync(handledLog)) return false;
    const file = openSync(handledLog, 'r');
    const chunk = Buffer.allocUnsafe(CHUNK_BYTES);
    const start = this.#offset;
    for (let length = -1; length !== 0; this.#offset += length) {
      length = readSync(file, chunk, 0, CHUNK_BYTES, this.#offset);
      const lines = (this.#rest + chunk.toString('latin1', 0, length)).split('\n');
      this.#rest = lines.pop() ?? '';
      for (const id of lines.map(readId)) if (id !== undefined) onId(id);
    }
    closeSync(file);
    return this.#offset > start;
  }
}
