import { describe, expect, test } from 'vitest';
import { MemoryBudget } from '../../../../src/core/throttle.ts';
import { type Slot, type SlotKind, SlotPool } from '../../../../src/provider/lanes/slot-pool.ts';
import { FakeClock, settle } from '../../../support/fake-clock.ts';

const MIB = 1_024 * 1_024;

function of(most: number, tenant?: string) {
  return { most, size: MIB / 4, tenant };
}

function openPool(maxConcurrency = 2, maxConnections = 6) {
  const clock = new FakeClock();
  const budget = new MemoryBudget(32 * MIB, clock);
  const pool = new SlotPool({ maxConcurrency, maxConnections, maxSlowBytes: 64 * 1_024 * 1_024 }, budget, clock);
  const take = (kind: SlotKind = 'proven', bytes = 1_000, endpoint = 'a'): Slot | undefined =>
    pool.take({ endpoint, kind, bytes });
  const hold = (kind: SlotKind = 'proven', bytes = 1_000, endpoint = 'a'): Slot => {
    const slot = take(kind, bytes, endpoint);
    if (slot === undefined) throw new Error('there is no slot');
    return slot;
  };
  const wait = (kind: SlotKind = 'proven', atMost = 60_000, endpoint = 'a') =>
    pool.wait({ endpoint, kind, bytes: 1_000 }, atMost);
  return { clock, budget, pool, take, hold, wait };
}

test('gives a fast slot to one attempt at a time', () => {
  const { pool, take, hold } = openPool();
  const first = hold();
  hold();
  expect(take()).toBeUndefined();
  first.release();
  first.release();
  expect(take()).toBeDefined();
  expect(take()).toBeUndefined();
  expect(pool.figures).toEqual({ fast: 2, slow: 0, waiting: 0 });
});

test('gives the slot of an attempt that is older than a second to the one that waits', async () => {
  const { clock, pool, hold, wait } = openPool();
  hold();
  hold();
  const waiting = wait();
  await clock.advance(999);
  expect(pool.figures).toEqual({ fast: 2, slow: 0, waiting: 1 });
  await clock.advance(1);
  await expect(waiting.granted).resolves.toBeDefined();
  expect(pool.figures).toEqual({ fast: 2, slow: 1, waiting: 0 });
});

test('gives the slot of an endpoint without any success away after a tenth of that', async () => {
  const { clock, pool, hold, wait } = openPool();
  hold('unproven');
  hold();
  const waiting = wait();
  await clock.advance(100);
  await expect(waiting.granted).resolves.toBeDefined();
  expect(pool.figures).toEqual({ fast: 2, slow: 1, waiting: 0 });
});

test('leaves old attempts fast while nobody waits, without a timer', async () => {
  const { clock, pool, hold, take } = openPool();
  hold();
  hold();
  await clock.advance(60_000);
  expect(pool.figures.slow).toBe(0);
  expect(clock.timers).toBe(0);
  expect(take()).toBeDefined();
  expect(pool.figures).toEqual({ fast: 2, slow: 1, waiting: 0 });
});

test('bounds all attempts, however old they are', async () => {
  const { clock, pool, hold, take, wait } = openPool(2, 6);
  hold().end();
  const slots = [];
  for (let i = 0; i < 6; i++) {
    slots.push(hold());
    await clock.advance(2_000);
  }
  expect(pool.figures).toEqual({ fast: 2, slow: 4, waiting: 0 });
  expect(take()).toBeUndefined();
  const waiting = wait();
  slots[0]?.release();
  await expect(waiting.granted).resolves.toBeDefined();
  expect(pool.figures).toEqual({ fast: 2, slow: 4, waiting: 0 });
});

test('serves in the order of waiting', async () => {
  const { hold, take, wait } = openPool(1, 1);
  const slot = hold();
  const order: number[] = [];
  const serve = async (each: number): Promise<void> => {
    const granted = await wait().granted;
    order.push(each);
    granted?.release();
  };
  const served = Promise.all([serve(1), serve(2), serve(3)]);
  slot.release();
  expect(take(), 'overtakes').toBeUndefined();
  await served;
  expect(order).toEqual([1, 2, 3]);
});

