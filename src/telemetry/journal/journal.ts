/** The last verdicts, kept in memory for whoever asks why: the very lines that the log gets, in a ring of fixed size. */
import type { EpochMilliseconds } from '../../core/clock.ts';
import type { RequestLine } from '../log/logger.ts';

/** One verdict. */
export interface JournalEntry {
  /** When the request came. */
  readonly at: EpochMilliseconds;
  readonly line: RequestLine;
  /** What was found out later about why. */
  readonly explanation: readonly string[] | undefined;
}

/** Which entries are asked for; what is left out does not matter. */
export interface JournalQuery {
  /** null: those that no route took. */
  readonly route?: string | null;
  readonly code?: string;
  readonly reason?: string;
  readonly requestId?: string;
  readonly limit: number;
}

/** Explanations come from analysing what a stranger sent: however that goes, they stay short. */
const MOST_EXPLANATION_LINES = 20;
const LONGEST_EXPLANATION_LINE = 500;

/** The ring. Adding copies nothing and makes nothing, as every request does it. */
export class Journal {
  readonly size: number;
  readonly #lines: RequestLine[] = [];
  readonly #times: EpochMilliseconds[] = [];
  /** They go with their lines. */
  readonly #explanations = new WeakMap<RequestLine, readonly string[]>();
  #next = 0;
  #recorded = 0;

  /** `size`: how many entries are kept; 0 keeps none. */
  constructor(size: number) {
    this.size = size;
  }

  /** How many verdicts there were since the start, kept or not. */
  get recorded(): number {
    return this.#recorded;
  }

  /** Puts a verdict in the place of the oldest. The line is kept as it is: nobody may change it later. */
  add(at: EpochMilliseconds, line: RequestLine): void {
    if (this.size === 0) return;
    const place = this.#next;
    this.#lines[place] = line;
    this.#times[place] = at;
    this.#next = place + 1 === this.size ? 0 : place + 1;
    this.#recorded++;
  }

  /** Adds to a verdict why it was so; false where it is no longer kept. */
  explain(requestId: string, explanation: readonly string[]): boolean {
    for (let age = 1; age <= this.#lines.length; age++) {
      const line = this.#lines[this.#toPlace(age)] as RequestLine;
      if (line.requestId !== requestId) continue;
      const lines = explanation.slice(0, MOST_EXPLANATION_LINES).map((text) => text.slice(0, LONGEST_EXPLANATION_LINE));
      this.#explanations.set(line, lines);
      return true;
    }
    return false;
  }

  /** The entries that fit, newest first. */
  find(query: JournalQuery): JournalEntry[] {
    const found: JournalEntry[] = [];
    for (let age = 1; age <= this.#lines.length && found.length < query.limit; age++) {
      const place = this.#toPlace(age);
      const line = this.#lines[place] as RequestLine;
      if (isWanted(line, query))
        found.push({ at: this.#times[place] as number, line, explanation: this.#explanations.get(line) });
    }
    return found;
  }

  /** 1 is the newest. */
  #toPlace(age: number): number {
    const place = this.#next - age;
    return place < 0 ? place + this.#lines.length : place;
  }
}

function isWanted(line: RequestLine, { route, code, reason, requestId }: JournalQuery): boolean {
  return (
    (route === undefined || (line.route ?? null) === route) &&
    (code === undefined || line.code === code) &&
    (reason === undefined || line.reason === reason) &&
    (requestId === undefined || line.requestId === requestId)
  );
}
