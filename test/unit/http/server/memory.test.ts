import { spawnSync } from 'node:child_process';
import { describe, expect, test } from 'vitest';
import { systemClock } from '../../../../src/core/clock.ts';
import { createMemoryReader, createMeter, toMemoryBudget, toServiceFlags } from '../../../../src/http/server/memory.ts';
import { DEFAULT_MEMORY_LIMIT } from '../../../../src/kubernetes/injector/kubernetes-values.ts';
import { FakeClock } from '../../../support/fake-clock.ts';

const MIB = 1024 * 1024;

describe('the memory for bodies', () => {
  test.each([
    [undefined, 64, 64],
    [1_024, 64, 64],
    [256, 50, 50],
    [192, 34, 34],
    [128, 18, 18],
    [96, 10, 10],
    [32, 4, 4],
  ])('follows a container limit of %s MiB', (limit, bytes, places) => {
    const budget = toMemoryBudget({}, limit === undefined ? undefined : limit * MIB);
    expect([budget.maxBufferedBytes / MIB, budget.maxLargeBodies]).toEqual([bytes, places]);
  });

  test('follows the config, whatever the container limit', () => {
    const budget = toMemoryBudget({ maxBufferedBytes: 100 * MIB, maxLargeBodies: 3 }, 96 * MIB);
    expect([budget.maxBufferedBytes / MIB, budget.maxLargeBodies]).toEqual([100, 3]);
  });
});

describe('the memory in use', () => {
  const OWN = 50 * MIB;
  const SOCKETS = 20 * MIB;

  /** A process with a thread that allocates. */
  function open(): { clock: FakeClock; state: { own: number; kernel: number; grown: number }; measure: () => number } {
    const clock = new FakeClock();
    const state = { own: OWN, kernel: 0, grown: 0 };
    const readContainer = (): number => {
      state.own += state.grown;
      state.grown = 0;
      return state.own + state.kernel;
    };
    return { clock, state, measure: createMeter({ clock, readOwn: () => state.own, readContainer }) };
  }

  test('is measured', () => {
    const used = createMemoryReader(systemClock)();
    expect(used).toBeGreaterThan(10 * MIB);
    expect(used).toBeLessThan(64 * 1_024 * MIB);
  });

  test('includes what the kernel holds for the container, until half a second after it was released', async () => {
    const { clock, state, measure } = open();
    state.kernel = SOCKETS;
    expect(measure()).toBe(OWN + SOCKETS);
    state.kernel = 0;
    await clock.advance(500);
    expect(measure()).toBe(OWN);
  });

  test('does not count twice what another thread allocates while it is measured', () => {
    const { state, measure } = open();
    state.grown = SOCKETS;
    measure();
    expect(measure()).toBe(OWN + SOCKETS);
    state.own = OWN;
    expect(measure()).toBe(OWN);
  });
});

describe('the budget of the process', () => {
  const DEFAULT_LIMIT = Number.parseInt(DEFAULT_MEMORY_LIMIT, 10) * 1024 * 1024;

  test.each([
    ['without a limit', undefined, 1, '--no-maglev-destroy-on-background'],
    ["with the chart's default limit", DEFAULT_LIMIT, 1, '--no-maglev-destroy-on-background'],
    ['with less', DEFAULT_LIMIT - 1, 1, '--no-maglev'],
    ['with less for each worker', 2 * DEFAULT_LIMIT - 1, 2, '--no-maglev'],
  ])(
    'this version of Node has the flags of a process that serves requests, and accepts them at run time, %s',
    (_title, limit, workers, last) => {
      const flags = toServiceFlags(limit, workers);
      expect(flags.at(-1)).toBe(last);
      const script = flags.map((flag) => `require('node:v8').setFlagsFromString('${flag}');`).join('');
      const { status, stderr, stdout } = spawnSync(process.execPath, ['--eval', script], { encoding: 'utf8' });
      expect({ status, stderr, stdout }).toEqual({ status: 0, stderr: '', stdout: '' });
    },
  );
});
