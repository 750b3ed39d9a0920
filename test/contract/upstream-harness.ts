/** The harness of the upstream contract suites. */
import { afterEach } from 'vitest';
import { type Clock, systemClock } from '../../src/core/clock.ts';
import type { RawHeaders } from '../../src/core/head.ts';
import type {
  Upstream,
  UpstreamExchange,
  UpstreamFailure,
  UpstreamOptions,
  UpstreamRequest,
} from '../../src/http/client/upstream.ts';
import { type Script, startScriptApp } from '../support/script-app.ts';

/** Everything that a listener received. */
export interface Heard {
  informations: [number, RawHeaders][];
  status?: number;
  statusText?: string;
  headers?: RawHeaders;
  readonly content: Buffer;
  trailers?: RawHeaders;
  failure?: UpstreamFailure;
  exchange?: UpstreamExchange;
}

/** Builds the implementation under test. */
export type Make = (options: UpstreamOptions, clock: Clock) => Upstream;

const closers: (() => void)[] = [];
afterEach(closeNow);

/** Closes something after the test. */
export function closeAfterTest(close: () => void): void {
  closers.push(close);
}

/** Closes everything that was registered for the end of the test. */
export function closeNow(): void {
  for (const close of closers.splice(0)) close();
}

/** The port of an app that runs a script on each connection, until the test is over. */
export async function startScript(script: Script): Promise<number> {
  const app = await startScriptApp(script);
  closers.push(() => app.close());
  return app.port;
}

function toOptions(port: number, over: Partial<UpstreamOptions> = {}): UpstreamOptions {
  return {
    host: '127.0.0.1',
    port,
    connectTimeout: 1_000,
    responseTimeout: 5_000,
    idleResponseTimeout: over.responseTimeout ?? 5_000,
    idleTimeout: 4_000,
    maxConnections: 4,
    maxHeadBytes: 16_384,
    ...over,
  };
}

/** A request without a body, which may be repeated. */
export const GET: UpstreamRequest = { method: 'GET', path: '/', headers: ['Host', 'a'], body: Buffer.alloc(0), repeatable: true };
/** A request with a body, which must not be repeated. */
export const POST: UpstreamRequest = {
  method: 'POST',
  path: '/',
  headers: ['Host', 'a', 'Content-Length', '2'],
  body: Buffer.from('{}'),
  repeatable: false,
};

/** Sends a request and reads the response to its end. */
export function ask(upstream: Upstream, request: UpstreamRequest = GET, onStart?: (heard: Heard) => void): Promise<Heard> {
  return new Promise((resolve) => {
    // Stored without a copy: the listener owns its chunks.
    const chunks: Buffer[] = [];
    const heard: Heard = {
      informations: [],
      get content() {
        return Buffer.concat(chunks);
      },
    };
    heard.exchange = upstream.send(request, {
      onInformation: (status, headers) => void heard.informations.push([status, headers]),
      onHead: (status, statusText, headers) => void Object.assign(heard, { status, statusText, headers }),
      onData: (chunk) => {
        chunks.push(chunk);
        return undefined;
      },
      onEnd: (trailers) => resolve(Object.assign(heard, { trailers })),
      onFailure: (failure) => resolve(Object.assign(heard, { failure })),
    });
    onStart?.(heard);
  });
}

/** Opens pools that are closed after the test. */
export function toOpen(make: Make): (port: number, over?: Partial<UpstreamOptions>, clock?: Clock) => Upstream {
  return (port, over = {}, clock = systemClock) => {
    const upstream = make(toOptions(port, over), clock);
    closers.push(() => upstream.close());
    return upstream;
  };
}
