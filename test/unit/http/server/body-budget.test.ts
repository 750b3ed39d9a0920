import { describe, expect, test } from 'vitest';
import { BodyBudget, type BodyState, type BudgetedBody } from '../../../../src/http/server/memory-guard.ts';

const KIB = 1_024;

class Body implements BudgetedBody {
  held = 0;
  state: BodyState = 'small';
  readonly network: string;
  readonly startedAt: number;
  readonly route: string | undefined;

  constructor(network = '192.0.2.1', startedAt = 0, route?: string) {
    this.network = network;
    this.startedAt = startedAt;
    this.route = route;
  }
}

const create = (maxBufferedBytes = 1_000 * KIB, maxLargeBodies = 2): BodyBudget =>
  new BodyBudget({ maxBufferedBytes, maxLargeBodies });

describe('a budget', () => {
  test('counts the bytes that bodies hold, until they are released', () => {
    const budget = create(1_000);
    const [a, b] = [new Body(), new Body()];
    expect([budget.take(a, 600), budget.take(b, 401), budget.take(b, 400)]).toEqual([true, false, true]);
    expect(budget.held).toBe(1_000);
    budget.release(a);
    expect([budget.held, a.held]).toEqual([400, 0]);
    expect(budget.take(b, 300)).toBe(true);
    expect(b.held).toBe(400);
  });

  test('gives waiting requests an eighth, as long as bodies leave it', () => {
    const budget = create(800);
    expect([budget.takeForWaiting(100), budget.takeForWaiting(1), budget.held]).toEqual([true, false, 100]);
    expect([budget.take(new Body(), 701), budget.take(new Body(), 700)]).toEqual([false, true]);
    budget.releaseWaiting(100);
    expect([budget.held, budget.takeForWaiting(100)]).toEqual([700, true]);
  });

  test('gives waiting requests nothing that bodies hold', () => {
    const budget = create(800);
    expect([budget.take(new Body(), 750), budget.takeForWaiting(51), budget.takeForWaiting(50)]).toEqual([true, false, true]);
  });

  test('limits how many large bodies are read at once', () => {
    const budget = create();
    const bodies = [new Body(), new Body(), new Body()];
    expect(bodies.map((body) => budget.takeLarge(body, 100 * KIB))).toEqual([true, true, false]);
    budget.finish(bodies[0] as Body, 100 * KIB);
    expect(budget.takeLarge(bodies[2] as Body, 100 * KIB)).toBe(true);
    expect(budget.held).toBe(300 * KIB);
  });

  test('reserves a quarter for small bodies, unless there is only one large body', () => {
    const budget = create();
    const [a, b, small] = [new Body(), new Body(), new Body()];
    expect([budget.takeLarge(a, 700 * KIB), budget.takeLarge(b, 100 * KIB)]).toEqual([true, false]);
    expect(budget.take(small, 64 * KIB)).toBe(true);
    budget.release(a);
    expect(budget.takeLarge(b, 900 * KIB)).toBe(true);
  });

  test('counts the bytes of a large body until it is released, but its slot only until it is read', () => {
    const budget = create();
    const [a, b] = [new Body(), new Body()];
    budget.takeLarge(a, 700 * KIB);
    budget.finish(a, 600 * KIB);
    expect(budget.held).toBe(600 * KIB);
    expect([budget.takeLarge(b, 200 * KIB), budget.takeLarge(b, 100 * KIB)]).toEqual([false, true]);
    budget.release(a);
    budget.release(b);
    expect(budget.held).toBe(0);
    expect(budget.takeLarge(a, 1_000 * KIB)).toBe(true);
  });
});

describe('the evicted body', () => {
  test('is the oldest of the client that holds most', () => {
    const budget = create(1_600);
    const heavy = [new Body('192.0.2.1', 5), new Body('192.0.2.1', 3), new Body('192.0.2.1', 4)];
    const light = new Body('192.0.2.2', 1);
    for (const body of [...heavy, light]) budget.take(body, 200);
    expect(budget.pickVictims([...heavy, light], 1, 10)).toEqual([heavy[1]]);
    expect(budget.pickVictims([...heavy, light], 300, 10)).toEqual([heavy[1], heavy[2]]);
  });

  test('is also that of the next clients if memory is missing: one client can have many networks, which count together', () => {
    const budget = create(1_600);
    const site = Array.from({ length: 6 }, (_, i) => new Body(`2001:db8:0:${i}`, 8 - i));
    const light = new Body('192.0.2.1', 1);
    for (const body of site) budget.take(body, 200);
    budget.take(light, 220);
    const bodies = [light, ...site];
    expect(budget.pickVictims(bodies, 100, 10)).toEqual([light]);
    // 1,420 of 1,600 are held.
    const pick = (bytes: number) => budget.pickVictims(bodies, bytes, 10, budget.findMissing(new Body('192.0.2.9', 9), bytes));
    expect([pick(180), pick(400), pick(700)]).toEqual([[light], [light], [light, site[5], site[4]]]);
  });

  test('is none that holds nothing or is too young', () => {
    const budget = create(1_600);
    const [idle, young] = [new Body('192.0.2.1', 0), new Body('192.0.2.2', 9)];
    budget.take(young, 300);
    expect(budget.pickVictims([idle, young], 1, 8)).toEqual([]);
    expect(budget.pickVictims([], 1, 10)).toEqual([]);
  });
});

describe('a route', () => {
  const make = (count: number, route: string): Body[] =>
    Array.from({ length: count }, (_, i) => new Body(`192.0.2.${i}`, 0, route));

  test('leaves memory for the large and small bodies of others, as its app may hang', () => {
    const budget = create(1_000 * KIB, 64);
    const read = (body: Body, bytes: number): boolean => {
      const isTaken = bytes > 64 * KIB ? budget.takeLarge(body, bytes) : budget.take(body, bytes);
      if (isTaken) budget.finish(body, bytes);
      return isTaken;
    };
    const large = make(20, 'a').filter((body) => read(body, 100 * KIB));
    expect(large).toHaveLength(5);
    const other = new Body('192.0.2.99', 0, 'b');
    expect(read(other, 200 * KIB)).toBe(true);
    budget.release(other);
    expect(make(20, 'a').filter((body) => read(body, 50 * KIB))).toHaveLength(5);
    expect(read(other, 200 * KIB)).toBe(true);
    budget.release(other);
    for (const body of large) budget.release(body);
    expect(make(20, 'a').filter((body) => read(body, 50 * KIB))).toHaveLength(10);
  });

  test('leaves slots for the large bodies of others, and may use all memory for one', () => {
    const budget = create(10_000 * KIB, 4);
    expect(make(20, 'a').filter((body) => budget.takeLarge(body, 100 * KIB))).toHaveLength(3);
    expect(budget.takeLarge(new Body('192.0.2.99', 0, 'b'), 100 * KIB)).toBe(true);
    expect(create().takeLarge(new Body('192.0.2.1', 0, 'a'), 1_000 * KIB)).toBe(true);
  });
});
