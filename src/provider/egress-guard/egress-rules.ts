/** Which hosts and addresses deliveries may be sent to. */
import { isIP } from 'node:net';
import { parseDestination } from '../../core/destination.ts';
import { findEmbeddedIpv4, IpRanges, normalizeIp } from '../../core/ip-address.ts';
import { Nat64Prefixes } from '../../core/nat64.ts';
import { isPublicAddress } from '../../gateway/egress-proxy/special-addresses.ts';
import type { SettingProblem } from '../endpoints/endpoint-headers.ts';

/** The settings, as in the config. */
export interface EgressSettings {
  readonly allowHttp: boolean;
  /** Address ranges. */
  readonly allowPrivate: readonly string[];
  readonly deny: readonly string[];
  /** IPv6 prefixes. */
  readonly nat64Prefixes?: readonly string[];
  /** Hosts, or `*.host`; undefined: all. */
  readonly allowHosts?: readonly string[] | undefined;
}

/** The settings, compiled. */
export interface EgressRules {
  readonly allowHttp: boolean;
  /** Names that only this machine or this network resolves may lead somewhere allowed. */
  readonly allowsPrivate: boolean;
  /** Why deliveries may not be sent to this host name or address; undefined if they may. Does not resolve names. */
  findHostProblem(host: string): SettingProblem | undefined;
  /** Why deliveries may not be sent to this address; undefined if they may. */
  findAddressProblem(address: string): string | undefined;
}

interface HostRule {
  readonly host: string;
  readonly isWildcard: boolean;
}

const LOOPBACK = ['127.0.0.1', '::1'];
/** RFC 6761 §6.3. */
const LOCALHOST = /(?:^|\.)localhost$/;

/** Compiles the settings; address ranges were validated by the schema, and hosts by `parseHostRule`. */
export function compileEgressRules(settings: EgressSettings): EgressRules {
  const { allowHttp, allowPrivate, deny, nat64Prefixes = [], allowHosts } = settings;
  const privateRanges = new IpRanges(allowPrivate);
  const denied = new IpRanges(deny);
  const nat64 = new Nat64Prefixes(nat64Prefixes);
  const hosts = allowHosts?.map(parseHostRule).filter((rule) => rule !== undefined);

  const findDenial = (address: string): string | undefined =>
    denied.has(address) ? 'is denied by provider.egress.deny' : undefined;
  const findOneProblem = (address: string): string | undefined =>
    findDenial(address) ?? (isPublicAddress(address) || privateRanges.has(address) ? undefined : 'is not on the public internet');
  const findAddressProblem = (text: string): string | undefined => {
    const address = normalizeIp(text);
    if (address === undefined) return 'is not an address';
    const translated = nat64.toIpv4(address);
    const embedded = findEmbeddedIpv4(address);
    // An address of the network's NAT64 stands only for the IPv4 address behind it. Of any other form, both have to be allowed.
    const problem = translated.length > 0 ? findDenial(address) : findOneProblem(address);
    const behind = embedded === undefined ? translated : [...translated, embedded];
    return problem ?? behind.map(findOneProblem).find((each) => each !== undefined);
  };
  return {
    allowHttp,
    allowsPrivate: allowPrivate.length > 0,
    findAddressProblem,
    findHostProblem(host) {
      if (hosts !== undefined && !hosts.some((rule) => isMatch(rule, host)))
        return { problem: `the host ${host} is not in provider.egress.allowHosts`, hint: 'add it there, or choose another host' };
      const isName = isIP(host) === 0;
      if (isName && !LOCALHOST.test(host)) return undefined;
      const problems = (isName ? LOOPBACK : [host]).map(findAddressProblem);
      const [problem] = problems;
      if (problem === undefined || problems.includes(undefined)) return undefined;
      return {
        problem: `the host ${host} ${problem}`,
        hint: 'use a public host, or add its address to provider.egress.allowPrivate if you trust it',
      };
    },
  };
}

/** Parses one entry of `allowHosts`; undefined for text that is not a host, `*.host` or an address. */
export function parseHostRule(text: string): HostRule | undefined {
  const isWildcard = text.startsWith('*.');
  const bare = isWildcard ? text.slice(2) : text;
  const host = isIP(bare) === 6 ? normalizeIp(bare) : parseDestination(`${bare}:1`)?.host;
  return host === undefined || (isWildcard && isIP(host) !== 0) ? undefined : { host, isWildcard };
}

function isMatch(rule: HostRule, host: string): boolean {
  return rule.isWildcard ? host.endsWith(`.${rule.host}`) : host === rule.host;
}
