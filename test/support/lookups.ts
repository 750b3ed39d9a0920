/** Counts the calls of getaddrinfo, each of which takes a thread of the process. */
import { createHook } from 'node:async_hooks';
import { onTestFinished } from 'vitest';

/** What there was since the start. */
export interface LookupCounts {
  total: number;
  /** The most at once. */
  most: number;
}

/** Counts until the test ends. */
export function countLookups(): Readonly<LookupCounts> {
  const counts: LookupCounts = { total: 0, most: 0 };
  const running = new Set<number>();
  const hook = createHook({
    init(id, type) {
      if (type !== 'GETADDRINFOREQWRAP') return;
      counts.total++;
      running.add(id);
      counts.most = Math.max(counts.most, running.size);
    },
    before(id) {
      running.delete(id);
    },
  }).enable();
  onTestFinished(() => {
    hook.disable();
  });
  return counts;
}
