/** Settles an event's claim according to how its request ended. */
import type { Claim } from '../../core/event.ts';
import type { Refusal } from '../../core/refusal.ts';
import { type ForwardOutcome, toSettlement } from '../upstream/outcome.ts';

/** Settles the claim, if there is one; exactly once for each admitted request. */
export function settle(claim: Claim | undefined, outcome: ForwardOutcome): void {
  claim?.[toSettlement(outcome)]();
}

/** Settles what a gate claimed before a later one rejected the request: no byte went to the app, so a retry must be forwarded, unless it is stale. */
export function settleRefused(claim: Claim | undefined, { code }: Refusal): void {
  if (code === 'stale') claim?.confirm();
  // A gate that failed may have done anything, so the claim is held until its lease expires.
  else if (code === 'internal_error') claim?.hold();
  else claim?.release();
}
