import { BlockList, isIP, isIPv6 } from 'node:net';
import { describe, expect, test } from 'vitest';
import {
  findEmbeddedIpv4,
  IpRanges,
  isIpRange,
  isLoopbackIp,
  isNat64Prefix,
  Nat64Prefixes,
  normalizeIp,
  toClientNetwork,
  toSite,
} from '../../../src/core/ip-address.ts';
import { fc } from '../../support/property.ts';

describe('normalizeIp', () => {
  test.each([
    ['192.0.2.7', '192.0.2.7'],
    ['::ffff:192.0.2.7', '192.0.2.7'],
    ['::FFFF:192.0.2.7', '192.0.2.7'],
    ['[::ffff:c000:207]', '192.0.2.7'],
    ['0:0:0:0:0:ffff:c000:0207', '192.0.2.7'],
    ['2001:0DB8:0000::0007', '2001:db8::7'],
    ['[2001:db8::7]', '2001:db8::7'],
    ['fe80::1%eth0', 'fe80::1'],
    ['[fe80::1%25eth0]', 'fe80::1'],
    ['::', '::'],
    ['::1', '::1'],
    ['0:0:0:0:0:0:0:1', '::1'],
    ['::192.0.2.7', '::c000:207'],
    ['64:ff9b::192.0.2.7', '64:ff9b::c000:207'],
    ['1:0:0:2:0:0:0:3', '1:0:0:2::3'],
    ['1:0:0:2:3:0:0:4', '1::2:3:0:0:4'],
    ['1:0:2:3:4:5:6:7', '1:0:2:3:4:5:6:7'],
    ['1:2:3:4:5:6:7::', '1:2:3:4:5:6:7:0'],
  ])('writes %s as %s', (text, expected) => {
    expect(normalizeIp(text)).toBe(expected);
  });

  test.each([
    ...[
      '',
      'localhost',
      'unknown',
      'not:an:address',
      '[192.0.2.7]',
      '[::1',
      '::1]',
      '192.0.2.7:80',
      '[::1]:80',
      '::ffff:localhost',
    ],
    ...['127.1', '0177.0.0.1', '010.0.0.1', '0x7f.0.0.1', '2130706433', '192.0.2.256', '192.0.2.7 ', ' ::1', '::1\n', '1::2::3'],
    ...['::ffff:192.0.2.256', '12345::', '1:2:3:4:5:6:7:8:9', '::1/128', '%eth0', ':%'],
  ])('rejects %j', (text) => {
    expect(normalizeIp(text)).toBeUndefined();
  });

  test('keeps the address: a set of one notation contains the other', () => {
    fc.assert(
      fc.property(fc.oneof(fc.ipV4(), fc.ipV6()), (text) => {
        const ip = normalizeIp(text) ?? '';
        expect(new IpRanges([ip]).has(text)).toBe(true);
        expect(new IpRanges([text]).has(ip)).toBe(true);
      }),
    );
  });

  test('returns only addresses, each unchanged when it is normalized again', () => {
    let returned = 0;
    fc.assert(
      fc.property(fc.oneof(fc.ipV4(), fc.ipV6(), fc.string({ unit: fc.constantFrom(...'0f1:.%[]/') })), (text) => {
        const ip = normalizeIp(text);
        if (ip === undefined) return;
        returned++;
        expect(isIP(ip)).not.toBe(0);
        expect(normalizeIp(ip)).toBe(ip);
      }),
    );
    expect(returned).toBeGreaterThan(0);
  });
});

test.each([
  ['127.0.0.1', true],
  ['127.255.1.2', true],
  ['::1', true],
  ['[0:0::1]', true],
  ['::ffff:127.0.0.1', true],
  ['::ffff:7f00:1', true],
  ['128.0.0.1', false],
  ['::127.0.0.1', false],
  ['::2', false],
  ['0.0.0.0', false],
  ['127.evil.example', false],
  ['127.1', false],
  ['localhost', false],
  ['', false],
])('isLoopbackIp(%j) is %s', (text, expected) => {
  expect(isLoopbackIp(text)).toBe(expected);
});

describe('IpRanges', () => {
  const ranges = new IpRanges(['10.0.0.0/8', '192.0.2.7', '2001:db8::/32', 'fd00::1']);

  test.each([
    ['10.255.0.1', true],
    ['::ffff:10.1.1.1', true],
    ['0:0:0:0:0:ffff:a01:101', true],
    ['192.0.2.7', true],
    ['192.0.2.8', false],
    ['2001:DB8:ffff::1', true],
    ['fd00:0::1', true],
    ['fd00::2', false],
    ['::10.1.1.1', false],
    ['10', false],
    ['', false],
  ])('has(%j) is %s', (address, expected) => {
    expect(ranges.has(address)).toBe(expected);
  });

  test('contains nothing if it is empty', () => {
    expect(new IpRanges([]).has('127.0.0.1')).toBe(false);
  });

  test('contains an IPv4 address if a range of mapped addresses does', () => {
    expect(new IpRanges(['::ffff:10.0.0.0/104']).has('10.1.1.1')).toBe(true);
  });

  test('returns the same result for every notation of an address', () => {
    const list = new BlockList();
    list.addSubnet('8000::', 1, 'ipv6');
    const half = new IpRanges(['8000::/1']);
    fc.assert(
      fc.property(fc.ipV6(), (text) => {
        const ip = normalizeIp(text) ?? '';
        fc.pre(isIPv6(ip));
        expect(half.has(text)).toBe(list.check(ip, 'ipv6'));
        expect(half.has(ip)).toBe(half.has(text));
      }),
    );
  });

  test.each(['10.0.0.0/33', '::/129', '10.0.0.0/', '10.0.0.0/-1', '10.0.0.0/8/8', '10.0.0/8', '10.0.0.0/+8', 'a', ''])(
    'rejects the range %j',
    (text) => {
      expect(isIpRange(text)).toBe(false);
      expect(() => new IpRanges([text])).toThrow(`"${text}" is not an address range`);
    },
  );

  test.each(['0.0.0.0/0', '::/0', '192.0.2.7', '10.0.0.0/8', 'fd00::/8'])('accepts the range %s', (text) => {
    expect(isIpRange(text)).toBe(true);
  });
});