test('serves tenants in turn: one with many endpoints that wait delays another one by one attempt', async () => {
  const { pool, hold } = openPool(1, 1);
  const slot = hold();
  const order: string[] = [];
  const serve = async (endpoint: string, tenant?: string): Promise<void> => {
    const granted = await pool.wait({ endpoint, tenant, kind: 'proven', bytes: 0 }).granted;
    order.push(endpoint);
    granted?.release();
  };
  const served = Promise.all([serve('a1', 'a'), serve('a2', 'a'), serve('a3', 'a'), serve('b1', 'b'), serve('none')]);
  slot.release();
  await served;
  expect(order).toEqual(['a1', 'b1', 'none', 'a2', 'a3']);
});

test('ends the wait when the time is over or the caller leaves, and gives the slot to the next', async () => {
  const { clock, pool, hold, wait } = openPool(1, 1);
  const slot = hold();
  const [late, left, patient] = [wait('proven', 500), wait(), wait()];
  await clock.advance(500);
  await expect(late.granted).resolves.toBeUndefined();
  left.leave();
  left.leave();
  await expect(left.granted).resolves.toBeUndefined();
  slot.release();
  await expect(patient.granted).resolves.toBeDefined();
  expect(pool.figures).toEqual({ fast: 1, slow: 0, waiting: 0 });
});

test('gives slow and failing endpoints no fast slot, and at most three quarters of the slow ones', async () => {
  const { pool, hold, take, wait } = openPool(2, 6);
  const failing = [hold('failing'), hold('slow'), hold('failing')];
  expect(take('failing')).toBeUndefined();
  expect(take('slow')).toBeUndefined();
  expect(pool.figures).toEqual({ fast: 0, slow: 3, waiting: 0 });
  expect(take('proven')).toBeDefined();
  const waiting = wait('failing');
  failing[0]?.release();
  await expect(waiting.granted).resolves.toBeDefined();
});

test('gives endpoints without a success at most three quarters of the fast slots', async () => {
  const { clock, pool, hold, take, wait } = openPool(4, 6);
  for (let i = 0; i < 3; i++) hold('unproven');
  expect(take('unproven')).toBeUndefined();
  expect(take('proven')).toBeDefined();
  const waiting = wait('unproven');
  await clock.advance(100);
  await expect(waiting.granted).resolves.toBeDefined();
  expect(pool.figures).toEqual({ fast: 4, slow: 1, waiting: 0 });
});

test('keeps fast slots for proven endpoints while many new ones never respond', async () => {
  const { clock, pool, hold, wait } = openPool(4, 12);
  for (let i = 0; i < 20; i++) wait('unproven');
  await clock.advance(10_000);
  expect(pool.figures).toEqual({ fast: 3, slow: 7, waiting: 10 });
  hold('proven').release();
  hold('proven');
});

test('serves both kinds of waiting endpoints in turns', async () => {
  const { hold, wait } = openPool(1, 1);
  let slot: Slot | undefined = hold();
  const order: string[] = [];
  const serve = async (kind: SlotKind): Promise<void> => {
    slot = await wait(kind).granted;
    order.push(kind);
  };
  const served = Promise.all((['proven', 'proven', 'proven', 'unproven', 'unproven'] as const).map(serve));
  for (let count = 0; count < 5; count++) {
    slot?.release();
    await settle();
  }
  await served;
  expect(order.slice(0, 4).filter((kind) => kind === 'unproven')).toHaveLength(2);
});

test('says when too many wait', () => {
  const { pool, wait } = openPool(1, 8);
  for (const kind of ['unproven', 'slow', 'failing'] as const) {
    const request = { endpoint: 'a', kind, bytes: 1 };
    expect(pool.isCrowded(request)).toBe(false);
    for (let i = 0; i < 9; i++) if (pool.take(request) === undefined) wait(kind);
    expect(pool.isCrowded(request)).toBe(true);
  }
  for (let i = 0; i < 9; i++) wait();
  expect(pool.isCrowded({ endpoint: 'a', kind: 'proven', bytes: 1 }), 'while there can be a slot soon').toBe(false);
});

test('keeps slots for endpoints that respond quickly while hundreds become slow at once', async () => {
  const { clock, pool, hold, wait } = openPool(64, 512);
  for (let i = 0; i < 600; i++) hold('proven', 1_000, `slow${i}`).end();
  await clock.advance(1_000);
  hold('proven', 1_000, 'good').end();
  for (let i = 0; i < 600; i++) wait('proven', 60_000, `slow${i}`);
  for (let at = 0; at < 14_000; at += 2_000) {
    const served = wait('proven', 1_999, 'good').granted.then((slot) => {
      slot?.end();
      return slot !== undefined;
    });
    await clock.advance(2_000);
    expect(await served, `after ${at} ms`).toBe(true);
  }
  expect(pool.figures.fast + pool.figures.slow).toBeLessThan(512);
});

