/** The most recent decisions: the same lines as in the log, kept in memory in a ring buffer of fixed size. */
import type { EpochMilliseconds } from '../../core/clock.ts';
import type { RequestLine } from '../log/logger.ts';
import { Ring } from './ring.ts';

/** One decision. */
export interface JournalEntry {
  /** When the request arrived. */
  readonly at: EpochMilliseconds;
  readonly line: RequestLine;
  /** The result of a later analysis of the rejection. */
  readonly explanation: readonly string[] | undefined;
}

/** A filter for entries; omitted fields match everything. */
export interface JournalQuery {
  /** null: requests that matched no route. */
  readonly route?: string | null;
  readonly code?: string;
  readonly reason?: string;
  readonly requestId?: string;
  readonly limit: number;
}

/** Explanations derive from untrusted requests, so their size is bounded. */
const MAX_EXPLANATION_LINES = 20;
const MAX_EXPLANATION_LINE_LENGTH = 500;

/** The journal. Adding a decision allocates nothing, because every request does it. */
export class Journal {
  readonly #lines: Ring<RequestLine>;
  /** Of the lines. */
  readonly #times: Ring<EpochMilliseconds>;
  /** Collected together with their lines. */
  readonly #explanations = new WeakMap<RequestLine, readonly string[]>();
  #recorded = 0;

  /** `size`: how many entries are kept; 0 keeps none. */
  constructor(size: number) {
    this.#lines = new Ring(size);
    this.#times = new Ring(size);
  }

  get size(): number {
    return this.#lines.size;
  }

  /** How many decisions were recorded since the start, including those no longer kept. */
  get recorded(): number {
    return this.#recorded;
  }

  /** Replaces the oldest decision. The line is not copied: the caller must not change it later. */
  add(at: EpochMilliseconds, line: RequestLine): void {
    if (this.size === 0) return;
    this.#lines.add(line);
    this.#times.add(at);
    this.#recorded++;
  }

  /** Adds an explanation to a decision; returns false if the journal no longer has it. */
  explain(requestId: string, explanation: readonly string[]): boolean {
    for (let age = 1; age <= this.#lines.length; age++) {
      const line = this.#lines.at(age);
      if (line.requestId !== requestId) continue;
      const lines = explanation.slice(0, MAX_EXPLANATION_LINES).map((text) => text.slice(0, MAX_EXPLANATION_LINE_LENGTH));
      this.#explanations.set(line, lines);
      return true;
    }
    return false;
  }

  /** The matching entries, newest first. */
  find(query: JournalQuery): JournalEntry[] {
    const found: JournalEntry[] = [];
    for (let age = 1; age <= this.#lines.length && found.length < query.limit; age++) {
      const line = this.#lines.at(age);
      if (isMatch(line, query)) found.push({ at: this.#times.at(age), line, explanation: this.#explanations.get(line) });
    }
    return found;
  }
}

function isMatch(line: RequestLine, { route, code, reason, requestId }: JournalQuery): boolean {
  return (
    (route === undefined || (line.route ?? null) === route) &&
    (code === undefined || line.code === code) &&
    (reason === undefined || line.reason === reason) &&
    (requestId === undefined || line.requestId === requestId)
  );
}
