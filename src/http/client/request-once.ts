/** Sends one request on a separate connection, and reads the response into memory: to the app's health, to keys and to collectors. */
import type { Clock, Milliseconds } from '../../core/clock.ts';
import { HeaderFields, type RawHeaders } from '../../core/head.ts';
import { GrowingBuffer } from '../../core/reading.ts';
import { onAbort } from '../../core/safe-events.ts';
import { DialFailure } from '../dial/dial.ts';
import { type ConnectionTarget, openConfigured } from './open-socket.ts';
import { HttpClient, Pool } from './pool.ts';
import { createClientContext } from './tls-context.ts';

/** The request, to a host that the config names. */
interface SingleRequest {
  /** http: or https:. */
  readonly url: URL;
  readonly method: string;
  /** Valid fields, without `Content-Length` and `Connection`. */
  readonly headers: RawHeaders;
  readonly body?: Buffer;
  /** Of the whole exchange. */
  readonly timeout: Milliseconds;
  /** The response ends before the content that exceeds it. */
  readonly maxBytes: number;
  /** CAs in PEM that may issue the certificate of the server; undefined: those of Node. */
  readonly ca?: string | Buffer | undefined;
  /** Aborting it fails the request with `aborted`. */
  readonly signal?: AbortSignal | undefined;
  /** Overrides what follows from the URL. */
  readonly target?: Partial<Omit<ConnectionTarget, 'context'>> | undefined;
}

/** The response. */
export interface SingleResponse {
  readonly status: number;
  readonly headers: HeaderFields;
  readonly body: Buffer;
  /** False: its content exceeds `maxBytes`. */
  readonly isComplete: boolean;
}

const MAX_HEAD_BYTES = 16_384;
const NO_BODY = Buffer.alloc(0);

/** Sends it; rejects with DialFailure. Redirects are not followed. The server could close an idle connection at the moment of its reuse. */
export function requestOnce(request: SingleRequest, clock: Clock): Promise<SingleResponse> {
  const { url, method, body = NO_BODY, timeout, maxBytes, signal } = request;
  const times = { connectTimeout: timeout, responseTimeout: timeout, idleResponseTimeout: timeout, idleTimeout: 0 };
  const target = toTarget(request);
  const pool = new Pool(new HttpClient(clock), { ...times, maxConnections: 1, maxHeadBytes: MAX_HEAD_BYTES }, (opening, reads) =>
    openConfigured(target, opening, reads, clock),
  );
  const framing = body.length === 0 ? [] : ['Content-Length', String(body.length)];
  const headers = [...request.headers, ...framing, 'Connection', 'close'];
  const endsAt = clock.monotonic() + timeout;
  const content = new GrowingBuffer();
  let status = 0;
  let fields: RawHeaders = [];
  let stopListening: (() => void) | undefined;
  const response = new Promise<SingleResponse>((resolve, reject) => {
    const finish = (isComplete: boolean): void =>
      resolve({ status, headers: new HeaderFields(fields), body: content.view(), isComplete });
    const exchange = pool.send(
      { method, path: `${url.pathname}${url.search}`, headers, body, repeatable: false, endsAt },
      {
        onInformation: () => undefined,
        onHead(code, _text, received) {
          status = code;
          fields = received;
        },
        onData(chunk, releaseBuffer) {
          if (content.length + chunk.length > maxBytes) {
            exchange.abort();
            finish(false);
          } else content.append(releaseBuffer === undefined ? chunk : Buffer.from(chunk), maxBytes);
          releaseBuffer?.();
          return undefined;
        },
        onEnd: () => finish(true),
        onFailure: ({ kind, detail }) => reject(new DialFailure(kind, detail)),
      },
    );
    pool.close();
    // Not by the next check: a process that stops does not wait.
    const cancel = (): void => {
      exchange.abort();
      reject(new DialFailure('aborted', 'the request was canceled'));
    };
    stopListening = signal && onAbort(signal, cancel);
  });
  return response.finally(() => stopListening?.());
}

/** The host of a URL, an IPv6 address without brackets. */
export function toHost({ hostname }: URL): string {
  return hostname.startsWith('[') ? hostname.slice(1, -1) : hostname;
}

function toTarget({ url, ca, target }: SingleRequest): ConnectionTarget {
  const isTls = url.protocol === 'https:';
  return {
    host: toHost(url),
    port: Number(url.port || (isTls ? 443 : 80)),
    context: isTls ? createClientContext({ ca }) : undefined,
    ...target,
  };
}
