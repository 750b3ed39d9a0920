/**
 * One request, from its route to its record. The gates decide about it (`GuardedRequest`). The steps after the decision stand here in
 * their order, in the same form.
 */
import type { Duplex } from 'node:stream';
import type { Admitted } from '../core/admitted.ts';
import type { CancelTimer, Milliseconds } from '../core/clock.ts';
import { toErrorText } from '../core/errors.ts';
import { type Reason, Refusal, refuse } from '../core/refusal.ts';
import type { ClientResponse, ParsedHead, RequestInfo } from '../core/request.ts';
import { isPromise, whenSettled } from '../core/safe-events.ts';
import type { RequestHandler } from '../http/server/server.ts';
import type { RequestTrace, TrustLevel } from '../telemetry/tracing/tracer.ts';
import type { EgressProxy } from './egress-proxy/egress-proxy.ts';
import { checkOriginal, writeAllowed } from './forward-auth/auth-response.ts';
import type { AppSlot, Capacity, CapacityResult } from './pipeline/capacity.ts';
import { GuardedRequest, type GuardedRoute, type OrWaiting, rethrow, WAITING } from './pipeline/guarded-request.ts';
import { type Passed, type RecordedRoute, type RequestRecord, VERIFIED_REFUSALS } from './pipeline/record.ts';
import type { Routable } from './pipeline/route-groups.ts';
import type { RouteMetrics } from './pipeline/route-metrics.ts';
import { type EndParts, RequestEnds, type Revocable } from './request-end.ts';
import type { LimitLabel } from './server-metrics.ts';
import type { Forwarder } from './upstream/forwarder.ts';
import type { IdentityContext } from './upstream/headers.ts';
import { type ForwardOutcome, toSettlement } from './upstream/outcome.ts';

/** A route to an app, compiled and ready. */
export interface AppRoute extends GuardedRoute, RecordedRoute, Routable {
  readonly to: 'app';
  readonly capacity: Capacity;
  readonly forwarder: Forwarder;
  /** How long forwarding may take until the app has responded; 0 if deliveries are stored instead. */
  readonly forwardTime: Milliseconds;
  /** Forwards headers that make the app treat a request as one with another method. */
  readonly forwardMethodOverride: boolean;
  readonly identity: IdentityContext;
  /** The table that the route is in; a reload replaces it. */
  readonly table?: { readonly isReplaced: boolean };
}

/** The route of all requests of the forward proxy. */
export interface ProxyRoute extends GuardedRoute, RecordedRoute {
  readonly to: 'destination';
  readonly egress: EgressProxy;
}

/** A route of any port. */
type ExchangeRoute = AppRoute | ProxyRoute;

/** The parts of a port with gates. */
export interface ExchangeParts extends EndParts {
  /** The route of a request, or why there is none. */
  readonly find: (head: ParsedHead) => ExchangeRoute | Refusal;
}

/** Handles the requests of one port: each gets one response, and is settled and recorded once. */
export class ExchangePort implements RequestHandler {
  readonly #find: ExchangeParts['find'];
  readonly #ends: RequestEnds;

  constructor(parts: ExchangeParts) {
    this.#find = parts.find;
    this.#ends = new RequestEnds(parts);
  }

