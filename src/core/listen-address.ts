/** Where a port listens: one port number on one, several or all addresses of this machine. */
import { isIP, isIPv4 } from 'node:net';
import { isLoopbackIp, normalizeIp } from './ip-address.ts';

/** A port number and the addresses that it listens on. */
export interface ListenAddress {
  /** IPv6 addresses are without brackets; empty: all addresses of both families. */
  readonly hosts: readonly string[];
  /** 0: the system chooses one. */
  readonly port: number;
  /** Several threads of this process listen there: the first of them, or one that joins it. Default: only one listener. */
  readonly sharing?: 'first' | 'joined';
}

/** The target of a connection. */
interface ConnectTarget {
  readonly host: string;
  readonly port: number;
}

/** A host name as in DNS and hosts files. */
export const HOST_NAME = /^(?=.{1,253}$)[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,62})(?:\.[A-Za-z0-9_-]{1,63})*\.?$/;
const FORM = /^(.*):(\d{1,5})$/;
const MAX_PORT = 65_535;
const WILDCARDS: ReadonlySet<string> = new Set(['0.0.0.0', '::']);
const SELF: ReadonlyMap<string, readonly string[]> = new Map([
  ['localhost', ['127.0.0.1', '::1']],
  ['0.0.0.0', ['127.0.0.1']],
  ['::', ['::1']],
]);

/** Parses `host:port`, `[::1]:8080`, `:8080` (all addresses) and `10.0.0.7,fd00::7:8080`: the last colon precedes the port. */
export function parseListenAddress(text: string): ListenAddress | { readonly problem: string } {
  const match = FORM.exec(text);
  if (match === null)
    return {
      problem: `"${text}" is not an address; write host:port, for example 127.0.0.1:8080, [::1]:8080 or :8080 for all addresses`,
    };
  const port = Number(match[2]);
  if (port > MAX_PORT) return { problem: `port ${port} is above ${MAX_PORT}` };
  const written = match[1] as string;
  const hosts: string[] = [];
  for (const each of written === '' ? [] : written.split(',')) {
    const host = toHost(each);
    if (host === undefined) return { problem: `"${each}" is not a host name or IP address` };
    if (hosts.includes(host)) return { problem: `${host} is listed twice` };
    hosts.push(host);
  }
  const wildcard = hosts.find(
    (host) => WILDCARDS.has(host) && hosts.some((other) => other !== host && isIP(other) === isIP(host)),
  );
  return wildcard === undefined ? { hosts, port } : { problem: `${wildcard} already includes the other addresses of its family` };
}

/**
 * Returns whether a connection to `target` reaches `address`. Names other than localhost count as other machines, unless both are
 * equal.
 */
export function isReachedBy(address: ListenAddress, target: ConnectTarget): boolean {
  if (target.port !== address.port) return false;
  const hosts = address.hosts.flatMap(toReachedHosts);
  return toReachedHosts(target.host).some(
    (host) => hosts.includes(host) || (isLoopbackIp(host) && isCovered(address.hosts, host)),
  );
}

/** Returns whether connections to the two may reach the same program: one can listen on all addresses of this machine. */
export function mayShareTarget(a: ConnectTarget, b: ConnectTarget): boolean {
  return a.port === b.port && toMachine(a.host) === toMachine(b.host);
}

/** Returns whether the two share an address and a port, or could. */
export function isOverlapping(a: ListenAddress, b: ListenAddress): boolean {
  if (a.port !== b.port || a.port === 0) return false;
  return [a, b].some(hasWildcard) || a.hosts.some((host) => b.hosts.includes(host));
}

/** Returns whether only this machine can reach the address. */
export function isLoopbackOnly({ hosts }: ListenAddress): boolean {
  return hosts.length > 0 && hosts.every(isLoopbackIp);
}

/** Formats an address in the form that is parsed above, with brackets around IPv6. */
export function toAddressText(host: string, port: number): string {
  return `${host.includes(':') ? `[${host}]` : host}:${port}`;
}

/** Where a process on this machine reaches a port that listens there. */
export function toLocalTarget({ hosts, port }: ListenAddress): string {
  const [host = '127.0.0.1'] = hosts;
  const [self = host] = WILDCARDS.has(host) ? (SELF.get(host) ?? []) : [];
  return toAddressText(self, port);
}

function hasWildcard({ hosts }: ListenAddress): boolean {
  return hosts.length === 0 || hosts.some((host) => WILDCARDS.has(host));
}

/** The addresses that a connection to `host` may reach. A wildcard address as a target means this machine. */
function toReachedHosts(host: string): readonly string[] {
  const plain = toComparable(host);
  return SELF.get(plain) ?? [plain];
}

function isCovered(hosts: readonly string[], host: string): boolean {
  if (hosts.length === 0) return true;
  // A single `::` accepts connections of both families.
  return hosts.includes(isIPv4(host) ? '0.0.0.0' : '::') || (hosts.length === 1 && hosts[0] === '::');
}

function toHost(written: string): string | undefined {
  return normalizeIp(written) ?? (HOST_NAME.test(written) ? written.toLowerCase() : undefined);
}

/** One text for all addresses and names of this machine that are known without its configuration. */
function toMachine(host: string): string {
  const plain = toComparable(host);
  return isLoopbackIp(plain) || WILDCARDS.has(plain) || plain.endsWith('.localhost') ? 'localhost' : plain;
}

/** Normalizes an address or a name. */
function toComparable(host: string): string {
  return normalizeIp(host) ?? host.toLowerCase().replace(/\.$/, '');
}
