/**
 * Parses and compares IP addresses and CIDR ranges, and finds the client network of an address and the IPv4 address that it is translated to.
 * No other file in this source tree parses them.
 */
import { BlockList, isIP, isIPv4, isIPv6 } from 'node:net';

/** An address with a prefix length, as `BlockList` takes it. */
interface IpRange {
  readonly address: string;
  readonly prefix: number;
  readonly family: 'ipv4' | 'ipv6';
}

const IPV6_GROUPS = 8;
const BITS = { ipv4: 32, ipv6: 128 } as const;
const MAPPED_PREFIX = '::ffff:';
const MAPPED = /^::ffff:([0-9a-f]{1,4}):([0-9a-f]{1,4})$/;
const PREFIX = /^\d{1,3}$/;
/** Prefixes of addresses in 32 hex digits. */
const TUNNELLED_6TO4 = /^2002/;
const TEREDO = /^20010000/;
const EMBEDDED_AT_END = /^(?:0064ff9b0{16}|0064ff9b0001|0{16}ffff0000)/;
/** `::` and `::1` embed nothing. */
const IPV4_COMPATIBLE = /^0{24}(?:[1-9a-f]|0[1-9a-f]|00[1-9a-f]|000[1-9a-f])/;

/**
 * The canonical form of an address: an IPv6 address as in RFC 5952, without brackets and zone; an IPv4-mapped IPv6 address as the IPv4
 * address that it reaches (RFC 4291 §2.5.5.2). Undefined if the text is not an address.
 */
export function normalizeIp(text: string): string | undefined {
  if (!text.includes(':')) return isIPv4(text) ? text : undefined;
  // How a dual-stack socket names an IPv4 peer. This runs for each request, so it avoids the slower parsing below.
  if (text.startsWith(MAPPED_PREFIX)) {
    const tail = text.slice(MAPPED_PREFIX.length);
    if (isIPv4(tail)) return tail;
  }
  const bare = withoutZone(text.startsWith('[') && text.endsWith(']') ? text.slice(1, -1) : text);
  if (!isIPv6(bare)) return undefined;
  // Node has no other function that normalizes an IPv6 address.
  const canonical = new URL(`http://[${bare}]`).hostname.slice(1, -1);
  const mapped = MAPPED.exec(canonical);
  return mapped === null ? canonical : toDotted(mapped[1] as string, mapped[2] as string);
}

/**
 * Like `normalizeIp`, but returns text that is not an address, such as the name of a hop, unchanged. An IPv4 address costs
 * nothing.
 */
export function toPlainAddress(text: string): string {
  return text.includes(':') ? (normalizeIp(text) ?? text) : text;
}

/** The 32 hex digits of a normalized IPv6 address. */
function toDigits(groups: readonly string[]): string {
  return groups.map((group) => group.padStart(4, '0')).join('');
}

/** The eight groups of a normalized IPv6 address. */
function toIpv6Groups(ip: string): readonly string[] {
  const [head = '', tail] = ip.split('::');
  const before = head === '' ? [] : head.split(':');
  if (tail === undefined) return before;
  const after = tail === '' ? [] : tail.split(':');
  while (before.length + after.length < IPV6_GROUPS) before.push('0');
  return [...before, ...after];
}

/**
 * The IPv4 address that a normalized IPv6 address stands for, where a translator or a tunnel delivers to it: NAT64 (RFC 6052, and
 * RFC 8215 with a prefix of 96 bits), 6to4 (RFC 3056), Teredo (RFC 4380), IPv4-translated (RFC 2765) and IPv4-compatible (RFC 4291).
 */
export function findEmbeddedIpv4(ip: string): string | undefined {
  if (!ip.includes(':')) return undefined;
  const groups = toIpv6Groups(ip);
  const digits = toDigits(groups);
  const [, first = '0', second = '0', , , , last = '0', end = '0'] = groups;
  if (TUNNELLED_6TO4.test(digits)) return toDotted(first, second);
  if (TEREDO.test(digits)) return toDotted(toInverted(last), toInverted(end));
  return EMBEDDED_AT_END.test(digits) || IPV4_COMPATIBLE.test(digits) ? toDotted(last, end) : undefined;
}

/** Returns whether the text is an address of this machine only (RFC 6890). Names, even `localhost`, are not addresses. */
export function isLoopbackIp(text: string): boolean {
  const ip = normalizeIp(text);
  return ip !== undefined && (ip === '::1' || ip.startsWith('127.'));
}

/** Returns whether the text is a CIDR range or a single address. */
export function isIpRange(text: string): boolean {
  return parseIpRange(text) !== undefined;
}

/** A set of CIDR ranges and single addresses. */
export class IpRanges {
  readonly #list = new BlockList();
  readonly #isEmpty: boolean;

  /** Throws RangeError for text that `isIpRange` rejects. */
  constructor(ranges: readonly string[]) {
    this.#isEmpty = ranges.length === 0;
    for (const text of ranges) {
      const range = parseIpRange(text);
      if (range === undefined) throw new RangeError(`"${text}" is not an address range`);
      this.#list.addSubnet(range.address, range.prefix, range.family);
    }
  }

