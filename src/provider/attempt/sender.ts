/** Sends signed deliveries to endpoints (Standard Webhooks), only to addresses that the egress rules allow. */
import type { SecureContext } from 'node:tls';
import type { Clock, EpochMilliseconds, Milliseconds } from '../../core/clock.ts';
import { toErrorSummary, toErrorText } from '../../core/errors.ts';
import type { RawHeaders } from '../../core/head.ts';
import { ClientHandshakes } from '../../http/client/client-handshakes.ts';
import { type OpenParts, openChecked, TlsSessions } from '../../http/client/open-socket.ts';
import { HttpClient, Pool } from '../../http/client/pool.ts';
import type { TunnelProxy } from '../../http/client/proxy-tunnel.ts';
import type { ReleaseBuffer } from '../../http/client/response-parser.ts';
import { createClientContext } from '../../http/client/tls-context.ts';
import type { UpstreamFailure, UpstreamListener } from '../../http/client/upstream.ts';
import type { OwnPorts } from '../../http/dial/address-rules.ts';
import type { FailureKind } from '../../http/dial/dial.ts';
import { type EgressRules, parseEndpointUrl } from '../../http/dial/endpoint-url.ts';
import type { Resolve } from '../../http/dial/resolve.ts';
import type { MemoryPressure } from '../../http/server/memory-guard.ts';
import { createDeliverySigner, type DeliverySigner } from '../../verify/sign/signing-keys.ts';
import { type ClientCertificate, type Endpoint, findHeaderProblem } from '../endpoints/endpoint.ts';
import { EVENT_ID, readTraceHeaders } from '../events/event.ts';
import type { Delivery } from '../queue/delivery-queue.ts';
import { type AttemptResult, findRetryAfter, type Sender, toOutcome } from './attempt.ts';

/** The settings that a reload can change. */
interface SenderSettings {
  readonly rules: EgressRules;
  /** CAs in PEM that may issue certificates of endpoints; undefined: those of Node. */
  readonly ca?: string | undefined;
  readonly proxy?: TunnelProxy | undefined;
}

interface CompiledEndpoint {
  readonly endpoint: Endpoint;
  readonly path: string;
  /** The headers that are the same in every attempt. */
  readonly headers: RawHeaders;
  readonly signers: readonly DeliverySigner[];
  readonly pool: Pool;
  /** The key of its TLS session. */
  readonly target: object;
}

/** Why nothing can be sent to an endpoint. It was valid when it was created; the rules have changed since, or the store was tampered with. */
interface UnusableEndpoint {
  readonly endpoint: Endpoint;
  readonly problem: string;
}

const MAX_HEAD_BYTES = 16_384;
/** Bodies of responses are not used. Reading a short one keeps the connection usable. */
const MAX_RESPONSE_BYTES = 65_536;
/** Below the keep-alive timeout of common servers (Node: 5 s), or requests would race with their close. */
const IDLE_TIMEOUT_MS: Milliseconds = 4_000;
/** Then a new connection follows changes of the DNS. */
const MAX_AGE_MS: Milliseconds = 300_000;
const MAX_DETAIL_LENGTH = 300;

/** A sender whose settings can change. */
export class HttpSender implements Sender {
  readonly #version: string;
  readonly #client: HttpClient;
  /** New connections are checked by its rules, and use its proxy. */
  #opening: OpenParts;
  #settings: SenderSettings;
  /** For endpoints without a client certificate. */
  #context: SecureContext;
  readonly #endpoints = new Map<string, CompiledEndpoint | UnusableEndpoint>();
  #isClosed = false;

