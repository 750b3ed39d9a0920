/** Fetches small public documents by https: bounded in size and time, from the very host that was asked for, without redirects. */
import type { IncomingHttpHeaders } from 'node:http';
import { request } from 'node:https';
import type { Clock, Milliseconds } from '../../core/clock.ts';
import { GrowingBuffer } from '../../core/growing-buffer.ts';
import { onEvent } from '../../core/safe-events.ts';

/** How far a fetch may go. */
export interface GetOptions {
  readonly maxBytes: number;
  readonly timeout: Milliseconds;
}

/** A document that was fetched. */
export interface RemoteDocument {
  readonly body: Buffer;
  /** How long its server lets caches keep it (RFC 9111 §5.2.2.1, less its age); undefined if the server does not say. */
  readonly freshFor: Milliseconds | undefined;
}

/** Fetches a document; rejects with RemoteFailure and nothing else. */
export type HttpsGet = (url: URL, options: GetOptions) => Promise<RemoteDocument>;

/** Why there is no document; the text names the host, never the query. */
export class RemoteFailure extends Error {
  constructor(message: string) {
    super(message);
    this.name = 'RemoteFailure';
  }
}

/** Where a host is really found, and by which authorities; for tests. */
export interface Detour {
  readonly ca: Buffer;
  reach(host: string): { readonly host: string; readonly port: number };
}

const OK = 200;
const MAX_AGE = /^max-age="?(\d{1,9})"?$/;
const SECONDS = /^\d{1,9}$/;

/** Builds the fetch. */
export function createHttpsGet(clock: Clock, detour?: Detour): HttpsGet {
  return (url, { maxBytes, timeout }) =>
    new Promise((resolve, reject) => {
      const at = detour?.reach(url.hostname) ?? { host: url.hostname.replace(/^\[|\]$/g, ''), port: Number(url.port || 443) };
      const outgoing = request({
        ...at,
        servername: url.hostname,
        method: 'GET',
        path: `${url.pathname}${url.search}`,
        headers: { Host: url.host, Accept: '*/*', 'User-Agent': 'sidegate' },
        ca: detour?.ca,
        agent: false,
      });
      const fail = (message: string): void => {
        cancel();
        outgoing.destroy();
        reject(new RemoteFailure(`${url.host}: ${message}`));
      };
      const cancel = clock.after(timeout, () => fail(`no answer within ${timeout / 1000} s`));
      onEvent(outgoing, 'error', (error: NodeJS.ErrnoException) => fail(error.code ?? error.message));
      onEvent(outgoing, 'response', (incoming) => {
        if (incoming.statusCode !== OK) return fail(`answered ${incoming.statusCode}`);
        const bytes = new GrowingBuffer();
        onEvent(incoming, 'data', (chunk: Buffer) => {
          if (bytes.length + chunk.length > maxBytes) fail(`more than ${maxBytes} bytes`);
          else bytes.append(chunk, maxBytes);
        });
        onEvent(incoming, 'error', () => fail('the answer broke off'));
        onEvent(incoming, 'end', () => {
          cancel();
          resolve({ body: bytes.view(), freshFor: toFreshness(incoming.headers) });
        });
      });
      outgoing.end();
    });
}

/** From Cache-Control and Age. A document that must not be kept is fresh for 0 ms. */
export function toFreshness(headers: IncomingHttpHeaders): Milliseconds | undefined {
  const directives = (headers['cache-control'] ?? '').split(',').map((directive) => directive.trim().toLowerCase());
  if (directives.includes('no-store') || directives.includes('no-cache')) return 0;
  const ages = directives.flatMap((directive) => MAX_AGE.exec(directive)?.[1] ?? []).map(Number);
  if (ages.length === 0) return undefined;
  const age = SECONDS.test(headers.age ?? '') ? Number(headers.age) : 0;
  return Math.max(0, Math.min(...ages) - age) * 1_000;
}
