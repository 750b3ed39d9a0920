/** Sends one request to the target's pinned addresses, on a new connection, and returns the whole response. */

import { Agent as HttpAgent, type IncomingMessage, request as openHttp, type RequestOptions } from 'node:http';
import { Agent as HttpsAgent, request as openHttps } from 'node:https';
import { isIP, type LookupFunction } from 'node:net';
import type { Clock, Milliseconds } from '../../core/clock.ts';
import { IpRanges } from '../../core/ip-address.ts';
import { guardCallback, onceEvent, onEvent } from '../../core/safe-events.ts';
import type { Resolve } from '../../http/dial/resolve.ts';

/** Header fields, sent in this order and spelling. */
export type Fields = readonly (readonly [string, string])[];

/** A request. */
interface Outgoing {
  readonly fields: Fields;
  readonly body: Buffer;
  readonly isChunked: boolean;
}

/** The result of a request. */
export type ProbeReply = ProbeResponse | NoResponse;

/** A response. */
export interface ProbeResponse {
  readonly status: number;
  readonly headers: IncomingMessage['headers'];
  /** The address that sent it. */
  readonly address: string;
  /** The beginning of the body. It may contain secrets, so it is searched but never shown. */
  readonly text: string;
  /** From the start of the request to the end of the response. */
  readonly durationMs: Milliseconds;
}

/** There was no response. */
export interface NoResponse {
  readonly failure: string;
  /** False if no connection could be established. */
  readonly isConnected: boolean;
}

/** Sends one request; never rejects. */
export type SendRequest = (outgoing: Outgoing) => Promise<ProbeReply>;

const MAX_READ_BYTES = 65_536;
const CHUNKS = 3;

/** Creates a client for one target. */
export function createClient(
  target: ProbeTarget,
  options: {
    readonly timeoutMs: Milliseconds;
    readonly clock: Clock;
    /** PEM. */
    readonly ca: Buffer | undefined;
    readonly isCertificateChecked: boolean;
  },
): SendRequest {
  const isTls = target.url.protocol === 'https:';
  const open = isTls ? openHttps : openHttp;
  const host = target.url.hostname.replace(/^\[|\]$/g, '');
  const shared: RequestOptions & Record<string, unknown> = {
    host,
    port: target.url.port === '' ? (isTls ? 443 : 80) : Number(target.url.port),
    path: `${target.url.pathname}${target.url.search}`,
    method: 'POST',
    // A separate agent: the global one may use a proxy from the environment, which would resolve the name again.
    agent: isTls ? new HttpsAgent({ maxCachedSessions: 0 }) : new HttpAgent(),
    lookup: pinTo(target.addresses),
    ...(isTls
      ? { ca: options.ca, rejectUnauthorized: options.isCertificateChecked, ...(isIP(host) === 0 && { servername: host }) }
      : {}),
  };
  return (outgoing) =>
    new Promise((resolve) => {
      const begun = options.clock.monotonic();
      let isConnected = false;
      const request = open({ ...shared, headers: toHeaders(target.url.host, outgoing) });
      const cancel = options.clock.after(options.timeoutMs, () =>
        finish(toNoResponse(`no response within ${options.timeoutMs / 1000} s`)),
      );
      const toNoResponse = (failure: string): NoResponse => ({ failure, isConnected });
      const finish = (reply: ProbeReply): void => {
        cancel();
        // Only the first call counts: a response stays the reply even if the connection is lost afterwards.
        resolve(reply);
        request.destroy();
      };
      onceEvent(request, 'socket', (socket) =>
        onceEvent(socket, isTls ? 'secureConnect' : 'connect', () => {
          isConnected = true;
        }),
      );
      onEvent(request, 'error', (error: NodeJS.ErrnoException) => finish(toNoResponse(error.code ?? 'the connection was lost')));
      onceEvent(request, 'response', async (incoming) => {
        const address = incoming.socket.remoteAddress ?? '';
        const text = await readText(incoming);
        const { statusCode: status = 0, headers } = incoming;
        finish({ status, headers, address, text, durationMs: options.clock.monotonic() - begun });
      });
      write(request, outgoing);
    });
}

/** Pins the addresses that were checked: a second DNS lookup could return others (DNS rebinding). */
function pinTo(addresses: readonly string[]): LookupFunction {
  const all = addresses.map((address) => ({ address, family: isIP(address) }));
  const [{ address, family } = { address: '', family: 4 }] = all;
  return guardCallback((_host, options, done) => {
    // `localhost` has two addresses, and apps often listen on only one: node:net tries them in turn.
    if (options.all === true) done(null, all);
    else done(null, address, family);
  });
}

