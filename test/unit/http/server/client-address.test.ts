import { describe, expect, test } from 'vitest';
import { HeaderFields } from '../../../../src/core/head.ts';
import { createClientResolver, parseProxyHeader } from '../../../../src/http/server/client-address.ts';
import { fc } from '../../../support/property.ts';
import { toV2 } from '../../../support/proxy-protocol.ts';

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

describe('the PROXY protocol', () => {
  const read = (text: string): ReturnType<typeof parseProxyHeader> => parseProxyHeader(Buffer.from(text, 'latin1'));

  describe('version 1', () => {
    test.each([
      ['PROXY TCP4 192.0.2.7 10.0.0.1 56324 443\r\n', '192.0.2.7'],
      ['PROXY TCP6 2001:db8::7 2001:db8::1 56324 443\r\n', '2001:db8::7'],
      ['PROXY TCP4 192.0.2.7 10.0.0.1 65535 65535\r\n', '192.0.2.7'],
      ['PROXY UNKNOWN\r\n', undefined],
      [`${'PROXY UNKNOWN '.padEnd(105, 'a')}\r\n`, undefined],
      ['PROXY UNKNOWN ffff::1 ffff::2 65535 65535\r\n', undefined],
    ])('%j reports its client', (line, source) => {
      expect(read(`${line}GET / HTTP/1.1`)).toEqual({ kind: 'parsed', source, length: line.length });
    });

    test.each([
      ['no line at all', 'GET / HTTP/1.1\r\n'],
      ['an address of the other family', 'PROXY TCP4 2001:db8::7 10.0.0.1 1 2\r\n'],
      ['a bad destination', 'PROXY TCP4 192.0.2.7 nowhere 1 2\r\n'],
      ['an octet above 255', 'PROXY TCP4 192.0.2.256 10.0.0.1 1 2\r\n'],
      ['a port above 65535', 'PROXY TCP4 192.0.2.7 10.0.0.1 65536 2\r\n'],
      ['a missing port', 'PROXY TCP4 192.0.2.7 10.0.0.1 1\r\n'],
      ['two spaces', 'PROXY  TCP4 192.0.2.7 10.0.0.1 1 2\r\n'],
      ['a lower-case word', 'proxy TCP4 192.0.2.7 10.0.0.1 1 2\r\n'],
      ['another protocol', 'PROXY UDP4 192.0.2.7 10.0.0.1 1 2\r\n'],
      ['a line that never ends', `PROXY UNKNOWN ${'a'.repeat(120)}`],
      ['a line of 107 bytes without its end', 'PROXY UNKNOWN '.padEnd(107, 'a')],
      ['a line of 108 bytes', `${'PROXY UNKNOWN '.padEnd(106, 'a')}\r\n`],
    ])('rejects %s', (_what, text) => {
      expect(read(text).kind).toBe('invalid');
    });
  });

  describe('version 2', () => {
    test.each([
      ['of IPv4', toV2({ source: '192.0.2.7' }), '192.0.2.7'],
      ['of IPv6', toV2({ source: '2001:db8:0:0:0:0:0:7' }), '2001:db8:0:0:0:0:0:7'],
      ['with more behind the addresses', toV2({ source: '192.0.2.7', more: Buffer.alloc(40, 1) }), '192.0.2.7'],
      ['of 4,096 bytes', toV2({ source: '192.0.2.7', more: Buffer.alloc(4_096 - 28) }), '192.0.2.7'],
      ['of the balancer itself', toV2({ source: '192.0.2.7', command: 0x20 }), undefined],
      ['of no family', toV2({ family: 0x00 }), undefined],
    ])('%s reports its client', (_what, bytes, source) => {
      expect(parseProxyHeader(Buffer.concat([bytes, Buffer.from('GET')]))).toEqual({
        kind: 'parsed',
        source,
        length: bytes.length,
      });
    });

    test.each([
      ['another version', toV2({ source: '192.0.2.7', command: 0x31 })],
      ['an unknown command', toV2({ source: '192.0.2.7', command: 0x22 })],
      ['datagrams', toV2({ source: '192.0.2.7', family: 0x12 })],
      ['a local socket', toV2({ family: 0x31, more: Buffer.alloc(216) })],
      ['fewer bytes than its addresses', toV2({ family: 0x11, more: Buffer.alloc(8) })],
      ['4,097 bytes', toV2({ source: '192.0.2.7', more: Buffer.alloc(4_097 - 28) })],
      ['more bytes than anybody sends', toV2({ source: '192.0.2.7', more: Buffer.alloc(5_000) })],
    ])('rejects %s', (_what, bytes) => {
      expect(parseProxyHeader(bytes).kind).toBe('invalid');
    });
  });

  test('is incomplete for every prefix of a valid header, and gives the same result whatever follows it', () => {
    const headers = [Buffer.from('PROXY TCP4 192.0.2.7 10.0.0.1 56324 443\r\n'), toV2({ source: '192.0.2.7' })];
    fc.assert(
      fc.property(fc.constantFrom(...headers), fc.nat(), fc.uint8Array({ maxLength: 64 }), (header, at, rest) => {
        const part = header.subarray(0, at % header.length);
        expect(parseProxyHeader(part).kind).toBe('incomplete');
        expect(parseProxyHeader(Buffer.concat([header, rest]))).toMatchObject({ source: '192.0.2.7', length: header.length });
      }),
    );
  });

  test('never throws, whatever the bytes', () => {
    const start = Buffer.from('\r\n\r\n\0\r\nQUIT\n', 'latin1');
    fc.assert(
      fc.property(fc.boolean(), fc.uint8Array({ maxLength: 400 }), (isV2, rest) => {
        const bytes = isV2 ? Buffer.concat([start, rest]) : Buffer.from(rest);
        expect(['incomplete', 'invalid', 'parsed']).toContain(parseProxyHeader(bytes).kind);
      }),
    );
  });
});