  /** Handles one request; never throws. */
  handle(head: ParsedHead, response: ClientResponse): void {
    this.#ends.begin();
    try {
      const route = this.#find(head);
      if (route instanceof Refusal) this.#ends.end({ info: head, head, refusal: route, stage: 'route' }, response);
      else new Exchange({ ends: this.#ends, find: this.#find }, route, head, response).start();
    } catch (thrown) {
      head.body.free();
      this.#ends.abandon(head, response, thrown);
    }
  }

  /** Responds to a request whose head was rejected; `head`: if it could be parsed anyway. */
  reject(info: RequestInfo, response: ClientResponse, refusal: Refusal, head?: ParsedHead): void {
    this.#ends.reject({ info, head, refusal }, response);
  }

  /** Responds to bytes that are not a request. */
  rejectSocket(info: RequestInfo, socket: Duplex, refusal: Refusal): void {
    this.#ends.rejectSocket({ info, refusal }, socket, refusal);
  }

  /** After a reload: ends what the new routes do not allow in the same way. */
  recheck(): void {
    for (const revocable of this.#ends.revocable) if (!revocable.isAllowedBy(this.#find(revocable.head))) revocable.revoke();
  }

  /** Resolves when no request is in flight. */
  idle(): Promise<void> {
    return this.#ends.idle();
  }

  /** The number of requests in flight. */
  get inFlight(): number {
    return this.#ends.inFlight;
  }
}

/** How long a response may go on after its access was revoked: requests in flight finish with the routes that they started with. */
const REVOKED_GRACE_MS: Milliseconds = 5_000;

/** The limit that was hit, and the reason that is logged. */
const OVERLOADS: Readonly<Record<Exclude<CapacityResult, 'entered' | 'closed'>, readonly [LimitLabel, Reason]>> = {
  queue_full: ['in_flight_queue', 'queue_full'],
  unverified_share: ['unverified_in_flight', 'queue_full'],
  client_share: ['client_in_flight', 'client_limit'],
  route_share: ['route_in_flight', 'queue_full'],
  queue_timeout: ['queue_timeout', 'queue_timeout'],
};

/** No byte of it went to the app, so the sender's retry must be forwarded. */
function refuseUnsent({ claimed, body }: Admitted, refusal: Refusal): Passed {
  claimed?.claim?.release();
  if (!Buffer.isBuffer(body)) body.stop();
  return { refusal };
}

/** A request that has a route. It is its own record. */
class Exchange extends GuardedRequest<ExchangeRoute> implements RequestRecord, Revocable {
  readonly info: RequestInfo;
  admitted: Admitted | undefined = undefined;
  trace: RequestTrace | undefined = undefined;
  sentAt: Milliseconds | undefined = undefined;
  outcome: ForwardOutcome | undefined = undefined;
  refusal: Refusal | undefined = undefined;
  readonly #ends: RequestEnds;
  readonly #find: ExchangeParts['find'];
  readonly #response: ClientResponse;
  #slot: AppSlot | undefined;
  #stopWatching: (() => void) | undefined;
  #cancelRevoked: CancelTimer | undefined;

  constructor(
    { ends, find }: { readonly ends: RequestEnds; readonly find: ExchangeParts['find'] },
    route: ExchangeRoute,
    head: ParsedHead,
    response: ClientResponse,
  ) {
    super(route, head);
    this.#ends = ends;
    this.#find = find;
    this.info = head;
    this.#response = response;
  }

  /** Runs the steps. */
  start(): void {
    const { head, route } = this;
    const isAuthRequest = this.#ends.parts.authRequests !== undefined;
    const refusal = isAuthRequest && route.to === 'app' ? checkOriginal(route, head) : undefined;
    if (refusal === undefined) this.decide();
    else this.#end({ refusal });
  }

  protected decided(decision: Admitted | Refusal): void {
    try {
      this.#reportDecision(decision);
    } catch (thrown) {
      return this.failed(thrown);
    }
    if (decision instanceof Refusal) return this.#end({ refusal: decision });
    this.admitted = decision;
    this.#pass(() => this.#passOn(decision));
  }

  protected failed(thrown: unknown): void {
    this.head.body.free();
    this.#ends.abandon(this.info, this.#response, thrown);
  }

  #reportDecision(decision: Admitted | Refusal): void {
    const { route, head } = this;
    const { tracing, authRequests } = this.#ends.parts;
    const trace = tracing.tracer.begin(route.trace.trust, toTrustLevel(route, decision), head.headers);
    // The span of an auth request is the parent of the app's span, as another proxy sends the request to the app.
    this.trace = trace !== undefined && authRequests !== undefined ? { ...trace, appParentId: trace.spanId } : trace;
    // Auth requests are counted with their responses.
    if (authRequests === undefined) countDecision(route.metrics, decision);
  }

  /** Passes an admitted request on. */
  #passOn(admitted: Admitted): OrWaiting<Passed> {
    const { route, trace } = this;
    const { authRequests } = this.#ends.parts;
    if (authRequests === undefined && admitted.claimed === undefined) this.#watchAccess();
    if (route.to === 'destination' && this.user?.login?.isLive() === false)
      return { refusal: refuse('proxy_credentials_required', 'bad_credentials', { stage: 'login' }) };
    if (route.to === 'destination') return this.#thenPass(route.egress.pass(admitted, this.#response, trace), (passed) => passed);
    if (authRequests === undefined) return this.#enter(route, admitted);
    const late = this.#findLate(route, admitted);
    if (late !== undefined) return refuseUnsent(admitted, late);
    writeAllowed(this.#response, admitted, route.identity, trace);
    return {};
  }

  #enter(route: AppRoute, admitted: Admitted): OrWaiting<Passed> {
    const isVerified = !route.isOpen && admitted.observed === undefined;
    // Before it takes a slot: an unverified client that sends no body would hold it.
    const arriving = isVerified ? undefined : this.head.body.arriving?.();
    if (arriving === undefined) return this.#takeSlot(route, admitted, isVerified);
    return this.#thenPass(arriving, (refusal) =>
      refusal === undefined ? this.#takeSlot(route, admitted, isVerified) : { refusal },
    );
  }

