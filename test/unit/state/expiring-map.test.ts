import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { expect, test } from 'vitest';
import { systemClock } from '../../../src/core/clock.ts';
import { ExpiringMap } from '../../../src/state/expiring-map.ts';

const PUTS = 400_000;
const DAY_MS = 86_400_000;

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc') as () => void;

/** In bytes. */
function measureGrowth(work: () => void): number {
  collect();
  const before = process.memoryUsage().heapUsed;
  work();
  collect();
  return process.memoryUsage().heapUsed - before;
}

test.each([
  ['replaced', (map: ExpiringMap<{ expiresAt: number }>, expiresAt: number) => map.put('one', { expiresAt })],
  [
    'put and deleted',
    (map: ExpiringMap<{ expiresAt: number }>, expiresAt: number) => {
      map.put('one', { expiresAt });
      map.delete('one');
    },
  ],
])('an entry that is %s again and again takes the memory of one', (_name, repeat) => {
  const map = new ExpiringMap<{ expiresAt: number }>(systemClock, { maxEntries: 10, what: 'entries' });
  const now = systemClock.monotonic();
  const growth = measureGrowth(() => {
    for (let i = 0; i < PUTS; i++) repeat(map, now + DAY_MS + (i % 3) * 1_000);
  });
  expect(growth).toBeLessThan(4 * 1_048_576);
  map.close();
});
