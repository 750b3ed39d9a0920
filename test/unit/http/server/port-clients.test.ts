import { describe, expect, it, test } from 'vitest';
import { KEPT_CLIENTS } from '../../../../src/core/collections.ts';
import { TLS_CONNECTION_BYTES } from '../../../../src/http/server/limits.ts';
import { ClientShares, toFittingLimits, toKeptConnections } from '../../../../src/http/server/port-clients.ts';

const MIB = 1024 * 1024;

test.each([
  ['48 MiB of heap, one port', 48, {}, {}, 384],
  ['48 MiB, three ports', 48, { ports: 3 }, {}, 128],
  ['96 MiB, one port', 96, {}, {}, 768],
  ['96 MiB and larger heads', 96, {}, { maxHeaderBytes: 65_536 }, 192],
  ['little heap', 8, { ports: 3 }, {}, 64],
  ['little heap, and a lower limit', 8, { ports: 3 }, { maxConnections: 10 }, 10],
  ['enough heap', 2_048, { ports: 3 }, {}, 1_024],
])('the heads of all connections of a port fit in the heap: %s', (_name, heap, over, more, expected) => {
  const limits = {
    maxHeaderBytes: 16_384,
    maxConnections: 1_024,
    maxConnectionsPerClient: 512,
    maxRequestsPerClient: 512,
    maxUpgraded: 512,
    maxUpgradedPerClient: 256,
    sendTimeout: 30_000,
    ...more,
  };
  const fitting = toFittingLimits(limits, { ports: 1, ...over }, heap * MIB);
  expect(fitting.maxConnections).toBe(expected);
  // Below the configured ones, one client cannot have all connections, also behind a proxy, and upgrades leave half of them.
  const { maxConnectionsPerClient, maxRequestsPerClient, maxUpgraded, maxUpgradedPerClient } = fitting;
  const [half, quarter] = expected < limits.maxConnections ? [expected / 2, expected / 4] : [512, 256];
  expect([maxConnectionsPerClient, maxRequestsPerClient, maxUpgraded, maxUpgradedPerClient]).toEqual([half, half, half, quarter]);
});

test.each([
  [1_024, {}, [512, 256]],
  [256, {}, [128, 64]],
  [10, {}, [5, 3]],
  [256, { maxUpgraded: 200, maxUpgradedPerClient: 100 }, [200, 100]],
])('of %i connections, with %o, %o can be upgraded in all and by one client', (maxConnections, more, expected) => {
  const perClient = { maxConnectionsPerClient: 512, maxRequestsPerClient: 512 };
  const limits = { maxHeaderBytes: 16_384, maxConnections, ...perClient, sendTimeout: 1, ...more };
  const { maxUpgraded, maxUpgradedPerClient } = toFittingLimits(limits, { ports: 1 }, 2_048 * MIB);
  expect([maxUpgraded, maxUpgradedPerClient]).toEqual(expected);
});

test('a client that may have all connections still may have all that fit', () => {
  const limits = {
    maxHeaderBytes: 16_384,
    maxConnections: 1_024,
    maxConnectionsPerClient: 1_024,
    maxRequestsPerClient: 1_024,
    sendTimeout: 1,
  };
  const fitting = toFittingLimits({ ...limits, maxUpgraded: 0, maxUpgradedPerClient: 0 }, { ports: 1 }, 48 * MIB);
  expect([fitting.maxConnections, fitting.maxConnectionsPerClient, fitting.maxUpgraded]).toEqual([384, 384, 0]);
  expect(fitting.maxRequestsPerClient).toBe(384);
});

describe('the connections that a worker keeps while memory is tight', () => {
  test.each([
    [undefined, 1_024],
    [1_024, 1_024],
    [192, 544],
    [96, 160],
    [32, 64],
  ])('follow a container limit of %s MiB with TLS', (limit, kept) => {
    expect(toKeptConnections(true, { limit: limit === undefined ? undefined : limit * MIB, workers: 1, ports: 1 })).toBe(kept);
  });

  test.each([2, 3, 4])('are a part of those of the process if it has %i workers', (workers) => {
    const limit = 256 * MIB;
    expect(toKeptConnections(true, { limit: undefined, workers, ports: 1 })).toBe(Math.ceil(1_024 / workers));
    expect(toKeptConnections(false, { limit, workers, ports: 1 })).toBe(Math.ceil(1_024 / workers));
    const all = toKeptConnections(true, { limit, workers, ports: 1 }) * workers;
    // Each worker after the first needs 32 MiB, and the process 56 MiB.
    const free = limit - 56 * MIB - (workers - 1) * 32 * MIB;
    expect(all * TLS_CONNECTION_BYTES).toBeLessThanOrEqual(free / 4 + workers * TLS_CONNECTION_BYTES);
    expect(all * TLS_CONNECTION_BYTES).toBeGreaterThan(free / 4 - TLS_CONNECTION_BYTES);
  });

  test('are a part of those of the process on each of its ports', () => {
    expect(toKeptConnections(false, { limit: 96 * MIB, workers: 2, ports: 4 })).toBe(128);
    expect(toKeptConnections(true, { limit: 96 * MIB, workers: 1, ports: 2 })).toBe(80);
  });
});

const LIMITS = { maxRequestsPerClient: 2, maxUpgraded: 3, maxUpgradedPerClient: 1 };

it('gives each of many clients its own share, however often they come and go', () => {
  const shares = new ClientShares(LIMITS, () => undefined);
  const addresses = Array.from({ length: 2 * KEPT_CLIENTS }, (_, i) => `10.0.${i >> 8}.${i & 255}`);
  for (let round = 0; round < 3; round++) {
    const ends = addresses.flatMap((address) => [shares.enter(address, false), shares.enter(address, false)]);
    expect(ends.every((end) => end !== undefined)).toBe(true);
    for (const address of addresses) expect(shares.enter(address, false)).toBeUndefined();
    for (const end of ends) end?.();
  }
});

it('gives a client no further upgraded connection while it has more than are free', () => {
  const shares = new ClientShares({ maxRequestsPerClient: 512, maxUpgraded: 512, maxUpgradedPerClient: 256 }, () => undefined);
  const take = (address: string): number => {
    let count = 0;
    while (shares.enter(address, true) !== undefined) count++;
    return count;
  };
  expect(Array.from({ length: 5 }, (_, i) => take(`192.0.${i}.1`))).toEqual([256, 129, 64, 32, 16]);
});

it('counts the upgraded connections of a client that has no other request', () => {
  const shares = new ClientShares(LIMITS, () => undefined);
  const end = shares.enter('192.0.2.1', true);
  expect(shares.enter('192.0.2.1', true)).toBeUndefined();
  end?.();
  expect(shares.enter('192.0.2.1', true)).toBeDefined();
});

it('counts no requests of peers that represent many clients, but all upgraded connections', () => {
  const shares = new ClientShares(LIMITS, () => undefined);
  for (let i = 0; i < 5; i++) expect(shares.enter(undefined, false)).toBeDefined();
  const ends = Array.from({ length: 4 }, () => shares.enter(undefined, true));
  expect(ends.map((end) => end !== undefined)).toEqual([true, true, true, false]);
  ends[0]?.();
  expect(shares.enter('192.0.2.1', true)).toBeDefined();
});
