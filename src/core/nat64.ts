/** IPv6 addresses that a NAT64 translates to IPv4 (RFC 6052). */
import { normalizeIp, toIpv6Groups } from './ip-address.ts';

/** RFC 6052 §2.2. */
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
    const digits = toDigits(ip);
    return this.#prefixes.filter((prefix) => digits.startsWith(prefix)).map((prefix) => findIpv4(digits, prefix.length));
  }
}

function parsePrefix(text: string): string | undefined {
  const [address = '', length = '', ...rest] = text.split('/');
  const ip = normalizeIp(address);
  if (ip === undefined || !ip.includes(':') || !LENGTHS.has(length) || rest.length > 0) return undefined;
  return toDigits(ip).slice(0, Number(length) / 4);
}

function toDigits(ip: string): string {
  return toIpv6Groups(ip)
    .map((group) => group.padStart(4, '0'))
    .join('');
}

function findIpv4(digits: string, start: number): string {
  const all = start === DIGITS_OF_96_BITS ? digits : digits.slice(0, RESERVED.start) + digits.slice(RESERVED.end);
  const bytes = all.slice(start, start + IPV4_DIGITS).match(/../g) ?? [];
  return bytes.map((byte) => Number.parseInt(byte, 16)).join('.');
}
