import { describe, expect, test } from 'vitest';
import { parseProxyHeader } from '../../../../src/http/server/client-address.ts';
import { fc } from '../../../support/property.ts';
import { toV2 } from '../../../support/proxy-protocol.ts';

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
