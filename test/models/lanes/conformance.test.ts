import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { systemClock } from '../../../src/core/clock.ts';
import type { Settlement } from '../../../src/provider/queue/delivery-queue.ts';
import {
  decodeDeliveries,
  encodeEvent,
  encodeSettlement,
  type Taken,
  toList,
  toText,
  toTime,
} from '../../../src/provider/queue/redis/codec.ts';
import { buildShards } from '../../../src/provider/queue/redis/keys.ts';
import { type OperationName, Operations, type Reply } from '../../../src/provider/queue/redis/operations.ts';
import { openRedis, type RedisClient } from '../../../src/state/redis/client.ts';
import { newEvent } from '../../support/queue/events.ts';
import { type RedisServer, startRedis } from '../../support/redis.ts';
import { type Offer, readStateGraph, type StateGraph, type Value, type Walker } from '../state-graph.ts';

const CONSTANTS = { Events: ['a'], MaxTime: 2, MaxAttempts: 1, Mutation: 'none' };
/** `Never` of the model. */
const NEVER = 99;
const STEP_MS = 1_000;
const STATES: Readonly<Record<string, string>> = { w: 'waiting', d: 'delivered', x: 'dead', s: 'skipped' };
const [SHARD] = buildShards('test:', 1);

let graph: StateGraph;
let server: RedisServer;
let client: RedisClient;

beforeAll(async () => {
  [graph, server] = await Promise.all([readStateGraph('lanes/LaneStoreGraph', CONSTANTS), startRedis()]);
  client = openRedis(
    {
      topology: { kind: 'standalone', node: { host: '127.0.0.1', port: server.port } },
      keyPrefix: 'test:',
      connectTimeout: 1_000,
      commandTimeout: 5_000,
    },
    'background',
  );
});
afterAll(async () => {
  client.disconnect();
  await server.stop();
});

/** Runs the operations of two runs, of the API and of the clock on the queue's script, for one delivery of one endpoint. */
class RedisWalker implements Walker {
  readonly #operations: Operations;
  #count = 0;
  #now = systemClock.now();
  #taken: (Taken | undefined)[] = [];

  constructor() {
    if (SHARD === undefined) throw new Error('a queue has a shard');
    this.#operations = new Operations({ client, shard: SHARD, events: { onReply: () => undefined, onFailure: () => '' } });
  }

  restart(): void {
    this.#count++;
    this.#taken = [];
  }

