/** Sends one request to the API server: keep-alive connections, TLS with the cluster's CA, a deadline and a size limit. */
import { type ClientRequest, Agent as HttpAgent, request as httpRequest, type IncomingMessage } from 'node:http';
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https';
import type { Clock, Milliseconds } from '../../core/clock.ts';
import { GrowingBuffer } from '../../core/reading.ts';
import { onEvent } from '../../core/safe-events.ts';
import { type ClientReason, KubeError } from './error.ts';

/** How to reach the API server: with the service account of a pod, or through the socket of a kubectl that authenticates. */
export type ClusterAccess =
  | {
      readonly kind: 'pod';
      /** https. */
      readonly server: URL;
      /** PEM. Read before every request, because a mounted CA can be replaced. */
      readonly ca: string;
      /** Called before every request, and again after a 401. */
      token(): Promise<string>;
    }
  | {
      readonly kind: 'kubectl';
      readonly socketPath: string;
      /** Ends kubectl. */
      close(): void;
    };

/** A request with all its options. */
interface KubeRequest {
  readonly method: string;
  /** With the query. */
  readonly path: string;
  readonly accept: string;
  readonly content: { readonly type: string; readonly bytes: Buffer } | undefined;
  readonly timeout: Milliseconds;
  readonly maxBytes: number;
  /** A pod that responds could close connections, too. */
  readonly isToPod: boolean;
}

/** The response. */
export interface KubeResponse {
  readonly status: number;
  readonly body: Buffer;
  /** The Content-Type. */
  readonly type: string | undefined;
  /** In seconds, if the server sent Retry-After. */
  readonly retryAfter: number | undefined;
}

const KEPT = { keepAlive: true, maxSockets: 8 };

type Agent = HttpAgent | HttpsAgent;

const UNTRUSTED = 'its certificate is not signed by the given CA';
/** Readable messages for Node's error codes. */
const MESSAGES: Readonly<Record<string, string>> = {
  ECONNREFUSED: 'connection refused',
  ENOTFOUND: 'the host does not exist',
  EAI_AGAIN: 'the host name cannot be resolved at the moment',
  ECONNRESET: 'the connection was reset',
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: UNTRUSTED,
  SELF_SIGNED_CERT_IN_CHAIN: UNTRUSTED,
  DEPTH_ZERO_SELF_SIGNED_CERT: UNTRUSTED,
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: UNTRUSTED,
  CERT_SIGNATURE_FAILURE: UNTRUSTED,
  CERT_HAS_EXPIRED: 'its certificate has expired',
  ERR_TLS_CERT_ALTNAME_INVALID: 'its certificate is for other names',
};

/** Reuses connections until the CA changes. */
export class Transport {
  readonly #access: ClusterAccess;
  readonly #clock: Clock;
  #agent: { readonly agent: Agent; readonly ca: string | undefined } | undefined;

  constructor(access: ClusterAccess, clock: Clock) {
    this.#access = access;
    this.#clock = clock;
  }

  /** Rejects with KubeError (status 0) unless a complete response is received. */
  async send(outgoing: KubeRequest, token: string | undefined): Promise<KubeResponse> {
    try {
      const first = await this.#try(outgoing, token);
      if (!('isStale' in first)) return first;
      const second = await this.#try(outgoing, token);
      if (!('isStale' in second)) return second;
    } catch (thrown) {
      if (thrown instanceof KubeError) throw thrown;
      // Node throws for PEM that it cannot parse, and for a token with characters that headers cannot contain.
      throw this.#fail('NoCredentials', `the CA or token is invalid (${toMessage(thrown as Error)})`);
    }
    throw this.#fail('Unreachable', 'the connection was closed before the response');
  }

  /** Also ends a kubectl. */
  close(): void {
    this.#closeAgent();
    if (this.#access.kind === 'kubectl') this.#access.close();
  }

  #closeAgent(): void {
    this.#agent?.agent.destroy();
    this.#agent = undefined;
  }

