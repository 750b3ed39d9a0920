import { BlockList, isIP, isIPv6 } from 'node:net';
import { describe, expect, test } from 'vitest';
import { findEmbeddedIpv4, IpRanges, isIpRange, isLoopbackIp, normalizeIp } from '../../../src/core/ip-address.ts';
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
