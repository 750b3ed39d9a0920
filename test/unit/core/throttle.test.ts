import { describe, expect, test } from 'vitest';
import { TokenBucket, TurnQueue } from '../../../src/core/throttle.ts';
import { FakeClock } from '../../support/fake-clock.ts';
import { fc } from '../../support/property.ts';

test('a token bucket allows its burst, then its rate, and accumulates no more than the burst', async () => {
  const clock = new FakeClock();
  const bucket = new TokenBucket(2, 3, clock);
  const take = (count: number): boolean[] => Array.from({ length: count }, () => bucket.take());
  expect(take(4)).toEqual([true, true, true, false]);
  await clock.advance(500);
  expect(take(2)).toEqual([true, false]);
  await clock.advance(60_000);
  expect(take(4)).toEqual([true, true, true, false]);
});

describe('TurnQueue', () => {
  test('a group with many entries delays another one by one entry', () => {
    const queue = new TurnQueue<string>();
    for (const entry of ['a1', 'a2', 'a3']) queue.add('a', entry);
    queue.add('b', 'b1');
    queue.add('a', 'a1');
    expect([...queue]).toEqual(['a1', 'a2', 'a3', 'b1']);
    const served: string[] = [];
    for (let { first } = queue; first !== undefined; { first } = queue) {
      served.push(first);
      queue.remove(first, true);
    }
    expect(served).toEqual(['a1', 'b1', 'a2', 'a3']);
    expect(queue.size).toBe(0);
  });

  test('a group whose entry leaves without being served keeps its turn', () => {
    const queue = new TurnQueue<string>();
    for (const entry of ['a1', 'a2']) queue.add('a', entry);
    queue.add('b', 'b1');
    queue.remove('a1', false);
    queue.remove('unknown', true);
    expect(queue.first).toBe('a2');
    queue.clear();
    expect([queue.size, queue.first]).toEqual([0, undefined]);
  });

  test('of each other group, at most one entry is served while an entry is the first of its own', () => {
    const steps = fc.array(fc.tuple(fc.nat(4), fc.boolean()), { maxLength: 60 });
    fc.assert(
      fc.property(steps, (additions) => {
        const queue = new TurnQueue<{ readonly group: number }>();
        /** By the first entry of a group: the groups that were served meanwhile. */
        const served = new Map<object, number[]>();
        for (const [group, isServed] of additions) {
          queue.add(String(group), { group });
          const { first } = queue;
          if (!isServed || first === undefined) continue;
          queue.remove(first, true);
          const heads = new Map([...queue].toReversed().map((entry) => [entry.group, entry]));
          for (const head of heads.values()) {
            const seen = served.get(head) ?? [];
            if (head.group !== first.group) expect(seen).not.toContain(first.group);
            served.set(head, head.group === first.group ? [] : [...seen, first.group]);
          }
        }
      }),
    );
  });
});