  #try(outgoing: KubeRequest, token: string | undefined): Promise<KubeResponse | { readonly isStale: true }> {
    return new Promise((resolve, reject) => {
      const request = this.#open(outgoing, token);
      const end = (): void => {
        cancel();
        request.destroy();
      };
      const fail = (error: KubeError): void => {
        end();
        reject(error);
      };
      const cancel = this.#clock.after(outgoing.timeout, () =>
        fail(this.#fail('Timeout', `no complete response within ${outgoing.timeout / 1000} s`)),
      );
      let hasResponse = false;
      onEvent(request, 'error', (error: NodeJS.ErrnoException) => {
        // The server closed an idle connection at this moment: it did not process the request, so a GET can be sent again.
        const isRepeatable = outgoing.method === 'GET' && !outgoing.isToPod;
        if (request.reusedSocket && !hasResponse && isRepeatable && error.code === 'ECONNRESET') {
          end();
          resolve({ isStale: true });
        } else fail(this.#fail('Unreachable', toMessage(error)));
      });
      onEvent(request, 'response', (incoming) => {
        hasResponse = true;
        readResponse(incoming, outgoing.maxBytes, (received) => {
          cancel();
          if (typeof received === 'string')
            fail(this.#fail(received === 'too large' ? 'TooLarge' : 'Unreachable', toSentence(received, outgoing)));
          else resolve(received);
        });
      });
      request.end(outgoing.content?.bytes);
    });
  }

  #open({ method, path, accept, content }: KubeRequest, token: string | undefined): ClientRequest {
    const access = this.#access;
    const headers = {
      Accept: accept,
      'User-Agent': 'sidegate',
      ...(content === undefined ? undefined : { 'Content-Type': content.type, 'Content-Length': content.bytes.length }),
      ...(token === undefined ? undefined : { Authorization: `Bearer ${token}` }),
    };
    if (access.kind === 'kubectl') {
      const agent = this.#agentFor(undefined, () => new HttpAgent(KEPT));
      return httpRequest({ agent, socketPath: access.socketPath, method, path, headers: { Host: 'localhost', ...headers } });
    }
    const { server, ca } = access;
    // A new CA needs new connections, because the old ones were opened with another one.
    const agent = this.#agentFor(ca, () => new HttpsAgent({ ...KEPT, ca, minVersion: 'TLSv1.2' }));
    const host = server.hostname.replace(/^\[|\]$/g, '');
    return httpsRequest({ agent, host, port: server.port || 443, method, path, headers: { Host: server.host, ...headers } });
  }

  #agentFor(ca: string | undefined, create: () => Agent): Agent {
    if (this.#agent !== undefined && this.#agent.ca === ca) return this.#agent.agent;
    this.#closeAgent();
    const agent = create();
    this.#agent = { agent, ca };
    return agent;
  }

  #fail(reason: ClientReason, text: string): KubeError {
    return new KubeError(0, reason, `${this.#access.kind === 'kubectl' ? 'kubectl' : this.#access.server.host}: ${text}`);
  }
}

function readResponse(
  incoming: IncomingMessage,
  maxBytes: number,
  done: (response: KubeResponse | 'too large' | 'broken') => void,
): void {
  const bytes = new GrowingBuffer();
  onEvent(incoming, 'data', (chunk: Buffer) => {
    if (bytes.length + chunk.length > maxBytes) done('too large');
    else bytes.append(chunk, maxBytes);
  });
  onEvent(incoming, 'error', () => done('broken'));
  onEvent(incoming, 'end', () => {
    done({
      status: incoming.statusCode ?? 0,
      body: bytes.view(),
      type: incoming.headers['content-type'],
      retryAfter: toSeconds(incoming.headers['retry-after']),
    });
  });
}

function toSentence(failure: 'too large' | 'broken', { maxBytes, path }: KubeRequest): string {
  const [plain] = path.split('?');
  return failure === 'too large'
    ? `the response to ${plain} has more than ${maxBytes} bytes`
    : `the response to ${plain} is incomplete`;
}

function toSeconds(text: string | undefined): number | undefined {
  return text !== undefined && /^[0-9]{1,6}$/.test(text) ? Number(text) : undefined;
}

/** The message for a failed connection. OpenSSL's texts contain no useful detail, so other codes are shown as they are. */
function toMessage({ code, message }: NodeJS.ErrnoException): string {
  if (code === undefined) return message;
  const known = MESSAGES[code];
  return known === undefined ? code : `${known} (${code})`;
}
