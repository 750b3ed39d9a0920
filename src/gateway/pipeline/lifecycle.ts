/** The lifecycle of a request, the same on every port: gates, the port's handling of an admitted request, response, record. */
import type { Duplex } from 'node:stream';
import type { Admitted } from '../../core/admitted.ts';
import type { ClientResponse } from '../../core/client-response.ts';
import { toErrorText } from '../../core/errors.ts';
import type { ParsedHead, RequestInfo } from '../../core/parsed-head.ts';
import { Refusal, refuse } from '../../core/refusal.ts';
import { REFUSALS } from '../../core/refusal-catalogue.ts';
import type { RequestTrace } from '../../core/request-trace.ts';
import { runDetached } from '../../core/safe-events.ts';
import { TurnEnd } from '../../core/turn-end.ts';
import type { RouteTrace } from '../../telemetry/tracing/span.ts';
import { lingerOnClose } from '../server/linger.ts';
import type { ServerMetrics } from '../server/server-metrics.ts';
import { InFlight } from './in-flight.ts';
import { type RecordParts, record } from './record.ts';
import { type BodyRecorder, type PassResult, type RequestRecord, toObservedRefusal } from './request-record.ts';
import { type RefusalFormat, writeRefusal, writeSocketRefusal } from './respond.ts';
import type { RouteMetrics } from './route-metrics.ts';
import { type Decision, type GuardedRoute, runGates } from './run-gates.ts';
import { toTrustLevel, VERIFIED_REFUSALS } from './trust-level.ts';

const BAD_REQUEST = 400;
const INTERNAL_ERROR = 500;

/** The properties of a route that the lifecycle uses. */
export interface LifecycleRoute extends GuardedRoute {
  /** Values of WWW-Authenticate or Proxy-Authenticate, one field line each. */
  readonly challenges: readonly string[];
  readonly metrics: RouteMetrics;
  readonly trace: RouteTrace;
  /** Undefined if it stores no bodies. */
  readonly bodies?: BodyRecorder | undefined;
}

/** The steps of the lifecycle that differ between ports. */
export interface Port<Route extends LifecycleRoute> {
  /** The route of a request, or why there is none. */
  find(head: ParsedHead): Route | Refusal;
  /** The port's own checks, before the gates run. */
  precheck?(route: Route, head: ParsedHead): Refusal | undefined;
  /** The trace context that is passed on with the request. */
  toTrace?(trace: RequestTrace): RequestTrace;
  /** The gates' decisions are counted with the requests, by `record`. */
  readonly countsDecisionsItself?: true;
  /** Passes an admitted request on and settles its claim. If it throws, the response is `internal_error` and the claim is held. */
  pass(route: Route, admitted: Admitted, trace: RequestTrace | undefined, response: ClientResponse): Promise<PassResult>;
  /** How a refusal is written; if omitted, as the catalogue says. */
  toFormat?(refusal: Refusal, route: Route | undefined): RefusalFormat;
  /** Counts, logs and journals a finished request; if omitted, as one that was forwarded. */
  record?(requestRecord: RequestRecord): void;
  /** Called after the response to a request that was rejected, or would have been without observe mode; must not block or throw. */
  onRefused?(route: Route, head: ParsedHead, refusal: Refusal): void;
}

/** The dependencies of every port's requests. */
export interface LifecycleParts extends RecordParts {
  readonly metrics: Pick<ServerMetrics, 'limitHit'>;
}

/** Handles the requests of one port: each gets one response, and is settled and recorded once. */
export class RequestLifecycle<Route extends LifecycleRoute> {
  readonly #port: Port<Route>;
  readonly #parts: LifecycleParts;
  /** For requests without a route. */
  readonly #metrics: RouteMetrics;
  readonly #inFlight = new InFlight();
  readonly #turnEnd = new TurnEnd();

  constructor(port: Port<Route>, metrics: RouteMetrics, parts: LifecycleParts) {
    this.#port = port;
    this.#metrics = metrics;
    this.#parts = parts;
  }