  constructor({
    version,
    ca,
    proxy,
    detour,
    memory,
    ...parts
  }: SenderSettings & {
    readonly clock: Clock;
    /** For `User-Agent`. */
    readonly version: string;
    readonly resolve: Resolve;
    /** Never connected to, even if their addresses are allowed. */
    readonly ownPorts: Pick<OwnPorts, 'has'>;
    readonly memory: MemoryPressure;
    /** Redirects a connection to a checked address; for tests. */
    readonly detour?: ((address: string) => string) | undefined;
  }) {
    this.#version = version;
    this.#settings = { rules: parts.rules, ca };
    this.#context = createEndpointContext(ca);
    this.#client = new HttpClient(parts.clock, memory);
    const [sessions, handshakes] = [new TlsSessions(parts.clock), new ClientHandshakes(parts.clock, memory)];
    this.#opening = { ...parts, proxy, detour, sessions, handshakes };
  }

  send(delivery: Delivery, endpoint: Endpoint, signal: AbortSignal): Promise<AttemptResult> {
    return new Promise((resolve) => {
      const attempt = new Attempt(this.#client.clock, resolve);
      try {
        this.#start(attempt, delivery, endpoint, signal);
      } catch (thrown) {
        // A bug must not stop the lane.
        attempt.reject('blocked', toErrorSummary(thrown).error);
      }
    });
  }

  /** Uses these settings for new connections, and closes idle ones, which the old settings allowed. */
  replace(settings: SenderSettings): void {
    this.#settings = settings;
    this.#context = createEndpointContext(settings.ca);
    this.#opening = { ...this.#opening, rules: settings.rules, proxy: settings.proxy };
    this.retain(new Set());
  }

  /** Closes idle connections of endpoints that are no longer in use. */
  retain(endpoints: ReadonlySet<string>): void {
    for (const [id, compiled] of this.#endpoints)
      if (!endpoints.has(id)) {
        this.#retire(compiled);
        this.#endpoints.delete(id);
      }
  }

  close(): void {
    this.#isClosed = true;
    this.retain(new Set());
  }

  #start(attempt: Attempt, delivery: Delivery, endpoint: Endpoint, signal: AbortSignal): void {
    if (this.#isClosed || signal.aborted) return attempt.reject('aborted', 'the request was canceled');
    const compiled = this.#find(endpoint);
    if ('problem' in compiled) return attempt.reject('blocked', compiled.problem);
    const headers = toHeaders(compiled, delivery, attempt.startedAt);
    if (headers === undefined)
      return attempt.reject('blocked', 'the delivery cannot be signed: it has no valid ID, or the endpoint no valid key');
    const { path, pool } = compiled;
    const endsAt = attempt.started + endpoint.timeout;
    // The receiver recognizes the ID if it sees a repeated request twice.
    const request = { method: 'POST', path, headers, body: delivery.body, repeatable: true, endsAt, signal };
    pool.send(request, attempt);
  }

  /** The registry returns the same object until the endpoint changes. */
  #find(endpoint: Endpoint): CompiledEndpoint | UnusableEndpoint {
    const known = this.#endpoints.get(endpoint.id);
    if (known?.endpoint === endpoint) return known;
    if (known !== undefined) this.#retire(known);
    const compiled = this.#compile(endpoint);
    this.#endpoints.set(endpoint.id, compiled);
    return compiled;
  }

  #compile(endpoint: Endpoint): CompiledEndpoint | UnusableEndpoint {
    const url = parseEndpointUrl(endpoint.url, this.#settings.rules);
    if ('problem' in url) return { endpoint, problem: url.problem };
    const problem = findHeaderProblem(endpoint.headers);
    if (problem !== undefined) return { endpoint, problem: problem.problem };
    try {
      const { host, port, isTls, authority, path } = url;
      const { clientCertificate, keys, timeout, connectTimeout } = endpoint;
      const own = clientCertificate && createEndpointContext(this.#settings.ca, clientCertificate);
      const target = { host, port, context: isTls ? (own ?? this.#context) : undefined };
      const limits = {
        connectTimeout,
        responseTimeout: timeout,
        idleResponseTimeout: timeout,
        idleTimeout: IDLE_TIMEOUT_MS,
        maxAge: MAX_AGE_MS,
        // The lanes limit them.
        maxConnections: Number.MAX_SAFE_INTEGER,
        maxHeadBytes: MAX_HEAD_BYTES,
        maxResponseBytes: MAX_RESPONSE_BYTES,
        discardsUnread: true,
      };
      const common = ['Host', authority, 'User-Agent', `sidegate/${this.#version}`, 'Accept', '*/*'];
      return {
        endpoint,
        path,
        headers: [...common, 'Content-Type', 'application/json', ...endpoint.headers.flat()],
        signers: keys.map(createDeliverySigner),
        pool: new Pool(this.#client, limits, (opening, reads) => openChecked(target, opening, reads, this.#opening)),
        target,
      };
    } catch (thrown) {
      return { endpoint, problem: toErrorText(thrown) };
    }
  }

  #retire(compiled: CompiledEndpoint | UnusableEndpoint): void {
    if ('problem' in compiled) return;
    compiled.pool.close();
    this.#opening.sessions.forget(compiled.target);
  }
}

/** An attempt. Its status counts as soon as the head of the response is complete; nothing that follows changes the result. */
class Attempt implements UpstreamListener {
  readonly startedAt: EpochMilliseconds;
  /** Monotonic. */
  readonly started: Milliseconds;
  readonly #clock: Clock;
  readonly #resolve: (result: AttemptResult) => void;
  #status = 0;
  #headers: RawHeaders = [];

  constructor(clock: Clock, resolve: (result: AttemptResult) => void) {
    this.#clock = clock;
    this.#resolve = resolve;
    this.startedAt = clock.now();
    this.started = clock.monotonic();
  }

  /** Nothing is sent. */
  reject(outcome: FailureKind, detail: string): void {
    this.#finish({ outcome, isSent: false, detail });
  }

  onInformation(): void {
    // 1xx responses change nothing.
  }

  onHead(status: number, _text: string, headers: RawHeaders): void {
    this.#status = status;
    this.#headers = headers;
  }

  onData(_chunk: Buffer, releaseBuffer?: ReleaseBuffer): undefined {
    releaseBuffer?.();
  }

  onEnd(): void {
    const status = this.#status;
    const outcome = toOutcome(status);
    if (outcome === 'delivered') return this.#finish({ outcome, isSent: true, status });
    const retryAfter = findRetryAfter(this.#headers, this.#clock.now());
    const detail = outcome === 'redirect' ? `responded ${status}; redirects are not followed` : `responded ${status}`;
    this.#finish({ outcome, isSent: true, status, retryAfter, detail });
  }

  onFailure({ kind, nothingSent, detail }: UpstreamFailure): void {
    if (this.#status !== 0) this.onEnd();
    else this.#finish({ outcome: kind, isSent: !nothingSent, detail });
  }

  #finish(result: Omit<AttemptResult, 'startedAt' | 'duration'>): void {
    const { startedAt, started } = this;
    const detail = result.detail?.slice(0, MAX_DETAIL_LENGTH);
    this.#resolve({ ...result, ...(detail !== undefined && { detail }), startedAt, duration: this.#clock.monotonic() - started });
  }
}

/** All headers of the request; undefined if the delivery cannot be signed. */
function toHeaders({ headers, signers }: CompiledEndpoint, delivery: Delivery, now: EpochMilliseconds): RawHeaders | undefined {
  const { event, body, metadata } = delivery;
  if (!EVENT_ID.test(event)) return undefined;
  const seconds = String(Math.floor(now / 1_000));
  const signed = `${event}.${seconds}.`;
  const signatures = signers.filter(({ expiresAt }) => now < expiresAt).map((signer) => signer.sign(signed, body));
  if (signatures.length === 0) return undefined;
  const own = ['Webhook-Id', event, 'Webhook-Timestamp', seconds, 'Webhook-Signature', signatures.join(' ')];
  return [...headers, 'Content-Length', String(body.length), ...own, ...readTraceHeaders(metadata).flat()];
}

/** Throws for a certificate or key that OpenSSL rejects. */
export function createEndpointContext(ca: string | undefined, certificate?: ClientCertificate): SecureContext {
  return createClientContext({ ca, cert: certificate?.cert, key: certificate?.key.expose() });
}
