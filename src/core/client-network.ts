/** Groups the addresses that one client controls, so that a limit counts clients and not addresses. */
import { isIPv6 } from 'node:net';

/** An IPv6 subscriber gets at least a /64 and can use every address in it (RFC 6177). */
const NETWORK_GROUPS = 4;
const IPV6_GROUPS = 8;
const MAX_REMEMBERED = 1_024;
const IPV4_MAPPED = /^(?:0:){5}ffff:([0-9a-f]+):([0-9a-f]+)$/;
const DOTTED_TAIL = /:(\d+)\.(\d+)\.(\d+)\.(\d+)$/;

/**
 * The IPv4 address itself, or the /64 network of an IPv6 address, in one spelling. An IPv4-mapped IPv6 address is the IPv4 address.
 * Text that is not an address is its own network.
 */
export function toClientNetwork(address: string): string {
  if (!address.includes(':')) return address;
  const [bare = ''] = address.split('%');
  if (!isIPv6(bare)) return address;
  const groups = toGroups(bare.toLowerCase());
  const mapped = IPV4_MAPPED.exec(groups.join(':'));
  if (mapped === null) return groups.slice(0, NETWORK_GROUPS).join(':');
  return [mapped[1], mapped[2]]
    .map((group) => Number.parseInt(group ?? '0', 16))
    .flatMap((group) => [group >> 8, group & 0xff])
    .join('.');
}

/** As `toClientNetwork`, remembering recent addresses: for an IPv6 address the conversion costs microseconds, which each request would pay. */
export function rememberClientNetworks(): (address: string) => string {
  const known = new Map<string, string>();
  return (address) => {
    if (!address.includes(':')) return address;
    const before = known.get(address);
    if (before !== undefined) return before;
    const network = toClientNetwork(address);
    if (known.size >= MAX_REMEMBERED) known.clear();
    known.set(address, network);
    return network;
  };
}

/** All eight groups of an IPv6 address, without leading zeros. */
function toGroups(address: string): string[] {
  const hex = address.replace(DOTTED_TAIL, (_, ...bytes: string[]) => {
    const [a = 0, b = 0, c = 0, d = 0] = bytes.slice(0, 4).map(Number);
    return `:${((a << 8) | b).toString(16)}:${((c << 8) | d).toString(16)}`;
  });
  const [head = '', tail = ''] = hex.split('::');
  const before = head === '' ? [] : head.split(':');
  const after = tail === '' ? [] : tail.split(':');
  const zeros = Array.from({ length: IPV6_GROUPS - before.length - after.length }, () => '0');
  return [...before, ...zeros, ...after].map((group) => group.replace(/^0+(?=.)/, ''));
}
