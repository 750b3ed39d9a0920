/** Acquires the claim that an event needs: waits while another request holds it, and applies the route's policy in a store outage. */
import type { Clock, Milliseconds } from '../../core/clock.ts';
import type { Claim, ClaimGrant } from '../../core/event.ts';
import { type Reason, Refusal, refuse } from '../../core/refusal.ts';
import { toStoreUnavailable } from '../../state/claims/seen-ids.ts';
import { type ClaimWaiters, retryLater } from './claim-waiters.ts';

/** Another request holds the claim, for at most this long. */
export class Busy {
  readonly remainingMs: Milliseconds;

  constructor(remainingMs: Milliseconds) {
    this.remainingMs = remainingMs;
  }
}

/** A grant, without the time at which it ends. */
export type Grant = Omit<ClaimGrant, 'expiresAt'>;

/** The result of asking the store once. */
export type ClaimReply = Grant | Refusal | Busy;

/** One event's attempt to get its claim. */
export interface ClaimAttempt {
  /** Asks the store once; rejects with StoreUnavailable. `tries`: the number of earlier attempts. */
  ask(tries: number): Promise<ClaimReply>;
  /** Releases what the last `ask` may have written although its response was lost. */
  release(): void;
  /** For an event that is forwarded while the store is unavailable: its outcome is recorded once the store is back. */
  toUncheckedClaim(): Claim;
}

/** The policy of a gate and its route. */
export interface ClaimPolicy {
  /** While another request holds the claim. */
  readonly inProgress: 'wait' | 'reject';
  readonly maxWait: Milliseconds;
  readonly lease: Milliseconds;
  readonly onStoreError: 'refuse' | 'forward';
  readonly busyReason: Reason;
  readonly unavailableReason: Reason;
}

/** The dependencies that all claiming gates share. */
export interface ClaimParts {
  readonly clock: Clock;
  readonly waiters: ClaimWaiters;
  readonly onEvent: (event: 'bypassed' | 'unavailable') => void;
  readonly onBusy: () => void;
}

/** Returns the grant, or why the event cannot be forwarded now. */
export async function acquireClaim(attempt: ClaimAttempt, policy: ClaimPolicy, parts: ClaimParts): Promise<ClaimGrant | Refusal> {
  let reply: ClaimReply;
  const askedAt = parts.clock.monotonic();
  try {
    reply = await attempt.ask(0);
  } catch (thrown) {
    return policy.onStoreError === 'forward'
      ? grantUnchecked(thrown, attempt, parts)
      : refuseForStore(thrown, attempt, policy, parts);
  }
  if (!(reply instanceof Busy)) return withLease(reply, askedAt, policy);
  parts.onBusy();
  if (policy.inProgress === 'reject') return retryLater(reply.remainingMs, policy.busyReason);
  try {
    return await wait(reply, attempt, policy, parts);
  } catch (thrown) {
    // Never forwarded here, even with `onStoreError: forward`: the app may still be handling the other request.
    return refuseForStore(thrown, attempt, policy, parts);
  }
}

/** Asks the store repeatedly until the other request's claim is settled. */
async function wait(
  { remainingMs }: Busy,
  attempt: ClaimAttempt,
  policy: ClaimPolicy,
  { clock, waiters }: ClaimParts,
): Promise<ClaimGrant | Refusal> {
  const { maxWait, busyReason } = policy;
  let remaining = remainingMs;
  let tries = 0;
  const settled = await waiters.wait({
    clock,
    timeout: maxWait,
    poll: async () => {
      tries++;
      const askedAt = clock.monotonic();
      const reply = await attempt.ask(tries);
      if (!(reply instanceof Busy)) return withLease(reply, askedAt, policy);
      remaining = reply.remainingMs;
      return undefined;
    },
  });
  if (settled === 'full') return retryLater(remaining, 'waiters_full');
  return settled === 'timeout' ? retryLater(remaining, busyReason) : settled;
}

/** The store's lease begins when it grants the claim, which is after it was asked. */
function withLease(reply: Grant | Refusal, askedAt: Milliseconds, { lease }: ClaimPolicy): ClaimGrant | Refusal {
  if (reply instanceof Refusal) return reply;
  return { ...reply, expiresAt: reply.claim === undefined ? Number.POSITIVE_INFINITY : askedAt + lease };
}

function grantUnchecked(thrown: unknown, attempt: ClaimAttempt, { onEvent }: ClaimParts): ClaimGrant {
  const { failure } = toStoreUnavailable(thrown);
  onEvent('unavailable');
  onEvent('bypassed');
  // A full store could not record the outcome either.
  const claim = failure === 'full' ? undefined : attempt.toUncheckedClaim();
  return { claim, isStale: false, isUnchecked: true, expiresAt: Number.POSITIVE_INFINITY };
}

function refuseForStore(
  thrown: unknown,
  attempt: ClaimAttempt,
  { unavailableReason }: ClaimPolicy,
  { onEvent }: ClaimParts,
): Refusal {
  const { failure, message } = toStoreUnavailable(thrown);
  onEvent('unavailable');
  // A claim may have been written although its response was lost: the sender's retry must not wait for a lease that no request holds.
  if (failure !== 'full') attempt.release();
  return refuse('store_unavailable', unavailableReason, message);
}
