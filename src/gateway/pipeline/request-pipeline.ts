/** Takes a request from its route through the gates to the app, and sees to it that every exit is answered, settled and recorded once. */
import type { Duplex } from 'node:stream';
import type { Admitted } from '../../core/admitted.ts';
import type { Answer } from '../../core/answer.ts';
import type { Clock } from '../../core/clock.ts';
import { toErrorText } from '../../core/errors.ts';
import type { Arrival, Exchange } from '../../core/exchange.ts';
import { type Reason, type Refusal, type RefusalCode, refuse } from '../../core/refusal.ts';
import { runDetached } from '../../core/safe-events.ts';
import type { Journal } from '../../telemetry/journal/journal.ts';
import type { Logger } from '../../telemetry/log/logger.ts';
import type { LimitLabel } from '../../telemetry/metrics/labels.ts';
import type { Metrics } from '../../telemetry/metrics/metrics.ts';
import type { RouteMetrics } from '../../telemetry/metrics/route-metrics.ts';
import type { RouteTrace, Tracing } from '../../telemetry/tracing/span.ts';
import { lingerOnClose } from '../server/linger.ts';
import type { Forwarder } from '../upstream/forwarder.ts';
import type { IdentityContext } from '../upstream/identity.ts';
import type { ForwardOutcome } from '../upstream/outcome.ts';
import type { Capacity, CapacityResult } from './capacity.ts';
import { record } from './record.ts';
import type { RequestRecord } from './request-record.ts';
import { toStatus, writeRefusal, writeSocketRefusal } from './respond.ts';
import type { Routable } from './route-groups.ts';
import { RouteTable } from './router.ts';
import { type GuardedRoute, runGates } from './run-gates.ts';
import { settle, settleRefused } from './settle.ts';
import { PROVEN, toTrustLevel } from './trust-level.ts';
import { UnderWay } from './under-way.ts';

/** A route, compiled and ready. */
export interface PipelineRoute extends GuardedRoute, Routable {
  /** WWW-Authenticate for every 401, a field line each. */
  readonly challenges: readonly string[];
  readonly forwarder: Forwarder;
  /** Some gate verifies the content, so the head alone cannot be judged. */
  readonly verifiesContent: boolean;
  /** The app may take a request for one of another method. */
  readonly forwardMethodOverride: boolean;
  readonly identity: IdentityContext;
  /** Where the route's sender goes by other statuses than the catalogue's. */
  readonly statuses?: ReadonlyMap<RefusalCode, number>;
  readonly metrics: RouteMetrics;
  readonly trace: RouteTrace;
}

/** The dependencies of the pipeline. */
export interface RequestPipelineParts {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly journal: Journal;
  readonly metrics: Metrics;
  readonly tracing: Tracing;
  readonly capacity: Capacity;
  /** Told of what a route refused, or would have, after the answer; it neither waits nor throws. */
  readonly onRefused?: ((route: string, exchange: Exchange, refusal: Refusal) => void) | undefined;
}

/** How the gates and the app dealt with a request. */
interface PipelineResult {
  readonly isAdmitted?: boolean;
  readonly refusal?: Refusal;
  readonly outcome?: ForwardOutcome;
}

/** Which limit keeps a request from the app, and the reason that is logged. */
const OVERLOADS: Readonly<Record<Exclude<CapacityResult, 'entered' | 'closed'>, readonly [LimitLabel, Reason]>> = {
  queue_full: ['in_flight_queue', 'queue_full'],
  unverified_share: ['unverified_in_flight', 'queue_full'],
  client_share: ['client_in_flight', 'client_limit'],
  queue_timeout: ['queue_timeout', 'queue_timeout'],
};

/** The pipeline that every request of the data port passes. */
export class RequestPipeline {
  readonly #parts: RequestPipelineParts;
  readonly #unmatched: RouteMetrics;
  #table: RouteTable<PipelineRoute> = new RouteTable<PipelineRoute>([]);
  readonly #underWay = new UnderWay();

  constructor(parts: RequestPipelineParts) {
    this.#parts = parts;
    this.#unmatched = parts.metrics.route(undefined);
  }

  /** Takes over a new set of routes; requests under way finish with the set they came in by. */
  swap(routes: readonly PipelineRoute[]): void {
    this.#table = new RouteTable(routes);
  }

  /** The route that serves now, or why there is none. */
  find({ method, target, headers, client }: Exchange): PipelineRoute | Refusal {
    const forwardedHost = client.viaTrustedProxy ? headers.all('x-forwarded-host').at(-1) : undefined;
    return this.#table.find({ method, host: headers.get('host'), target, forwardedHost });
  }

