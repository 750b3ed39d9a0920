/** Opens the real store of the gate, and claims and confirms IDs through it. */
import { randomBytes } from 'node:crypto';
import { systemClock } from '../../src/core/clock.ts';
import { toContentFingerprint, toIdFingerprint, toKey } from '../../src/gateway/pipeline/gates/dedup.ts';
import type { RedisTopology } from '../../src/state/redis/client.ts';
import { createRedisStore } from '../../src/state/redis/redis-store.ts';
import type { SeenIds } from '../../src/state/seen-ids.ts';
import { until } from '../../test/support/gate.ts';

const LEASE_MS = 60_000;
/** As long as that of the gate. */
const ROUTE = 'billing';

/** The topology of one server on loopback. */
export function toServer(port: number): RedisTopology {
  return { kind: 'standalone', node: { host: '127.0.0.1', port } };
}

/** Opens a store, and waits until it is connected. */
export async function openStore(topology: RedisTopology): Promise<SeenIds> {
  const options = { topology, keyPrefix: 'sidegate:', connectTimeout: 5_000, commandTimeout: 30_000 };
  const events = { onUp: () => undefined, onDown: () => undefined, onWarning: () => undefined };
  const store = createRedisStore(options, events, systemClock);
  await until(() => store.isUp());
  // The first call sends the script.
  await handle(store, toEvent(newIds()()), 1_000);
  return store;
}

/** An event as the store sees it. */
export interface StoreEvent {
  readonly key: string;
  readonly token: string;
  readonly fingerprint: string;
}

/** With names as long as those that the gate makes. */
export function toEvent(id: string): StoreEvent {
  return {
    key: toKey(ROUTE, `msg_${id}`),
    token: toIdFingerprint(id),
    fingerprint: toContentFingerprint(Buffer.from(`body ${id}`)),
  };
}

/** Different in each process. */
export const newIds = (): (() => string) => {
  const prefix = randomBytes(8).toString('base64url');
  let count = 0;
  return () => `${prefix}${(count++).toString(36).padStart(10, '0')}`;
};

/** Runs the two operations of an accepted event. */
export async function handle(store: SeenIds, { key, token, fingerprint }: StoreEvent, retentionMs: number): Promise<void> {
  const { state } = await store.claim({ key, token, fingerprint, leaseMs: LEASE_MS });
  if (state !== 'new') throw new Error(`the ID ${key} is ${state}`);
  await store.confirm(key, token, fingerprint, retentionMs);
}

/** Handles `events`, `concurrency` at a time over all stores. */
export async function handleAll(
  stores: readonly SeenIds[],
  events: number,
  concurrency: number,
  retentionMs = 3_600_000,
): Promise<void> {
  const next = newIds();
  let left = events;
  const work = async (_: unknown, worker: number): Promise<void> => {
    const store = stores[worker % stores.length] as SeenIds;
    while (left-- > 0) await handle(store, toEvent(next()), retentionMs);
  };
  await Promise.all(Array.from({ length: concurrency }, work));
}

/** Handles one event, and adds the time of the claim in milliseconds. */
export async function handleTimed(store: SeenIds, id: string, claimTimes: number[]): Promise<void> {
  const { key, token, fingerprint } = toEvent(id);
  const start = performance.now();
  await store.claim({ key, token, fingerprint, leaseMs: LEASE_MS });
  claimTimes.push(performance.now() - start);
  await store.confirm(key, token, fingerprint, 3_600_000);
}

/** Claims one ID a millisecond; returns how many. */
export async function claimAtRate(store: SeenIds, durationMs: number): Promise<number> {
  const next = newIds();
  const claims: Promise<unknown>[] = [];
  const end = performance.now() + durationMs;
  await new Promise<void>((resolve) => {
    const timer = setInterval(() => {
      claims.push(store.claim({ ...toEvent(next()), leaseMs: LEASE_MS }));
      if (performance.now() < end) return;
      clearInterval(timer);
      resolve();
    }, 1);
  });
  await Promise.all(claims);
  return claims.length;
}
