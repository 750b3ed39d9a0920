/** The life of a request, the same on every port: gates, what the port does with an admitted one, response, record. */
import type { Duplex } from 'node:stream';
import type { Admitted } from '../../core/admitted.ts';
import type { ClientResponse } from '../../core/client-response.ts';
import { toErrorText } from '../../core/errors.ts';
import type { Arrival, ParsedHead } from '../../core/parsed-head.ts';
import { Refusal, type RefusalCode, refuse } from '../../core/refusal.ts';
import type { RequestTrace } from '../../core/request-trace.ts';
import { runDetached } from '../../core/safe-events.ts';
import type { RouteTrace } from '../../telemetry/tracing/span.ts';
import { lingerOnClose } from '../server/linger.ts';
import type { ServerMetrics } from '../server/server-metrics.ts';
import { InFlight } from './in-flight.ts';
import type { RecordParts } from './record.ts';
import type { PassResult, RequestRecord } from './request-record.ts';
import { type RefusalFormat, writeRefusal, writeSocketRefusal } from './respond.ts';
import type { RouteMetrics } from './route-metrics.ts';
import { type GuardedRoute, runGates } from './run-gates.ts';
import { PROVEN, toTrustLevel } from './trust-level.ts';

/** What the lifecycle needs of a route. */
export interface LifecycleRoute extends GuardedRoute {
  /** Values of WWW-Authenticate or Proxy-Authenticate, a field line each. */
  readonly challenges: readonly string[];
  readonly metrics: RouteMetrics;
  readonly trace: RouteTrace;
}

/** What distinguishes one port from another. */
export interface Port<Route extends LifecycleRoute> {
  /** The route of a request, or why there is none. */
  find(head: ParsedHead): Route | Refusal;
  /** A refusal of the port's own, before the gates are asked. */
  precheck?(route: Route, head: ParsedHead): Refusal | undefined;
  /** What is told of the trace to whom the request goes. */
  toTrace?(trace: RequestTrace): RequestTrace;
  /** Counts what the gates decided; absent where it is counted with the request. */
  onDecision?(route: Route, decision: 'allow' | 'deny' | 'observe', reason: Refusal['reason']): void;
  /** Hands an admitted request on and settles its claim. A throw is answered as `internal_error`, its claim is left to its lease. */
  pass(route: Route, admitted: Admitted, trace: RequestTrace | undefined, response: ClientResponse): Promise<PassResult>;
  /** How a refusal is written, where not as the catalogue says. */
  toFormat?(refusal: Refusal, route: Route | undefined): RefusalFormat;
  /** Counts, logs and journals a finished request. */
  record(record: RequestRecord, metrics: RouteMetrics): void;
  /** Called with what a route refused, or would have, after the response; it neither waits nor throws. */
  onRefused?(route: Route, head: ParsedHead, refusal: Refusal): void;
}

/** The dependencies of every port's requests. */
export interface LifecycleParts extends RecordParts {
  readonly metrics: Pick<ServerMetrics, 'limitHit'>;
}

/** Takes the requests of one port through; every one is answered, settled and recorded once. */
export class RequestLifecycle<Route extends LifecycleRoute> {
  readonly #port: Port<Route>;
  readonly #parts: LifecycleParts;
  /** Of requests without a route. */
  readonly #metrics: RouteMetrics;
  readonly #inFlight = new InFlight();

  constructor(port: Port<Route>, metrics: RouteMetrics, parts: LifecycleParts) {
    this.#port = port;
    this.#metrics = metrics;
    this.#parts = parts;
  }

