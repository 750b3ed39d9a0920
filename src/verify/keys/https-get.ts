/** Fetches small public documents over HTTPS: bounded in size and time, only from the requested host, without redirects. */
import type { IncomingHttpHeaders } from 'node:http';
import { request } from 'node:https';
import type { Clock, Milliseconds } from '../../core/clock.ts';
import { GrowingBuffer } from '../../core/growing-buffer.ts';
import { lookUpForConnect } from '../../core/name-lookup.ts';
import { onEvent } from '../../core/safe-events.ts';

/** The limits of a fetch. */
export interface GetOptions {
  readonly maxBytes: number;
  readonly timeout: Milliseconds;
}

/** A fetched document. */
export interface RemoteDocument {
  readonly body: Buffer;
  /** How long caches may keep it (RFC 9111 §5.2.2.1, minus its age); undefined if the server does not specify it. */
  readonly freshFor: Milliseconds | undefined;
}

/** Fetches a document; rejects with RemoteFailure and nothing else. */
export type HttpsGet = (url: URL, options: GetOptions) => Promise<RemoteDocument>;

/** Why the fetch failed. The message contains the host, never the query. */
export class RemoteFailure extends Error {
  constructor(message: string) {
    super(message);
    this.name = 'RemoteFailure';
  }
}

/** Redirects connections to another address, with another CA; for tests. */
export interface ConnectOverride {
  readonly ca: Buffer;
  reach(host: string): { readonly host: string; readonly port: number };
}

const OK = 200;
const MAX_AGE = /^max-age="?(\d{1,9})"?$/;
const SECONDS = /^\d{1,9}$/;

/** Creates the fetch function. */
export function createHttpsGet(clock: Clock, connectOverride?: ConnectOverride): HttpsGet {
  return (url, { maxBytes, timeout }) =>
    new Promise((resolve, reject) => {
      const at = connectOverride?.reach(url.hostname) ?? {
        host: url.hostname.replace(/^\[|\]$/g, ''),
        port: Number(url.port || 443),
      };
      const outgoing = request({
        ...at,
        lookup: lookUpForConnect,
        servername: url.hostname,
        method: 'GET',
        path: `${url.pathname}${url.search}`,
        headers: { Host: url.host, Accept: '*/*', 'User-Agent': 'sidegate' },
        ca: connectOverride?.ca,
        agent: false,
      });
      const fail = (message: string): void => {
        cancel();
        outgoing.destroy();
        reject(new RemoteFailure(`${url.host}: ${message}`));
      };
      const cancel = clock.after(timeout, () => fail(`no response within ${timeout / 1000} s`));
      onEvent(outgoing, 'error', (error: NodeJS.ErrnoException) => fail(error.code ?? error.message));
      onEvent(outgoing, 'response', (incoming) => {
        if (incoming.statusCode !== OK) return fail(`responded with ${incoming.statusCode}`);
        const bytes = new GrowingBuffer();
        onEvent(incoming, 'data', (chunk: Buffer) => {
          if (bytes.length + chunk.length > maxBytes) fail(`more than ${maxBytes} bytes`);
          else bytes.append(chunk, maxBytes);
        });
        onEvent(incoming, 'error', () => fail('the response was cut off'));
        onEvent(incoming, 'end', () => {
          cancel();
          resolve({ body: bytes.view(), freshFor: toFreshness(incoming.headers) });
        });
      });
      outgoing.end();
    });
}

/** The freshness lifetime from Cache-Control and Age; 0 for a document that must not be cached. */
export function toFreshness(headers: IncomingHttpHeaders): Milliseconds | undefined {
  const directives = (headers['cache-control'] ?? '').split(',').map((directive) => directive.trim().toLowerCase());
  if (directives.includes('no-store') || directives.includes('no-cache')) return 0;
  const ages = directives.flatMap((directive) => MAX_AGE.exec(directive)?.[1] ?? []).map(Number);
  if (ages.length === 0) return undefined;
  const age = SECONDS.test(headers.age ?? '') ? Number(headers.age) : 0;
  return Math.max(0, Math.min(...ages) - age) * 1_000;
}