test('counts an endpoint as slow from an attempt that takes a second until five in a row are quicker', async () => {
  const { clock, pool, hold } = openPool(4, 12);
  const first = hold();
  await clock.advance(999);
  expect(pool.toKind('a', 'proven')).toBe('proven');
  await clock.advance(1);
  expect(pool.toKind('a', 'proven')).toBe('slow');
  expect(pool.toKind('a', 'failing')).toBe('failing');
  expect(pool.toKind('b', 'proven')).toBe('proven');
  first.end();
  for (let i = 0; i < 5; i++) {
    expect(pool.toKind('a', 'proven')).toBe('slow');
    hold('slow').end();
  }
  expect(pool.toKind('a', 'proven')).toBe('proven');
});

test('takes no slot without an attempt for a quick response', async () => {
  const { clock, pool, hold } = openPool(4, 12);
  const first = hold();
  await clock.advance(1_000);
  first.end();
  for (let i = 0; i < 5; i++) hold('slow').release();
  expect(pool.toKind('a', 'proven')).toBe('slow');
});

test('forgets how fast an endpoint was after a minute', async () => {
  const { clock, pool, hold } = openPool(4, 12);
  const first = hold();
  await clock.advance(1_000);
  first.end();
  await clock.advance(60_001);
  hold('proven', 1_000, 'b').end();
  expect(pool.toKind('a', 'proven')).toBe('proven');
});

test('has a slot for failing endpoints even if there are only fast ones', () => {
  const { hold, take } = openPool(2, 2);
  expect(hold('failing')).toBeDefined();
  expect(take('failing')).toBeUndefined();
});

test('leaves the bytes of old attempts in the budget once the slow ones hold 64 MiB, and gives their fast slots to others', async () => {
  const { clock, budget, pool, hold, take } = openPool(2, 1_000);
  for (let i = 0; i < 65; i++) {
    hold('proven', MIB);
    await clock.advance(1_000);
  }
  expect(pool.figures).toEqual({ fast: 2, slow: 63, waiting: 0 });
  hold('proven', MIB);
  await clock.advance(1_000);
  expect(pool.figures.slow).toBe(64);
  const free = budget.free;
  const last = take('proven', MIB);
  expect(last).toBeDefined();
  expect([pool.figures.slow, budget.free]).toEqual([65, free]);
  expect(take('failing', MIB)).toBeUndefined();
  last?.release();
  expect(budget.free).toBe(free + MIB);
});

test('does not spin while an old attempt cannot free memory', async () => {
  const { clock, budget, pool, hold } = openPool(1, 1_000);
  hold('failing', 64 * MIB);
  const taken = budget.reserve(of(1_000));
  budget.settle(taken, MIB / 4, budget.free + taken * (MIB / 4), undefined);
  const big = hold('proven', MIB);
  await clock.advance(2_000);
  const waiting = pool.waitForMemory(of(1));
  expect(clock.timers).toBe(0);
  expect(pool.figures).toEqual({ fast: 1, slow: 1, waiting: 0 });
  big.release();
  await expect(waiting.granted).resolves.toBe(1);
});

test('counts the memory of fast attempts only, until they end or become slow', async () => {
  const { clock, budget, hold } = openPool(1, 3);
  const free = budget.free;
  budget.settle(budget.reserve(of(3, 'a')), MIB / 4, 3 * MIB, 'a');
  expect(budget.free).toBe(free - 3 * MIB);
  const first = hold('proven', MIB);
  await clock.advance(1_000);
  const second = hold('proven', MIB);
  expect(budget.free).toBe(free - 2 * MIB);
  const failing = hold('failing', MIB);
  expect(budget.free).toBe(free - MIB);
  for (const slot of [first, second, failing]) slot.release();
  expect(budget.free).toBe(free);
});

test('reserves memory in the order of waiting, and as much as there is', async () => {
  const budget = new MemoryBudget(MIB, new FakeClock());
  expect(budget.reserve(of(3, 'a'))).toBe(3);
  expect(budget.reserve(of(3, 'a'))).toBe(1);
  expect(budget.reserve(of(1, 'a'))).toBe(0);
  const [first, second] = [budget.wait(of(4, 'a')), budget.wait(of(1, 'a'))];
  budget.settle(2, MIB / 4, 0, 'a');
  await expect(first.granted).resolves.toBe(2);
  expect(budget.reserve(of(1, 'a')), 'overtakes').toBe(0);
  budget.settle(2, MIB / 4, 1_000, 'a');
  await expect(second.granted).resolves.toBe(1);
});