/** A flat list makes node:http keep order, case and repetition; it then adds neither Host nor framing. */
function toHeaders(host: string, { fields, body, isChunked }: Outgoing): string[] {
  const isHostGiven = fields.some(([name]) => name.toLowerCase() === 'host');
  const framing = isChunked ? ['Transfer-Encoding', 'chunked'] : ['Content-Length', String(body.length)];
  return [...(isHostGiven ? [] : ['Host', host]), 'Connection', 'close', ...fields.flat(), ...framing];
}

function write(request: NodeJS.WritableStream, { body, isChunked }: Outgoing): void {
  const size = isChunked ? Math.max(1, Math.ceil(body.length / CHUNKS)) : Math.max(1, body.length);
  for (let at = 0; at < body.length; at += size) request.write(body.subarray(at, at + size));
  request.end();
}

/** Reads enough to search. If the response is cut off, the part received counts, because senders only need the status. */
function readText(incoming: IncomingMessage): Promise<string> {
  return new Promise((resolve) => {
    const chunks: Buffer[] = [];
    let length = 0;
    const finish = (): void => resolve(Buffer.concat(chunks).toString('latin1', 0, MAX_READ_BYTES));
    onEvent(incoming, 'data', (chunk: Buffer) => {
      chunks.push(chunk);
      length += chunk.length;
      if (length >= MAX_READ_BYTES) finish();
    });
    onceEvent(incoming, 'end', finish);
    onceEvent(incoming, 'error', finish);
    onceEvent(incoming, 'close', finish);
  });
}

// Decides whether an endpoint may be probed, and resolves its addresses before anything is sent.

/** An endpoint, and the only addresses to connect to. */
export interface ProbeTarget {
  readonly url: URL;
  readonly addresses: readonly string[];
  /** All addresses are loopback or private. */
  readonly isPrivate: boolean;
}

/** Loopback, RFC 1918, shared address space (RFC 6598), unique local (RFC 4193). Not link-local: cloud metadata services return credentials there. */
const PRIVATE_IPV4 = ['127.0.0.0/8', '10.0.0.0/8', '172.16.0.0/12', '192.168.0.0/16', '100.64.0.0/10'];
const PRIVATE_IPV6 = ['::1/128', 'fc00::/7'];

const privateRanges = new IpRanges([...PRIVATE_IPV4, ...PRIVATE_IPV6]);

/** Returns the target, or why it may not be probed. `ownedHost`: the host that the user declares as their own. */
export async function findTarget(
  text: string,
  { ownedHost, resolve }: { readonly ownedHost: string | undefined; readonly resolve: Resolve },
): Promise<ProbeTarget | { readonly problem: string }> {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (url === undefined || !['http:', 'https:'].includes(url.protocol)) return { problem: `${text} is not an http or https URL` };
  if (url.username !== '' || url.password !== '') {
    return {
      problem: 'the URL contains a password, which every user of this machine could read; use --header-env Authorization=NAME',
    };
  }
  const host = toPlainHost(url.hostname);
  const isOwned = ownedHost !== undefined && toPlainHost(ownedHost.toLowerCase()) === host;
  // A literal address needs no DNS lookup.
  const addresses = isIP(host) === 0 ? await resolveOrNothing(host, resolve) : [host];
  if (addresses.length === 0) return { problem: `cannot resolve ${host}` };
  const outside = addresses.find((each) => !privateRanges.has(each));
  if (outside !== undefined && !isOwned) return { problem: toNotOwned(host, outside, ownedHost) };
  return { url, addresses, isPrivate: outside === undefined };
}

function toNotOwned(host: string, outside: string, ownedHost: string | undefined): string {
  const place = outside === host ? host : `${host} (${outside})`;
  const named = ownedHost === undefined ? '' : `, not ${ownedHost}`;
  return `${place} is neither a loopback nor a private address, and a probe sends forged events; if the host is yours, add --yes-i-own-this ${host}${named}`;
}

async function resolveOrNothing(host: string, resolve: Resolve): Promise<readonly string[]> {
  try {
    return await resolve(host);
  } catch {
    return [];
  }
}

function toPlainHost(host: string): string {
  return host.startsWith('[') && host.endsWith(']') ? host.slice(1, -1) : host;
}
