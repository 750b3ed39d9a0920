/** The URL of an endpoint, in a form that has only one interpretation, and which hosts and addresses deliveries may be sent to. */
import { isIP } from 'node:net';
import { toAddressText } from '../../core/listen-address.ts';
import type { Fault } from '../../core/problem.ts';
import { type AddressSettings, compileAddressRules, type FindAddressProblem } from './address-rules.ts';
import { type DestinationRule, isHostOf, parseDestination, parseDestinationRule } from './destination.ts';

/** The settings, as in the config. */
export interface EgressSettings extends AddressSettings {
  readonly allowHttp: boolean;
  /** Hosts, or `*.host`; undefined: all. */
  readonly allowHosts?: readonly string[] | undefined;
}

/** The settings, compiled. */
export interface EgressRules {
  readonly allowHttp: boolean;
  readonly findAddressProblem: FindAddressProblem;
  /** Why deliveries may not be sent to this host name or address; undefined if they may. Does not resolve names. */
  findHostProblem(host: string): Fault | undefined;
}

/** Where an endpoint is, and what is requested there. */
interface EndpointTarget {
  readonly isTls: boolean;
  /** A lower-case name without a trailing dot, or a normalized address without brackets. */
  readonly host: string;
  readonly port: number;
  /** The value of `Host`. */
  readonly authority: string;
  /** Path and query. */
  readonly path: string;
}

const MAX_URL_LENGTH = 2_048;
const PARTS = /^([a-z][a-z0-9+.-]*):\/\/([^/?#]*)/i;
const FORBIDDEN = /[^\x21-\x7e]|\\/;
const LOOPBACK = ['127.0.0.1', '::1'];
/** RFC 6761 §6.3. */
const LOCALHOST = /(?:^|\.)localhost$/;
const DEFAULT_PORTS: Readonly<Record<string, number>> = { 'https:': 443, 'http:': 80 };

/** Compiles the settings; address ranges were validated by the schema, and hosts by `parseHostRule`. */
export function compileEgressRules(settings: EgressSettings): EgressRules {
  const findAddressProblem = compileAddressRules(settings, 'is denied by provider.egress.deny');
  const hosts = settings.allowHosts?.map(parseHostRule).filter((rule) => rule !== undefined);
  return {
    allowHttp: settings.allowHttp,
    findAddressProblem,
    findHostProblem(host) {
      if (hosts !== undefined && !hosts.some((rule) => isHostOf(rule, host)))
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
export function parseHostRule(text: string): DestinationRule | undefined {
  return parseDestinationRule(isIP(text) === 6 ? `[${text}]:1` : `${text}:1`);
}

/** Why an endpoint may not have this URL; undefined if it may. Names are not resolved: each attempt checks their addresses. */
export function findUrlProblem(url: string, rules: EgressRules): Fault | undefined {
  const target = parseEndpointUrl(url, rules);
  return 'problem' in target ? target : undefined;
}

/** Parses the URL. The messages contain the host, but not the path, which may be secret. */
export function parseEndpointUrl(text: string, rules: EgressRules): EndpointTarget | Fault {
  if (text.length > MAX_URL_LENGTH)
    return { problem: `the URL has ${text.length} characters`, hint: `at most ${MAX_URL_LENGTH} are allowed` };
  if (FORBIDDEN.test(text))
    return {
      problem: 'the URL has a space, a backslash, or a character that is not ASCII',
      hint: 'percent-encode it in the path (%20); write international host names as xn--…',
    };
  const parts = PARTS.exec(text);
  const url = parts !== null && URL.canParse(text) ? new URL(text) : undefined;
  if (parts === null || url === undefined)
    return { problem: 'it is not a URL', hint: 'write for example https://acme.example/hooks' };
  return findFormProblem(url, text, rules) ?? toTarget(url, parts[2] as string, rules);
}

function findFormProblem(url: URL, text: string, { allowHttp }: EgressRules): Fault | undefined {
  if (url.protocol !== 'https:' && url.protocol !== 'http:')
    return { problem: `${url.protocol}// is not supported`, hint: 'write https://…' };
  if (url.protocol === 'http:' && !allowHttp)
    return {
      problem: 'http:// would send events in clear text',
      hint: 'write https://…, or set provider.egress.allowHttp for tests',
    };
  if (text.includes('#')) return { problem: 'the URL has a fragment, which is never sent', hint: 'remove # and what follows it' };
  return undefined;
}

function toTarget(url: URL, authority: string, rules: EgressRules): EndpointTarget | Fault {
  if (authority.includes('@'))
    return {
      problem: 'the URL contains credentials',
      hint: 'remove them, and set the header Authorization of the endpoint instead',
    };
  const defaultPort = DEFAULT_PORTS[url.protocol] as number;
  const destination = parseDestination(authority, defaultPort);
  // Two parsers must agree on the host: `2130706433` and `0x7f.1` are other notations of 127.0.0.1.
  if (destination === undefined || !isSameHost(destination.host, url.hostname))
    return {
      problem: 'the host or the port of the URL is malformed',
      hint: 'write a plain host name or IP address, and a port from 1 to 65535',
    };
  const { host, port } = destination;
  const name = toAddressText(host, port);
  return (
    rules.findHostProblem(host) ?? {
      isTls: url.protocol === 'https:',
      host,
      port,
      authority: port === defaultPort ? name.slice(0, name.lastIndexOf(':')) : name,
      path: `${url.pathname}${url.search}`,
    }
  );
}

/** `hostname` is what the URL standard makes of the host. An IPv4-mapped address keeps that form there. */
function isSameHost(host: string, hostname: string): boolean {
  return isIP(host) !== 0 ? parseDestination(hostname, 1)?.host === host : hostname.replace(/\.$/, '') === host;
}