test('reserves no memory while deliveries that are larger than expected are held', () => {
  const budget = new MemoryBudget(MIB, new FakeClock());
  budget.settle(budget.reserve(of(1, 'a')), MIB / 4, 3 * MIB, 'a');
  expect(budget.free).toBe(-2 * MIB);
  expect(budget.reserve(of(1, 'a'))).toBe(0);
  budget.release(3 * MIB, 'a');
  expect(budget.reserve(of(1, 'a'))).toBe(1);
});

test('counts a delivery of any size as a quarter of the memory at most, so that deliveries of others fit beside it', () => {
  const budget = new MemoryBudget(MIB, new FakeClock());
  const large = { most: 4, size: 25 * MIB, tenant: 'a' };
  expect(budget.reserve(of(1, 'b'))).toBe(1);
  expect(budget.reserve(large), 'one at a time').toBe(1);
  budget.settle(1, large.size, budget.toShare(large.size), 'a');
  expect(budget.free).toBe(MIB / 2);
  expect(budget.reserve({ most: 100, size: 1_000, tenant: 'b' })).toBe(100);
});

test('gives an endpoint that is away, and had a success before, the next slow slot, however many without one wait', async () => {
  const { hold, wait, take } = openPool();
  const held = [hold('failing'), hold('failing'), hold('failing')];
  expect([take('failing'), take('away')]).toEqual([undefined, undefined]);
  const dead = Array.from({ length: 100 }, () => wait('failing'));
  const probe = wait('away');
  held[0]?.release();
  await expect(probe.granted).resolves.toBeDefined();
  held[1]?.release();
  await expect(dead[0]?.granted).resolves.toBeDefined();
});

test('gives a tenant a further slot only while it holds fewer than are free, and others pass those of it that wait', async () => {
  const { clock, pool } = openPool(64, 512);
  const toRequest = (tenant: string) => ({ endpoint: tenant, tenant, kind: 'proven', bytes: 1_000 }) as const;
  const begin = (tenant: string, count: number) => Array.from({ length: count }, () => pool.wait(toRequest(tenant)).granted);
  const held = () => pool.figures.fast + pool.figures.slow;
  await Promise.all(begin('other', 2));
  begin('many', 600);
  await clock.advance(30_000);
  expect(held()).toBe(2 + 255);
  expect(pool.isCrowded(toRequest('many'))).toBe(true);
  expect(pool.isCrowded(toRequest('other'))).toBe(false);
  const others = begin('other', 98);
  await clock.advance(3_000);
  await Promise.all(others);
  begin('third', 600);
  await clock.advance(30_000);
  expect(held()).toBe(255 + 100 + 79);
});

test('gives the only tenant all slots', async () => {
  const { clock, pool } = openPool(64, 512);
  const request = { endpoint: 'a', tenant: 'a', kind: 'proven', bytes: 1_000 } as const;
  for (let held = 0; held < 512; held++) {
    pool.take(request)?.end();
    expect(pool.take(request), `${held}`).toBeDefined();
    await clock.advance(1_000);
  }
});

test.each([
  ['for tenants that hold none, and did not respond for long, while the endpoints of 470 others hang', 470, false],
  ['for endpoints that responded since those of 700 tenants began to hang', 700, true],
])('keeps slots %s', async (_, tenants, hasResponded) => {
  const { clock, pool } = openPool(64, 512);
  const toRequest = (name: string) => ({ endpoint: name, tenant: name, kind: 'proven', bytes: 1_000 }) as const;
  const serve = async (name: string): Promise<boolean> => {
    const slot = await pool.wait(toRequest(name), 500).granted;
    slot?.end();
    return slot !== undefined;
  };
  const good = Array.from({ length: 9 }, (__, i) => `good${i}`);
  for (let i = 0; i < tenants; i++) pool.take(toRequest(`hanging${i}`))?.end();
  // None responded for a while.
  await clock.advance(20_000);
  const begin = (i: number) => pool.take(toRequest(`hanging${i}`)) ?? pool.wait(toRequest(`hanging${i}`));
  for (let i = 0; i < 64; i++) begin(i);
  await clock.advance(1);
  if (hasResponded) {
    await clock.advance(1_000);
    for (const name of good) await expect(serve(name)).resolves.toBe(true);
  }
  for (let i = 64; i < tenants; i++) begin(i);
  await clock.advance(9_000);
  expect(pool.figures.fast + pool.figures.slow).toBeGreaterThan(440);
  for (const name of good) {
    const served = serve(name);
    await clock.advance(1_000);
    expect(await served, name).toBe(true);
  }
});

