/** A request that the gates of its route decide about, of a port or of the library. It writes no response, and waits for no slot. */
import { type Admitted, admit, type CheckedDestination, type User, type VerifiedSender } from '../../core/admitted.ts';
import { toErrorText } from '../../core/errors.ts';
import type { ClaimedEvent, ClaimGrant, VerifiedEvent } from '../../core/event.ts';
import { Refusal, refuse, type StageName } from '../../core/refusal.ts';
import type { ParsedHead } from '../../core/request.ts';
import { isPromise, whenSettled } from '../../core/safe-events.ts';
import { joinGrants, NOTHING_CLAIMED, toOneTimeClaim } from './claims.ts';
import type { BodyCheck, ClaimGate, RouteGates, WebhookGates } from './gates/gate.ts';

/** The part of a route that decides about requests. */
export interface GuardedRoute {
  readonly name: string;
  /** Its name among the routes that share slots and memory; undefined if there is no other. */
  readonly share?: string | undefined;
  readonly gates: RouteGates;
  /** The config explicitly allows unauthenticated requests. */
  readonly isOpen: boolean;
  /** `observe`: checked like any other, but a request that would be rejected is forwarded, marked for the app. */
  readonly mode: 'enforce' | 'observe';
}

/** A step waits, and goes on by itself. */
export const WAITING = Symbol('waiting');
/** The result of a step. */
export type OrWaiting<Result> = Result | typeof WAITING;

/**
 * The steps up to the decision stand here in their order: each takes what the one before it proved, and calls the next. A step that must wait
 * goes on once it knows more; all others cost no promise.
 */
export abstract class GuardedRequest<Route extends GuardedRoute> implements VerifiedSender {
  readonly head: ParsedHead;
  readonly route: Route;
  user: User | undefined = undefined;
  certificateName: string | undefined = undefined;
  event: VerifiedEvent | undefined = undefined;
  /** Of the current gate; of the last one, if it rejected the request. */
  stage: StageName = 'route';
  #destination: CheckedDestination | undefined;
  #grant: ClaimGrant = NOTHING_CLAIMED;

  constructor(route: Route, head: ParsedHead) {
    this.route = route;
    this.head = head;
  }

  /** Called once, with the proof for the forwarder or the refusal. */
  protected abstract decided(decision: Admitted | Refusal): void;
  /** Called in place of `decided` if there is no decision, because settling a claim or opening the body threw. */
  protected abstract failed(thrown: unknown): void;

  /** Runs the gates. */
  protected decide(): void {
    this.#run(() => this.#checkHead(this.route.gates));
  }