  /** Takes one request through; never throws. */
  handle(exchange: Exchange, response: Answer): void {
    const found = this.find(exchange);
    if ('code' in found) this.#leave({ arrival: exchange, exchange, refusal: found }, response);
    else runDetached(this.#take(found, exchange, response));
  }

  /** Answers a request whose head is refused. */
  turnAway(arrival: Arrival, response: Answer, refusal: Refusal): void {
    this.#leave({ arrival, refusal }, response);
  }

  /** Answers bytes that are no request. */
  turnAwaySocket(arrival: Arrival, socket: Duplex, refusal: Refusal): void {
    writeSocketRefusal(socket, refusal, arrival.requestId, this.#parts.clock);
    record({ arrival, refusal }, this.#unmatched, this.#parts);
  }

  /** Resolves when no request is under way. */
  idle(): Promise<void> {
    return this.#underWay.idle();
  }

  /** How many requests are under way. */
  get underWay(): number {
    return this.#underWay.count;
  }

  async #take(route: PipelineRoute, exchange: Exchange, response: Answer): Promise<void> {
    this.#underWay.enter();
    const result = await this.#pass(route, exchange, response);
    // It no longer holds a place of the capacity: such a connection lives as long as its client likes.
    if (result.outcome?.kind === 'upgraded') await untilClosed(exchange, result.outcome.closed);
    try {
      this.#leave({ arrival: exchange, exchange, route: route.name, tracedAs: route.trace, ...result }, response, route);
    } catch (thrown) {
      // Even a failing log must not leave the sender without an answer, nor end the process.
      response.destroy();
      this.#parts.logger.error('internal_error', { requestId: exchange.requestId, error: toErrorText(thrown) });
    }
    this.#underWay.leave(response);
  }

  async #pass(route: PipelineRoute, exchange: Exchange, response: Answer): Promise<PipelineResult> {
    try {
      const admitted = await runGates(route, exchange);
      const trustLevel = toTrustLevel(route, exchange, 'code' in admitted ? admitted : undefined);
      exchange.facts.trace = this.#parts.tracing.tracer.begin(route.trace.trust, trustLevel, exchange.headers);
      if ('code' in admitted) {
        settleRefused(exchange.facts.claim, admitted);
        route.metrics.decision(PROVEN.has(admitted.code) ? 'allow' : 'deny', admitted.reason);
        return { refusal: admitted };
      }
      const { observed } = exchange.facts;
      if (observed === undefined) route.metrics.decision('allow', 'ok');
      else route.metrics.decision('observe', observed.reason);
      return { isAdmitted: true, ...(await this.#admit(route, admitted, response)) };
    } catch (thrown) {
      // A throw is a refusal, never a pass. What the app saw is unknown, so the claim is left to its lease.
      exchange.facts.claim?.hold();
      return { refusal: refuse('internal_error', 'internal_error', toErrorText(thrown)) };
    }
  }

  async #admit(route: PipelineRoute, admitted: Admitted, response: Answer): Promise<PipelineResult> {
    const { capacity } = this.#parts;
    const { client, facts, body } = admitted.exchange;
    const { claim } = facts;
    const isVerified = !route.isOpen && facts.observed === undefined;
    // Before it takes a place: a client that proved nothing and sends nothing would hold it.
    const broken = isVerified ? undefined : await body.arriving?.();
    if (broken !== undefined) return { refusal: broken };
    const place = capacity.toPlace({ address: client.address, isVerified });
    const entering = capacity.enter(place);
    const entered = entering instanceof Promise ? await entering : entering;
    if (entered !== 'entered') {
      // Claimed, but not a byte went to the app: the sender's retry must get through.
      claim?.release();
      if (!Buffer.isBuffer(admitted.body)) admitted.body.stop();
      return { refusal: this.#toRefusal(entered) };
    }
    if (facts.trace?.isRecorded === true) facts.sentAt = this.#parts.clock.monotonic();
    try {
      const outcome = await route.forwarder.forward(admitted, response);
      settle(claim, outcome);
      const refusal = 'refusal' in outcome ? outcome.refusal : undefined;
      return refusal === undefined ? { outcome } : { outcome, refusal };
    } finally {
      capacity.leave(place);
    }
  }

  #toRefusal(result: Exclude<CapacityResult, 'entered'>): Refusal {
    if (result === 'closed') return refuse('draining', 'draining');
    const [limit, reason] = OVERLOADS[result];
    this.#parts.metrics.limitHit(limit);
    return refuse('overloaded', reason);
  }

  #leave(requestRecord: RequestRecord, response: Answer, route?: PipelineRoute): void {
    const { arrival, exchange, refusal } = requestRecord;
    const metrics = route?.metrics ?? this.#unmatched;
    if (refusal === undefined) {
      exchange?.body.free();
      record(requestRecord, metrics, this.#parts);
      const observed = exchange?.facts.observed;
      if (route !== undefined && exchange !== undefined && observed !== undefined)
        this.#parts.onRefused?.(route.name, exchange, observed);
      return;
    }
    if (refusal.code === 'body_too_large') this.#parts.metrics.limitHit('body_size');
    const mustClose = exchange === undefined || !exchange.body.isCheapToDrain;
    if (mustClose) lingerOnClose(response.req.socket, this.#parts.clock);
    const status = toStatus(refusal, route?.statuses);
    const { requestId, method } = arrival;
    writeRefusal(response, refusal, {
      requestId,
      challenges: route?.challenges ?? [],
      isHead: method === 'HEAD',
      mustClose,
      status,
    });
    try {
      record({ ...requestRecord, status }, metrics, this.#parts);
      if (route !== undefined && exchange !== undefined) this.#parts.onRefused?.(route.name, exchange, refusal);
    } finally {
      // After an exception nobody knows how far it went: a connection to the app may still be writing it.
      if (requestRecord.isAdmitted === true || refusal.code === 'internal_error') exchange?.body.free();
      else exchange?.body.discard();
    }
  }
}

/** Waits for the end of an upgraded connection, and ends it when the password that opened it is revoked. */
async function untilClosed({ upgrade, facts }: Exchange, closed: Promise<void>): Promise<void> {
  const stopWatching = facts.login?.onRevoked(() => upgrade?.destroy());
  await closed;
  stopWatching?.();
}
