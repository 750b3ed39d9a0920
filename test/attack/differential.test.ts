import { describe, expect, test } from 'vitest';
import { PATH_DISTINCTIONS } from '../../src/http/path-forms.ts';
import { type Front, formatBypass, fuzz } from '../fuzz/differential.ts';
import { FRAMEWORKS } from '../support/frameworks/framework.ts';

const TIMEOUT_MS = 120_000;
const SEED = 20_261_121;
/** One that folds case, one that decodes before it routes, and one that also removes repeated slashes. */
const NAMES = ['express', 'flask', 'nginx'];
const RUNS: readonly (readonly [Front, number])[] = [
  ['http1', 1_000],
  ['http2', 500],
  ['nginx', 500],
];
const frameworks = FRAMEWORKS.filter(({ name }) => NAMES.includes(name));

describe.each(frameworks)('in front of $title', (framework) => {
  describe.runIf(framework.isAvailable())('the gate', () => {
    test.each(RUNS)(
      'forwards no generated request to a protected handler without its proof, over %s',
      async (front, requests) => {
        const { bypasses, served, statuses } = await fuzz({ framework, front, requests, seed: SEED });
        expect(bypasses.map(formatBypass)).toEqual([]);
        // A run in which nothing passes proves nothing.
        expect(served.open).toBeGreaterThan(requests / 100);
        expect(statuses.get(0) ?? 0).toBeLessThan(requests / 2);
      },
      TIMEOUT_MS,
    );

    test(
      'is bypassed, and the run finds it, where routes trust the app to tell all paths apart',
      async () => {
        const match = { trustAppToDistinguish: [...PATH_DISTINCTIONS] };
        const { bypasses } = await fuzz({ framework, front: 'http1', requests: 1_000, seed: SEED, match });
        expect(bypasses.length).toBeGreaterThan(0);
      },
      TIMEOUT_MS,
    );
  });
});