  /** Handles one request; never throws. */
  handle(head: ParsedHead, response: ClientResponse): void {
    runDetached(this.#handle(head, response));
  }

  /** Responds to a request whose head was rejected; `head`: if it could be parsed anyway. */
  reject(info: RequestInfo, response: ClientResponse, refusal: Refusal, head?: ParsedHead): void {
    this.#finish({ info, refusal, ...(head && { head }) }, response, undefined);
  }

  /** Responds to bytes that are not a request. */
  rejectSocket(info: RequestInfo, socket: Duplex, refusal: Refusal): void {
    writeSocketRefusal(socket, refusal, info.requestId, this.#parts.clock);
    this.#record({ info, refusal }, this.#metrics);
  }

  /** Resolves when no request is in flight. */
  idle(): Promise<void> {
    return this.#inFlight.idle();
  }

  /** The number of requests in flight. */
  get inFlight(): number {
    return this.#inFlight.count;
  }

  /** One async function, because each promise costs CPU. */
  async #handle(head: ParsedHead, response: ClientResponse): Promise<void> {
    const info = head;
    this.#inFlight.enter();
    try {
      const route = this.#port.find(head);
      const refused = route instanceof Refusal ? route : this.#port.precheck?.(route, head);
      // `leave` waits for the responses that are written at the end of the turn.
      if (route instanceof Refusal) this.#finish({ info, head, refusal: route }, response, undefined, this.#turnEnd);
      else if (refused !== undefined) this.#finish({ info, head, route, refusal: refused }, response, route, this.#turnEnd);
      else {
        const decision = await runGates(route, head);
        const trace = this.#beginTrace(route, decision, head);
        this.#countDecision(route, decision);
        let passed: PassResult;
        try {
          passed = decision.kind === 'refused' ? decision : await this.#port.pass(route, decision.admitted, trace, response);
        } catch (thrown) {
          passed = toFailed(decision, thrown);
        }
        const { refusal, outcome, sentAt } = passed;
        this.#finish({ info, head, route, decision, trace, refusal, outcome, sentAt }, response, route, this.#turnEnd);
      }
    } catch (thrown) {
      // Even if logging fails, the sender must not wait for a response and the process must keep running.
      response.destroy();
      this.#parts.logger.error('internal_error', { requestId: head.requestId, error: toErrorText(thrown) });
    }
    this.#inFlight.leave(response);
  }

  #beginTrace(route: Route, decision: Decision, head: ParsedHead): RequestTrace | undefined {
    const begun = this.#parts.tracing.tracer.begin(route.trace.trust, toTrustLevel(route, decision), head.headers);
    return begun && (this.#port.toTrace?.(begun) ?? begun);
  }

  #finish(requestRecord: RequestRecord, response: ClientResponse, route: Route | undefined, turnEnd?: TurnEnd): void {
    const { refusal } = requestRecord;
    const metrics = route?.metrics ?? this.#metrics;
    const format = refusal && this.#port.toFormat?.(refusal, route);
    if (refusal !== undefined && isClientFault(requestRecord, refusal)) response.onRejected?.();
    if (refusal !== undefined) this.#writeRefusal(requestRecord, refusal, response, { route, format, turnEnd });
    try {
      this.#record(format === undefined ? requestRecord : { ...requestRecord, status: format.status }, metrics);
      this.#reportRefused(requestRecord, route, refusal ?? toObservedRefusal(requestRecord));
    } finally {
      freeBody(requestRecord);
    }
  }

  #writeRefusal(
    { info, head }: RequestRecord,
    refusal: Refusal,
    response: ClientResponse,
    { route, format, turnEnd }: { route: Route | undefined; format: RefusalFormat | undefined; turnEnd: TurnEnd | undefined },
  ): void {
    if (refusal.code === 'body_too_large') this.#parts.metrics.limitHit('body_size');
    const mustClose = head === undefined || !head.body.isCheapToDrain;
    if (mustClose) lingerOnClose(response.req.socket, this.#parts.clock);
    const { requestId, method } = info;
    const challenges = route?.challenges ?? [];
    const isHead = method === 'HEAD' && format?.alwaysHasBody !== true;
    writeRefusal(response, refusal, { requestId, challenges, isHead, mustClose, format, turnEnd });
  }

  #countDecision({ metrics }: Route, decision: Decision): void {
    if (this.#port.countsDecisionsItself === true) return;
    if (decision.kind === 'refused') {
      const { code, reason } = decision.refusal;
      metrics.decision(VERIFIED_REFUSALS.has(code) ? 'allow' : 'deny', reason);
    } else if (decision.admitted.observed === undefined) metrics.decision('allow', 'ok');
    else metrics.decision('observe', decision.admitted.observed.reason);
  }

  #record(requestRecord: RequestRecord, metrics: RouteMetrics): void {
    if (this.#port.record === undefined) record(requestRecord, metrics, this.#parts);
    else this.#port.record(requestRecord);
  }

  #reportRefused({ head }: RequestRecord, route: Route | undefined, refusal: Refusal | undefined): void {
    if (route !== undefined && head !== undefined && refusal !== undefined) this.#port.onRefused?.(route, head, refusal);
  }
}

/** It is unknown what the app saw, so the claim is held until its lease expires. */
function toFailed(decision: Decision, thrown: unknown): PassResult {
  if (decision.kind === 'admitted') decision.admitted.claimed?.claim?.hold();
  return { refusal: refuse('internal_error', 'internal_error', toErrorText(thrown)) };
}

/** Whether the gate rejected the request for what it is, and not because of the app, a store or other clients. */
function isClientFault({ decision }: RequestRecord, { code, reason }: Refusal): boolean {
  if (decision?.kind === 'admitted') return false;
  const { status } = REFUSALS[code];
  return reason === 'client_limit' || (status >= BAD_REQUEST && status < INTERNAL_ERROR);
}

function freeBody(requestRecord: RequestRecord): void {
  const { body } = requestRecord.head ?? {};
  // For large bodies, waiting for the garbage collector costs more CPU than everything else.
  if (isBodyUnused(requestRecord)) body?.discard();
  else body?.free();
}

/** Whether no connection to the app can still be writing the body. */
function isBodyUnused({ decision, outcome, refusal }: RequestRecord): boolean {
  if (outcome?.kind === 'responded') return outcome.isRequestWritten === true;
  // After an exception it is unknown how far the request got.
  return decision?.kind !== 'admitted' && refusal?.code !== 'internal_error';
}
