/** Limits the memory that pauses hold together: for peers that do not read, sidegate keeps what was sent to them. */
import type { Clock } from '../../core/clock.ts';
import type { Pauses, ReadPause } from '../../core/read-pause.ts';
import { UnorderedList } from '../../core/unordered-list.ts';
import { EVICTED_SHARE, pickVictims } from './body-budget.ts';
import type { MemoryPressure } from './memory-guard.ts';

/** The pauses of a process. */
export class PausedMemory implements Pauses {
  readonly clock: Clock;
  readonly #maxBytes: number;
  readonly #onLimit: (limit: 'buffer_share') => void;
  readonly #pressure: MemoryPressure;
  readonly #pauses = new UnorderedList<ReadPause>();
  #held = 0;

  constructor(maxBytes: number, clock: Clock, onLimit: (limit: 'buffer_share') => void, pressure: MemoryPressure) {
    this.#maxBytes = maxBytes;
    this.clock = clock;
    this.#onLimit = onLimit;
    this.#pressure = pressure;
  }

  /** The bytes that all pauses hold now. */
  get held(): number {
    return this.#held;
  }

  add(pause: ReadPause): void {
    this.#pauses.add(pause);
    this.#held += pause.held;
    while (this.#held > this.#maxBytes) this.#evict();
  }

  remove(pause: ReadPause): void {
    if (pause.listIndex === undefined) return;
    this.#pauses.remove(pause);
    this.#held -= pause.held;
  }

  onBytes(bytes: number): void {
    this.#pressure.onBytes(bytes);
  }

  /** The memory of a connection that is destroyed is free only after the next garbage collection. */
  #evict(): void {
    const bytes = Math.max(this.#held - this.#maxBytes, this.#maxBytes * EVICTED_SHARE);
    for (const pause of pickVictims([...this.#pauses], bytes, this.clock.monotonic())) {
      this.#onLimit('buffer_share');
      this.remove(pause);
      pause.evict();
      this.#pressure.onGarbage(pause.held);
    }
  }
}
