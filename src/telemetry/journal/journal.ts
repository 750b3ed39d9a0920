/** The most recent decisions: the same lines as in the log, kept in memory in a ring buffer of fixed size. */
import type { EpochMilliseconds } from '../../core/clock.ts';
import type { RequestLine } from '../log/logger.ts';

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

/** The ring buffer. Adding an entry neither copies nor allocates, because every request does it. */
export class Journal {
  readonly size: number;
  readonly #lines: RequestLine[] = [];
  readonly #times: EpochMilliseconds[] = [];
  /** Collected together with their lines. */
  readonly #explanations = new WeakMap<RequestLine, readonly string[]>();
  #next = 0;
  #recorded = 0;

  /** `size`: how many entries are kept; 0 keeps none. */
  constructor(size: number) {
    this.size = size;
  }

  /** How many decisions were recorded since the start, including those no longer kept. */
  get recorded(): number {
    return this.#recorded;
  }

  /** Replaces the oldest decision. The line is not copied: the caller must not change it later. */
  add(at: EpochMilliseconds, line: RequestLine): void {
    if (this.size === 0) return;
    const place = this.#next;
    this.#lines[place] = line;
    this.#times[place] = at;
    this.#next = place + 1 === this.size ? 0 : place + 1;
    this.#recorded++;
  }

  /** Adds an explanation to a decision; returns false if the journal no longer has it. */
  explain(requestId: string, explanation: readonly string[]): boolean {
    for (let age = 1; age <= this.#lines.length; age++) {
      const line = this.#lines[this.#toPlace(age)] as RequestLine;
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
      const place = this.#toPlace(age);
      const line = this.#lines[place] as RequestLine;
      if (isMatch(line, query)) found.push({ at: this.#times[place] as number, line, explanation: this.#explanations.get(line) });
    }
    return found;
  }

  /** 1 is the newest. */
  #toPlace(age: number): number {
    const place = this.#next - age;
    return place < 0 ? place + this.#lines.length : place;
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
