/** Sends one request to the target's pinned addresses, on a connection of its own, and tells all that came. */
import { Agent as HttpAgent, type IncomingMessage, request as openHttp, type RequestOptions } from 'node:http';
import { Agent as HttpsAgent, request as openHttps } from 'node:https';
import { isIP, type LookupFunction } from 'node:net';
import type { Clock, Milliseconds } from '../../core/clock.ts';
import { guardCallback, onceEvent, onEvent } from '../../core/safe-events.ts';
import type { Target } from './target.ts';

/** Header fields in the order and spelling in which they are sent. */
export type Fields = readonly (readonly [string, string])[];

/** What is sent. */
export interface Outgoing {
  readonly fields: Fields;
  readonly body: Buffer;
  readonly isChunked: boolean;
}

/** What came back. */
export type Reply = Answer | Silence;

/** An answer. */
export interface Answer {
  readonly status: number;
  readonly headers: IncomingMessage['headers'];
  /** Who answered. */
  readonly address: string;
  /** The beginning of the content; may hold secrets, so it is searched and never shown. */
  readonly text: string;
  /** From the first byte sent to the last byte read. */
  readonly durationMs: Milliseconds;
}

/** No answer, and why. */
export interface Silence {
  readonly failure: string;
  /** False where nobody could be talked to at all. */
  readonly isConnected: boolean;
}

/** How to connect. */
export interface ClientOptions {
  readonly timeoutMs: Milliseconds;
  readonly clock: Clock;
  /** PEM. */
  readonly ca: Buffer | undefined;
  readonly isCertificateChecked: boolean;
}

/** Sends one request; never rejects. */
export type SendRequest = (outgoing: Outgoing) => Promise<Reply>;

const MOST_READ = 65_536;
const CHUNKS = 3;

/** Prepares to send to one target. */
export function createClient(target: Target, options: ClientOptions): SendRequest {
  const isTls = target.url.protocol === 'https:';
  const open = isTls ? openHttps : openHttp;
  const host = target.url.hostname.replace(/^\[|\]$/g, '');
  const shared: RequestOptions & Record<string, unknown> = {
    host,
    port: target.url.port === '' ? (isTls ? 443 : 80) : Number(target.url.port),
    path: `${target.url.pathname}${target.url.search}`,
    method: 'POST',
    // One's own agent: the process-wide one may be told by the environment to use a proxy, which would resolve the name anew.
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
        finish(silence(`no answer within ${options.timeoutMs / 1000} s`)),
      );
      const silence = (failure: string): Silence => ({ failure, isConnected });
      const finish = (reply: Reply): void => {
        cancel();
        // Resolving twice does nothing: an answer that came before the connection broke stays the answer.
        resolve(reply);
        request.destroy();
      };
      onceEvent(request, 'socket', (socket) =>
        onceEvent(socket, isTls ? 'secureConnect' : 'connect', () => {
          isConnected = true;
        }),
      );
      onEvent(request, 'error', (error: NodeJS.ErrnoException) => finish(silence(error.code ?? 'the connection broke')));
      onceEvent(request, 'response', async (incoming) => {
        const address = incoming.socket.remoteAddress ?? '';
        const text = await readText(incoming);
        const { statusCode: status = 0, headers } = incoming;
        finish({ status, headers, address, text, durationMs: options.clock.monotonic() - begun });
      });
      write(request, outgoing);
    });
}

/** The name is resolved once, before: a second answer of the resolver could lead elsewhere. */
function pinTo(addresses: readonly string[]): LookupFunction {
  const all = addresses.map((address) => ({ address, family: isIP(address) }));
  const [{ address, family } = { address: '', family: 4 }] = all;
  return guardCallback((_host, options, done) => {
    // `localhost` has two addresses, and apps often listen on one of them only: node:net tries them in turn.
    if (options.all === true) done(null, all);
    else done(null, address, family);
  });
}

/** As a flat list, for node:http to keep order, case and repetition; Host and framing are ours to say then. */
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

/** Enough to search; an answer that breaks off counts as far as it came, as senders go by the status. */
function readText(incoming: IncomingMessage): Promise<string> {
  return new Promise((resolve) => {
    const chunks: Buffer[] = [];
    let length = 0;
    const finish = (): void => resolve(Buffer.concat(chunks).toString('latin1', 0, MOST_READ));
    onEvent(incoming, 'data', (chunk: Buffer) => {
      chunks.push(chunk);
      length += chunk.length;
      if (length >= MOST_READ) finish();
    });
    onceEvent(incoming, 'end', finish);
    onceEvent(incoming, 'error', finish);
    onceEvent(incoming, 'close', finish);
  });
}
