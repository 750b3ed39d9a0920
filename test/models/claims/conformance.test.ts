import { once } from 'node:events';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { systemClock } from '../../../src/core/clock.ts';
import { createMemorySeenIds } from '../../../src/state/memory.ts';
import { openRedis, type RedisClient, type RedisStoreOptions } from '../../../src/state/redis/client.ts';
import { createRedisStore } from '../../../src/state/redis/redis-store.ts';
import type { SeenIds } from '../../../src/state/seen-ids.ts';
import { FakeClock } from '../../support/fake-clock.ts';
import { until } from '../../support/gate.ts';
import { type RedisServer, startRedis } from '../../support/redis.ts';
import { type Offer, readStateGraph, type StateGraph, type Walker } from '../state-graph.ts';

const LIFETIME_MS = 60_000;
const PREFIX = 'test:';

interface Entry {
  readonly kind: 'absent' | 'claimed' | 'handled';
  readonly token: number;
}

let graph: StateGraph;
let server: RedisServer;
let options: RedisStoreOptions;
let client: RedisClient;

beforeAll(async () => {
  [graph, server] = await Promise.all([readStateGraph('claims/ClaimStoreGraph', { Mutation: 'none' }), startRedis()]);
  options = {
    topology: { kind: 'standalone', node: { host: '127.0.0.1', port: server.port } },
    keyPrefix: PREFIX,
    connectTimeout: 1_000,
    commandTimeout: 5_000,
  };
  client = openRedis(options);
  await once(client, 'ready');
});
afterAll(async () => {
  client.disconnect();
  await server.stop();
});

/** Runs an operation of the contract; its reply in the model's words. */
async function operate(store: SeenIds, key: string, { fields }: Offer): Promise<unknown> {
  const token = `t${fields['token']}`;
  switch (fields['operation']) {
    case 'claim':
      return (await store.claim({ key, token, fingerprint: 'f', leaseMs: LIFETIME_MS })).state;
    case 'confirm':
      return store.confirm(key, token, 'f', LIFETIME_MS);
    case 'release':
      return store.release(key, token);
    default: {
      const { was } = await store.forget(key);
      return was === 'in-progress' ? 'claimed' : was;
    }
  }
}

/** Redis, with the failover of a replica that is behind: the entry becomes what it was when it was copied. */
class RedisWalker implements Walker {
  readonly #store: SeenIds;
  #count = 0;
  #copy: string | null = null;

  constructor(store: SeenIds) {
    this.#store = store;
  }

  restart(): void {
    this.#count++;
    this.#copy = null;
  }

  async step(offer: Offer): Promise<void> {
    const stored = PREFIX + this.#key;
    if (offer.fields['operation'] === 'expire') await client.pexpire(stored, -1);
    else if (offer.fields['operation'] === 'copy') this.#copy = await client.get(stored);
    else if (offer.fields['operation'] === 'restore') await this.#restore(stored);
    else expect(await operate(this.#store, this.#key, offer)).toBe(offer.reply);
    const { kind, token } = (offer.next as unknown as { entry: Entry }).entry;
    const expected = { absent: null, claimed: `p t${token} f`, handled: 'h f' }[kind];
    expect(await client.get(stored)).toBe(expected);
  }

  get #key(): string {
    return `key-${this.#count}`;
  }

  async #restore(stored: string): Promise<void> {
    if (this.#copy === null) await client.del(stored);
    else await client.set(stored, this.#copy, 'PX', LIFETIME_MS);
  }
}

/** The memory of a process, which no failover concerns. */
class MemoryWalker implements Walker {
  #clock = new FakeClock();
  #store = createMemorySeenIds(this.#clock, { maxIds: 10 });

  restart(): void {
    this.#clock = new FakeClock();
    this.#store = createMemorySeenIds(this.#clock, { maxIds: 10 });
  }

  async step(offer: Offer): Promise<void> {
    if (offer.fields['operation'] === 'expire') await this.#clock.advance(LIFETIME_MS);
    else expect(await operate(this.#store, 'key', offer)).toBe(offer.reply);
  }
}

function isOfProcess({ fields }: Offer): boolean {
  return fields['operation'] !== 'copy' && fields['operation'] !== 'restore';
}

describe('the claim store behaves as its model in every state', () => {
  test('in Redis, with failovers', async () => {
    const store = createRedisStore(
      options,
      { onUp: () => undefined, onDown: () => undefined, onWarning: () => undefined },
      systemClock,
    );
    await until(() => store.isUp());
    const walked = await graph.cover(new RedisWalker(store));
    expect({ states: graph.size, walked }).toEqual({ states: 16, walked: 160 });
    await store.close();
  });

  test('in memory', async () => {
    const walked = await graph.cover(new MemoryWalker(), isOfProcess);
    expect(walked).toBe(32);
  });

  test('control: notices a store that releases the claims of others', async () => {
    const broken = await readStateGraph('claims/ClaimStoreGraph', { Mutation: 'release by another holder' });
    await expect(broken.cover(new MemoryWalker(), isOfProcess)).rejects.toThrow('expected false to be true');
  });
});
