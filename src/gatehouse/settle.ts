/** Decides what becomes of an event's claim, from how the exchange with the app ended. */
import type { Claim } from '../core/exchange.ts';
import { type ForwardOutcome, settlementOf } from '../forward/outcome.ts';

/** Settles the claim, where there is one; exactly once for each admitted request. */
export function settle(claim: Claim | undefined, outcome: ForwardOutcome): void {
  claim?.[settlementOf(outcome)]();
}
