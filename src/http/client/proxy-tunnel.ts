/** An egress proxy: opens tunnels through it with CONNECT (RFC 9110 §9.3.6). */
import { connect as connectTcp, isIP, type Socket } from 'node:net';
import { connect as connectTls, type SecureContext } from 'node:tls';
import { toAddressText } from '../../core/listen-address.ts';
import type { Fault } from '../../core/problem.ts';
import { handOver } from '../../core/reading.ts';
import { offEvent, onceEvent, onEvent } from '../../core/safe-events.ts';
import type { Secret } from '../../core/secret.ts';
import { type Destination, parseDestination } from '../dial/destination.ts';
import { DialFailure, type FailureKind, type Opening, toCode, toFailureKind } from '../dial/dial.ts';
import { lookUpForConnect } from '../dial/resolve.ts';
import type { ClientHandshakes } from './client-handshakes.ts';
import { parseResponseHead } from './response-parser.ts';
import { createClientContext } from './tls-context.ts';

/** The settings of the proxy. */
interface EgressProxySettings {
  readonly url: string;
  readonly username?: string | undefined;
  readonly password?: Secret | undefined;
}

/** A proxy, prepared. */
export interface TunnelProxy extends Destination {
  /** Undefined: plain HTTP to the proxy. */
  readonly context: SecureContext | undefined;
  /** The header with the credentials, with its line end; empty: none. */
  readonly authorization: string;
}

const MAX_HEAD_BYTES = 16_384;
const HEAD_END = Buffer.from('\r\n\r\n');
const FORBIDDEN = 403;
const FORBIDDEN_TEXT = `responded ${FORBIDDEN}: the destination is not allowed`;
const NOT_PRINTABLE = /[^\x21-\x7e]/;

/** Why the settings are wrong; undefined if they are right. */
export function findProxyProblem({ url: text, username, password }: EgressProxySettings): Fault | undefined {
  const example = 'write for example http://proxy.example:3128';
  if (NOT_PRINTABLE.test(text) || !URL.canParse(text)) return { problem: 'it is not a URL', hint: example };
  const url = new URL(text);
  if (url.protocol !== 'http:' && url.protocol !== 'https:')
    return { problem: `${url.protocol}// is not supported`, hint: example };
  if (url.username !== '' || url.password !== '')
    return { problem: 'the URL contains credentials', hint: 'remove them, and set username and password' };
  if (url.pathname !== '/' || url.search !== '' || url.hash !== '') return { problem: 'the URL has a path', hint: example };
  if (parseDestination(url.host, toDefaultPort(url)) === undefined)
    return { problem: 'the host or the port is malformed', hint: example };
  if (username?.includes(':') === true)
    return { problem: 'the user name contains a colon', hint: 'in HTTP Basic, a colon ends the user name (RFC 7617)' };
  if ((username === undefined) !== (password === undefined))
    return { problem: 'user name and password belong together', hint: 'set both, or none' };
  return undefined;
}

/** Prepares the proxy. Throws for settings that `findProxyProblem` rejects. */
export function createEgressProxy(settings: EgressProxySettings, ca: string | undefined): TunnelProxy {
  const problem = findProxyProblem(settings);
  const url = problem === undefined ? new URL(settings.url) : undefined;
  const destination = url && parseDestination(url.host, toDefaultPort(url));
  if (url === undefined || destination === undefined) throw new Error(problem?.problem);
  const { username, password } = settings;
  const credentials = password && Buffer.concat([Buffer.from(`${username}:`), password.expose()]).toString('base64');
  return {
    ...destination,
    context: url.protocol === 'https:' ? createClientContext({ ca }) : undefined,
    authorization: credentials === undefined ? '' : `Proxy-Authorization: Basic ${credentials}\r\n`,
  };
}

/** Opens a tunnel; rejects with DialFailure. Nothing reads the socket yet. */
export async function openTunnel(
  proxy: TunnelProxy,
  { host, port }: Destination,
  opening: Opening,
  handshakes: ClientHandshakes,
): Promise<Socket> {
  opening.phase = 'connect';
  const socket = connectToProxy(proxy, handshakes);
  opening.socket = socket;
  const authority = toAddressText(host, port);
  return new Promise((resolve, reject) => {
    let head = Buffer.alloc(0);
    const fail = (kind: FailureKind, text: string): void => {
      socket.destroy();
      reject(new DialFailure(kind, `egress proxy: ${text}`));
    };
    const onData = onEvent(socket, 'data', (chunk: Buffer) => {
      head = Buffer.concat([head, chunk]);
      const end = head.indexOf(HEAD_END);
      if (end === -1 && head.length <= MAX_HEAD_BYTES) return;
      const problem = end === -1 ? 'the response is too large' : findRefusal(head, end);
      if (problem !== undefined) return fail(problem === FORBIDDEN_TEXT ? 'blocked' : 'connect', problem);
      offEvent(socket, 'data', onData);
      handOver(socket, () => resolve(socket));
    });
    onceEvent(socket, proxy.context === undefined ? 'connect' : 'secureConnect', () => {
      socket.write(`CONNECT ${authority} HTTP/1.1\r\nHost: ${authority}\r\n${proxy.authorization}\r\n`, 'latin1');
    });
    onEvent(socket, 'error', (error) => {
      const code = toCode(error);
      fail(toFailureKind(code, 'connect'), `the connection failed (${code})`);
    });
    onceEvent(socket, 'close', () => fail('connect', 'it closed the connection'));
  });
}

/** Why the response opens no tunnel. */
function findRefusal(bytes: Buffer, end: number): string | undefined {
  const head = parseResponseHead(bytes.toString('latin1', 0, end));
  if (typeof head === 'string') return `the response is malformed: ${head}`;
  if (head.status === FORBIDDEN) return FORBIDDEN_TEXT;
  if (head.status < 200 || head.status > 299) return `responded ${head.status}`;
  // The endpoint speaks only after it was spoken to; these bytes could pass as its response.
  return bytes.length > end + HEAD_END.length ? 'it sent bytes before the tunnel was used' : undefined;
}

function connectToProxy({ host, port, context }: TunnelProxy, handshakes: ClientHandshakes): Socket {
  if (context === undefined) return connectTcp({ host, port, lookup: lookUpForConnect, noDelay: true });
  const socket = connectTls({
    host,
    port,
    lookup: lookUpForConnect,
    secureContext: context,
    rejectUnauthorized: true,
    ...(isIP(host) === 0 && { servername: host }),
  });
  handshakes.watch(socket);
  return socket;
}

function toDefaultPort({ protocol }: URL): number {
  return protocol === 'https:' ? 443 : 80;
}
