import { describe, expect, test } from 'vitest';
import { HeaderFields } from '../../../../src/core/headers.ts';
import { createClientResolver } from '../../../../src/http/server/client-address.ts';

const resolve = createClientResolver({ address: ['10.0.0.0/8', '192.0.2.7', 'fd00::/8'], identity: ['192.0.2.7'] });

function client(peer: string, forwardedFor: readonly string[] = [], proto: readonly string[] = [], isEncrypted = false): string {
  const raw = [
    ...forwardedFor.flatMap((value) => ['X-Forwarded-For', value]),
    ...proto.flatMap((value) => ['x-forwarded-proto', value]),
  ];
  const { address, scheme, viaTrustedProxy } = resolve(peer, isEncrypted, new HeaderFields(raw));
  return `${address} ${scheme} ${viaTrustedProxy}`;
}

test.each([
  ['an untrusted peer is the client, whatever it says', client('203.0.113.1', ['1.1.1.1'], ['https']), '203.0.113.1 http false'],
  ['a trusted peer is believed', client('10.1.1.1', ['1.1.1.1'], ['https']), '1.1.1.1 https true'],
  ['the nearest untrusted hop is the client', client('10.1.1.1', ['6.6.6.6, 1.1.1.1, 10.2.2.2']), '1.1.1.1 http true'],
  ['lines count as one list', client('10.1.1.1', ['6.6.6.6', '1.1.1.1', '192.0.2.7']), '1.1.1.1 http true'],
  ['only trusted hops give the farthest of them', client('10.1.1.1', ['10.3.3.3, 10.2.2.2']), '10.3.3.3 http true'],
  ['text that is not an address ends the walk', client('10.1.1.1', ['1.1.1.1, junk, 10.2.2.2']), '10.2.2.2 http true'],
  ['a port behind an address is none of it', client('10.1.1.1', ['198.51.100.7:1234, 10.2.2.2:80']), '198.51.100.7 http true'],
  ['a port behind an IPv6 address is none of it', client('10.1.1.1', ['[2001:db8::1]:1234']), '2001:db8::1 http true'],
  ['an IPv6 address without brackets has no port', client('10.1.1.1', ['2001:db8::1:80']), '2001:db8::1:80 http true'],
  ['an invalid port ends the walk', client('10.1.1.1', ['198.51.100.7:x, 10.2.2.2']), '10.2.2.2 http true'],
  ['an empty list leaves the peer', client('10.1.1.1', ['']), '10.1.1.1 http true'],
  ['IPv6 and mapped IPv4 are understood', client('::ffff:10.1.1.1', ['[2001:db8::1]']), '2001:db8::1 http true'],
  ['a trusted IPv6 range is believed', client('fd00::1', ['1.1.1.1']), '1.1.1.1 http true'],
  ['an unusual scheme is not trusted', client('10.1.1.1', [], ['gopher'], true), '10.1.1.1 https true'],
  ['the nearest proxy’s scheme counts', client('10.1.1.1', [], ['https, http']), '10.1.1.1 http true'],
])('%s', (_title, found, expected) => {
  expect(found).toBe(expected);
});

test('no proxy is trusted by default', () => {
  const { viaTrustedProxy } = createClientResolver({ address: [], identity: [] })(
    '127.0.0.1',
    false,
    new HeaderFields(['X-Forwarded-For', '1.1.1.1']),
  );
  expect(viaTrustedProxy).toBe(false);
});

test.each([
  ['192.0.2.7', true],
  ['::ffff:192.0.2.7', true],
  ['10.1.1.1', false],
  ['203.0.113.1', false],
])('trusts the peer %s for the identity of its clients: %s', (peer, expected) => {
  expect(resolve(peer, false, new HeaderFields([])).viaIdentityProxy).toBe(expected);
});

test('reads 20,000 hops in linear time', () => {
  const hops = (count: number): string => `203.0.113.9${',10.2.2.2'.repeat(count)}`;
  const before = process.cpuUsage();
  expect(client('10.1.1.1', [hops(10_000), hops(10_000)])).toBe('203.0.113.9 http true');
  expect(client('10.1.1.1', [hops(20_000)])).toBe('203.0.113.9 http true');
  const { user } = process.cpuUsage(before);
  // Microseconds: a few milliseconds in linear time, tens of seconds in quadratic time.
  expect(user).toBeLessThan(2_000_000);
});

describe('the spelling of an address', () => {
  const resolve = createClientResolver({ address: ['10.0.0.0/8'], identity: [] });

  test.each([
    ['2001:DB8:0:0::0007', '2001:db8::7'],
    ['[2001:db8:0:0:0:0:0:7]:4711', '2001:db8::7'],
    ['fe80::1%eth0', 'fe80::1'],
    ['::FFFF:192.0.2.7', '192.0.2.7'],
    ['::ffff:c000:207', '192.0.2.7'],
  ])('a client that a proxy reports as %s has the address %s', (written, address) => {
    expect(resolve('10.1.1.1', false, new HeaderFields(['X-Forwarded-For', written])).address).toBe(address);
  });

  test('a client that the PROXY protocol reports in binary form gets its normalized address', () => {
    expect(resolve('0:0:0:0:0:ffff:c000:207', false, new HeaderFields([])).address).toBe('192.0.2.7');
    expect(resolve('2001:db8:0:0:0:0:0:7', false, new HeaderFields([])).address).toBe('2001:db8::7');
  });
});
