/** The input and the result of an analysis, and what it may cost. */

import type { EpochMilliseconds } from '../../core/clock.ts';
import type { SignedHead } from '../../core/event.ts';
import type { HeaderFields } from '../../core/head.ts';
import type { Refusal } from '../../core/refusal.ts';
import type { Secret } from '../../core/secret.ts';
import type { SchemeDescription, SecretEncoding, Tolerance } from '../../verify/schemes/description.ts';
import { toKeySource } from '../../verify/schemes/keys.ts';
import type { Scheme, VerifyKey } from '../../verify/schemes/scheme.ts';
import { toQuery } from '../../verify/schemes/url.ts';
import type { ExplainCause } from './explain-metrics.ts';

/** A rejected request. */
export interface RejectedRequest {
  readonly method: string;
  /** In origin-form, as received. */
  readonly target: string;
  readonly headers: HeaderFields;
  /** Undefined if it was not read, or not kept. */
  readonly body: Buffer | undefined;
  readonly receivedAt: EpochMilliseconds;
}

/** A key that may have signed it. */
export interface CandidateKey {
  readonly route: string;
  readonly name: string;
  readonly secret: Secret;
  readonly encoding: SecretEncoding | undefined;
  /** Undefined if the route's scheme cannot parse the secret. */
  readonly key?: VerifyKey;
  readonly notBefore?: EpochMilliseconds | undefined;
  readonly notAfter?: EpochMilliseconds | undefined;
}

/** A rejected request, with everything that could verify it. */
export interface AnalysisInput {
  readonly request: RejectedRequest;
  readonly scheme: Scheme;
  readonly allowDotInId: boolean;
  readonly allowQuery?: boolean;
  /** Undefined if the scheme signs no timestamp. */
  readonly tolerance: Tolerance | undefined;
  /** Of the route, with the user and password of the URL at the sender: never show it as it is. Empty if the route has none. */
  readonly publicUrl: string;
  /** Of the route, live or not. */
  readonly keys: readonly CandidateKey[];
  /** Of all other routes. */
  readonly others: readonly CandidateKey[];
  readonly presets: readonly SchemeDescription[];
  /** That of the gate: the analysis is a separate bundle, and its own copy would not recognize the gate's keys. */
  readonly compile: (description: SchemeDescription) => Scheme;
}

/** One cause that the analysis found. */
export interface ExplainFinding {
  readonly cause: ExplainCause;
  /** A sentence for the operator; never contains a secret, a header value or parts of the body. */
  readonly text: string;
  readonly fix: string;
}

/** The result: at least one finding, the most important first. */
export interface Explanation {
  readonly findings: readonly ExplainFinding[];
  /** A candidate matched, so the cause is certain. */
  readonly isProven: boolean;
}

/** Not by its class: the analysis is a separate bundle, with another copy of it than the gate, which creates the refusals. */
export function isRefused(head: SignedHead | Refusal): head is Refusal {
  return 'reason' in head;
}

/** Reads everything that is needed before the signature can be verified, in the head and in the body, as the gate does. */
export function readWholeHead({
  scheme,
  request,
  allowDotInId,
  allowQuery = false,
}: Pick<AnalysisInput, 'scheme' | 'request' | 'allowDotInId' | 'allowQuery'>): SignedHead | Refusal {
  const options = { allowDotInId, allowQuery };
  const head = scheme.readHead(request.headers, options, toQuery(request.target));
  const { body } = request;
  return isRefused(head) || scheme.readBody === undefined || body === undefined ? head : scheme.readBody(head, body, options);
}

/** Returns undefined for a key whose secret text is unknown. */
export function toCandidateKey(route: string, key: VerifyKey): CandidateKey | undefined {
  const source = toKeySource(key);
  return source === undefined ? undefined : { route, ...key, ...source, key };
}

// Bounds the cost of one analysis for any request of an untrusted client.

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
