import { describe, expect, test } from 'vitest';
import { createFailingEndpoints } from '../../../../src/provider/telemetry/hooks.ts';
import { FakeClock } from '../../../support/fake-clock.ts';

const MINUTE = 60_000;

describe('the endpoints that fail', () => {
  test('are those without a success, as long as they exist and are enabled', () => {
    const clock = new FakeClock();
    const failing = createFailingEndpoints(clock, false);
    failing.add('a', clock.now() + MINUTE);
    failing.add('b', clock.now() + MINUTE);
    failing.add('b', clock.now() + 2 * MINUTE);
    expect(failing.count(['a', 'b', 'c'])).toBe(2);
    failing.delete('a');
    expect(failing.count(['a', 'b'])).toBe(1);
    expect(failing.count(['a'])).toBe(0);
    expect(failing.count(['a', 'b'])).toBe(0);
  });

  test.each([
    ['are forgotten with a shared queue once another replica must have made the next attempt', true, 0],
    ['are remembered with a queue of one process until an attempt succeeds', false, 1],
  ])('%s', async (_title, isShared, expected) => {
    const clock = new FakeClock();
    const failing = createFailingEndpoints(clock, isShared);
    failing.add('a', clock.now() + 5 * MINUTE);
    await clock.advance(15 * MINUTE);
    expect(failing.count(['a'])).toBe(1);
    await clock.advance(1);
    expect(failing.count(['a'])).toBe(expected);
  });
});
