/** How long ids are remembered where the config does not say. */
import type { Milliseconds } from '../../core/clock.ts';

const DAY_MS: Milliseconds = 86_400_000;
/** As long as most senders retry. */
export const DEFAULT_RETENTION_MS: Milliseconds = 3 * DAY_MS;
/**
 * Where no timestamp is signed, nothing but the entry of its id stops a replay. Only in Redis: in memory the ids of a month would fill the
 * store of a busy route, which then answers 503, and each restart forgets them anyway.
 */
const UNTIMED_RETENTION_MS: Milliseconds = 30 * DAY_MS;

/** What of a webhook section counts here. */
interface Remembering {
  readonly description: { readonly signed: readonly unknown[] };
  readonly tolerance?: unknown;
  readonly dedup: 'off' | { readonly retention: Milliseconds; readonly isRetentionDefault: boolean };
}

/** Does the sender sign the content and no time? Then a captured delivery stays valid for ever. */
export function isUntimed({ description, tolerance }: Pick<Remembering, 'description' | 'tolerance'>): boolean {
  return tolerance === undefined && description.signed.length > 0;
}

/** Keeps the ids of untimed senders for longer, where the store is Redis and the route says nothing else. */
export function provideRetention<R extends { webhook?: Remembering | undefined }>(routes: readonly R[], hasRedis: boolean): R[] {
  return routes.map((route) => {
    const { webhook } = route;
    if (!hasRedis || webhook === undefined || webhook.dedup === 'off') return route;
    if (!webhook.dedup.isRetentionDefault || !isUntimed(webhook)) return route;
    return { ...route, webhook: { ...webhook, dedup: { ...webhook.dedup, retention: UNTIMED_RETENTION_MS } } };
  });
}
