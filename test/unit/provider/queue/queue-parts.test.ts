import { describe, expect, test } from 'vitest';
import { StoreBudget } from '../../../../src/core/throttle.ts';
import { type LaneEntry, LaneRun, LaneScheduler, type RunOutcome } from '../../../../src/provider/queue/lane-scheduler.ts';
import { findFileSystemRisk } from '../../../../src/provider/queue/sqlite/queue-file.ts';
import { isSafeVersion } from '../../../../src/provider/queue/sqlite/sqlite-database.ts';
import type { StoreClient } from '../../../../src/provider/queue/store-client.ts';
import { FakeClock, settle } from '../../../support/fake-clock.ts';

describe('SQLite releases', () => {
  test.each([
    ['3.51.3', true],
    ['3.51.2', false],
    ['3.51.0', false],
    ['3.50.7', true],
    ['3.50.6', false],
    ['3.49.1', false],
    ['3.44.6', true],
    ['3.44.5', false],
    ['3.45.0', false],
    ['3.52.0', true],
    ['3.53.4', true],
    ['4.0.0', true],
    ['2.8.17', false],
    ['', false],
  ])('%s: can be trusted: %s', (version, isSafe) => {
    expect(isSafeVersion(version)).toBe(isSafe);
  });
});

describe('file systems', () => {
  test('that lose or misplace files are a risk, in whichever sign statfs gives their type', () => {
    expect(findFileSystemRisk(0x01021994)).toContain('tmpfs');
    expect(findFileSystemRisk(0x794c7630)).toContain('overlay');
    expect(findFileSystemRisk(0x6969)).toContain('NFS');
    expect(findFileSystemRisk(0xff534d42)).toContain('SMB');
    expect(findFileSystemRisk(0xff534d42 | 0)).toContain('SMB');
  });

  test('on local disks are none: ext4, XFS, Btrfs, ZFS, F2FS', () => {
    for (const type of [0xef53, 0x58465342, 0x9123683e, 0x2fc12fc1, 0xf2f52010]) expect(findFileSystemRisk(type)).toBeUndefined();
  });
});

