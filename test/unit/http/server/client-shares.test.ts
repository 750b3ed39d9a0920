import { expect, it } from 'vitest';
import { KEPT_CLIENTS } from '../../../../src/core/client-network.ts';
import { IpRanges } from '../../../../src/core/ip-address.ts';
import { ClientShares } from '../../../../src/http/server/client-shares.ts';

const LIMITS = { maxRequestsPerClient: 2, maxUpgraded: 3, maxUpgradedPerClient: 1 };

it('gives each of many clients its own share, however often they come and go', () => {
  const shares = new ClientShares(LIMITS, new IpRanges([]), () => undefined);
  const addresses = Array.from({ length: 2 * KEPT_CLIENTS }, (_, i) => `10.0.${i >> 8}.${i & 255}`);
  for (let round = 0; round < 3; round++) {
    const ends = addresses.flatMap((address) => [shares.enter(address, false), shares.enter(address, false)]);
    expect(ends.every((end) => end !== undefined)).toBe(true);
    for (const address of addresses) expect(shares.enter(address, false)).toBeUndefined();
    for (const end of ends) end?.();
  }
});

it('gives a client no further upgraded connection while it has more than are free', () => {
  const shares = new ClientShares(
    { maxRequestsPerClient: 512, maxUpgraded: 512, maxUpgradedPerClient: 256 },
    new IpRanges([]),
    () => undefined,
  );
  const take = (address: string): number => {
    let count = 0;
    while (shares.enter(address, true) !== undefined) count++;
    return count;
  };
  expect(Array.from({ length: 5 }, (_, i) => take(`192.0.${i}.1`))).toEqual([256, 129, 64, 32, 16]);
});

it('counts the upgraded connections of a client that has no other request', () => {
  const shares = new ClientShares(LIMITS, new IpRanges([]), () => undefined);
  const end = shares.enter('192.0.2.1', true);
  expect(shares.enter('192.0.2.1', true)).toBeUndefined();
  end?.();
  expect(shares.enter('192.0.2.1', true)).toBeDefined();
});
