import { describe, expect, test } from 'vitest';
import { toClientNetwork, toSite } from '../../../src/core/ip-address.ts';

describe('toClientNetwork', () => {
  test.each([
    ['192.0.2.7', '192.0.2.7'],
    ['::ffff:192.0.2.7', '192.0.2.7'],
    ['::FFFF:c000:207', '192.0.2.7'],
    ['0:0:0:0:0:ffff:c000:0207', '192.0.2.7'],
    ['2001:db8:1:2:3:4:5:6', '2001:db8:1:2'],
    ['2001:0DB8:0001:0002::9', '2001:db8:1:2'],
    ['2001:db8::', '2001:db8:0:0'],
    ['::1', '0:0:0:0'],
    ['fe80::1%eth0', 'fe80:0:0:0'],
    ['64:ff9b::192.0.2.7', '192.0.2.7'],
    ['64:FF9B:0::c000:207', '192.0.2.7'],
    ['64:ff9b::', '0.0.0.0'],
    ['64:ff9b:0:0:1::192.0.2.7', '64:ff9b:0:0'],
    ['64:ff9b:1::192.0.2.7', '64:ff9b:1:0:0:0:c000:207'],
    ['64:ff9b:1:c000:2:700::', '64:ff9b:1:c000:2:700:0:0'],
    ['64:ff9b:10::192.0.2.7', '64:ff9b:10:0'],
    ['::ffff:0:192.0.2.7', '192.0.2.7'],
    ['2002:c000:207:1::1', '192.0.2.7'],
    ['2001:0:c000:201::3fff:fdf8', '192.0.2.7'],
    ['::', '0:0:0:0'],
    ['unknown', 'unknown'],
    ['not:an:address', 'not:an:address'],
  ])('maps %s to the network %s', (address, network) => {
    expect(toClientNetwork(address)).toBe(network);
  });

  test('maps every address of a /64 to the same network, and the next /64 to another', () => {
    expect(toClientNetwork('2001:db8:1:2::1')).toBe(toClientNetwork('2001:db8:1:2:ffff:ffff:ffff:ffff'));
    expect(toClientNetwork('2001:db8:1:3::1')).not.toBe(toClientNetwork('2001:db8:1:2::1'));
  });
});

test.each([
  ['2001:db8:1:2::1', '2001:db8:1'],
  ['192.0.2.7', '192.0.2.7'],
  ['64:ff9b::192.0.2.7', '192.0.2.7'],
  ['64:ff9b:1::192.0.2.7', '64:ff9b:1:0:0:0:c000:207'],
  ['unknown', 'unknown'],
])('maps %s to the site %s', (address, site) => {
  expect(toSite(toClientNetwork(address))).toBe(site);
});