  /** Everything that is checked before the body is read, cheap checks first. */
  #checkHead(gates: RouteGates): OrWaiting<Admitted | Refusal> {
    const { certificate, handshake } = gates;
    if (certificate !== undefined) {
      this.stage = 'login';
      const name = certificate.check(this.head);
      if (name instanceof Refusal) return name;
      this.certificateName = name;
    }
    if (handshake === undefined) return this.#checkContent(gates);
    this.stage = 'signature';
    return this.#thenDecide(handshake.check(this.head), (refusal) => refusal ?? this.#checkContent(gates));
  }

  #checkContent(gates: RouteGates): OrWaiting<Admitted | Refusal> {
    const { content, password } = gates;
    this.stage = 'content';
    const checkBody = content?.check(this.head);
    if (checkBody instanceof Refusal) return checkBody;
    if (password === undefined) return this.#receive(gates, checkBody);
    this.stage = 'login';
    return this.#thenDecide(password.check(this.head), (user) => {
      if (user instanceof Refusal) return user;
      this.user = user;
      return this.#checkDestination(gates, checkBody);
    });
  }

  /** Names are resolved only for authenticated users, so that untrusted clients cause no DNS queries. */
  #checkDestination(gates: RouteGates, checkBody: BodyCheck | undefined): OrWaiting<Admitted | Refusal> {
    const { destination } = gates;
    if (destination === undefined) return this.#receive(gates, checkBody);
    this.stage = 'route';
    return this.#thenDecide(destination.check(this.head), (checked) => {
      if (checked instanceof Refusal) return checked;
      this.#destination = checked;
      return this.#receive(gates, checkBody);
    });
  }

  /** Reads the body, and verifies who signed it. */
  #receive({ webhook }: RouteGates, checkBody: BodyCheck | undefined): OrWaiting<Admitted | Refusal> {
    if (webhook === undefined) return this.#admit(undefined);
    this.stage = 'signature';
    const verify = webhook.event.check(this.head);
    if (verify instanceof Refusal) return verify;
    return this.#thenDecide(this.head.body.read(webhook.event.maxBody, this.route.share), (body) => {
      if (body instanceof Refusal) return body;
      return this.#thenDecide(verify(body, this), (event) =>
        event instanceof Refusal ? event : this.#checkEvent(event, webhook, checkBody),
      );
    });
  }

  #checkEvent(
    event: VerifiedEvent,
    { verified, claims }: WebhookGates,
    checkBody: BodyCheck | undefined,
  ): OrWaiting<Admitted | Refusal> {
    this.event = event;
    this.stage = 'content';
    const mismatch = checkBody?.(event.body);
    if (mismatch !== undefined) return mismatch;
    this.stage = 'signature';
    for (const gate of verified) {
      const refusal = gate.check(event, this.head);
      if (refusal !== undefined) return refusal;
    }
    return this.#claim(event, claims, 0);
  }

  /** After the signature is verified: otherwise an attacker could use up the IDs of valid deliveries. */
  #claim(event: VerifiedEvent, gates: readonly ClaimGate[], at: number): OrWaiting<Admitted | Refusal> {
    const gate = gates[at];
    if (gate === undefined) return this.#admit(event);
    this.stage = 'dedup';
    return this.#thenDecide(gate.claim(event, this.head), (grant) => {
      if (grant instanceof Refusal) return grant;
      this.#grant = joinGrants(this.#grant, grant);
      return this.#claim(event, gates, at + 1);
    });
  }

  /** Admits exactly the bytes that were signed; else those that a password, a certificate or an open route vouches for. */
  #admit(event: VerifiedEvent | undefined): Admitted {
    const proof = event === undefined ? (this.user?.name ?? this.certificateName) : event.keyName;
    // Fails closed if a route was ever built without a gate that verifies, or if a gate returned something else, such as a promise that nobody awaited.
    if (typeof proof !== 'string' && !this.route.isOpen)
      throw new Error(`no gate of route ${this.route.name} verified the request`);
    return this.#toAdmitted(event?.body ?? this.head.body.open(), undefined);
  }

  #admitObserved(refusal: Refusal): Admitted | Refusal {
    // The methods of a route do not depend on its mode: a method that only its handshake uses never reaches the app.
    if (refusal.code === 'method_not_allowed') return refusal;
    const { content } = this.head.body;
    // A body that could not be read cannot be forwarded either.
    if (content instanceof Refusal) return content;
    return this.#toAdmitted(content ?? this.head.body.open(), refusal);
  }

  #toAdmitted(body: Admitted['body'], observed: Refusal | undefined): Admitted {
    const { head, route, event } = this;
    const claimed = event && toClaimed(event, this.#grant);
    return admit({ head, route: route.name, sender: this, claimed, destination: this.#destination, observed, body });
  }

  /** Runs a step of the gates. A throw is a refusal, never an admission. */
  #run(step: () => OrWaiting<Admitted | Refusal>): void {
    let result: OrWaiting<Admitted | Refusal>;
    try {
      result = step();
    } catch (thrown) {
      result = refuse('internal_error', 'internal_error', toErrorText(thrown));
    }
    if (result !== WAITING) this.#conclude(result);
  }

  /** Goes on with the value, at once if it is there. */
  #thenDecide<Value>(
    value: Value | Promise<Value>,
    next: (value: Value) => OrWaiting<Admitted | Refusal>,
  ): OrWaiting<Admitted | Refusal> {
    if (!isPromise(value)) return next(value);
    whenSettled(
      value,
      (settled) => this.#run(() => next(settled)),
      (thrown) => this.#run(() => rethrow(thrown)),
    );
    return WAITING;
  }

  #conclude(result: Admitted | Refusal): void {
    let decision: Admitted | Refusal;
    try {
      decision = result instanceof Refusal && this.route.mode === 'observe' ? this.#admitObserved(result) : result;
      if (decision instanceof Refusal) settleRefused(this.#grant, decision);
    } catch (thrown) {
      return this.failed(thrown);
    }
    this.decided(decision);
  }
}

/** Throws what a promise rejected with, inside the guard of a step. */
export function rethrow(thrown: unknown): never {
  throw thrown;
}

/** Settles what a gate claimed before a later one rejected the request: no byte went to the app, so a retry must be forwarded, unless it is stale. */
function settleRefused({ claim }: ClaimGrant, { code }: Refusal): void {
  if (code === 'stale') claim?.confirm();
  // A gate that failed may have done anything, so the claim is held until its lease expires.
  else if (code === 'internal_error') claim?.hold();
  else claim?.release();
}

function toClaimed(event: VerifiedEvent, { claim, isStale, isUnchecked, expiresAt }: ClaimGrant): ClaimedEvent {
  return { event, claim: claim && toOneTimeClaim(claim), isStale, isUnchecked, expiresAt };
}
