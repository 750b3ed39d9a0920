/** How long IDs are remembered by default. */

import type { Milliseconds } from '../../core/clock.ts';
import type { SchemeDescription, Tolerance } from '../../verify/schemes/description.ts';

const DAY_MS: Milliseconds = 86_400_000;
/** Most senders retry no longer than this. */
export const DEFAULT_RETENTION_MS: Milliseconds = 3 * DAY_MS;
/**
 * If no timestamp is signed, only the remembered ID prevents a replay. Only in Redis: in memory, the IDs of a month would fill the
 * store of a busy route, which then responds with 503, and each restart loses them anyway.
 */
const UNTIMED_RETENTION_MS: Milliseconds = 30 * DAY_MS;

const CLOCK_ROUNDING_MS: Milliseconds = 2_000;

/**
 * How long an ID must be remembered at least. The timestamp is checked in whole seconds when the head arrives, but the ID is claimed
 * only after the body was read.
 */
export function toMinRetention(tolerance: Tolerance | undefined, bodyTimeout: Milliseconds): Milliseconds {
  return tolerance === undefined ? 0 : tolerance.past + tolerance.future + bodyTimeout + CLOCK_ROUNDING_MS;
}

/** The parts of a webhook section that determine its retention. */
interface DedupSection {
  readonly description: Pick<SchemeDescription, 'signed' | 'id' | 'repeatsBytes'>;
  readonly tolerance?: unknown;
  readonly dedup: 'off' | { readonly retention: Milliseconds; readonly isRetentionDefault: boolean };
}

/** Whether the sender signs the body but no timestamp. If so, a captured delivery stays valid forever. */
export function isUntimed({ description, tolerance }: Pick<DedupSection, 'description' | 'tolerance'>): boolean {
  return tolerance === undefined && description.signed.length > 0;
}

/** Whether an event can have the same bytes as an earlier one, which then counts as a repeat until the earlier one is forgotten. */
export function repeatsBytes({ description: { id, repeatsBytes: isSame } }: DescribedSection): boolean {
  return isSame === true && id === undefined;
}

/** Whether only an ID that is not signed distinguishes such events. */
export function repeatsBytesUnderIds({ description: { id, repeatsBytes: isSame } }: DescribedSection): boolean {
  return isSame === true && id !== undefined;
}

type DescribedSection = Pick<DedupSection, 'description'>;

/** Extends the default retention of senders without a signed timestamp if the store is Redis. */
export function provideRetention<R extends { webhook?: DedupSection | undefined }>(routes: readonly R[], hasRedis: boolean): R[] {
  return routes.map((route) => {
    const { webhook } = route;
    if (!hasRedis || webhook === undefined || webhook.dedup === 'off') return route;
    if (!webhook.dedup.isRetentionDefault || !isUntimed(webhook)) return route;
    return { ...route, webhook: { ...webhook, dedup: { ...webhook.dedup, retention: UNTIMED_RETENTION_MS } } };
  });
}
