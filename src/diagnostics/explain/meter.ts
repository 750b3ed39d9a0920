/** Bounds the cost of one analysis for any request of an untrusted client. */

/** The limits of one analysis. */
export interface AnalysisBudget {
  /** Bytes hashed or rewritten. */
  readonly bytes: number;
  /** Combinations tried. */
  readonly candidates: number;
}

/** For a process that also serves requests. */
export const DEFAULT_BUDGET: AnalysisBudget = { bytes: 32 * 1024 * 1024, candidates: 2_000 };

/** Measures an analysis against a budget. */
export class Meter {
  readonly #budget: AnalysisBudget;
  #bytes = 0;
  #candidates = 0;
  #isExceeded = false;

  constructor(budget: AnalysisBudget) {
    this.#budget = budget;
  }

  get bytes(): number {
    return this.#bytes;
  }

  get candidates(): number {
    return this.#candidates;
  }

  /** The budget was used up before all candidates were tried. */
  get isExceeded(): boolean {
    return this.#isExceeded;
  }

  /** Spends the cost of rewriting bytes; returns false if the budget does not allow it. */
  takeBytes(bytes: number): boolean {
    if (this.#bytes + bytes > this.#budget.bytes) {
      this.#isExceeded = true;
      return false;
    }
    this.#bytes += bytes;
    return true;
  }

  /** Spends the cost of one candidate; returns false if the budget does not allow it. */
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
