/** Ranges of addresses that are trusted in some way. */
import { BlockList, isIP } from 'node:net';

const MAPPED_IPV4 = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i;

/** A set of CIDR ranges and single addresses; an empty one has nobody. */
export class AddressRanges {
  readonly #list = new BlockList();
  readonly isEmpty: boolean;

  constructor(ranges: readonly string[]) {
    this.isEmpty = ranges.length === 0;
    for (const range of ranges) {
      const [address = '', prefix] = range.split('/');
      const family = isIP(address) === 6 ? 'ipv6' : 'ipv4';
      if (prefix === undefined) this.#list.addAddress(address, family);
      else this.#list.addSubnet(address, Number(prefix), family);
    }
  }

  /** `address`: plain, see `toPlainAddress`. */
  has(address: string): boolean {
    return !this.isEmpty && isIP(address) !== 0 && this.#list.check(address, isIP(address) === 6 ? 'ipv6' : 'ipv4');
  }
}

/** A dual-stack socket shows IPv4 peers as `::ffff:1.2.3.4`; brackets and a zone are spelling only. */
export function toPlainAddress(address: string): string {
  if (!address.includes(':')) return address;
  const bare = address.startsWith('[') && address.endsWith(']') ? address.slice(1, -1) : address;
  return bare.replace(MAPPED_IPV4, '$1');
}
