/** Bounds what one analysis may cost, whatever a stranger sends. */

/** The most that one analysis may do. */
export interface Budget {
  /** Content bytes hashed or rewritten. */
  readonly bytes: number;
  /** Combinations tried. */
  readonly candidates: number;
}

/** What suits a process that has other work. */
export const USUAL_BUDGET: Budget = { bytes: 32 * 1024 * 1024, candidates: 2_000 };

/** Counts against a budget. */
export class Meter {
  readonly #budget: Budget;
  #bytes = 0;
  #candidates = 0;
  #isExceeded = false;

  constructor(budget: Budget) {
    this.#budget = budget;
  }

  get bytes(): number {
    return this.#bytes;
  }

  get candidates(): number {
    return this.#candidates;
  }

  /** Something was left untried. */
  get isExceeded(): boolean {
    return this.#isExceeded;
  }

  /** Takes the cost of rewriting content, or says that there is no more. */
  takeBytes(bytes: number): boolean {
    if (this.#bytes + bytes > this.#budget.bytes) {
      this.#isExceeded = true;
      return false;
    }
    this.#bytes += bytes;
    return true;
  }

  /** Takes the cost of one try. */
  takeCandidate(bytes: number): boolean {
    if (this.#candidates >= this.#budget.candidates) {
      this.#isExceeded = true;
      return false;
    }
    if (!this.takeBytes(bytes)) return false;
    this.#candidates++;
    return true;
  }
}
