/** Parses where a client of the forward proxy wants to connect, in a form that has only one interpretation. */
import { isIP } from 'node:net';
import { normalizeIp } from '../../core/ip-address.ts';

/**
 * A host and a port. Addresses are normalized (`normalizeIp`) and without brackets; names are lower case, without a trailing dot.
 */
export interface Destination {
  readonly host: string;
  readonly port: number;
}

const LABEL = /^[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?$/;
/** Resolvers take `2130706433`, `0x7f.1` and `0177.0.0.1` for 127.0.0.1, so a name must not end in a number (WHATWG URL §3.5). */
const NUMBER = /^(?:[0-9]+|0x[0-9a-f]*)$/;
const MAX_NAME_LENGTH = 253;
const AUTHORITY = /^(?:\[([0-9A-Fa-f:.]+)\]|([^:[\]@/?#\\]+))(?::([0-9]{1,5}))?$/;

/** Parses `host:port` (RFC 9110 §9.3.6); undefined for anything else. The port is optional only if there is a default. */
export function parseDestination(text: string, defaultPort?: number): Destination | undefined {
  const found = AUTHORITY.exec(text);
  if (found === null) return undefined;
  const port = found[3] === undefined ? defaultPort : Number(found[3]);
  if (port === undefined || port < 1 || port > 65_535) return undefined;
  const host = found[1] === undefined ? toHost(found[2] as string) : toIpv6(found[1]);
  return host === undefined ? undefined : { host, port };
}

/** Brackets are for IPv6 only. */
function toIpv6(text: string): string | undefined {
  return text.includes(':') ? normalizeIp(text) : undefined;
}

function toHost(text: string): string | undefined {
  const host = text.toLowerCase().replace(/\.$/, '');
  if (isIP(host) === 4) return host;
  const labels = host.split('.');
  const isName =
    host.length <= MAX_NAME_LENGTH && labels.every((label) => LABEL.test(label)) && !NUMBER.test(labels.at(-1) as string);
  return isName ? host : undefined;
}

/** One line of the list of allowed destinations. */
export interface DestinationRule {
  /** As written in the config; used as a metric label. */
  readonly text: string;
  readonly host: string;
  /** Matches all subdomains of `host`, but not `host` itself. */
  readonly isWildcard: boolean;
  readonly port: number;
}

/** Parses `host:port` or `*.host:port`. */
export function parseDestinationRule(text: string): DestinationRule | undefined {
  const isWildcard = text.startsWith('*.');
  const destination = parseDestination(isWildcard ? text.slice(2) : text);
  if (destination === undefined || (isWildcard && isIP(destination.host) !== 0)) return undefined;
  return { text, ...destination, isWildcard };
}

/** Finds the first rule that allows the destination. */
export function findDestinationRule(rules: readonly DestinationRule[], { host, port }: Destination): DestinationRule | undefined {
  return rules.find((rule) => rule.port === port && isHostOf(rule, host));
}

/** Whether a rule is for this host, on any port. */
export function isHostOf(rule: Pick<DestinationRule, 'host' | 'isWildcard'>, host: string): boolean {
  return rule.isWildcard ? host.endsWith(`.${rule.host}`) : host === rule.host;
}
