/** Sends one request to the API server: keep-alive connections, TLS with the cluster's CA, a deadline and a size limit. */
import { Agent as HttpAgent, request as httpRequest, type IncomingMessage, type RequestOptions } from 'node:http';
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https';
import { getCACertificates } from 'node:tls';
import type { Clock, Milliseconds } from '../../core/clock.ts';
import { GrowingBuffer } from '../../core/reading.ts';
import { onEvent } from '../../core/safe-events.ts';
import { trimEnd } from '../../core/text.ts';
import type { ClusterAccess, Credentials } from './access.ts';
import { type ClientReason, KubeError } from './error.ts';

/** A request with all its options. */
interface KubeRequest {
  readonly method: string;
  /** With the query. */
  readonly path: string;
  readonly accept: string;
  readonly content: { readonly type: string; readonly bytes: Buffer } | undefined;
  readonly timeout: Milliseconds;
  readonly maxBytes: number;
}

/** The response. */
export interface KubeResponse {
  readonly status: number;
  readonly body: Buffer;
  /** In seconds, if the server sent Retry-After. */
  readonly retryAfter: number | undefined;
}

const SLASH = new Set('/');
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

/** Reuses connections until the CA or the client certificate changes. */
export class Transport {
  readonly #access: ClusterAccess;
  readonly #clock: Clock;
  #agent: { readonly agent: Agent; readonly madeOf: readonly unknown[] } | undefined;

  constructor(access: ClusterAccess, clock: Clock) {
    this.#access = access;
    this.#clock = clock;
  }

  /** Rejects with KubeError (status 0) unless a complete response is received. */
  async send(outgoing: KubeRequest, credentials: Credentials): Promise<KubeResponse> {
    try {
      const first = await this.#try(outgoing, credentials);
      if (!('isStale' in first)) return first;
      const second = await this.#try(outgoing, credentials);
      if (!('isStale' in second)) return second;
    } catch (thrown) {
      if (thrown instanceof KubeError) throw thrown;
      // Node throws for PEM that it cannot parse, and for a token with characters that headers cannot contain.
      throw this.#fail('NoCredentials', `the certificate, key, CA or token is invalid (${toMessage(thrown as Error)})`);
    }
    throw this.#fail('Unreachable', 'the connection was closed before the response');
  }

  close(): void {
    this.#agent?.agent.destroy();
    this.#agent = undefined;
  }

  #try(outgoing: KubeRequest, credentials: Credentials): Promise<KubeResponse | { readonly isStale: true }> {
    return new Promise((resolve, reject) => {
      const request = this.#open(outgoing, credentials);
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
        if (request.reusedSocket && !hasResponse && outgoing.method === 'GET' && error.code === 'ECONNRESET') {
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

  #open({ method, path, accept, content }: KubeRequest, credentials: Credentials): ReturnType<typeof httpRequest> {
    const { server, headers } = this.#access;
    const options: RequestOptions = {
      agent: this.#agentFor(credentials),
      host: server.hostname.replace(/^\[|\]$/g, ''),
      port: server.port || (server.protocol === 'http:' ? 80 : 443),
      method,
      path: `${trimEnd(server.pathname, SLASH)}${path}`,
      headers: {
        ...headers,
        Host: server.host,
        Accept: accept,
        'User-Agent': 'sidegate',
        ...(content === undefined ? undefined : { 'Content-Type': content.type, 'Content-Length': content.bytes.length }),
        ...(credentials.token === undefined ? undefined : { Authorization: `Bearer ${credentials.token}` }),
      },
    };
    return server.protocol === 'http:' ? httpRequest(options) : httpsRequest(options);
  }

  /** A new certificate or CA needs new connections, because the old ones were opened with another identity. */
  #agentFor({ cert, key }: Credentials): Agent {
    const { ca } = this.#access;
    const madeOf = [ca, cert, key];
    if (this.#agent !== undefined && madeOf.every((part, index) => part === this.#agent?.madeOf[index])) return this.#agent.agent;
    this.close();
    const agent = this.#createAgent(ca, cert, key);
    this.#agent = { agent, madeOf };
    return agent;
  }

  #createAgent(ca: string | undefined, cert: string | undefined, key: string | undefined): Agent {
    const { server, serverName, skipVerify, proxyEnv } = this.#access;
    // http is allowed on loopback only, where no proxy is used.
    if (server.protocol === 'http:') return new HttpAgent(KEPT);
    return new HttpsAgent({
      ...KEPT,
      ...(proxyEnv === undefined ? undefined : { proxyEnv: { ...proxyEnv } }),
      ca: ca ?? [...getCACertificates('default'), ...getCACertificates('system')],
      rejectUnauthorized: skipVerify !== true,
      minVersion: 'TLSv1.2',
      ...(serverName === undefined ? undefined : { servername: serverName }),
      ...(cert === undefined ? undefined : { cert }),
      ...(key === undefined ? undefined : { key }),
    });
  }

  #fail(reason: ClientReason, text: string): KubeError {
    return new KubeError(0, reason, `${this.#access.server.host}: ${text}`);
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
