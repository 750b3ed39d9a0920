/** The most recent attempts to deliver events, kept in memory, in a separate journal: many attempts must not push out decisions. */
import type { EpochMilliseconds, Milliseconds } from '../../core/clock.ts';

/** One attempt. It contains neither a body, nor a URL, nor a secret. */
export interface AttemptEntry {
  /** When the attempt started. */
  readonly at: EpochMilliseconds;
  readonly endpoint: string;
  /** ID of the event. */
  readonly event: string;
  /** 1 is the first. */
  readonly attempt: number;
  readonly outcome: string;
  /** The status of the response, if there was one. */
  readonly status: number | undefined;
  readonly duration: Milliseconds;
  /** Why it failed. */
  readonly detail: string | undefined;
  /** The consequence. */
  readonly next: 'none' | 'retry' | 'dead';
  readonly retryAt: EpochMilliseconds | undefined;
}

/** A filter for entries; omitted fields match everything. */
export interface AttemptQuery {
  readonly endpoint?: string;
  readonly event?: string;
  readonly outcome?: string;
  readonly limit: number;
}

/** The journal of attempts. */
export class AttemptJournal {
  readonly #entries: Ring<AttemptEntry>;
  #recorded = 0;

  /** `size`: how many entries are kept; 0 keeps none. */
  constructor(size: number) {
    this.#entries = new Ring(size);
  }

  get size(): number {
    return this.#entries.size;
  }

  /** How many attempts were recorded since the start, including those no longer kept. */
  get recorded(): number {
    return this.#recorded;
  }

  /** Replaces the oldest entry. */
  add(entry: AttemptEntry): void {
    if (this.size === 0) return;
    this.#entries.add(entry);
    this.#recorded++;
  }

  /** The matching entries, newest first. */
  find({ endpoint, event, outcome, limit }: AttemptQuery): AttemptEntry[] {
    const found: AttemptEntry[] = [];
    for (let age = 1; age <= this.#entries.length && found.length < limit; age++) {
      const entry = this.#entries.at(age);
      if (endpoint !== undefined && entry.endpoint !== endpoint) continue;
      if (event !== undefined && entry.event !== event) continue;
      if (outcome === undefined || entry.outcome === outcome) found.push(entry);
    }
    return found;
  }
}

/** Of a fixed size. Adding an entry neither copies nor allocates, because every request does it. */
class Ring<Entry> {
  readonly size: number;
  readonly #entries: Entry[] = [];
  #next = 0;
  #length = 0;

  /** `size`: how many entries are kept; 0 keeps none. */
  constructor(size: number) {
    this.size = size;
  }

  /** How many entries are kept now. */
  get length(): number {
    return this.#length;
  }

  /** Replaces the oldest entry. */
  add(entry: Entry): void {
    if (this.size === 0) return;
    const place = this.#next;
    this.#entries[place] = entry;
    this.#next = place + 1 === this.size ? 0 : place + 1;
    if (this.#length < this.size) this.#length++;
  }

  /** The entry of this age: 1 is the newest, `length` the oldest. */
  at(age: number): Entry {
    return this.#entries[this.#toPlace(age)] as Entry;
  }

  #toPlace(age: number): number {
    const place = this.#next - age;
    return place < 0 ? place + this.size : place;
  }
}
