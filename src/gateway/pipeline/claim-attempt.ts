/** Takes the claim that an event needs: waits where another request holds it, and decides what an outage of the store means. */
import type { Clock, Milliseconds } from '../../core/clock.ts';
import type { Claim, ClaimGrant } from '../../core/event.ts';
import { type Reason, type Refusal, refuse } from '../../core/refusal.ts';
import { toStoreUnavailable } from '../../state/claims/seen-ids.ts';
import { type ClaimWaiters, retryLater } from './claim-waiters.ts';

/** Another request holds the claim, for so long at most. */
export class Busy {
  readonly remainingMs: Milliseconds;

  constructor(remainingMs: Milliseconds) {
    this.remainingMs = remainingMs;
  }
}

/** What asking the store once led to. */
export type ClaimAnswer = ClaimGrant | Refusal | Busy;

/** One event's attempt to get its claim. */
export interface ClaimAttempt {
  /** Asks the store once; rejects with StoreUnavailable. `tries`: how often it was asked before. */
  ask(tries: number): Promise<ClaimAnswer>;
  /** Returns what the last `ask` may have written although its response was lost. */
  giveBack(): void;
  /** For an event that is forwarded although the store could not be asked: its outcome is recorded once the store is back. */
  toUncheckedClaim(): Claim;
}

/** What a gate and its route want. */
export interface ClaimPolicy {
  /** While another request holds the claim. */
  readonly inProgress: 'wait' | 'reject';
  readonly waitAtMost: Milliseconds;
  readonly onStoreError: 'refuse' | 'forward';
  readonly busyReason: Reason;
  readonly unavailableReason: Reason;
}

/** What all gates that claim share. */
export interface ClaimParts {
  readonly clock: Clock;
  readonly waiters: ClaimWaiters;
  readonly onEvent: (event: 'bypassed' | 'unavailable') => void;
  readonly onBusy: () => void;
}

/** The grant, or why the event may not be forwarded now. */
export async function takeClaim(attempt: ClaimAttempt, policy: ClaimPolicy, parts: ClaimParts): Promise<ClaimGrant | Refusal> {
  let answer: ClaimAnswer;
  try {
    answer = await attempt.ask(0);
  } catch (thrown) {
    return policy.onStoreError === 'forward'
      ? grantUnchecked(thrown, attempt, parts)
      : refuseForStore(thrown, attempt, policy, parts);
  }
  if (!(answer instanceof Busy)) return answer;
  parts.onBusy();
  if (policy.inProgress === 'reject') return retryLater(answer.remainingMs, policy.busyReason);
  try {
    return await wait(answer, attempt, policy, parts);
  } catch (thrown) {
    // Never forwarded here, whatever the route says: the other request may still be with the app.
    return refuseForStore(thrown, attempt, policy, parts);
  }
}

/** Asks the store repeatedly until the other request's claim is settled. */
async function wait(
  { remainingMs }: Busy,
  attempt: ClaimAttempt,
  { waitAtMost, busyReason }: ClaimPolicy,
  { clock, waiters }: ClaimParts,
): Promise<ClaimGrant | Refusal> {
  let left = remainingMs;
  let tries = 0;
  const settled = await waiters.wait({
    clock,
    atMost: waitAtMost,
    poll: async () => {
      tries++;
      const answer = await attempt.ask(tries);
      if (!(answer instanceof Busy)) return answer;
      left = answer.remainingMs;
      return undefined;
    },
  });
  if (settled === 'full') return retryLater(left, 'waiters_full');
  return settled === 'late' ? retryLater(left, busyReason) : settled;
}

function grantUnchecked(thrown: unknown, attempt: ClaimAttempt, { onEvent }: ClaimParts): ClaimGrant {
  const { failure } = toStoreUnavailable(thrown);
  onEvent('unavailable');
  onEvent('bypassed');
  // A full store could not record the outcome either.
  return { claim: failure === 'full' ? undefined : attempt.toUncheckedClaim(), isStale: false, isUnchecked: true };
}

function refuseForStore(
  thrown: unknown,
  attempt: ClaimAttempt,
  { unavailableReason }: ClaimPolicy,
  { onEvent }: ClaimParts,
): Refusal {
  const { failure, message } = toStoreUnavailable(thrown);
  onEvent('unavailable');
  // A claim whose response was lost may have been written all the same: the sender's retry must not wait for a lease that nobody holds.
  if (failure !== 'full') attempt.giveBack();
  return refuse('store_unavailable', unavailableReason, message);
}
