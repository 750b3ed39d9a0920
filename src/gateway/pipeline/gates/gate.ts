/** A gate answers one question about an exchange; it never writes to the response and never calls another gate. */
import type { Exchange } from '../../../core/exchange.ts';
import type { Verdict } from '../../../core/verdict.ts';

/** One question. A throw counts as a refusal (`internal_error`), never as a pass. */
export interface Gate {
  /** For traces of a decision and for tests. */
  readonly name: string;
  /** A promise only where the answer needs one: most gates answer at once. */
  check(exchange: Exchange): Verdict | Promise<Verdict>;
}
