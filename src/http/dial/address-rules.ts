/**
 * Which addresses may be connected to: those on the public internet, in every notation that reaches them, besides what the config says; and
 * which ports are this process's own.
 */
import { isIP } from 'node:net';
import { networkInterfaces } from 'node:os';
import { findEmbeddedIpv4, IpRanges, isLoopbackIp, Nat64Prefixes, normalizeIp } from '../../core/ip-address.ts';

/** IANA's special-purpose registries (RFC 6890 and its successors): private, loopback, link-local, metadata, multicast, reserved. */
const SPECIAL_IPV4 = [
  '0.0.0.0/8',
  '10.0.0.0/8',
  '100.64.0.0/10',
  '127.0.0.0/8',
  '169.254.0.0/16',
  '172.16.0.0/12',
  '192.0.0.0/24',
  '192.0.2.0/24',
  '192.31.196.0/24',
  '192.52.193.0/24',
  '192.88.99.0/24',
  '192.168.0.0/16',
  '192.175.48.0/24',
  '198.18.0.0/15',
  '198.51.100.0/24',
  '203.0.113.0/24',
  '224.0.0.0/4',
  '240.0.0.0/4',
];
/** Public by their range, but used inside a cloud's own network: Azure's WireServer, and the service networks of IBM Cloud. */
const CLOUD_IPV4 = ['168.63.129.16/32', '161.26.0.0/16', '166.8.0.0/14'];
/** Only 2000::/3 of IPv6 is allocated; within it these are special, or embed an unchecked IPv4 address. */
const SPECIAL_IPV6 = ['2001::/23', '2001:db8::/32', '2002::/16', '2620:4f:8000::/48', '3fff::/20'];
const GLOBAL_IPV6 = '2000::/3';

const special = new IpRanges([...SPECIAL_IPV4, ...CLOUD_IPV4, ...SPECIAL_IPV6]);
const globalIpv6 = new IpRanges([GLOBAL_IPV6]);

/** Whether this is an address on the public internet; false for anything that is not an address. */
export function isPublicAddress(address: string): boolean {
  switch (isIP(address)) {
    case 4:
      return !special.has(address);
    case 6:
      return globalIpv6.has(address) && !special.has(address);
    default:
      return false;
  }
}

/** Why an address may not be connected to; undefined if it may. */
export type FindAddressProblem = (address: string) => string | undefined;

/** Exceptions to the rule, as the config lists them. */
export interface AddressSettings {
  /** Ranges that are allowed although they are not public. */
  readonly allowPrivate: readonly string[];
  /** Ranges that are never allowed. */
  readonly deny: readonly string[];
  /** IPv6 prefixes. */
  readonly nat64Prefixes?: readonly string[];
}

/** Without exceptions. */
export const PUBLIC_ONLY: AddressSettings = { allowPrivate: [], deny: [] };

/** Compiles the settings. `denied`: what is wrong with an address of `deny`. */
export function compileAddressRules(settings: AddressSettings, denied = 'is denied'): FindAddressProblem {
  const allowedRanges = new IpRanges(settings.allowPrivate);
  const deniedRanges = new IpRanges(settings.deny);
  const nat64 = new Nat64Prefixes(settings.nat64Prefixes ?? []);
  const findDenial = (address: string): string | undefined => (deniedRanges.has(address) ? denied : undefined);
  const findOneProblem = (address: string): string | undefined =>
    findDenial(address) ?? (isPublicAddress(address) || allowedRanges.has(address) ? undefined : 'is not on the public internet');
  return (text) => {
    const address = normalizeIp(text);
    if (address === undefined) return 'is not an address';
    const translated = nat64.toIpv4(address);
    const embedded = findEmbeddedIpv4(address);
    // An address of the network's NAT64 stands only for the IPv4 address behind it. Of any other form, both have to be allowed.
    const problem = translated.length > 0 ? findDenial(address) : findOneProblem(address);
    const behind = embedded === undefined ? translated : [...translated, embedded];
    return problem ?? behind.map(findOneProblem).find((each) => each !== undefined);
  };
}

/** The ports that this process listens on. The proxy never connects to them, as they may trust connections from this machine. */
export class OwnPorts {
  readonly #ports = new Set<number>();

  /** Adds ports. */
  add(...ports: readonly number[]): void {
    for (const port of ports) this.#ports.add(port);
  }

  /** Whether a connection to this address would reach this process. */
  has(address: string, port: number): boolean {
    return this.#ports.has(port) && isLocal(address);
  }
}

/** A connection to "any address" goes to this machine. */
const ANY: ReadonlySet<string | undefined> = new Set(['0.0.0.0', '::']);

/** Reads the interfaces each time, as a pod may gain addresses; called only if the port matches. */
function isLocal(address: string): boolean {
  const ip = normalizeIp(address);
  if (isLoopbackIp(address) || ANY.has(ip)) return true;
  const own = Object.values(networkInterfaces()).flatMap((entries = []) => entries.map((entry) => normalizeIp(entry.address)));
  return ip !== undefined && own.includes(ip);
}
