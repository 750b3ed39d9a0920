/** Runs a request through its route's gates: ParsedHead, VerifiedEvent, ClaimedEvent, Admitted. The first refusal wins. */
import { type Admitted, admit, type CheckedDestination, type Sender, type User } from '../../core/admitted.ts';
import { toErrorText } from '../../core/errors.ts';
import type { ClaimedEvent, VerifiedEvent } from '../../core/event.ts';
import type { ParsedHead } from '../../core/parsed-head.ts';
import { Refusal, refuse } from '../../core/refusal.ts';
import type { BodyCheck, PasswordGate, RouteGates, WebhookGates } from './gates/gate.ts';
import { joinGrants, NOTHING_CLAIMED, toOneTimeClaim } from './grants.ts';
import { settleRefused } from './settle.ts';

/** The part of a route that decides about requests. */
export interface GuardedRoute {
  readonly name: string;
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
  event: VerifiedEvent | undefined;
  grant = NOTHING_CLAIMED;
}

/** Returns the proof for the forwarder, or the refusal; never rejects. */
export async function runGates(route: GuardedRoute, head: ParsedHead): Promise<Decision> {
  const progress = new Progress();
  let refusal: Refusal | undefined;
  try {
    const checked = checkRequest(route.gates, head, progress);
    refusal = checked instanceof Promise ? await checked : checked;
    if (refusal === undefined) return { kind: 'admitted', admitted: admitProven(route, head, progress) };
  } catch (thrown) {
    // A throw is a refusal, never an admission.
    refusal = refuse('internal_error', 'internal_error', toErrorText(thrown));
  }
  const admitted = route.mode === 'observe' ? admitObserved(route, head, progress, refusal) : refusal;
  if (!(admitted instanceof Refusal)) return { kind: 'admitted', admitted };
  const { event, grant } = progress;
  settleRefused(grant.claim, admitted);
  return { kind: 'refused', refusal: admitted, sender: progress, event };
}

/** A refusal, if there is one; a promise only once something has to wait, as each promise costs CPU. */
type GateResult = Refusal | undefined | Promise<Refusal | undefined>;

function checkRequest(gates: RouteGates, head: ParsedHead, progress: Progress): GateResult {
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
  const { content, password, webhook } = gates;
  const checkBody = content?.check(head);
  if (checkBody instanceof Refusal) return checkBody;
  if (password === undefined) return webhook && checkEvent(webhook, checkBody, head, progress);
  const checked = checkSender(gates, password, head, progress);
  return checked.then((refusal) => refusal ?? (webhook && checkEvent(webhook, checkBody, head, progress)));
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

async function checkEvent(
  { event: gate, verified, claims }: WebhookGates,
  checkBody: BodyCheck | undefined,
  head: ParsedHead,
  progress: Progress,
): Promise<Refusal | undefined> {
  const event = await gate.verify(head, progress);
  if (event instanceof Refusal) return event;
  progress.event = event;
  const mismatch = checkBody?.(event.body);
  if (mismatch !== undefined) return mismatch;
  for (const each of verified) {
    const refusal = each.check(event, head);
    if (refusal !== undefined) return refusal;
  }
  for (const each of claims) {
    const claimed = each.claim(event, head);
    const grant = claimed instanceof Promise ? await claimed : claimed;
    if (grant instanceof Refusal) return grant;
    progress.grant = joinGrants(progress.grant, grant);
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
