/** Groups the addresses that one client controls, so that a limit counts clients instead of addresses. */
import { findEmbeddedIpv4, normalizeIp, toIpv6Groups } from './ip-address.ts';

/** An IPv6 subscriber gets at least a /64 and can use every address in it (RFC 6177). */
const NETWORK_GROUPS = 4;
/** A site gets at most a /48 (RFC 6177). */
const SITE_GROUPS = 3;
/** For translators of a network (RFC 8215). The IPv4 address may be at one of several places (RFC 6052 §2.2); each has one IPv6 address. */
const LOCAL_TRANSLATION = '64:ff9b:1:';
const MAX_REMEMBERED = 1_024;

/**
 * So many clients without requests may stay in a table of clients. If each client were removed with its last request, and added again with
 * the next one, V8 would replace the table again and again (core/unordered-list.ts).
 */
export const KEPT_CLIENTS = 1_024;

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
