/** The webhook port, which the API server calls: HTTPS, one path, AdmissionReviews in JSON, bounded in size and time. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Server as TlsServer } from 'node:https';
import type { TLSSocket } from 'node:tls';
import type { Clock } from '../../core/clock.ts';
import type { ListenAddress } from '../../core/listen-address.ts';
import type { Reason, Refusal } from '../../core/refusal.ts';
import { onceEvent, onEvent } from '../../core/safe-events.ts';
import { createPlainErrors } from '../../gateway/pipeline/respond.ts';
import { type ListenMemory, TLS_CONNECTION_BYTES } from '../../http/server/limits.ts';
import { type BoundAddress, Listener } from '../../http/server/listener.ts';
import { type PortRequest, PortRequests } from '../../http/server/port-requests.ts';
import type { IncomingBody } from '../../http/server/request-body.ts';
import { createStrictServer } from '../../http/server/strict-server.ts';
import type { TlsContexts } from '../../http/server/tls.ts';
import { AdmissionPeers, type AdmittedRequest, type PeerLimits } from './admission-peers.ts';
import type { CallerNames } from './caller-names.ts';
import type { AdmissionConnectionLimit, RejectionLabel } from './injector-metrics.ts';
import { REVIEW_PATH, type ReviewReply, toRejection } from './reviewer.ts';

/** A request that was not reviewed. */
interface Rejection {
  readonly reason: RejectionLabel;
  /** Its address. */
  readonly client: string;
  /** By its Content-Length. */
  readonly bytes: number | undefined;
  readonly problem: string;
}

/** The API server accepts objects of up to 3 MiB, and wraps the pod into a review. */
const MAX_REVIEW_BYTES = 4 * 1024 * 1024;
/**
 * Bounds the total memory of untrusted callers within the chart's limit of 256 MiB, of which the heap may use half (128 MiB):
 * - bodies, outside the heap: 16 MiB, which is 1,600 reviews of common pods
 * - the review that is being parsed, one at a time: 8 MiB of text, and values for half of the heap (reviewer.ts)
 * - responses: 1.4 MB at most, and in total the share of a client network, which holds them until they are sent
 * - the patch that is being created, one at a time: 1 MiB (injector/review.ts)
 * In a smaller container the bounds for bodies and values are smaller (http/server/memory.ts).
 */
export const MAX_BODY_BYTES = 16 * 1024 * 1024;
/** For one client network: two reviews of the maximum size. */
const MAX_CLIENT_BODY_BYTES = 2 * MAX_REVIEW_BYTES;
const MAX_CONNECTIONS = 1_024;
/** The limits for receiving reviews. */
export const ADMISSION_LIMITS = {
  maxHeaderBytes: 16_384,
  maxHeaderFields: 100,
  headTimeout: 10_000,
  bodyTimeout: 15_000,
  bodyIdleTimeout: 5_000,
  bodyMinRate: 500,
  memoryShed: 0.8,
  heapShed: 0.85,
  streamMinRate: 500,
  streamTimeout: 15_000,
  // The API server closes an idle connection after 90 s. If we closed it first, a review that is sent at that moment would be lost.
  keepAliveTimeout: 180_000,
  maxConnections: MAX_CONNECTIONS,
};
const NO_LIMIT = (): void => undefined;
const SEND_TIMEOUT_MS = 30_000;
const CONTENT_TYPE = /^application\/json *(?:;|$)/i;
const REASONS: Partial<Readonly<Record<Reason, RejectionLabel>>> = {
  body_too_large: 'body_too_large',
  body_timeout: 'body_timeout',
  buffer_full: 'overloaded',
};

/** The listening port. */
export class AdmissionServer {
  readonly #parts;
  readonly #server: TlsServer;
  readonly #listener: Listener;
  readonly #peers: AdmissionPeers;
  /** The generation in which each connection was opened. */
  readonly #generations = new WeakMap<object, number>();
  #generation = 0;
  #inFlight = 0;
  #isClosing = false;
  #onIdle: () => void = () => undefined;

