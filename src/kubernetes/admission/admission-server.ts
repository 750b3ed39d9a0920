/** The port that the API server calls: https, one path, AdmissionReviews in JSON, bounded in size and time. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Server as TlsServer } from 'node:https';
import type { TLSSocket } from 'node:tls';
import type { Clock } from '../../core/clock.ts';
import type { ListenAddress } from '../../core/listen-address.ts';
import type { Reason } from '../../core/refusal.ts';
import { onceEvent, onEvent } from '../../core/safe-events.ts';
import { RequestOrigin } from '../../gateway/server/content-origin.ts';
import { type ListenMemory, TLS_CONNECTION_BYTES } from '../../gateway/server/limits.ts';
import { Listener, type Listening } from '../../gateway/server/listener.ts';
import { IncomingBody } from '../../gateway/server/request-body.ts';
import { createStrictServer, endAfterUpgradeWish } from '../../gateway/server/strict-server.ts';
import type { TlsContexts } from '../../gateway/server/tls.ts';
import { AdmissionPeers, type AdmittedRequest, type PeerLimits } from './admission-peers.ts';
import type { CallerNames } from './caller-names.ts';
import type { ConnectionLimit, TurnedAwayLabel } from './injector-metrics.ts';
import type { ReviewReply } from './reviewer.ts';

/** What the server stands on. */
export interface AdmissionServerParts {
  readonly address: ListenAddress;
  readonly tls: TlsContexts;
  readonly clock: Clock;
  readonly memory: ListenMemory;
  /** Answers the content of one request; `isVerified`: it is the API server that asks. */
  readonly review: (content: Buffer, isVerified: boolean) => Promise<ReviewReply>;
  readonly callers: CallerNames;
  /** Nobody else is answered. */
  readonly requiresVerified: boolean;
  readonly perClient: Omit<PeerLimits, 'maxBytes'>;
  readonly onConnectionClosed: (limit: ConnectionLimit) => void;
  readonly onTurnedAway: (reason: TurnedAwayLabel) => void;
  readonly onInFlight: (delta: 1 | -1) => void;
  readonly onHandshakeFailed: (problem: string) => void;
}

const PATH = '/inject';
/** The API server takes objects of 3 MiB at most, and wraps this one into a review. */
const LARGEST_REVIEW = 4 * 1024 * 1024;
/**
 * Where strangers ask, these bound what all of it takes, within the chart's 256 MiB, of which the heap may have half (128 MiB):
 * contents, outside of the heap: 16 MiB, 1,600 reviews of common pods; the one review that is parsed at a time: 8 MiB of text and
 * at most 20 MB of values (the worst 131,072 that were found made 17 MB); the answers that wait for warnings, 300 ms at most: what
 * the contents have, in base64 and with 20 MB for the one patch that is made at a time.
 * In a smaller container they are smaller (gateway/server/memory.ts).
 */
export const MOST_CONTENT = 16 * 1024 * 1024;
/** For one client network: two of the largest reviews. */
const MOST_CONTENT_OF_CLIENT = 2 * LARGEST_REVIEW;
const MOST_CONNECTIONS = 1_024;
/** What reviews are read under. */
export const ADMISSION_LIMITS = {
  maxHeaderBytes: 16_384,
  headTimeout: 10_000,
  bodyTimeout: 15_000,
  bodyIdleTimeout: 5_000,
  bodyMinRate: 500,
  memoryShed: 0.8,
  streamMinRate: 500,
  streamTimeout: 15_000,
  // The API server lets go of an idle connection after 90 s: were we first, a review could be on its way just then, and would be lost.
  keepAliveTimeout: 180_000,
  maxConnections: MOST_CONNECTIONS,
};
const CONTENT_TYPE = /^application\/json *(?:;|$)/i;
const REASONS: Partial<Readonly<Record<Reason, readonly [TurnedAwayLabel, number]>>> = {
  body_too_large: ['body_too_large', 413],
  body_timeout: ['body_timeout', 408],
  buffer_full: ['overloaded', 503],
};

/** The listening port. */
export class AdmissionServer {
  readonly #parts: AdmissionServerParts;
  readonly #server: TlsServer;
  readonly #listener: Listener;
  readonly #peers: AdmissionPeers;
  /** Of each connection, the generation in which it was opened. */
  readonly #generations = new WeakMap<object, number>();
  #generation = 0;
  #underWay = 0;
  #isClosing = false;
  #onIdle: () => void = () => undefined;

