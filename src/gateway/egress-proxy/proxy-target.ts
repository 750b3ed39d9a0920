/**
 * Parses what a client of the forward proxy asks for. The proxy authorizes hosts and ports, not paths: it forwards a path with dot segments,
 * double slashes, backslashes or any percent-encoding as it is, and the origin decides what it means.
 */
import { type Destination, parseDestination } from '../../core/destination.ts';
import type { RequestTarget, TargetProblem } from '../../core/target.ts';

/** A destination, and the target that it gets. */
export interface ProxyTarget {
  readonly destination: Destination;
  readonly target: RequestTarget;
}

const HTTP_PORT = 80;
const ABSOLUTE = /^([a-z][a-z0-9+.-]*):\/\/([^/?#\\]*)(.*)$/is;
const VISIBLE = /^[\x21-\x7e]*$/;
const EXAMPLE = 'write http://host/path, or CONNECT host:port';

/** RFC 9110 §9.3.6: a host and a port, both required. */
export function parseConnectTarget(url: string): ProxyTarget | TargetProblem {
  const destination = parseDestination(url);
  if (destination !== undefined) return { destination, target: toTarget(url) };
  return { problem: `the target of CONNECT is not host:port: ${findHostProblem(url) ?? 'it needs a port'}` };
}

/** RFC 9112 §3.2.2. https would be unencrypted here; clients use CONNECT for it. */
export function parseAbsoluteTarget(url: string, method: string): ProxyTarget | TargetProblem {
  // It would end the request line, or change in the charset of another parser (RFC 3986 §2).
  if (!VISIBLE.test(url)) return { problem: 'the target has a control, space or non-ASCII byte, which must be percent-encoded' };
  const [whole, scheme = '', authority = '', rest = ''] = ABSOLUTE.exec(url) ?? [];
  if (whole === undefined) return { problem: `the target is not an absolute URL, and this port is a forward proxy; ${EXAMPLE}` };
  if (scheme.toLowerCase() !== 'http') return { problem: `the proxy forwards only http URLs; for others, use CONNECT host:port` };
  if (authority.includes('@'))
    return { problem: 'the URL has a user or a password (RFC 9110 §4.2.4); send them in the Authorization field' };
  if (rest.includes('#')) return { problem: 'the URL has a fragment, which is not sent to servers (RFC 9112 §3.2)' };
  const destination = parseDestination(authority, HTTP_PORT);
  if (destination === undefined) return { problem: `the host of the URL is malformed: ${findHostProblem(authority) ?? EXAMPLE}` };
  // After the host only: a backslash there is the end of the host for some parsers.
  if (rest.startsWith('\\')) return { problem: 'the host of the URL is followed by a backslash' };
  // RFC 9112 §3.2.4: the last proxy sends OPTIONS without a path for the server as a whole.
  if (rest === '' && method === 'OPTIONS') return { destination, target: toTarget('*') };
  return { destination, target: toTarget(rest.startsWith('/') ? rest : `/${rest}`) };
}

function toTarget(raw: string): RequestTarget {
  const mark = raw.indexOf('?');
  const query = mark === -1 ? undefined : raw.slice(mark + 1);
  return { raw, path: mark === -1 ? raw : raw.slice(0, mark), query, ambiguities: [] };
}

function findHostProblem(authority: string): string | undefined {
  const [, host = authority, port] = /^(\[[^\]]*\]|[^:]*):([^:]*)$/.exec(authority) ?? [];
  if (host === '') return 'it is empty';
  if (port !== undefined && (!/^[0-9]{1,5}$/.test(port) || Number(port) < 1 || Number(port) > 65_535))
    return 'the port is not a number between 1 and 65535';
  if (host.startsWith('[')) return 'the text between brackets is not an IPv6 address';
  if (host.includes(':')) return 'an IPv6 address must be in brackets';
  if (/(?:^|\.)(?:[0-9]+|0x[0-9a-f]*)\.?$/i.test(host)) return 'a name must not end in a number, and an IPv4 address has four';
  return /^[a-z0-9._-]+$/i.test(host) ? undefined : 'it has characters that no host name has';
}
