import { expect, test } from 'vitest';
import type { Endpoint } from '../../../../src/provider/endpoints/endpoint.ts';
import { findReady, toMemoryShares } from '../../../../src/provider/runtime/provider.ts';

test('finds the endpoints whose rate limit was raised or removed, that were enabled or have another receiver, and no others', () => {
  const toEndpoints = (settings: Readonly<Record<string, Partial<Endpoint>>>) =>
    Object.entries(settings).map(([id, over]) => ({ url: 'https://a.example', enabledAt: 0, id, ...over }) as Endpoint);
  const toMap = (endpoints: readonly Endpoint[]) => new Map(endpoints.map((endpoint) => [endpoint.id, endpoint]));
  const limits = {
    raised: { rateLimit: 1 },
    removed: { rateLimit: 1 },
    lowered: { rateLimit: 2 },
    same: { rateLimit: 3 },
    set: {},
  };
  const before = toEndpoints({ ...limits, moved: {}, enabled: { enabledAt: 1 }, renamed: { tenant: 'a' }, retried: {} });
  const after = toEndpoints({
    ...{ raised: { rateLimit: 1.5 }, removed: {}, lowered: { rateLimit: 1 }, same: { rateLimit: 3 }, set: { rateLimit: 4 } },
    ...{ moved: { url: 'https://b.example' }, enabled: { enabledAt: 2 }, renamed: { tenant: 'b' }, retried: { schedule: [1] } },
    new: { rateLimit: 1 },
  });
  expect(findReady(new Map(), before)).toEqual([]);
  expect(findReady(toMap(before), after)).toEqual(['raised', 'removed', 'moved', 'enabled', 'renamed']);
  expect(findReady(toMap(after), after)).toEqual([]);
  expect(findReady(toMap(after), [])).toEqual([]);
});

const MIB = 1024 * 1024;

test('leaves most of a small container to copies and garbage', () => {
  expect(toMemoryShares(128 * MIB)).toEqual({ accepting: 2.5 * MIB, storing: 2.5 * MIB, waiting: 5 * MIB, slow: 10 * MIB });
});

test('gives nothing that the process itself needs', () => {
  expect(toMemoryShares(64 * MIB)).toEqual({ accepting: 0, storing: 0, waiting: 0, slow: 0 });
});

test.each([undefined, 4_096 * MIB])('has an upper bound with a limit of %s', (limit) => {
  expect(toMemoryShares(limit)).toEqual({ accepting: 16 * MIB, storing: 8 * MIB, waiting: 32 * MIB, slow: 64 * MIB });
});

test('grows with the limit, and never exceeds it with the copies that were measured', () => {
  let last = toMemoryShares(0);
  for (let limit = 0; limit <= 1_024; limit += 8) {
    const shares = toMemoryShares(limit * MIB);
    for (const part of ['accepting', 'storing', 'waiting', 'slow'] as const)
      expect(shares[part]).toBeGreaterThanOrEqual(last[part]);
    const { accepting, storing, waiting, slow } = shares;
    expect(Math.min(88 * MIB, limit * MIB) + 2 * accepting + 6 * storing + waiting + slow).toBeLessThanOrEqual(limit * MIB);
    last = shares;
  }
});
