/** Writes PROXY protocol headers, version 2, good ones and bad ones. */
import { isIPv4 } from 'node:net';

/** What may differ. */
export interface V2Options {
  /** IPv4, or IPv6 with all of its eight groups. */
  readonly source?: string;
  readonly command?: number;
  readonly family?: number;
  readonly more?: Buffer;
}

/** The header's bytes; source and destination are the same address. */
export function toV2({ source, command = 0x21, family, more = Buffer.alloc(0) }: V2Options): Buffer {
  const address = source === undefined ? Buffer.alloc(0) : toBytes(source);
  const ports = source === undefined ? Buffer.alloc(0) : Buffer.from([0x30, 0x39, 0x01, 0xbb]);
  const rest = Buffer.concat([address, address, ports, more]);
  const kind = family ?? (address.length === 4 ? 0x11 : 0x21);
  const head = Buffer.from([
    ...Buffer.from('\r\n\r\n\0\r\nQUIT\n', 'latin1'),
    command,
    kind,
    rest.length >> 8,
    rest.length & 255,
  ]);
  return Buffer.concat([head, rest]);
}

function toBytes(address: string): Buffer {
  if (isIPv4(address)) return Buffer.from(address.split('.').map(Number));
  const bytes = Buffer.alloc(16);
  for (const [index, group] of address.split(':').entries()) bytes.writeUInt16BE(Number.parseInt(group, 16), index * 2);
  return bytes;
}
