/** Parses the header of the PROXY protocol, versions 1 and 2, by which a TCP balancer reports the address of its client. */
import { isIPv4, isIPv6 } from 'node:net';

/** The result for the bytes so far. */
export type ProxyHeaderResult =
  | { readonly kind: 'incomplete' }
  | { readonly kind: 'invalid'; readonly detail: string }
  /** `source`: the address of the client; undefined if the balancer speaks for itself (health checks). */
  | { readonly kind: 'parsed'; readonly source: string | undefined; readonly length: number };

const V1_START = Buffer.from('PROXY ');
const MAX_V1_BYTES = 107;
const V1_LINE = /^PROXY (?:(TCP4|TCP6) (\S+) (\S+) (\d{1,5}) (\d{1,5})|UNKNOWN(?: .*)?)$/;
const MAX_PORT = 65_535;
const V2_START = Buffer.from('\r\n\r\n\0\r\nQUIT\n', 'latin1');
const V2_HEAD_BYTES = 16;
/** Addresses and the TLVs that balancers add: far below the maximum of the length field. */
const MAX_V2_BYTES = 4_096;
const COMMAND = { local: 0x20, proxy: 0x21 } as const;
const FAMILY = { unspecified: 0x00, tcp4: 0x11, tcp6: 0x21 } as const;

const INCOMPLETE = { kind: 'incomplete' } as const;

/** Parses the first bytes of a connection. */
export function parseProxyHeader(bytes: Buffer): ProxyHeaderResult {
  if (startsLike(bytes, V2_START)) return bytes.length < V2_HEAD_BYTES ? INCOMPLETE : parseV2(bytes);
  if (startsLike(bytes, V1_START)) return parseV1(bytes);
  return invalid('the connection does not begin with its header');
}

function startsLike(bytes: Buffer, start: Buffer): boolean {
  const length = Math.min(bytes.length, start.length);
  return bytes.subarray(0, length).equals(start.subarray(0, length));
}

function parseV1(bytes: Buffer): ProxyHeaderResult {
  const end = bytes.subarray(0, MAX_V1_BYTES).indexOf('\r\n');
  if (end === -1) return bytes.length < MAX_V1_BYTES ? INCOMPLETE : invalid('the header line is too long');
  const match = V1_LINE.exec(bytes.toString('latin1', 0, end));
  if (match === null) return invalid('the header line is malformed');
  const length = end + 2;
  const [, family, source = '', destination = '', ...ports] = match;
  if (family === undefined) return { kind: 'parsed', source: undefined, length };
  const isAddress = family === 'TCP4' ? isIPv4 : isIPv6;
  if (!isAddress(source) || !isAddress(destination)) return invalid(`an address is not a ${family} address`);
  if (ports.some((port) => Number(port) > MAX_PORT)) return invalid(`a port is above ${MAX_PORT}`);
  return { kind: 'parsed', source, length };
}

function parseV2(bytes: Buffer): ProxyHeaderResult {
  const command = bytes.readUInt8(12);
  const family = bytes.readUInt8(13);
  const rest = bytes.readUInt16BE(14);
  const length = V2_HEAD_BYTES + rest;
  if (length > MAX_V2_BYTES) return invalid(`the header has ${length} bytes`);
  if (command !== COMMAND.local && command !== COMMAND.proxy) return invalid('the version or command is unknown');
  if (bytes.length < length) return INCOMPLETE;
  if (command === COMMAND.local || family === FAMILY.unspecified) return { kind: 'parsed', source: undefined, length };
  const addressBytes = { [FAMILY.tcp4]: 4, [FAMILY.tcp6]: 16 }[family];
  if (addressBytes === undefined) return invalid('the protocol is not TCP over IPv4 or IPv6');
  if (rest < 2 * addressBytes + 4) return invalid('the header is too short for its addresses');
  return { kind: 'parsed', source: toAddress(bytes.subarray(V2_HEAD_BYTES, V2_HEAD_BYTES + addressBytes)), length };
}

function toAddress(bytes: Buffer): string {
  if (bytes.length === 4) return bytes.join('.');
  const groups = Array.from({ length: 8 }, (_, index) => bytes.readUInt16BE(index * 2).toString(16));
  return groups.join(':');
}

function invalid(detail: string): ProxyHeaderResult {
  return { kind: 'invalid', detail };
}