  async step(offer: Offer): Promise<void> {
    expect(await this.#operate(offer), JSON.stringify(offer)).toEqual(offer.reply);
    expect(await this.#read(), JSON.stringify(offer)).toEqual(toStored(offer.next));
  }

  #operate({ fields }: Offer): Promise<Value> {
    const token = Number(fields['token']);
    const time = Number(fields['time']);
    switch (fields['operation']) {
      case 'append':
        return this.#append();
      case 'replay':
        return this.#replay();
      case 'begin':
        return this.#begin(token);
      case 'take':
        return this.#take(token);
      case 'settle':
        return this.#settle(token, toSettlement(String(fields['kind']), this.#at(time)));
      case 'finish':
        return this.#finish(token, time);
      case 'wake':
        return this.#run('wake', []).then(() => []);
      default:
        this.#now += STEP_MS;
        return Promise.resolve([]);
    }
  }

  async #append(): Promise<Value> {
    const event = newEvent([this.#endpoint], { id: this.#event, createdAt: this.#now });
    const args = [this.#now, 1_000_000, 1_000_000_000, 0, 1, ...encodeEvent(event, event.targets, '')];
    const [, results, wake] = toList(await this.#operations.run('append', args));
    return [toList(results)[0] === 1 ? 'stored' : 'duplicate', toList(wake).length === 1];
  }

  async #replay(): Promise<Value> {
    const [changed, wake] = toList(await this.#operations.run('replay', [this.#now, 0, this.#event, this.#endpoint]));
    return [Number(changed), toList(wake).length === 1];
  }

  async #begin(token: number): Promise<Value> {
    const [hasWork, value, taken] = toList(await this.#run('begin', [token, this.#now, 4, 8_192]));
    this.#taken[token] = hasWork === 1 ? decodeDeliveries(this.#endpoint, taken)[0]?.taken : undefined;
    return [hasWork === 1, hasWork === 1 ? 0 : this.#toRelative(toTime(value))];
  }

  async #take(token: number): Promise<Value> {
    const busy = this.#taken[token] === undefined ? [] : [this.#event];
    const [isHeld, values] = toList(await this.#run('take', [token, this.#now, 4, ...busy]));
    const [found] = isHeld === 1 ? decodeDeliveries(this.#endpoint, values) : [];
    if (found !== undefined) this.#taken[token] = found.taken;
    return [isHeld === 1, found !== undefined];
  }

  async #settle(token: number, settlement: Settlement): Promise<Value> {
    const taken = this.#taken[token];
    if (taken === undefined) throw new Error('the run has no delivery');
    this.#taken[token] = undefined;
    const settled = { event: this.#event, attempt: taken.attempt, at: this.#now, settlement };
    const [isHeld, isEmpty] = toList(await this.#run('settle', [token, '{}', ...encodeSettlement(taken, settled)]));
    return [isHeld === 1, isEmpty === 1];
  }

  async #finish(token: number, time: number): Promise<Value> {
    const [isHeld, next, isScheduled] = toList(
      await this.#run('finish', [token, this.#now, time === NEVER ? '' : this.#at(time)]),
    );
    return [isHeld === 1, this.#toRelative(toTime(next)), isHeld === 1 && toText(isScheduled) === '1'];
  }

  #run(name: OperationName, args: readonly (string | number | Buffer)[]): Promise<Reply> {
    return this.#operations.run(name, [this.#endpoint, ...args]);
  }

  /** The delivery and the lane as Redis stores them, in the model's words. */
  async #read(): Promise<unknown> {
    const prefix = `${SHARD?.prefix}:`;
    const [text, [own, nb, wk, wt]] = await Promise.all([
      client.hget(`${prefix}e:${this.#event}`, `d${this.#endpoint}`),
      client.hmget(`${prefix}l:${this.#endpoint}`, 'own', 'nb', 'wk', 'wt'),
    ]);
    const [state = '', attempt, tries, , due] = (text ?? '').split('|');
    return {
      delivery: {
        state: STATES[state] ?? 'absent',
        attempt: Number(attempt ?? 0),
        tries: Number(tries ?? 0),
        due: state === 'w' ? this.#toRelative(Number(due)) : NEVER,
      },
      lane: { own: Number(own ?? 0), nb: this.#toStoredTime(nb), wk: wk === '1', wt: this.#toStoredTime(wt) },
    };
  }

  #toStoredTime(text: string | null | undefined): number {
    return text === null || text === undefined ? NEVER : this.#toRelative(Number(text));
  }

  #at(time: number): number {
    return this.#now + time * STEP_MS;
  }

  #toRelative(at: number | undefined): number {
    return at === undefined ? NEVER : Math.max(0, (at - this.#now) / STEP_MS);
  }

  get #event(): string {
    return `msg_${this.#count}`;
  }

  get #endpoint(): string {
    return `endpoint-${this.#count}`;
  }
}

function toSettlement(kind: string, due: number): Settlement {
  return kind === 'retry' || kind === 'postponed' ? { kind, due } : { kind: kind as 'delivered' | 'dead' | 'skipped' };
}

function toStored(state: Value): unknown {
  const { store } = state as unknown as { store: { deliveries: { a: unknown }; lane: unknown } };
  return { delivery: store.deliveries.a, lane: store.lane };
}

describe('the lanes in Redis behave as their model in every state', () => {
  test('with one delivery and two runs', async () => {
    const walked = await graph.cover(new RedisWalker());
    expect({ states: graph.size, walked }).toEqual({ states: 748, walked: 10966 });
  });

  test('control: notices a queue that lets a run settle without the lane', async () => {
    const broken = await readStateGraph('lanes/LaneStoreGraph', { ...CONSTANTS, Mutation: 'settlement without the lane' });
    await expect(broken.cover(new RedisWalker())).rejects.toThrow();
  });
});
