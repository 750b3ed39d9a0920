import { closeSync, openSync } from 'node:fs';
import { afterEach, beforeEach, expect, test } from 'vitest';
import type {
  Operation,
  OperationKind,
  Operations,
  PrunePosition,
  Results,
  SettleMessage,
} from '../../../../../src/provider/queue/sqlite/messages.ts';
import { Store } from '../../../../../src/provider/queue/sqlite/worker/store.ts';
import { makeQueueFolder } from '../../../../support/queue/sqlite-store.ts';
import { createRandom } from '../../../../support/seeded.ts';

interface ModelEvent {
  readonly seq: number;
  readonly createdAt: number;
  /** One delivery each. */
  state: 'waiting' | 'delivered' | 'dead' | 'skipped';
}

let store: Store;
let remove: () => void;
beforeEach(() => {
  const folder = makeQueueFolder();
  remove = folder.remove;
  closeSync(openSync(folder.path, 'a'));
  store = new Store({ path: folder.path, maxEvents: 1_000_000, maxBytes: 2 ** 32 });
});
afterEach(() => {
  store.close();
  remove();
});

function run<K extends OperationKind>(kind: K, operation: Operations[K]): Results[K] {
  const [reply] = store.run([{ kind, ...operation } as Operation], new ArrayBuffer(0)).replies;
  if (reply?.isDone !== true) throw new Error(reply?.message);
  return reply.result as Results[K];
}

/** In steps, as the queue does. */
function prune(settledBefore: number, deadBefore: number, most: number): number {
  let removed = 0;
  let after: PrunePosition | undefined;
  do {
    const step = run('pruneStep', { settledBefore, deadBefore, most: Math.min(most - removed, 200), after });
    removed += step.removed;
    after = step.after;
  } while (after !== undefined && removed < most);
  return removed;
}

test('removes exactly the events that a full search would remove, in any order of creation, settlement and time', () => {
  const random = createRandom(7);
  const events = new Map<string, ModelEvent>();
  let seq = 0;
  const append = (count: number): void => {
    const added = Array.from({ length: count }, () => ({ id: `e${++seq}`, seq, createdAt: random(1_000) }));
    for (const each of added) events.set(each.id, { ...each, state: 'waiting' });
    const targets = [{ endpoint: 'a' }];
    run('append', {
      events: added.map(({ id, createdAt }) => ({
        id,
        type: 't',
        channel: null,
        createdAt,
        metadata: '',
        targets,
        bodyLength: 0,
      })),
      now: 0,
    });
  };
  const settle = (count: number): void => {
    const waiting = [...events.values()].filter(({ state }) => state === 'waiting');
    const settled: SettleMessage[] = [];
    for (let i = 0; i < count; i++) {
      const event = waiting[random(waiting.length)];
      if (event?.state !== 'waiting') continue;
      const kind = (['delivered', 'delivered', 'dead', 'skipped'] as const)[random(4)] ?? 'dead';
      settled.push({ seq: event.seq, attempt: 0, at: 1, settlement: { kind }, record: undefined });
      event.state = kind;
    }
    run('settle', { endpoint: 'a', run: 1, settled, state: undefined });
  };
  const isDue = ({ state, createdAt }: ModelEvent, settledBefore: number, deadBefore: number): boolean =>
    state !== 'waiting' && createdAt < (state === 'delivered' ? settledBefore : deadBefore);
  for (let round = 0; round < 60; round++) {
    append(random(120));
    settle(random(100));
    const [settledBefore, deadBefore] = [random(1_200), random(1_200)];
    const due = [...events].filter(([, event]) => isDue(event, settledBefore, deadBefore));
    const most = round % 4 === 0 ? random(30) + 1 : 100_000;
    const removed = prune(settledBefore, deadBefore, most);
    expect(removed).toBe(Math.min(most, due.length));
    for (const [id, event] of [...events]) {
      const isThere = run('getEvent', { id }) !== undefined;
      if (!isDue(event, settledBefore, deadBefore)) expect(isThere).toBe(true);
      if (!isThere) events.delete(id);
    }
    expect(run('stats', { now: 0 })).toMatchObject({
      events: events.size,
      waiting: [...events.values()].filter(({ state }) => state === 'waiting').length,
      dead: [...events.values()].filter(({ state }) => state === 'dead').length,
    });
  }
});

test('does not look again at thousands of events that must be kept', () => {
  const targets = [{ endpoint: 'a' }];
  const COUNT = 5_000;
  for (let i = 0; i < COUNT; i += 500)
    run('append', {
      events: Array.from({ length: 500 }, (_, k) => ({
        id: `e${i + k}`,
        type: 't',
        channel: null,
        createdAt: i + k,
        metadata: '',
        targets,
        bodyLength: 0,
      })),
      now: 0,
    });
  const countSteps = (): number => {
    let after: PrunePosition | undefined;
    let steps = 0;
    do {
      ({ after } = run('pruneStep', { settledBefore: COUNT, deadBefore: 0, most: 100, after }));
      steps++;
    } while (after !== undefined);
    return steps;
  };
  expect(countSteps()).toBeGreaterThan(4);
  expect(countSteps()).toBe(1);
  const settlement = { kind: 'delivered' } as const;
  run('settle', {
    endpoint: 'a',
    run: 1,
    settled: [{ seq: 10, attempt: 0, at: 1, settlement, record: undefined }],
    state: undefined,
  });
  expect(countSteps()).toBeGreaterThan(4);
  expect(run('getEvent', { id: 'e9' })).toBeUndefined();
  expect(run('stats', { now: 0 }).events).toBe(COUNT - 1);
});
