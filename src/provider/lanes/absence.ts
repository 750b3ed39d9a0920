/** When a replica leaves deliveries to the others: they may know a newer state of the endpoint, or have an app that works. */
import type { EpochMilliseconds } from '../../core/clock.ts';
import type { Endpoint } from '../endpoints/endpoint.ts';
import type { Lane, LaneAbsence, LaneResult, LaneState, TakeOnly } from '../queue/delivery-queue.ts';
import type { LaneContext } from './end-attempt.ts';
import { BREAKER_THRESHOLD } from './lane-state.ts';

/** They can be of the config of a newer replica; a rolling update takes minutes. */
const GRACE_MS = 15 * 60_000;
/** A replica that starts gets the lane within this time. */
const YOUNG_MS = 15_000;
const RECHECK_MS = 5_000;
/** Without a look for so long, another replica may have been there meanwhile. */
const MAX_GAP_MS = 30_000;

/** As the queue knows the sizes, a lane first reserves this for each. If one is larger, the take says so. */
export const RESERVED_BYTES = 64 * 1_024;

/** If the endpoint is not the one that they may have been accepted for, it is read again. */
export async function takeDue(
  { registry, clock }: LaneContext,
  lane: Lane,
  limit: number,
  ...more: [number | undefined, TakeOnly?]
) {
  const [maxBytes, only] = more;
  const deliveries = await lane.take(limit, clock.now(), only, maxBytes);
  // Of those that were read last.
  const last = deliveries.at(-1);
  if (last !== undefined) await registry.catchUp?.(lane.endpoint, last.version);
  return deliveries;
}

/** Leaves the lane to another replica, at least until `notBefore`. */
export function leaveLane({ clock }: LaneContext, notBefore = 0): LaneResult {
  return { notBefore: Math.max(notBefore, clock.now() + RECHECK_MS), isLeft: true };
}

/** Goes on with what other replicas found, unless nobody looked for a while, or another clock measured. */
export function toAbsence(before: LaneAbsence | undefined, kind: string, now: EpochMilliseconds): LaneAbsence {
  const isContinued = before?.kind === kind && Math.abs(now - before.seenAt) <= MAX_GAP_MS && before.since <= now;
  return { kind, since: isContinued ? before.since : now, seenAt: now };
}

/** No other replica serves these deliveries, as far as is known. `due`: of one of them. It may be for a replica that started a moment ago. */
export function isAbandoned({ since, seenAt }: LaneAbsence, due = 0): boolean {
  return seenAt - since >= GRACE_MS && due <= seenAt - YOUNG_MS;
}

/** Whether something listens at the endpoint, as far as that is known without an attempt; notes it for the app of an inbox that other replicas have, too. */
export async function isReachable({ sender, registry, hooks, away }: LaneContext, endpoint: Endpoint): Promise<boolean> {
  const { id } = endpoint;
  const isThere = (await sender.isReachable?.(endpoint)) ?? true;
  const isNews = isThere ? away.delete(id) : registry.isElsewhere?.(id) === true && !away.has(id);
  if (isNews && !isThere) away.add(id);
  if (isNews) hooks.onBreaker(endpoint, isThere ? 'closed' : 'open');
  return isThere;
}

/**
 * After an attempt that did not reach the app in this pod: it accepts no connections, which says nothing about the apps of other replicas. As the
 * breaker, it takes several failures in a row: one of the addresses of an app may refuse.
 */
export async function isAppAway(context: LaneContext, endpoint: Endpoint, { streak = 0 }: LaneState): Promise<boolean> {
  if (streak < BREAKER_THRESHOLD - 1 || context.registry.isElsewhere?.(endpoint.id) !== true) return false;
  return context.away.has(endpoint.id) || !(await isReachable(context, endpoint));
}