  constructor(parts: AdmissionServerParts) {
    this.#parts = parts;
    this.#server = createStrictServer(ADMISSION_LIMITS, parts.tls, {}) as TlsServer;
    this.#peers = new AdmissionPeers(this.#server, {
      limits: { ...parts.perClient, maxBytes: MOST_CONTENT_OF_CLIENT },
      maxConnections: MOST_CONNECTIONS,
      clock: parts.clock,
      onClosed: parts.onConnectionClosed,
    });
    this.#listener = new Listener(this.#server, parts.address);
    onEvent(this.#server, 'request', (request, response) => this.#onRequest(request, response));
    onEvent(this.#server, 'secureConnection', (socket) => {
      this.#generations.set(socket, this.#generation);
      parts.memory.bodies.onBytes(TLS_CONNECTION_BYTES);
    });
    onEvent(this.#server, 'tlsClientError', (error) => parts.onHandshakeFailed(error.message));
  }

  /** Starts to listen; rejects with the system's error. */
  listen(): Promise<Listening> {
    return this.#listener.open();
  }

  /** New connections get what the contexts hold now; those that are open keep theirs. */
  refreshTls(): void {
    this.#server.setSecureContext(this.#parts.tls.toServerOptions());
  }

  /** Has every connection that is open now end: idle ones at once, the others with their next response. */
  endConnections(): void {
    this.#generation++;
    this.#server.closeIdleConnections();
  }

  /** Still serves, but has every connection end with its next answer. */
  startClosing(): void {
    this.#isClosing = true;
  }

  /** Takes no new connections; resolves once all answers are out. */
  idle(): Promise<void> {
    this.#listener.close();
    return new Promise((resolve) => {
      if (this.#underWay === 0) resolve();
      else this.#onIdle = resolve;
    });
  }

  /** Destroys whatever is left. */
  destroy(): void {
    this.#listener.close();
    this.#server.closeAllConnections();
  }

  async #onRequest(request: IncomingMessage, response: ServerResponse): Promise<void> {
    this.#change(1);
    onceEvent(response, 'close', () => this.#change(-1));
    endAfterUpgradeWish(request, response);
    const reply = await this.#answer(request, response);
    // What is left unread would be taken for the next request.
    const isOld = this.#generations.get(request.socket) !== this.#generation;
    if (this.#isClosing || isOld || !request.complete) response.shouldKeepAlive = false;
    response.writeHead(reply.status, {
      'Content-Type': reply.status === 200 ? 'application/json' : 'text/plain; charset=utf-8',
      'Content-Length': Buffer.byteLength(reply.text),
      ...(reply.status === 405 ? { Allow: 'POST' } : undefined),
    });
    response.end(reply.text);
  }

  async #answer(request: IncomingMessage, response: ServerResponse): Promise<ReviewReply> {
    // First of all: also the content of a request that is rejected arrives, in pieces as small as its client likes.
    const origin = new RequestOrigin(request, response, false);
    const problem = findHeadProblem(request);
    if (problem !== undefined) return this.#reject(...problem);
    if (this.#parts.memory.guard.isFull) return this.#reject('overloaded', 503, 'the injector is out of memory');
    const isVerified = this.#parts.callers.isVerified(request.socket as TLSSocket);
    if (this.#parts.requiresVerified && !isVerified)
      return this.#reject('caller_unknown', 403, 'the client certificate has none of server.clientAuth.allowedNames');
    const admitted = this.#peers.admit(request.socket, toLength(request), isVerified);
    if (admitted === undefined) return this.#reject('client_limit', 429, 'this client sends too much: see server.perClient');
    try {
      return await this.#review(origin, admitted, isVerified);
    } catch {
      // Whatever it is, the API server then goes by the webhook's failurePolicy.
      return this.#reject('internal', 500, 'the injector failed to answer this');
    } finally {
      admitted.end();
    }
  }

  async #review(origin: RequestOrigin, admitted: AdmittedRequest, isVerified: boolean): Promise<ReviewReply> {
    const body = new IncomingBody(origin, this.#parts.memory.bodies);
    body.client = origin.stream.socket.remoteAddress ?? '';
    try {
      const content = await body.read(LARGEST_REVIEW);
      if (!Buffer.isBuffer(content)) {
        const [reason, status] = REASONS[content.reason] ?? (['body_aborted', 400] as const);
        return this.#reject(reason, status, 'the content could not be read whole');
      }
      admitted.startReview();
      return await this.#parts.review(content, isVerified);
    } finally {
      body.discard();
    }
  }

  #reject(reason: TurnedAwayLabel, status: number, line: string): ReviewReply {
    this.#parts.onTurnedAway(reason);
    return { status, text: `${line}\n` };
  }

  #change(delta: 1 | -1): void {
    this.#underWay += delta;
    this.#parts.onInFlight(delta);
    if (this.#underWay === 0) this.#onIdle();
  }
}

function findHeadProblem({ url = '', method, headers }: IncomingMessage): [TurnedAwayLabel, number, string] | undefined {
  // The API server adds its timeout as a query.
  if (url.split('?')[0] !== PATH) return ['path', 404, `try ${PATH}`];
  if (method !== 'POST') return ['method', 405, 'only POST'];
  const { 'content-type': contentType = '', 'content-encoding': coding = 'identity' } = headers;
  if (!CONTENT_TYPE.test(contentType) || coding !== 'identity')
    return ['content_type', 415, 'the content must be application/json, not encoded'];
  // API servers always send it. Without it, what a client may send could not be counted before it is there.
  if (headers['content-length'] === undefined) return ['length_required', 411, 'send Content-Length'];
  return undefined;
}

function toLength({ headers }: IncomingMessage): number {
  return Math.min(Number(headers['content-length']), LARGEST_REVIEW);
}