describe('the scheduler of lanes', () => {
  const ACTIVE: RunOutcome = { isActive: true, hasUnsettled: false };

  function create(clock: FakeClock): { scheduler: LaneScheduler; runs: string[] } {
    const runs: string[] = [];
    const scheduler = new LaneScheduler(clock, (endpoint) => runs.push(`error ${endpoint}`));
    return { scheduler, runs };
  }

  /** Serves so that a run leaves nothing due. */
  function serve(scheduler: LaneScheduler, runs: string[]): void {
    scheduler.serve(4, async (entry) => {
      runs.push(entry.endpoint);
      entry.next = Number.POSITIVE_INFINITY;
      return ACTIVE;
    });
  }

  test('remembers a delivery that is reported while a run reads, and that the read did not see', async () => {
    const clock = new FakeClock();
    const { scheduler } = create(clock);
    scheduler.addDue('a', clock.now());
    const entry = scheduler.find('a') as LaneEntry;
    const client = {
      read: async () => {
        scheduler.addDue('a', clock.now());
        return { result: { taken: [] }, bodies: [] };
      },
    };
    const run = {
      entry,
      number: 1,
      state: undefined,
      holder: null,
      signal: new AbortController().signal,
      isStopping: () => false,
      onNoMemory: () => undefined,
    };
    const lane = new LaneRun(run, client as unknown as StoreClient, clock, new StoreBudget(1, clock));
    expect(await lane.take(9, clock.now())).toEqual([]);
    expect(entry.next).toBe(clock.now());
    client.read = async () => ({ result: { taken: [] }, bodies: [] });
    await lane.take(9, clock.now());
    expect(entry.next).toBe(Number.POSITIVE_INFINITY);
  });

  test('sets no timer while nothing waits, and one for any number of endpoints that wait', async () => {
    const clock = new FakeClock();
    const { scheduler, runs } = create(clock);
    serve(scheduler, runs);
    expect(clock.timers).toBe(0);
    for (let i = 0; i < 1_000; i++) scheduler.addDue(`e${i}`, clock.now() + 86_400_000 - i);
    expect(clock.timers).toBe(1);
    expect(runs).toEqual([]);
    await clock.advance(86_400_000);
    expect(runs).toHaveLength(1_000);
    expect(runs[0]).toBe('e999');
    expect(clock.timers).toBe(0);
  });

  test('serves what is due after a step of the wall clock at its time, while a timer from before the step runs', async () => {
    const clock = new FakeClock();
    const { scheduler, runs } = create(clock);
    serve(scheduler, runs);
    let offset = 0;
    const now = clock.now.bind(clock);
    clock.now = () => now() + offset;
    scheduler.addDue('a', clock.now() + 50_000);
    for (const step of [3_600_000, 0]) {
      offset = step;
      scheduler.addDue(`after a step to ${step}`, clock.now() + 5_000);
      await clock.advance(4_999);
      expect(runs).not.toContain(`after a step to ${step}`);
      await clock.advance(1);
      expect(runs).toContain(`after a step to ${step}`);
    }
  });

  test('serves within ten seconds after the wall clock was set forward', async () => {
    const clock = new FakeClock();
    const { scheduler, runs } = create(clock);
    serve(scheduler, runs);
    let offset = 0;
    const now = clock.now.bind(clock);
    clock.now = () => now() + offset;
    scheduler.addDue('a', clock.now() + 86_400_000);
    await clock.advance(10_000);
    offset = 86_400_000;
    await clock.advance(10_000);
    expect(runs).toEqual(['a']);
  });

  test.each([
    ['a day', 86_400_000],
    ['a minute', 60_000],
  ])('ends the pause of an endpoint within ten seconds after a wall clock that was %s ahead was set back', async (_, ahead) => {
    const clock = new FakeClock();
    const { scheduler, runs } = create(clock);
    let offset = ahead;
    const now = clock.now.bind(clock);
    clock.now = () => now() + offset;
    scheduler.serve(4, async ({ endpoint }) => {
      runs.push(endpoint);
      return { ...ACTIVE, notBefore: clock.now() + 300_000 };
    });
    scheduler.addDue('a', now());
    await settle();
    expect(runs).toEqual(['a']);
    offset = 0;
    await clock.advance(10_000);
    expect(runs).toEqual(['a', 'a']);
    // The pause that the second run asked for counts, and no new delivery ends it.
    scheduler.addDue('a', now() - 1);
    await clock.advance(200_000);
    expect(runs).toEqual(['a', 'a']);
    await clock.advance(100_000);
    expect(runs).toEqual(['a', 'a', 'a']);
    await scheduler.stop();
  });

  test('keeps the heap small when one endpoint changes its time again and again', async () => {
    const clock = new FakeClock();
    const { scheduler, runs } = create(clock);
    serve(scheduler, runs);
    for (let i = 0; i < 10_000; i++) scheduler.addDue('a', clock.now() + 20_000 - i);
    await clock.advance(10_100);
    expect(runs).toEqual(['a']);
    await clock.advance(20_000);
    expect(runs).toEqual(['a']);
  });

  test('serves a tenant with one endpoint after one endpoint of each other tenant, however many these have', async () => {
    const clock = new FakeClock();
    const { scheduler, runs } = create(clock);
    const start = async (entry: LaneEntry) => {
      runs.push(entry.endpoint);
      entry.next = Number.POSITIVE_INFINITY;
      return ACTIVE;
    };
    for (const endpoint of ['big-1', 'big-2', 'big-3', 'other-1', 'other-2', 'small-1']) scheduler.addDue(endpoint, clock.now());
    scheduler.serve(1, start, (endpoint) => endpoint.split('-')[0]);
    await settle();
    // The first one starts before the others are ready.
    expect(runs).toEqual(['big-1', 'big-2', 'other-1', 'small-1', 'big-3', 'other-2']);
  });

  test('serves endpoints without a tenant in turn with those of tenants', async () => {
    const clock = new FakeClock();
    const { scheduler, runs } = create(clock);
    for (const endpoint of ['a', 'b', 'c', 'small']) scheduler.addDue(endpoint, clock.now());
    const start = async (entry: LaneEntry) => {
      runs.push(entry.endpoint);
      entry.next = Number.POSITIVE_INFINITY;
      return ACTIVE;
    };
    scheduler.serve(1, start, (endpoint) => (endpoint === 'small' ? 'small' : undefined));
    await settle();
    expect(runs).toEqual(['a', 'b', 'small', 'c']);
  });

  test('does not let a tenant claim all lanes before another one is ready: few runs claim at once', async () => {
    const clock = new FakeClock();
    const { scheduler, runs } = create(clock);
    const claims: (() => void)[] = [];
    const start = (entry: LaneEntry, onClaimed: () => void): Promise<RunOutcome> => {
      runs.push(entry.endpoint);
      claims.push(onClaimed);
      return new Promise(() => undefined);
    };
    for (let i = 0; i < 100; i++) scheduler.addDue(`big-${i}`, clock.now());
    scheduler.serve(1_000, start, (endpoint) => endpoint.split('-')[0]);
    const before = runs.length;
    expect(before).toBeLessThan(20);
    scheduler.addDue('small', clock.now());
    for (const claim of claims.splice(0, 2)) claim();
    expect(runs.length).toBe(before + 2);
    expect(runs.at(-1)).toBe('small');
    // A run that has its lane leaves its place to the next one while it goes on.
    while (claims.length > 0) claims.shift()?.();
    expect(runs).toHaveLength(101);
  });

  test('does not repeat a run at once that leaves due deliveries without taking any', async () => {
    const clock = new FakeClock();
    const { scheduler, runs } = create(clock);
    scheduler.serve(4, async ({ endpoint }) => {
      runs.push(endpoint);
      return { isActive: false, hasUnsettled: false };
    });
    scheduler.addDue('a', clock.now());
    await settle();
    expect(runs).toHaveLength(1);
    await clock.advance(1_000);
    expect(runs.length).toBeGreaterThan(5);
    expect(runs.length).toBeLessThan(15);
    await scheduler.stop();
    expect(clock.timers).toBe(0);
  });

  test('repeats a run that rejected a second later, and reports it', async () => {
    const clock = new FakeClock();
    const { scheduler, runs } = create(clock);
    scheduler.serve(4, async (entry) => {
      if (runs.length === 0) throw new Error('a bug');
      runs.push(entry.endpoint);
      entry.next = Number.POSITIVE_INFINITY;
      return ACTIVE;
    });
    scheduler.addDue('a', clock.now());
    await settle();
    await clock.advance(900);
    expect(runs).toEqual(['error a']);
    await clock.advance(100);
    expect(runs).toEqual(['error a', 'a']);
  });
});
