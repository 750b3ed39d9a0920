/** The header of the PROXY protocol. */
import { isIPv4, isIPv6 } from 'node:net';
import { parseProxyHeader } from '../../../src/http/server/client-address.ts';
import { toV2 } from '../../support/proxy-protocol.ts';
import type { Target } from '../guided.ts';
import { expectEqual } from './expect-equal.ts';

const V1 = 'PROXY TCP4 192.0.2.7 10.0.0.1 56324 443\r\n';
const V1_IPV6 = 'PROXY TCP6 2001:db8::7 2001:db8::1 56324 443\r\n';
const MAX_HEADER = 4_096;
const V2_HEAD = 16;

/** Reads the source again, by other means; undefined for a balancer that speaks for itself. */
function readSource(header: Buffer): string | undefined {
  if (header[0] === 0x50) {
    const [, family = '', source = ''] = header.toString('latin1').split(' ');
    return family.startsWith('TCP') ? source : undefined;
  }
  const family = header.readUInt8(13);
  if (header.readUInt8(12) === 0x20 || family === 0) return undefined;
  const [size, isAddress] = family === 0x11 ? [4, isIPv4] : [16, isIPv6];
  const { source = '' } = parsed(header);
  if (!isAddress(source)) throw new Error(`${source} is not an address of family ${family}`);
  expectEqual('the address', toV2({ source }).subarray(V2_HEAD, V2_HEAD + size), header.subarray(V2_HEAD, V2_HEAD + size));
  return source;
}

function parsed(bytes: Buffer): { readonly source: string | undefined; readonly length: number } {
  const result = parseProxyHeader(bytes);
  if (result.kind !== 'parsed') throw new Error(`parsed once, and then ${result.kind}`);
  return result;
}

/** A header is read once it is complete, and never before; what follows it changes nothing. */
export const PROXY_HEADER: Target = {
  name: 'proxy-header',
  seeds: [
    ...[V1, V1_IPV6, 'PROXY UNKNOWN\r\n', 'PROXY UNKNOWN ffff::1 ffff::2 65535 65535\r\n'].map((line) => Buffer.from(line)),
    toV2({ source: '192.0.2.7' }),
    toV2({ source: '2001:db8:0:0:0:0:0:7', more: Buffer.alloc(7) }),
    toV2({ command: 0x20, family: 0 }),
  ],
  pieces: [
    'PROXY ',
    'TCP4 ',
    'TCP6 ',
    'UNKNOWN',
    '\r\n',
    '\n',
    ' ',
    '::',
    '255',
    '\r\n\r\n\0\r\nQUIT\n',
    '\x21\x11\0\x0c',
    '\x20\0\0\0',
  ],
  maxBytes: MAX_HEADER + 64,
  check(input) {
    const result = parseProxyHeader(input);
    if (result.kind === 'incomplete' && input.length >= MAX_HEADER) throw new Error('incomplete at its maximum length');
    const longer = Buffer.concat([input, Buffer.from('\r\nGET / HTTP/1.1\r\n')]);
    if (result.kind === 'invalid') expectEqual('with more bytes', parseProxyHeader(longer), result);
    if (result.kind !== 'parsed') return;
    expectEqual('with more bytes', parseProxyHeader(longer), result);
    const header = input.subarray(0, result.length);
    expectEqual('without the bytes that follow', parsed(header), result);
    expectEqual('the source', readSource(header), result.source);
    for (const part of [header.subarray(0, -1), header.subarray(0, result.length >> 1)])
      expectEqual('a part', parseProxyHeader(part), { kind: 'incomplete' });
  },
};