  #takeSlot(route: AppRoute, admitted: Admitted, isVerified: boolean): OrWaiting<Passed> {
    if (this.#isAbandoned(admitted)) return this.#endAbandoned(admitted);
    const slot = route.capacity.toSlot({ address: this.head.client.address, isVerified, route: route.share });
    return this.#thenPass(route.capacity.enter(slot), (entered) => {
      if (entered !== 'entered') return this.#refuseSlot(admitted, entered);
      this.#slot = slot;
      if (this.#isAbandoned(admitted)) {
        this.#leaveSlot();
        return this.#endAbandoned(admitted);
      }
      return this.#forward(route, admitted, slot);
    });
  }

  /** Its client left while it waited, and nobody promised to handle it: the app need not, as for one that leaves later. */
  #isAbandoned({ claimed }: Admitted): boolean {
    return claimed === undefined && this.#response.destroyed;
  }

  #endAbandoned({ body }: Admitted): Passed {
    if (!Buffer.isBuffer(body)) body.stop();
    return { outcome: { kind: 'aborted', status: 0, refusal: undefined, upstreamMs: undefined } };
  }

  #refuseSlot(admitted: Admitted, result: Exclude<CapacityResult, 'entered'>): Passed {
    if (result === 'closed') return refuseUnsent(admitted, refuse('draining', 'draining'));
    const [limit, reason] = OVERLOADS[result];
    this.#ends.parts.metrics.limitHit(limit);
    return refuseUnsent(admitted, refuse('overloaded', reason));
  }

  /** Forwards to the app, and settles the claim. */
  #forward(route: AppRoute, admitted: Admitted, slot: AppSlot): OrWaiting<Passed> {
    const { claimed } = admitted;
    const { clock } = this.#ends.parts;
    const late = this.#findLate(route, admitted);
    if (late !== undefined) {
      this.#leaveSlot();
      return refuseUnsent(admitted, late);
    }
    if (route.forwardTime > 0) route.capacity.follow(slot, { request: this.head, response: this.#response }, route.forwardTime);
    if (this.trace?.isRecorded === true) this.sentAt = clock.monotonic();
    return this.#thenPass(route.forwarder.forward(admitted, this.#response, this.trace), (outcome) => {
      claimed?.claim?.[toSettlement(outcome)]();
      this.#leaveSlot();
      return this.#follow(outcome);
    });
  }

  /** An upgraded connection holds no slot: it lasts as long as its client likes. */
  #follow(outcome: ForwardOutcome): OrWaiting<Passed> {
    const passed = { outcome, refusal: 'refusal' in outcome ? outcome.refusal : undefined };
    return outcome.kind === 'upgraded' ? this.#thenPass(outcome.closed, () => passed) : passed;
  }

  /**
   * The user of the request was removed, or a reload closed or changed its route. A connection that changed its
   * protocol, or is about to, ends now. A response may end by itself within a grace; only one that is a stream does not.
   */
  revoke(): void {
    if (this.#cancelRevoked !== undefined) return;
    const { logger, clock } = this.#ends.parts;
    const { upgrade, requestId } = this.head;
    this.#cancelRevoked = clock.after(upgrade === undefined ? REVOKED_GRACE_MS : 0, () => {
      logger.warn('access_revoked', { route: this.route.name, requestId });
      upgrade?.destroy();
      this.#response.destroy();
    });
  }

  /** The forward proxy keeps its route. */
  isAllowedBy(now: ExchangeRoute | Refusal): boolean {
    if (now instanceof Refusal) return false;
    return now === this.route || (now.to === 'app' && this.route.to === 'app' && now.gateIdentity === this.route.gateIdentity);
  }

  /** A reload replaced the rules by which the request was admitted, while its password was hashed, its body arrived or it waited. */
  #findOutdated(): Refusal | undefined {
    const { route, head } = this;
    if (route.to !== 'app' || route.table?.isReplaced !== true || this.isAllowedBy(this.#find(head))) return undefined;
    return refuse('in_progress', 'rules_changed', { stage: 'route' });
  }

  /** Rejects what was admitted, but waited too long for its body or its slot, or in a paused process. */
  #findLate({ forwardTime }: AppRoute, { claimed }: Admitted): Refusal | undefined {
    // The lease could end, and another request be forwarded, while the app still works.
    if (claimed !== undefined && this.#ends.parts.clock.monotonic() + forwardTime >= claimed.expiresAt)
      return refuse('in_progress', 'lease_expired', { stage: 'dedup' });
    const outdated = this.#findOutdated();
    if (outdated !== undefined || this.user?.login?.isLive() !== false) return outdated;
    return refuse('credentials_required', 'bad_credentials', { stage: 'login' });
  }

  /** A request without a claim, whose end nothing else bounds, can be revoked while it lasts. */
  #watchAccess(): void {
    this.#ends.revocable.add(this);
    this.#stopWatching = this.user?.login?.onRevoked(() => this.revoke());
  }

  #endWatch(): void {
    if (!this.#ends.revocable.delete(this)) return;
    this.#stopWatching?.();
    this.#cancelRevoked?.();
  }

  #leaveSlot(): void {
    const slot = this.#slot;
    this.#slot = undefined;
    if (slot !== undefined && this.route.to === 'app') this.route.capacity.leave(slot);
  }

  /** Runs a step after the admission. If it throws, it is unknown what the app saw, so the claim is held until its lease expires. */
  #pass(step: () => OrWaiting<Passed>): void {
    let passed: OrWaiting<Passed>;
    try {
      passed = step();
    } catch (thrown) {
      this.#leaveSlot();
      this.admitted?.claimed?.claim?.hold();
      passed = { refusal: refuse('internal_error', 'internal_error', toErrorText(thrown)) };
    }
    if (passed !== WAITING) this.#end(passed);
  }

  #thenPass<Value>(value: Value | Promise<Value>, next: (value: Value) => OrWaiting<Passed>): OrWaiting<Passed> {
    if (!isPromise(value)) return next(value);
    whenSettled(
      value,
      (settled) => this.#pass(() => next(settled)),
      (thrown) => this.#pass(() => rethrow(thrown)),
    );
    return WAITING;
  }

  /** Responds if nobody did, and records. */
  #end({ refusal, outcome, sentAt }: Passed): void {
    this.refusal = refusal;
    this.outcome = outcome;
    this.sentAt ??= sentAt;
    this.#endWatch();
    this.#ends.end(this, this.#response);
  }
}

/** A route in observe mode forwards unverified requests too, and an open route verifies nobody. */
function toTrustLevel({ isOpen }: ExchangeRoute, decision: Admitted | Refusal): TrustLevel {
  if (decision instanceof Refusal)
    return VERIFIED_REFUSALS.has(decision.code) ? (isOpen ? 'unverified' : 'verified') : 'rejected';
  return isOpen || decision.observed !== undefined ? 'unverified' : 'verified';
}

function countDecision(metrics: RouteMetrics, decision: Admitted | Refusal): void {
  if (decision instanceof Refusal) metrics.decision(VERIFIED_REFUSALS.has(decision.code) ? 'allow' : 'deny', decision.reason);
  else if (decision.observed === undefined) metrics.decision('allow', 'ok');
  else metrics.decision('observe', decision.observed.reason);
}