  /** Takes one request through; never throws. */
  handle(head: ParsedHead, response: ClientResponse): void {
    runDetached(this.#handle(head, response));
  }

  /** Answers a request whose head is refused; `head` where it was parsed all the same. */
  reject(arrival: Arrival, response: ClientResponse, refusal: Refusal, head?: ParsedHead): void {
    this.#finish({ arrival, refusal, ...(head && { head }) }, response, undefined);
  }

  /** Answers bytes that are no request. */
  rejectSocket(arrival: Arrival, socket: Duplex, refusal: Refusal): void {
    writeSocketRefusal(socket, refusal, arrival.requestId, this.#parts.clock);
    this.#port.record({ arrival, refusal }, this.#metrics);
  }

  /** Resolves when no request is in flight. */
  idle(): Promise<void> {
    return this.#inFlight.idle();
  }

  /** How many requests are in flight. */
  get inFlight(): number {
    return this.#inFlight.count;
  }

  async #handle(head: ParsedHead, response: ClientResponse): Promise<void> {
    this.#inFlight.enter();
    try {
      const route = this.#port.find(head);
      if (route instanceof Refusal) this.#finish({ arrival: head, head, refusal: route }, response, undefined);
      else this.#finish(await this.#take(route, head, response), response, route);
    } catch (thrown) {
      // Even a log that fails must not leave the sender without a response, nor end the process.
      response.destroy();
      this.#parts.logger.error('internal_error', { requestId: head.requestId, error: toErrorText(thrown) });
    }
    this.#inFlight.leave(response);
  }

  async #take(route: Route, head: ParsedHead, response: ClientResponse): Promise<RequestRecord> {
    const port = this.#port;
    const arrival = head;
    const prechecked = port.precheck?.(route, head);
    if (prechecked !== undefined) return { arrival, head, route, refusal: prechecked };
    const decision = await runGates(route, head);
    const begun = this.#parts.tracing.tracer.begin(route.trace.trust, toTrustLevel(route, decision), head.headers);
    const trace = begun && port.toTrace !== undefined ? port.toTrace(begun) : begun;
    if (decision.kind === 'refused') {
      const { refusal } = decision;
      port.onDecision?.(route, PROVEN.has(refusal.code) ? 'allow' : 'deny', refusal.reason);
      return { arrival, head, route, decision, trace, refusal };
    }
    const { admitted } = decision;
    if (admitted.observed === undefined) port.onDecision?.(route, 'allow', 'ok');
    else port.onDecision?.(route, 'observe', admitted.observed.reason);
    try {
      const { refusal, outcome, sentAt } = await port.pass(route, admitted, trace, response);
      return { arrival, head, route, decision, trace, refusal, outcome, sentAt };
    } catch (thrown) {
      // What the app saw is unknown, so the claim is left to its lease.
      admitted.claimed?.claim?.hold();
      const refusal = refuse('internal_error', 'internal_error', toErrorText(thrown));
      return { arrival, head, route, decision, trace, refusal };
    }
  }

  #finish(record: RequestRecord, response: ClientResponse, route: Route | undefined): void {
    const { head, refusal } = record;
    const metrics = route?.metrics ?? this.#metrics;
    if (refusal === undefined) {
      head?.body.free();
      this.#port.record(record, metrics);
      const observed = record.decision?.kind === 'admitted' ? record.decision.admitted.observed : undefined;
      this.#tellRefused(record, route, observed);
      return;
    }
    const format = this.#port.toFormat?.(refusal, route);
    this.#writeRefusal(record, refusal, response, route, format);
    try {
      this.#port.record(format === undefined ? record : { ...record, status: format.status }, metrics);
      this.#tellRefused(record, route, refusal);
    } finally {
      freeBody(record, refusal.code);
    }
  }

  #writeRefusal(
    { arrival, head }: RequestRecord,
    refusal: Refusal,
    response: ClientResponse,
    route: Route | undefined,
    format: RefusalFormat | undefined,
  ): void {
    if (refusal.code === 'body_too_large') this.#parts.metrics.limitHit('body_size');
    const mustClose = head === undefined || !head.body.isCheapToDrain;
    if (mustClose) lingerOnClose(response.req.socket, this.#parts.clock);
    const { requestId, method } = arrival;
    const challenges = route?.challenges ?? [];
    const isHead = method === 'HEAD' && format?.alwaysHasBody !== true;
    writeRefusal(response, refusal, { requestId, challenges, isHead, mustClose, format });
  }

  #tellRefused({ head }: RequestRecord, route: Route | undefined, refusal: Refusal | undefined): void {
    if (route !== undefined && head !== undefined && refusal !== undefined) this.#port.onRefused?.(route, head, refusal);
  }
}

function freeBody({ head, decision }: RequestRecord, code: RefusalCode): void {
  // After an exception nobody knows how far the request got: a connection to the app may still be writing its body.
  if (decision?.kind === 'admitted' || code === 'internal_error') head?.body.free();
  else head?.body.discard();
}
