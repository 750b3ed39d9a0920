import { describe, expect, test } from 'vitest';
import { isNat64Prefix, Nat64Prefixes, normalizeIp } from '../../../src/core/ip-address.ts';
import { fc } from '../../support/property.ts';

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