test('gives a tenant further memory only while it then holds at most what is free, and others pass those of it that wait', async () => {
  const budget = new MemoryBudget(4 * MIB, new FakeClock());
  budget.settle(budget.reserve(of(1, 'other')), MIB / 4, 0, 'other');
  expect(budget.reserve(of(20, 'many'))).toBe(8);
  expect(budget.reserve(of(1, 'many'))).toBe(0);
  const waiting = budget.wait(of(2, 'many'));
  const other = budget.wait(of(2, 'other'));
  expect(budget.reserve(of(3, 'third'))).toBe(3);
  budget.settle(3, MIB / 4, 3 * MIB, 'third');
  // Less is free than one delivery can have.
  expect(budget.reserve(of(1, 'other'))).toBe(0);
  budget.release(3 * MIB, 'third');
  await expect(other.granted).resolves.toBe(2);
  budget.settle(8, MIB / 4, 0, 'many');
  await expect(waiting.granted).resolves.toBe(2);
  budget.settle(2, MIB / 4, 0, 'many');
  budget.settle(2, MIB / 4, 0, 'other');
  expect(budget.free).toBe(4 * MIB);
});

test('leaves bytes of slow attempts to other tenants', () => {
  const { pool } = openPool(2, 1_000);
  const take = (tenant: string) => pool.take({ endpoint: tenant, tenant, kind: 'slow', bytes: MIB });
  take('other')?.release();
  for (let i = 0; i < 24; i++) expect(take('many'), `${i}`).toBeDefined();
  expect(take('many')).toBeUndefined();
  expect(take('other')).toBeDefined();
});

test('serves other tenants while many attempts of one wait for bytes of slow attempts', async () => {
  const { clock, pool } = openPool(2, 1_000);
  const toRequest = (tenant: string, kind: SlotKind, bytes: number) => ({ endpoint: tenant, tenant, kind, bytes });
  pool.take(toRequest('other', 'slow', 1))?.release();
  for (let i = 0; i < 24; i++) pool.take(toRequest('many', 'slow', MIB));
  for (let i = 0; i < 100; i++) pool.wait(toRequest('many', 'slow', MIB), 60_000);
  const small = toRequest('other', 'slow', 1_000);
  expect(pool.isCrowded(small)).toBe(false);
  await expect(pool.wait(small, 60_000).granted).resolves.toBeDefined();
  // Neither do its fast attempts, once they are old.
  for (let i = 0; i < 2; i++) expect(pool.take(toRequest('many', 'proven', MIB))).toBeDefined();
  await clock.advance(1_000);
  expect(pool.take(toRequest('other', 'proven', 1_000))).toBeDefined();
});

/** As with 96 MiB: 72 slow slots for slow and failing endpoints, and 24 more for attempts that become slow. */
function openSmallPool() {
  const { clock, pool, budget } = openPool(64, 160);
  const toRequest = (tenant: string, kind: SlotKind, isWell = false) =>
    ({ endpoint: tenant, tenant, kind, bytes: 1_000, isWell }) as const;
  const take = (tenant: string, kind: SlotKind, isWell?: boolean) => pool.take(toRequest(tenant, kind, isWell));
  /** Of one tenant, or of a tenant each. */
  const hold = (count: number, tenant?: string) =>
    Array.from({ length: count }, (_, i) => {
      const slot = take(tenant ?? `tenant${i}`, 'proven');
      if (slot === undefined) throw new Error(`there is no slot ${i}`);
      return slot;
    });
  hold(1)[0]?.release();
  return { clock, budget, pool, toRequest, take, hold };
}

test.each(['failing', 'slow', 'away'] as const)(
  'gives a tenant at most as many slow slots for %s endpoints as it leaves to others',
  async (kind) => {
    const { pool, toRequest, take } = openSmallPool();
    for (let i = 0; i < 100; i++) pool.wait(toRequest('many', kind));
    expect(pool.figures).toEqual({ fast: 0, slow: 36, waiting: 64 });
    expect(pool.isCrowded(toRequest('many', kind))).toBe(true);
    await expect(pool.wait(toRequest('other', kind)).granted).resolves.toBeDefined();
    for (const other of ['failing', 'slow', 'away'] as const) if (other !== kind) expect(take('other', other)).toBeDefined();
    for (let i = 0; i < 100; i++) pool.wait(toRequest('third', kind));
    expect(pool.figures.slow).toBe(36 + 3 + 17);
  },
);