describe('findEmbeddedIpv4', () => {
  test.each([
    ['64:ff9b::7f00:1', '127.0.0.1'],
    ['64:ff9b:1::a9fe:a9fe', '169.254.169.254'],
    ['2002:7f00:1::1', '127.0.0.1'],
    ['2001:0:808:808::80ff:fffe', '127.0.0.1'],
    ['::ffff:0:c0a8:1', '192.168.0.1'],
    ['::a00:1', '10.0.0.1'],
  ])('finds it in %s', (ip, embedded) => {
    expect(findEmbeddedIpv4(ip)).toBe(embedded);
  });

  test.each(['8.8.8.8', '::', '::1', '2606:4700::1111', '64:ff9b:2::1', '2003::1', '2001:1::1', 'fd00::1', '1::ffff:0:a00:1'])(
    'finds none in %s',
    (ip) => {
      expect(findEmbeddedIpv4(ip)).toBeUndefined();
    },
  );
});

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

const toIpv4 = (ip: string, ...prefixes: string[]): string[] => new Nat64Prefixes(prefixes).toIpv4(normalizeIp(ip) ?? '');

describe('Nat64Prefixes', () => {
  // RFC 6052 §2.4.
  test.each([
    ['2001:db8::/32', '2001:db8:c000:221::'],
    ['2001:db8:100::/40', '2001:db8:1c0:2:21::'],
    ['2001:db8:122::/48', '2001:db8:122:c000:2:2100::'],
    ['2001:db8:122:300::/56', '2001:db8:122:3c0:0:221::'],
    ['2001:db8:122:344::/64', '2001:db8:122:344:c0:2:2100::'],
    ['2001:db8:122:344::/96', '2001:db8:122:344::192.0.2.33'],
    ['64:ff9b::/96', '64:ff9b::192.0.2.33'],
  ])('finds the address of the examples in RFC 6052 with the prefix %s', (prefix, ip) => {
    expect(toIpv4(ip, prefix)).toEqual(['192.0.2.33']);
  });

  test('ignores the reserved bits and what follows the IPv4 address, as translators do', () => {
    expect(toIpv4('2001:db8:122:344:ffc0:2:21ff:ffff', '2001:db8:122:344::/64')).toEqual(['192.0.2.33']);
  });

  test('finds any IPv4 address behind any prefix', () => {
    fc.assert(
      fc.property(
        fc.constantFrom(32, 40, 48, 56, 64, 96),
        fc.uint8Array({ minLength: 16, maxLength: 16 }),
        fc.uint8Array({ minLength: 4, maxLength: 4 }),
        (length, prefix, ipv4) => {
          // As RFC 6052 §2.3 describes it, byte by byte.
          const bytes = new Uint8Array(16);
          bytes.set(prefix.subarray(0, length / 8));
          bytes[8] = length === 96 ? (prefix[8] ?? 0) : 0;
          let at = length / 8;
          for (const byte of ipv4) {
            if (at === 8 && length !== 96) at++;
            bytes[at++] = byte;
          }
          const groups = Array.from({ length: 8 }, (_, i) => ((bytes[2 * i] ?? 0) * 256 + (bytes[2 * i + 1] ?? 0)).toString(16));
          const ip = groups.join(':');
          const normalized = normalizeIp(ip) ?? '';
          if (!normalized.includes(':')) return;
          expect(toIpv4(ip, `${ip}/${length}`)).toEqual([ipv4.join('.')]);
        },
      ),
    );
  });

  test('finds one for each prefix that matches, and none elsewhere', () => {
    expect(toIpv4('2001:db8:a00:1::808:808', '2001:db8::/32', '2001:db8:a00:1::/96', 'fd00::/96')).toEqual([
      '10.0.0.1',
      '8.8.8.8',
    ]);
    expect(toIpv4('2001:db9::808:808', '2001:db8::/32')).toEqual([]);
    expect(toIpv4('8.8.8.8', '2001:db8::/32')).toEqual([]);
    expect(toIpv4('::ffff:8.8.8.8', '::/32')).toEqual([]);
  });
});

test.each([
  ['2001:db8::/32', true],
  ['[2001:db8::]/96', true],
  ['2001:db8::', false],
  ['2001:db8::/33', false],
  ['2001:db8::/128', false],
  ['2001:db8::/096', false],
  ['2001:db8::/96/96', false],
  ['10.0.0.0/32', false],
  ['::ffff:10.0.0.0/96', false],
  ['nat64/96', false],
  ['', false],
])('%j is a NAT64 prefix: %j', (text, expected) => {
  expect(isNat64Prefix(text)).toBe(expected);
});