  constructor(parts: {
    readonly address: ListenAddress;
    readonly tls: TlsContexts;
    readonly clock: Clock;
    readonly memory: ListenMemory;
    /** Handles the body of one request; `isVerified`: the caller is the API server. */
    readonly review: (content: Buffer, isVerified: boolean) => Promise<ReviewReply>;
    readonly callers: CallerNames;
    /** Whether callers other than the API server are rejected. */
    readonly requiresVerified: boolean;
    readonly perClient: Omit<PeerLimits, 'maxBytes'>;
    readonly onConnectionClosed: (limit: AdmissionConnectionLimit) => void;
    readonly onRejected: (rejection: Rejection) => void;
    readonly onInFlight: (delta: 1 | -1) => void;
    readonly onHandshakeFailed: (problem: string) => void;
  }) {
    this.#parts = parts;
    const { clock, memory } = parts;
    const tls = { contexts: parts.tls, clock, memory: memory.guard, onLimit: parts.onHandshakeFailed };
    this.#server = createStrictServer(ADMISSION_LIMITS, tls, {}) as TlsServer;
    this.#peers = new AdmissionPeers(this.#server, {
      limits: { ...parts.perClient, maxBytes: MAX_CLIENT_BODY_BYTES },
      maxConnections: MAX_CONNECTIONS,
      clock: parts.clock,
      onClosed: parts.onConnectionClosed,
    });
    this.#listener = new Listener(this.#server, parts.address);
    const errors = createPlainErrors(clock);
    const handle = (received: PortRequest): Promise<void> => this.#onRequest(received);
    const requests = new PortRequests({
      errors,
      clients: this.#peers,
      bodies: memory.bodies,
      onLimit: NO_LIMIT,
      maxHeaderFields: ADMISSION_LIMITS.maxHeaderFields,
      handle,
    });
    requests.bind(this.#server);
    onEvent(this.#server, 'secureConnection', (socket) => {
      this.#generations.set(socket, this.#generation);
      parts.memory.bodies.onBytes(TLS_CONNECTION_BYTES);
    });
    onEvent(this.#server, 'tlsClientError', (error) => parts.onHandshakeFailed(error.message));
  }

  /** Starts listening; rejects with the system's error. */
  listen(): Promise<BoundAddress> {
    return this.#listener.open();
  }

  /** Applies the current TLS contexts to new connections; open connections keep theirs. */
  refreshTls(): void {
    this.#server.setSecureContext(this.#parts.tls.toServerOptions());
  }

  /** Closes all open connections: idle ones at once, the others after their next response. */
  endConnections(): void {
    this.#generation++;
    this.#server.closeIdleConnections();
  }

  /** Keeps serving, but closes every connection after its next response. */
  startClosing(): void {
    this.#isClosing = true;
  }

  /** Stops accepting connections; resolves when all responses have been written. */
  idle(): Promise<void> {
    this.#listener.close();
    return new Promise((resolve) => {
      if (this.#inFlight === 0) resolve();
      else this.#onIdle = resolve;
    });
  }

  /** Destroys the remaining connections. */
  destroy(): void {
    this.#listener.close();
    this.#server.closeAllConnections();
  }

  async #onRequest({ request, response, body, refusal }: PortRequest): Promise<void> {
    this.#change(1);
    onceEvent(response, 'close', () => this.#change(-1));
    const reply = await (refusal === undefined ? this.#handle(request, response, body) : toRefused(refusal));
    if (reply.rejected !== undefined) this.#parts.onRejected(describeRejection(request, reply.rejected, reply.text));
    // Unread bytes of the body would be interpreted as the next request.
    const isOld = this.#generations.get(request.socket) !== this.#generation;
    if (this.#isClosing || isOld || !request.complete) response.shouldKeepAlive = false;
    response.writeHead(reply.status, {
      'Content-Type': reply.status === 200 ? 'application/json' : 'text/plain; charset=utf-8',
      'Content-Length': Buffer.byteLength(reply.text),
      ...(reply.status === 405 ? { Allow: 'POST' } : undefined),
    });
    response.end(reply.text);
    if (response.destroyed) return;
    // A client that does not read it would hold its connection.
    onceEvent(
      response,
      'close',
      this.#parts.clock.after(SEND_TIMEOUT_MS, () => response.destroy()),
    );
  }

  async #handle(request: IncomingMessage, response: ServerResponse, body: IncomingBody): Promise<ReviewReply> {
    const reason = findHeadProblem(request);
    if (reason !== undefined) return toRejection(reason);
    if (this.#parts.memory.guard.shortage !== undefined) return toRejection('overloaded');
    const isVerified = this.#parts.callers.isVerified(request.socket as TLSSocket);
    if (this.#parts.requiresVerified && !isVerified) return toRejection('caller_unknown');
    const admitted = this.#peers.admit(request.socket, toLength(request), isVerified);
    if (admitted === undefined) return toRejection('client_limit');
    // Until then, a response that the client does not read takes memory.
    onceEvent(response, 'close', () => admitted.end());
    body.client = request.socket.remoteAddress ?? '';
    try {
      const reply = await this.#review(body, admitted, isVerified);
      return admitted.startResponse(Buffer.byteLength(reply.text)) ? reply : toRejection('client_limit');
    } catch {
      admitted.startResponse(0);
      // For any error, the API server then applies the webhook's failurePolicy.
      return toRejection('internal');
    }
  }

  async #review(body: IncomingBody, admitted: AdmittedRequest, isVerified: boolean): Promise<ReviewReply> {
    try {
      const content = await body.read(MAX_REVIEW_BYTES);
      if (!Buffer.isBuffer(content)) return toRejection(REASONS[content.reason] ?? 'body_aborted');
      admitted.startReview();
      return await this.#parts.review(content, isVerified);
    } finally {
      body.discard();
    }
  }

  #change(delta: 1 | -1): void {
    this.#inFlight += delta;
    this.#parts.onInFlight(delta);
    if (this.#inFlight === 0) this.#onIdle();
  }
}

function toRefused({ code }: Refusal): ReviewReply {
  return toRejection(code === 'expectation_failed' ? 'expectation' : 'header_fields');
}

function describeRejection({ socket, headers }: IncomingMessage, reason: RejectionLabel, text: string): Rejection {
  const bytes = headers['content-length'];
  return {
    reason,
    client: socket.remoteAddress ?? '',
    bytes: bytes === undefined ? undefined : Number(bytes),
    problem: text.trimEnd(),
  };
}

function findHeadProblem({ url = '', method, headers }: IncomingMessage): RejectionLabel | undefined {
  // The API server adds its timeout as a query.
  if (url.split('?')[0] !== REVIEW_PATH) return 'path';
  if (method !== 'POST') return 'method';
  const { 'content-type': contentType = '', 'content-encoding': coding = 'identity' } = headers;
  if (!CONTENT_TYPE.test(contentType) || coding !== 'identity') return 'content_type';
  // API servers always send it. It is required to count the body against the client's budget before it is received.
  return headers['content-length'] === undefined ? 'length_required' : undefined;
}

function toLength({ headers }: IncomingMessage): number {
  return Math.min(Number(headers['content-length']), MAX_REVIEW_BYTES);
}
