/** Reads the PROXY protocol's header, versions 1 and 2: who the client of a balancer is that speaks TCP only. */
import { isIPv4, isIPv6 } from 'node:net';

/** What the bytes so far say. */
export type PreambleReading =
  | { readonly kind: 'more' }
  | { readonly kind: 'bad'; readonly detail: string }
  /** `source`: the client's address; undefined where the balancer speaks for itself (health checks). */
  | { readonly kind: 'read'; readonly source: string | undefined; readonly length: number };

const V1_START = Buffer.from('PROXY ');
const V1_LONGEST = 107;
const V1_LINE = /^PROXY (?:(TCP4|TCP6) (\S+) (\S+) (\d{1,5}) (\d{1,5})|UNKNOWN(?: .*)?)$/;
const HIGHEST_PORT = 65_535;
const V2_START = Buffer.from('\r\n\r\n\0\r\nQUIT\n', 'latin1');
const V2_HEAD = 16;
/** Addresses and what balancers add to them (TLVs): far below what the length field could say. */
const V2_LONGEST = 4_096;
const COMMAND = { local: 0x20, proxy: 0x21 } as const;
const FAMILY = { unspecified: 0x00, tcp4: 0x11, tcp6: 0x21 } as const;

const MORE = { kind: 'more' } as const;

/** Reads what a connection begins with. */
export function readPreamble(bytes: Buffer): PreambleReading {
  if (startsLike(bytes, V2_START)) return bytes.length < V2_HEAD ? MORE : readV2(bytes);
  if (startsLike(bytes, V1_START)) return readV1(bytes);
  return bad('the connection does not begin with it');
}

function startsLike(bytes: Buffer, start: Buffer): boolean {
  const length = Math.min(bytes.length, start.length);
  return bytes.subarray(0, length).equals(start.subarray(0, length));
}

function readV1(bytes: Buffer): PreambleReading {
  const end = bytes.subarray(0, V1_LONGEST).indexOf('\r\n');
  if (end === -1) return bytes.length < V1_LONGEST ? MORE : bad('its line does not end');
  const match = V1_LINE.exec(bytes.toString('latin1', 0, end));
  if (match === null) return bad('its line is malformed');
  const length = end + 2;
  const [, family, source = '', destination = '', ...ports] = match;
  if (family === undefined) return { kind: 'read', source: undefined, length };
  const isAddress = family === 'TCP4' ? isIPv4 : isIPv6;
  if (!isAddress(source) || !isAddress(destination)) return bad(`an address is not of ${family}`);
  if (ports.some((port) => Number(port) > HIGHEST_PORT)) return bad('a port is too high');
  return { kind: 'read', source, length };
}

function readV2(bytes: Buffer): PreambleReading {
  const command = bytes.readUInt8(12);
  const family = bytes.readUInt8(13);
  const rest = bytes.readUInt16BE(14);
  const length = V2_HEAD + rest;
  if (length > V2_LONGEST) return bad(`it has ${length} bytes`);
  if (command !== COMMAND.local && command !== COMMAND.proxy) return bad('its version or command is unknown');
  if (bytes.length < length) return MORE;
  if (command === COMMAND.local || family === FAMILY.unspecified) return { kind: 'read', source: undefined, length };
  const addressBytes = { [FAMILY.tcp4]: 4, [FAMILY.tcp6]: 16 }[family];
  if (addressBytes === undefined) return bad('it speaks of something else than TCP');
  if (rest < 2 * addressBytes + 4) return bad('it is too short for its addresses');
  return { kind: 'read', source: toAddress(bytes.subarray(V2_HEAD, V2_HEAD + addressBytes)), length };
}

function toAddress(bytes: Buffer): string {
  if (bytes.length === 4) return bytes.join('.');
  const groups = Array.from({ length: 8 }, (_, index) => bytes.readUInt16BE(index * 2).toString(16));
  return groups.join(':');
}

function bad(detail: string): PreambleReading {
  return { kind: 'bad', detail };
}