  /** Accepts any notation: an IPv4-mapped IPv6 address is compared as IPv4. Returns false for text that is not an address. */
  has(address: string): boolean {
    if (this.#isEmpty) return false;
    const version = isIP(address);
    return version !== 0 && this.#list.check(address, version === 6 ? 'ipv6' : 'ipv4');
  }
}

function parseIpRange(text: string): IpRange | undefined {
  const [address = '', prefix, ...rest] = text.split('/');
  const version = isIP(address);
  if (version === 0 || rest.length > 0) return undefined;
  const family = version === 6 ? 'ipv6' : 'ipv4';
  if (prefix === undefined) return { address, prefix: BITS[family], family };
  return PREFIX.test(prefix) && Number(prefix) <= BITS[family] ? { address, prefix: Number(prefix), family } : undefined;
}

/** A zone names an interface of the machine that wrote it (RFC 4007), and is not part of the address. */
function withoutZone(text: string): string {
  const at = text.indexOf('%');
  return at === -1 ? text : text.slice(0, at);
}

/** Teredo inverts the bits of the client's address. */
function toInverted(group: string): string {
  return (Number.parseInt(group, 16) ^ 0xffff).toString(16);
}

function toDotted(...groups: readonly string[]): string {
  const numbers = groups.map((group) => Number.parseInt(group, 16));
  return numbers.flatMap((number) => [number >> 8, number & 0xff]).join('.');
}

// Groups the addresses that one client controls, so that a limit counts clients instead of addresses.

/** An IPv6 subscriber gets at least a /64 and can use every address in it (RFC 6177). */
const NETWORK_GROUPS = 4;
/** A site gets at most a /48 (RFC 6177). */
const SITE_GROUPS = 3;
/** For translators of a network (RFC 8215). The IPv4 address may be at one of several places (RFC 6052 §2.2); each has one IPv6 address. */
const LOCAL_TRANSLATION = '64:ff9b:1:';
const MAX_REMEMBERED = 1_024;

/**
 * The IPv4 address itself, or the /64 network of an IPv6 address, normalized. An IPv6 address that stands for an IPv4 address, such as that
 * of a translator, is the IPv4 address: otherwise all clients of the translator would be one. Text that is not an address is returned unchanged.
 */
export function toClientNetwork(address: string): string {
  if (!address.includes(':')) return address;
  const ip = normalizeIp(address);
  if (ip === undefined || !ip.includes(':')) return ip ?? address;
  const groups = toIpv6Groups(ip);
  if (ip.startsWith(LOCAL_TRANSLATION)) return groups.join(':');
  return findEmbeddedIpv4(ip) ?? groups.slice(0, NETWORK_GROUPS).join(':');
}

/**
 * The /48 around a client network of IPv6; otherwise the network itself. For shares, where many networks of one site count together. Not for
 * bans: a /48 may have several subscribers.
 */
export function toSite(network: string): string {
  const groups = network.split(':');
  return groups.length === NETWORK_GROUPS ? groups.slice(0, SITE_GROUPS).join(':') : network;
}

/** Like `toClientNetwork`, with a cache of recent addresses: converting an IPv6 address takes microseconds for each request. */
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

// IPv6 addresses that the NAT64 of a network translates to IPv4 (RFC 6052).

/** Of a prefix, in bits (RFC 6052 §2.2). */
const LENGTHS: ReadonlySet<string> = new Set(['32', '40', '48', '56', '64', '96']);
const DIGITS_OF_96_BITS = 24;
const IPV4_DIGITS = 8;
/** Bits 64 to 71 are reserved: shorter prefixes leave them out of the IPv4 address. */
const RESERVED = { start: 16, end: 18 };

/** Whether the text is an IPv6 prefix of a length that a NAT64 can have. */
export function isNat64Prefix(text: string): boolean {
  return parsePrefix(text) !== undefined;
}

/** The prefixes of the NAT64 in a network. */
export class Nat64Prefixes {
  /** In hex digits, without colons. */
  readonly #prefixes: readonly string[];

  /** Ignores text that `isNat64Prefix` rejects. */
  constructor(prefixes: readonly string[]) {
    this.#prefixes = prefixes.map(parsePrefix).filter((prefix) => prefix !== undefined);
  }

  /** The IPv4 addresses that a normalized address is translated to: one for each prefix that it starts with. */
  toIpv4(ip: string): string[] {
    if (this.#prefixes.length === 0 || !ip.includes(':')) return [];
    const digits = toDigits(toIpv6Groups(ip));
    return this.#prefixes.filter((prefix) => digits.startsWith(prefix)).map((prefix) => findIpv4(digits, prefix.length));
  }
}

function parsePrefix(text: string): string | undefined {
  const [address = '', length = '', ...rest] = text.split('/');
  const ip = normalizeIp(address);
  if (ip === undefined || !ip.includes(':') || !LENGTHS.has(length) || rest.length > 0) return undefined;
  return toDigits(toIpv6Groups(ip)).slice(0, Number(length) / 4);
}

function findIpv4(digits: string, start: number): string {
  const all = start === DIGITS_OF_96_BITS ? digits : digits.slice(0, RESERVED.start) + digits.slice(RESERVED.end);
  const bytes = all.slice(start, start + IPV4_DIGITS).match(/../g) ?? [];
  return bytes.map((byte) => Number.parseInt(byte, 16)).join('.');
}
