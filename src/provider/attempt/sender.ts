/** Sends signed deliveries to endpoints (Standard Webhooks), only to addresses that the egress rules allow. */
import type { Clock, EpochMilliseconds, Milliseconds } from '../../core/clock.ts';
import { toErrorSummary } from '../../core/errors.ts';
import type { ResponseHead } from '../../http/client/response-head.ts';
import type { OwnPorts } from '../../http/dial/own-ports.ts';
import type { EgressProxy } from '../../http/dial/proxy-tunnel.ts';
import type { Resolve } from '../../http/dial/resolve.ts';
import { TlsSessions } from '../../http/dial/tls-sessions.ts';
import type { Endpoint } from '../endpoints/endpoint.ts';
import type { EgressRules } from '../endpoints/endpoint-url.ts';
import type { Delivery } from '../queue/delivery-queue.ts';
import type { AttemptOutcome, AttemptResult, Sender } from './attempt.ts';
import {
  type CompiledEndpoint,
  type CompileParts,
  compileEndpoint,
  createEndpointContext,
  formatHead,
  type UnusableEndpoint,
} from './compiled-endpoint.ts';
import type { Exchange } from './connection.ts';
import { ConnectionPool } from './connection-pool.ts';
import { findRetryAfter, toOutcome } from './outcomes.ts';

/** The settings that a reload can change. */
export interface SenderSettings {
  readonly rules: EgressRules;
  /** CAs in PEM that may issue certificates of endpoints; undefined: those of Node. */
  readonly ca?: string | undefined;
  readonly proxy?: EgressProxy | undefined;
}

/** The parts that the sender needs. */
export interface SenderParts extends SenderSettings {
  readonly clock: Clock;
  /** For `User-Agent`. */
  readonly version: string;
  readonly resolve: Resolve;
  /** Never connected to, even if their addresses are allowed. */
  readonly ownPorts: Pick<OwnPorts, 'has'>;
  /** Redirects a connection to a checked address; for tests. */
  readonly detour?: ((address: string) => string) | undefined;
}

/** A sender whose settings can change. */
export interface ReloadableSender extends Sender {
  /** Uses these settings for new connections, and closes idle ones, which the old settings allowed. */
  replace(settings: SenderSettings): void;
}

/** Creates the sender. */
export function createSender(parts: SenderParts): ReloadableSender {
  return new HttpSender(parts);
}

class HttpSender implements ReloadableSender {
  readonly #clock: Clock;
  #compileParts: CompileParts;
  readonly #sessions: TlsSessions;
  readonly #pool: ConnectionPool;
  readonly #endpoints = new Map<string, CompiledEndpoint | UnusableEndpoint>();
  #isClosed = false;

  constructor({ version, ca, proxy, detour, ...parts }: SenderParts) {
    this.#clock = parts.clock;
    this.#compileParts = toCompileParts(version, { ca, rules: parts.rules });
    this.#sessions = new TlsSessions(parts.clock);
    this.#pool = new ConnectionPool({ ...parts, proxy, detour, sessions: this.#sessions });
  }

  send(delivery: Delivery, endpoint: Endpoint, signal: AbortSignal): Promise<AttemptResult> {
    return new Promise((resolve) => {
      const attempt = new Attempt(this.#clock, endpoint, signal, resolve);
      try {
        this.#start(attempt, delivery, endpoint);
      } catch (thrown) {
        // A bug must not stop the lane.
        attempt.onFailure('blocked', toErrorSummary(thrown).error);
      }
    });
  }

  replace(settings: SenderSettings): void {
    this.#compileParts = toCompileParts(this.#compileParts.version, settings);
    this.#pool.replace({ rules: settings.rules, proxy: settings.proxy });
    this.retain(new Set());
  }

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

  #start(attempt: Attempt, delivery: Delivery, endpoint: Endpoint): void {
    if (this.#isClosed || attempt.signal.aborted) return attempt.onFailure('aborted', 'the attempt was canceled');
    const compiled = this.#find(endpoint);
    if ('problem' in compiled) return attempt.onFailure('blocked', compiled.problem);
    const head = formatHead(compiled, delivery, attempt.startedAt);
    if (head === undefined)
      return attempt.onFailure('blocked', 'the delivery cannot be signed: it has no valid ID, or the endpoint no valid key');
    attempt.head = head;
    attempt.body = delivery.body;
    this.#pool.send(compiled.target, attempt);
  }

  /** The registry returns the same object until the endpoint changes. */
  #find(endpoint: Endpoint): CompiledEndpoint | UnusableEndpoint {
    const known = this.#endpoints.get(endpoint.id);
    if (known?.endpoint === endpoint) return known;
    if (known !== undefined) this.#retire(known);
    const compiled = compileEndpoint(endpoint, this.#compileParts);
    this.#endpoints.set(endpoint.id, compiled);
    return compiled;
  }

  #retire(compiled: CompiledEndpoint | UnusableEndpoint): void {
    if ('problem' in compiled) return;
    this.#pool.retire(compiled.target);
    this.#sessions.forget(compiled.target);
  }
}

function toCompileParts(version: string, { rules, ca }: SenderSettings): CompileParts {
  return { version, rules, ca, context: createEndpointContext(ca) };
}

/** One attempt. Its status counts as soon as the head of the response is complete; nothing that follows changes the result. */
class Attempt implements Exchange {
  readonly startedAt: EpochMilliseconds;
  readonly timeout: Milliseconds;
  readonly deadline: Milliseconds;
  readonly connectTimeout: Milliseconds;
  readonly signal: AbortSignal;
  isSent = false;
  head = '';
  body: Buffer = EMPTY;
  readonly #clock: Clock;
  readonly #resolve: (result: AttemptResult) => void;
  readonly #started: Milliseconds;
  #response: ResponseHead | undefined;

  constructor(clock: Clock, endpoint: Endpoint, signal: AbortSignal, resolve: (result: AttemptResult) => void) {
    this.#clock = clock;
    this.#resolve = resolve;
    this.signal = signal;
    this.startedAt = clock.now();
    this.#started = clock.monotonic();
    this.timeout = endpoint.timeout;
    this.deadline = this.#started + endpoint.timeout;
    this.connectTimeout = endpoint.connectTimeout;
  }

  onHead(head: ResponseHead): void {
    this.#response = head;
  }

  onEnd(): void {
    if (this.#response !== undefined) this.#onResponse(this.#response);
    else this.onFailure('protocol', 'the response has no head');
  }

  onFailure(outcome: AttemptOutcome, detail: string): void {
    if (this.#response !== undefined) this.#onResponse(this.#response);
    else this.#finish({ outcome, detail: detail.slice(0, MAX_DETAIL_LENGTH) });
  }

  #onResponse({ status, headers }: ResponseHead): void {
    const outcome = toOutcome(status);
    if (outcome === 'delivered') this.#finish({ outcome, status });
    else
      this.#finish({
        outcome,
        status,
        retryAfter: findRetryAfter(headers, this.#clock.now()),
        detail: outcome === 'redirect' ? `responded ${status}; redirects are not followed` : `responded ${status}`,
      });
  }

  #finish(result: Omit<AttemptResult, 'startedAt' | 'duration' | 'isSent'>): void {
    this.#resolve({
      ...result,
      isSent: this.isSent,
      startedAt: this.startedAt,
      duration: this.#clock.monotonic() - this.#started,
    });
  }
}

const EMPTY = Buffer.alloc(0);
const MAX_DETAIL_LENGTH = 300;
