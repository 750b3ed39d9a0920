/** Runs a request through its route's gates: ParsedHead, VerifiedEvent, ClaimedEvent, Admitted. The first refusal wins. */
import { type Admitted, admit, type CheckedDestination, type Sender, type User } from '../../core/admitted.ts';
import { toErrorText } from '../../core/errors.ts';
import type { ClaimedEvent, VerifiedEvent } from '../../core/event.ts';
import type { ParsedHead } from '../../core/parsed-head.ts';
import { Refusal, refuse } from '../../core/refusal.ts';
import type { BodyCheck, PasswordGate, RouteGates, VerifiedEventGate } from './gates/gate.ts';
import { joinGrants, NOTHING_CLAIMED, toOneTimeClaim } from './grants.ts';
import { settleRefused } from './settle.ts';

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

/** The gates' decision; a rejected request keeps what they had learned, for the log. */
export type Decision =
  | { readonly kind: 'admitted'; readonly admitted: Admitted }
  | {
      readonly kind: 'refused';
      readonly refusal: Refusal;
      readonly sender: Sender;
      readonly event: VerifiedEvent | undefined;
    };

/** The results of the gates so far; private to this module, as each gate gets what it needs from the one before it. */
class Progress implements Sender {
  user: User | undefined;
  certificateName: string | undefined;
  destination: CheckedDestination | undefined;
  checkBody: BodyCheck | undefined;
  event: VerifiedEvent | undefined;
  grant = NOTHING_CLAIMED;
}

/**
 * Returns the proof for the forwarder, or the refusal; never rejects. The steps of a webhook stand here in their order: one async function,
 * because each promise costs CPU.
 */
export async function runGates(route: GuardedRoute, head: ParsedHead): Promise<Decision> {
  const { gates } = route;
  const progress = new Progress();
  try {
    const checked = checkHead(gates, head, progress);
    const refused = checked instanceof Promise ? await checked : checked;
    if (refused !== undefined) return conclude(route, head, progress, refused);
    if (gates.webhook === undefined) return toAdmission(route, head, progress);
    const { event: gate, verified, claims } = gates.webhook;
    const verify = gate.check(head);
    if (verify instanceof Refusal) return conclude(route, head, progress, verify);
    const body = await head.body.read(gate.maxBody, route.share);
    if (body instanceof Refusal) return conclude(route, head, progress, body);
    const found = verify(body, progress);
    const event = found instanceof Promise ? await found : found;
    if (event instanceof Refusal) return conclude(route, head, progress, event);
    progress.event = event;
    const mismatch = progress.checkBody?.(event.body) ?? checkVerified(verified, event, head);
    if (mismatch !== undefined) return conclude(route, head, progress, mismatch);
    for (const each of claims) {
      const claimed = each.claim(event, head);
      const grant = claimed instanceof Promise ? await claimed : claimed;
      if (grant instanceof Refusal) return conclude(route, head, progress, grant);
      progress.grant = joinGrants(progress.grant, grant);
    }
    return toAdmission(route, head, progress);
  } catch (thrown) {
    // A throw is a refusal, never an admission.
    return conclude(route, head, progress, refuse('internal_error', 'internal_error', toErrorText(thrown)));
  }
}

function toAdmission(route: GuardedRoute, head: ParsedHead, progress: Progress): Decision {
  return { kind: 'admitted', admitted: admitProven(route, head, progress) };
}

/** The decision about a request that a gate rejected. */
function conclude(route: GuardedRoute, head: ParsedHead, progress: Progress, refusal: Refusal): Decision {
  const admitted = route.mode === 'observe' ? admitObserved(route, head, progress, refusal) : refusal;
  if (!(admitted instanceof Refusal)) return { kind: 'admitted', admitted };
  const { event, grant } = progress;
  settleRefused(grant.claim, admitted);
  return { kind: 'refused', refusal: admitted, sender: progress, event };
}

/** A refusal, if there is one; a promise only once something has to wait. */
type GateResult = Refusal | undefined | Promise<Refusal | undefined>;

/** Everything that is checked before the body is read. */
function checkHead(gates: RouteGates, head: ParsedHead, progress: Progress): GateResult {
  const { certificate, handshake } = gates;
  if (certificate !== undefined) {
    const name = certificate.check(head);
    if (name instanceof Refusal) return name;
    progress.certificateName = name;
  }
  const handled = handshake?.check(head);
  if (handled instanceof Promise) return handled.then((refusal) => refusal ?? checkContent(gates, head, progress));
  return handled ?? checkContent(gates, head, progress);
}

function checkContent(gates: RouteGates, head: ParsedHead, progress: Progress): GateResult {
  const { content, password } = gates;
  const checkBody = content?.check(head);
  if (checkBody instanceof Refusal) return checkBody;
  progress.checkBody = checkBody;
  return password && checkSender(gates, password, head, progress);
}

/** Names are resolved only for authenticated users, so that untrusted clients cause no DNS queries. */
async function checkSender(
  { destination }: RouteGates,
  password: PasswordGate,
  head: ParsedHead,
  progress: Progress,
): Promise<Refusal | undefined> {
  const user = await password.check(head);
  if (user instanceof Refusal) return user;
  progress.user = user;
  const checked = await destination?.check(head);
  if (checked instanceof Refusal) return checked;
  progress.destination = checked;
  return undefined;
}

function checkVerified(gates: readonly VerifiedEventGate[], event: VerifiedEvent, head: ParsedHead): Refusal | undefined {
  for (const each of gates) {
    const refusal = each.check(event, head);
    if (refusal !== undefined) return refusal;
  }
  return undefined;
}

/** Admits exactly the bytes that were signed; else those that a password, a certificate or an open route vouches for. */
function admitProven(route: GuardedRoute, head: ParsedHead, progress: Progress): Admitted {
  const claimed = toClaimed(progress);
  const isProven = claimed !== undefined || progress.user !== undefined || progress.certificateName !== undefined;
  // Fails closed if a route was ever built without a gate that verifies.
  if (!isProven && !route.isOpen) throw new Error(`no gate of route ${route.name} verified the request`);
  return toAdmitted(route, head, progress, claimed, claimed?.event.body ?? head.body.open(), undefined);
}

function admitObserved(route: GuardedRoute, head: ParsedHead, progress: Progress, refusal: Refusal): Admitted | Refusal {
  // The methods of a route do not depend on its mode: a method that only its handshake uses never reaches the app.
  if (refusal.code === 'method_not_allowed') return refusal;
  const { content } = head.body;
  // A body that could not be read cannot be forwarded either.
  if (content instanceof Refusal) return content;
  return toAdmitted(route, head, progress, toClaimed(progress), content ?? head.body.open(), refusal);
}

function toAdmitted(
  { name: route }: GuardedRoute,
  head: ParsedHead,
  progress: Progress,
  claimed: ClaimedEvent | undefined,
  body: Admitted['body'],
  observed: Refusal | undefined,
): Admitted {
  return admit({
    head,
    route,
    sender: progress,
    claimed,
    destination: progress.destination,
    observed,
    body,
  });
}

function toClaimed({ event, grant }: Progress): ClaimedEvent | undefined {
  if (event === undefined) return undefined;
  const { claim, isStale, isUnchecked, expiresAt } = grant;
  return { event, claim: claim && toOneTimeClaim(claim), isStale, isUnchecked, expiresAt };
}
