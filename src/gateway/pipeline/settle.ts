/** Decides what becomes of an event's claim, from how the exchange with the app ended. */
import type { Claim } from '../../core/exchange.ts';
import type { Refusal } from '../../core/refusal.ts';
import { type ForwardOutcome, settlementOf } from '../upstream/outcome.ts';

/** Settles the claim, where there is one; exactly once for each admitted request. */
export function settle(claim: Claim | undefined, outcome: ForwardOutcome): void {
  claim?.[settlementOf(outcome)]();
}

/** Settles what a gate claimed before a later one refused: not a byte went to the app, so a retry must get through, unless it is moot. */
export function settleRefused(claim: Claim | undefined, { code }: Refusal): void {
  if (code === 'stale') claim?.confirm();
  else claim?.release();
}
