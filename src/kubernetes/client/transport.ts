/** One request to the API server and its answer: kept-alive connections, TLS by the cluster's authority, a deadline, a bound. */
import { Agent as HttpAgent, request as httpRequest, type IncomingMessage, type RequestOptions } from 'node:http';
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https';
import { getCACertificates } from 'node:tls';
import type { Clock, Milliseconds } from '../../core/clock.ts';
import { GrowingBuffer } from '../../core/growing-buffer.ts';
import { onEvent } from '../../core/safe-events.ts';
import { trimEnd } from '../../core/trim.ts';
import type { ClusterAccess, Credentials } from './access.ts';
import { KubeError, type OwnReason } from './error.ts';

/** A request with all that it needs. */
export interface Outgoing {
  readonly method: string;
  /** With its query. */
  readonly path: string;
  readonly accept: string;
  readonly content: { readonly type: string; readonly bytes: Buffer } | undefined;
  readonly timeout: Milliseconds;
  readonly maxBytes: number;
}

/** What came back. */
export interface Answer {
  readonly status: number;
  readonly body: Buffer;
  /** Seconds, where the server named some. */
  readonly retryAfter: number | undefined;
}

const SLASH = new Set('/');
const KEPT = { keepAlive: true, maxSockets: 8 };

type Agent = HttpAgent | HttpsAgent;

/** Node's `bad response` codes are of no use to who reads them; these are. */
const TROUBLES: Readonly<Record<string, string>> = {
  ECONNREFUSED: 'nothing listens there',
  ENOTFOUND: 'there is no such host',
  EAI_AGAIN: 'the host name cannot be looked up now',
  ECONNRESET: 'the connection broke off',
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: 'its certificate is not by the authority that is given',
  SELF_SIGNED_CERT_IN_CHAIN: 'its certificate is not by the authority that is given',
  DEPTH_ZERO_SELF_SIGNED_CERT: 'its certificate is not by the authority that is given',
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: 'its certificate is not by the authority that is given',
  CERT_SIGNATURE_FAILURE: 'its certificate is not by the authority that is given',
  CERT_HAS_EXPIRED: 'its certificate has ended',
  ERR_TLS_CERT_ALTNAME_INVALID: 'its certificate has other names',
};

/** Sends requests over connections that are kept for as long as authority and client certificate stay. */
export class Transport {
  readonly #access: ClusterAccess;
  readonly #clock: Clock;
  #agent: { readonly agent: Agent; readonly madeOf: readonly unknown[] } | undefined;

  constructor(access: ClusterAccess, clock: Clock) {
    this.#access = access;
    this.#clock = clock;
  }

  /** Rejects with KubeError, status 0, where no whole answer came. */
  async send(outgoing: Outgoing, credentials: Credentials): Promise<Answer> {
    try {
      const first = await this.#try(outgoing, credentials);
      if (!('isStale' in first)) return first;
      const second = await this.#try(outgoing, credentials);
      if (!('isStale' in second)) return second;
    } catch (thrown) {
      if (thrown instanceof KubeError) throw thrown;
      // Node throws for PEM that it cannot read, and for a token that fits into no header.
      throw this.#fail('NoCredentials', `certificate, key, authority or token cannot be used (${toTrouble(thrown as Error)})`);
    }
    throw this.#fail('Unreachable', 'the connection broke off');
  }

  close(): void {
    this.#agent?.agent.destroy();
    this.#agent = undefined;
  }

  #try(outgoing: Outgoing, credentials: Credentials): Promise<Answer | { readonly isStale: true }> {
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
        fail(this.#fail('Timeout', `no whole answer within ${outgoing.timeout / 1000} s`)),
      );
      let isAnswered = false;
      onEvent(request, 'error', (error: NodeJS.ErrnoException) => {
        // A kept connection that the server had just closed: nothing was done, so a question may be asked again.
        if (request.reusedSocket && !isAnswered && outgoing.method === 'GET' && error.code === 'ECONNRESET') {
          end();
          resolve({ isStale: true });
        } else fail(this.#fail('Unreachable', toTrouble(error)));
      });
      onEvent(request, 'response', (incoming) => {
        isAnswered = true;
        readAnswer(incoming, outgoing.maxBytes, (answer) => {
          cancel();
          if (typeof answer === 'string')
            fail(this.#fail(answer === 'too large' ? 'TooLarge' : 'Unreachable', toSentence(answer, outgoing)));
          else resolve(answer);
        });
      });
      request.end(outgoing.content?.bytes);
    });
  }

  #open({ method, path, accept, content }: Outgoing, credentials: Credentials): ReturnType<typeof httpRequest> {
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

  /** A new certificate or authority means new connections: the old ones were opened as someone else. */
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
    // Plain http is for loopback alone, where no proxy has a part.
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

  #fail(reason: OwnReason, text: string): KubeError {
    return new KubeError(0, reason, `${this.#access.server.host}: ${text}`);
  }
}

function readAnswer(incoming: IncomingMessage, maxBytes: number, done: (answer: Answer | 'too large' | 'broken') => void): void {
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

function toSentence(answer: 'too large' | 'broken', { maxBytes, path }: Outgoing): string {
  const [plain] = path.split('?');
  return answer === 'too large' ? `the answer to ${plain} has more than ${maxBytes} bytes` : `the answer to ${plain} broke off`;
}

function toSeconds(text: string | undefined): number | undefined {
  return text !== undefined && /^[0-9]{1,6}$/.test(text) ? Number(text) : undefined;
}

/** What went wrong on the way; OpenSSL's own texts name no secret, but no path of ours either, so the code is enough. */
function toTrouble({ code, message }: NodeJS.ErrnoException): string {
  if (code === undefined) return message;
  const known = TROUBLES[code];
  return known === undefined ? code : `${known} (${code})`;
}