test('counts attempts that became slow as slow slots of their tenant until they end', async () => {
  const { clock, pool, hold, take } = openSmallPool();
  const held = hold(64, 'many');
  await clock.advance(1_000);
  for (const slot of hold(40)) slot.release();
  expect(pool.figures).toEqual({ fast: 24, slow: 40, waiting: 0 });
  expect(take('many', 'failing')).toBeUndefined();
  for (const slot of held.slice(0, 4)) slot.release();
  expect(take('many', 'failing')).toBeUndefined();
  held[4]?.end();
  expect(take('many', 'failing')).toBeDefined();
  expect(take('many', 'failing')).toBeUndefined();
  for (const slot of held) slot.release();
  for (let i = 1; i < 36; i++) expect(take('many', 'failing'), `${i}`).toBeDefined();
  expect(take('many', 'failing')).toBeUndefined();
});

describe('a slow endpoint whose last attempt succeeded', () => {
  /** Attempts of one tenant hold as many slow slots as slow endpoints may have, and eight fast ones. */
  const openFullPool = async () => {
    const scene = openSmallPool();
    const held = scene.hold(64, 'many');
    await scene.clock.advance(1_000);
    for (const slot of scene.hold(16)) slot.release();
    held.push(...scene.hold(16, 'many'));
    await scene.clock.advance(1_000);
    for (const slot of scene.hold(56)) slot.release();
    expect(scene.pool.figures).toEqual({ fast: 8, slow: 72, waiting: 0 });
    return { ...scene, held };
  };

  test('has a fast slot while three quarters are idle and it may have no slow one, but no memory of young attempts', async () => {
    const { clock, budget, pool, toRequest, take, hold } = await openFullPool();
    const free = budget.free;
    for (const kind of ['slow', 'away', 'failing'] as const) {
      expect(take('other', kind, kind !== 'slow')).toBeUndefined();
      expect(pool.isCrowded(toRequest('other', kind))).toBe(false);
    }
    const borrowed = Array.from({ length: 8 }, () => take('other', 'slow', true));
    expect(pool.figures).toEqual({ fast: 16, slow: 72, waiting: 0 });
    expect(budget.free).toBe(free + 8_000);
    expect(take('other', 'slow', true)).toBeUndefined();
    // The others are for others. It takes none of the slow ones that these need once they are old.
    hold(48);
    await clock.advance(1_000);
    for (let i = 0; i < 8; i++) expect(take(`late${i}`, 'proven'), `${i}`).toBeDefined();
    expect(pool.figures).toEqual({ fast: 64, slow: 80, waiting: 0 });
    for (const slot of borrowed) slot?.end();
    expect(pool.figures).toEqual({ fast: 56, slow: 80, waiting: 0 });
  });

  test('leaves the fast slot to the first that needs it, once a slow one is free', async () => {
    const { budget, pool, held, take, hold } = await openFullPool();
    const borrowed = take('other', 'slow', true);
    const young = hold(55);
    for (const slot of held.slice(0, 4)) slot.release();
    expect(pool.figures).toEqual({ fast: 64, slow: 68, waiting: 0 });
    const free = budget.free;
    const next = take('next', 'proven');
    expect(next).toBeDefined();
    expect(pool.figures).toEqual({ fast: 64, slow: 69, waiting: 0 });
    expect(budget.free, 'its bytes are those of a slow attempt all the time').toBe(free);
    for (const slot of [borrowed, next, ...young, ...held]) slot?.release();
    expect(pool.figures).toEqual({ fast: 0, slow: 0, waiting: 0 });
    // Those of the fast ones: the test reserved none.
    expect(budget.free).toBe(free + 64_000);
    expect(take('many', 'failing')).toBeDefined();
  });

  test('has none of fewer than four', () => {
    const { pool } = openPool(3, 7);
    const take = () => pool.take({ endpoint: 'a', kind: 'slow', bytes: 1_000, isWell: true });
    for (let i = 0; i < 3; i++) expect(take()).toBeDefined();
    expect(take()).toBeUndefined();
  });
});
