/** Addresses of peers and clients, and the ranges of them that are trusted in some way. */
import { IpRanges, normalizeIp } from '../../core/ip-address.ts';

/** CIDR ranges and single addresses; an empty set contains no address. */
export class AddressRanges extends IpRanges {}

/** The address in one spelling (`normalizeIp`). Text that is not an address, for example the name of a hop, stays as it is. */
export function toPlainAddress(address: string): string {
  return address.includes(':') ? (normalizeIp(address) ?? address) : address;
}
