import { expect, onTestFinished, test } from 'vitest';
import { StoreBudget } from '../../../../src/core/throttle.ts';
import { FakeClock } from '../../../support/fake-clock.ts';
import { createSqliteQueue, makeQueueFolder } from '../../../support/queue/sqlite-store.ts';

const MIB = 1024 * 1024;

/** Operations that end when they are told to, and the order in which they began. */
function createOperations(most: number) {
  const clock = new FakeClock();
  const budget = new StoreBudget(most, clock);
  const begun: string[] = [];
  const ends = new Map<string, () => void>();
  const run = (name: string, cost: number, group?: string) =>
    budget.run(
      cost,
      () => {
        begun.push(name);
        return new Promise<void>((resolve) => ends.set(name, resolve));
      },
      group,
    );
  return { clock, begun, run, end: (name: string) => ends.get(name)?.() };
}

test('operations run while there is room for them, and then in the order in which they came', async () => {
  const { begun, run, end } = createOperations(10);
  const first = run('first', 6);
  const second = run('second', 5);
  const third = run('third', 1);
  expect(begun).toEqual(['first']);
  end('first');
  await first;
  await Promise.resolve();
  expect(begun).toEqual(['first', 'second', 'third']);
  end('second');
  end('third');
  await Promise.all([second, third]);
});

test('groups that wait take turns', async () => {
  const { begun, run, end } = createOperations(1);
  const named = ['big_1', 'big_2', 'big_3', 'big_4', 'small_1', 'other_1'];
  const ends = named.map((name) => run(name, 1, name.replace(/_.*/, '')));
  for (let at = 0; at < named.length; at++) {
    end(begun.at(-1) ?? '');
    // Until the next one has begun.
    for (let turn = 0; turn < 9; turn++) await Promise.resolve();
  }
  await Promise.all(ends);
  expect(begun).toEqual(['big_1', 'big_2', 'small_1', 'other_1', 'big_3', 'big_4']);
});

test('an operation that costs more than all of the room runs alone', async () => {
  const { begun, run, end } = createOperations(10);
  const large = run('large', 99);
  const small = run('small', 1);
  expect(begun).toEqual(['large']);
  end('large');
  await large;
  end('small');
  await small;
});

test('an operation that waits for 5 s is rejected, and those behind it go on', async () => {
  const { clock, begun, run, end } = createOperations(10);
  const first = run('first', 6);
  const late = run('late', 10);
  const rejected = expect(late).rejects.toMatchObject({ code: 'queue_busy' });
  await clock.advance(5_000);
  await rejected;
  const next = run('next', 4);
  expect(begun).toEqual(['first', 'next']);
  end('first');
  end('next');
  await Promise.all([first, next]);
});

test('a failed operation leaves its room to the next one', async () => {
  const { begun, run } = createOperations(1);
  const budget = new StoreBudget(1, new FakeClock());
  await expect(budget.run(1, () => Promise.reject(new Error('broken')), 'a')).rejects.toThrow('broken');
  await budget.run(1, async () => undefined, 'a');
  void run('another', 1);
  expect(begun).toEqual(['another']);
});

test('an event that was read holds up others until it is sent, but no append, and the targets of one that waits are found again', async () => {
  const { path, remove } = makeQueueFolder();
  const queue = createSqliteQueue(path, { maxStoreBytes: 2_000 });
  await queue.open();
  onTestFinished(async () => {
    await queue.close();
    remove();
  });
  const event = { id: 'msg_1', type: 'a', createdAt: 1, body: Buffer.alloc(1_500, '1'), metadata: '{}' };
  await queue.append([{ ...event, targets: [] }]);
  const used = Promise.withResolvers<void>();
  expect((await queue.getEvent('msg_1', used.promise))?.body.equals(event.body)).toBe(true);
  let isRead = false;
  const next = queue.getEvent('msg_1').then(() => {
    isRead = true;
  });
  const waiting = { ...event, id: 'msg_2', targets: [{ endpoint: 'before' }] };
  const first = queue.append([{ ...event, targets: [] }]);
  const appended = queue.append([waiting], () => [{ endpoint: 'after' }]);
  expect(waiting.targets).toEqual([]);
  expect([await first, await appended, isRead]).toEqual([['duplicate'], ['stored'], false]);
  used.resolve();
  await next;
  expect((await queue.find({ event: 'msg_2' }, { limit: 9 })).found.map(({ endpoint }) => endpoint)).toEqual(['after']);
  expect(await queue.findEvent('msg_2')).toEqual({
    type: 'a',
    tenant: undefined,
    createdAt: 1,
    source: 'app',
    bytes: 1_502,
    isErased: false,
  });
  expect(await queue.getEvent('msg_3', used.promise)).toBeUndefined();
});

test('a large operation waits until the process has room for its copies, and holds up only its group', async () => {
  const clock = new FakeClock();
  let free = 2 * MIB;
  const budget = new StoreBudget(8 * MIB, clock, { hasRoom: (bytes) => bytes <= free }, 3);
  const begun: string[] = [];
  const run = (name: string, cost: number, group: string) => budget.run(cost, async () => void begun.push(name), group);
  const ends = [run('large', 2 * MIB, 'a'), run('behind', 1, 'a'), run('other', 1, 'b')];
  await clock.advance(1_000);
  expect(begun).toEqual(['other']);
  free = 6 * MIB;
  await clock.advance(1_000);
  await Promise.all(ends);
  expect(begun).toEqual(['other', 'large', 'behind']);
  expect(clock.timers).toBe(0);
});

test('a large operation for which the process gets no room is rejected after 5 s', async () => {
  const clock = new FakeClock();
  const budget = new StoreBudget(8 * MIB, clock, { hasRoom: () => false });
  const rejected = expect(budget.run(2 * MIB, async () => undefined, 'a')).rejects.toMatchObject({ code: 'queue_busy' });
  await clock.advance(5_000);
  await rejected;
});
