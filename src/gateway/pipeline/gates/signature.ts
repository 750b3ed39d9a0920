/** Verifies that the delivery is recent and that one of the route's keys signed exactly these bytes, and identifies the event. */

import type { VerifiedSender } from '../../../core/admitted.ts';
import type { EpochMilliseconds, Milliseconds } from '../../../core/clock.ts';
import type { EventIdentity, SignedHead, VerifiedEvent } from '../../../core/event.ts';
import { cutBoundary, findConnectionOptions } from '../../../core/head.ts';
import { Refusal, refuse } from '../../../core/refusal.ts';
import type { ParsedHead } from '../../../core/request.ts';
import { isBodyPlace } from '../../../verify/schemes/body-values.ts';
import type { SchemeDescription, Tolerance } from '../../../verify/schemes/description.ts';
import type { KeyRing } from '../../../verify/schemes/keys.ts';
import type { HeadOptions, Message, Scheme, VerifyKey } from '../../../verify/schemes/scheme.ts';
import { addCredentials } from '../../../verify/schemes/url.ts';
import type { EventGate } from './gate.ts';

// Checks that the signature headers are well-formed and the delivery is recent: before the body is read, if a header has the time.

/** How the route checks the time of a delivery. */
export interface RecencyOptions {
  /** Undefined if the sender signs no time. */
  readonly tolerance: Tolerance | undefined;
  /** Called with the time of arrival minus the signed time, for every well-formed head. */
  readonly onSkew: (skew: Milliseconds) => void;
}

const SECOND = 1000;

/** Reads the signature headers of a recent delivery. */
type SignedHeadReader = (head: ParsedHead) => SignedHead | Refusal;

/** Checks the skew in both directions. */
function createSignedHeadReader(scheme: Scheme, options: HeadOptions & RecencyOptions): SignedHeadReader {
  return ({ headers, receivedAt, target }) => {
    const named = findConnectionOptions(headers);
    // The app would not get the header, and would decide without it (CVE-2022-31813).
    if (named !== undefined && scheme.headerNames.some((name) => named.has(name)))
      return refuse('malformed_signature', 'malformed_signature', 'Connection names a signature header');
    const signed = scheme.readHead(headers, options, target.query);
    if (signed instanceof Refusal || signed.timestamp === undefined) return signed;
    return checkRecency(signed.timestamp, receivedAt, options) ?? signed;
  };
}

/** Why a signed time is too old or too far ahead. */
export function checkRecency(
  signedAt: EpochMilliseconds,
  receivedAt: EpochMilliseconds,
  { tolerance, onSkew }: RecencyOptions,
): Refusal | undefined {
  // Senders sign whole seconds, so ours are truncated too: 300.9 s old counts as 300 s, as in the reference libraries.
  const skew = Math.floor(receivedAt / SECOND) * SECOND - Math.floor(signedAt / SECOND) * SECOND;
  onSkew(skew);
  if (tolerance === undefined) return undefined;
  const toRefusal = (reason: 'timestamp_old' | 'timestamp_future', detail: string): Refusal =>
    refuse('timestamp_outside_tolerance', reason, { detail, stage: 'timestamp' });
  if (skew > tolerance.past) return toRefusal('timestamp_old', `${skew / SECOND} s old`);
  // A future bound too: without it a captured delivery with a future time stays valid until then.
  if (-skew > tolerance.future) return toRefusal('timestamp_future', `${-skew / SECOND} s ahead`);
  return undefined;
}

/** Keys that a delivery names. */
export interface FetchedKeys {
  readonly keys: readonly VerifyKey[];
  /** Called if one of them signed the delivery. */
  readonly onVerified: () => void;
}

/** Fetches the keys that the headers of a delivery name. */
export type FetchKeys = (head: ParsedHead) => Promise<FetchedKeys | Refusal>;

/** Reads the signature headers, then verifies the body. */
export function createSignatureGate(
  scheme: Scheme,
  ring: KeyRing,
  options: RecencyOptions &
    HeadOptions & {
      /** Maximum size of the content, in bytes. */
      readonly maxBody: number;
      /** The part of the signed URL before the request target; empty if the URL is not signed. */
      readonly publicUrl: string;
      /** Called with the key that verified, the time, and the first live key: any other key is being rotated out. */
      readonly onKeyUsed: (key: string, at: EpochMilliseconds, first: string) => void;
      /** For routes whose deliveries name the certificate of their key; the keys of the route are then not used. */
      readonly fetchKeys?: FetchKeys | undefined;
    },
): EventGate {
  const readSignedHead = createSignedHeadReader(scheme, options);
  const { description, token } = scheme;
  const isSigned = description.signature !== undefined;
  // Undefined if the time was checked before the body was read.
  const recency = isTimeInBody(description) ? options : undefined;
  const toLive = (head: ParsedHead) => (options.fetchKeys === undefined ? ring.live(head.receivedAt) : undefined);
  return {
    maxBody: options.maxBody,
    check(head) {
      const signedHead = readSignedHead(head);
      if (signedHead instanceof Refusal) return signedHead;
      // The gate's own problems are never a 4xx: a sender may drop the event permanently on one.
      if (isSigned && toLive(head)?.length === 0) return toUnavailable(ring);
      return (body, sender) => {
        const signed = completeHead(scheme, signedHead, body, options);
        if (signed instanceof Refusal) return signed;
        const delivery = { head, signed, message: toMessage(head, body) };
        // Read again: a key that was removed while the body arrived verifies nothing. User names are not counted as keys, which are labels.
        return isSigned ? check(delivery, toLive(head)) : identify(delivery, toSenderName(sender));
      };
    },
  };

  function check(delivery: ReceivedDelivery, live: readonly VerifyKey[] | undefined): Checked | Promise<Checked> {
    if (live === undefined || token !== undefined) return checkLater(delivery);
    return checkNow(delivery, live);
  }

  function checkNow(delivery: ReceivedDelivery, keys: readonly VerifyKey[]): VerifiedEvent | Refusal {
    const { head, signed, message } = delivery;
    const key = scheme.verify(signed, message, keys);
    if (key === undefined) return toMismatch(ring, signed, keys);
    options.onKeyUsed(key.name, head.receivedAt, keys[0]?.name ?? key.name);
    return identify(delivery, key.name);
  }

  /** If keys must be fetched, or the signature is a token. */
  async function checkLater(delivery: ReceivedDelivery): Promise<VerifiedEvent | Refusal> {
    const { head, signed, message } = delivery;
    const fetched = await options.fetchKeys?.(head);
    if (fetched instanceof Refusal) return fetched;
    const toKeys = () => fetched?.keys ?? ring.live(head.receivedAt);
    if (token === undefined) {
      const event = checkNow(delivery, toKeys());
      if (!(event instanceof Refusal)) fetched?.onVerified();
      return event;
    }
    const verified = await token.verify(signed, message, toKeys, head.receivedAt);
    if (verified instanceof Refusal) return verified;
    if (verified === 'mismatch') return toMismatch(ring, signed, toKeys());
    const { key, identity } = verified;
    options.onKeyUsed(key.name, head.receivedAt, toKeys()[0]?.name ?? key.name);
    return checkAge(recency, head, toEvent(scheme, delivery, identity, key.name));
  }

  function toMessage({ method, target, headers }: ParsedHead, body: Buffer): Message {
    const url = scheme.signsUrl ? addCredentials(options.publicUrl, ring.urlCredentials) + target.raw : '';
    return { method, url, query: target.query, body, isMultipart: cutBoundary(headers.get('content-type') ?? '') !== undefined };
  }

  function identify(delivery: ReceivedDelivery, keyName: string): VerifiedEvent | Refusal {
    const identity = scheme.identify(delivery.signed, delivery.message);
    if ('problem' in identity) return refuse('malformed_signature', 'malformed_signature', identity.problem);
    return checkAge(recency, delivery.head, toEvent(scheme, delivery, identity, keyName));
  }
}

type Checked = VerifiedEvent | Refusal;

/** A delivery whose signature is being checked. */
interface ReceivedDelivery {
  readonly head: ParsedHead;
  readonly signed: SignedHead;
  readonly message: Message;
}

function toEvent(
  { toOpenHead }: Scheme,
  { head, signed, message }: ReceivedDelivery,
  identity: EventIdentity,
  keyName: string,
): VerifiedEvent {
  const event = { ...identity, keyName, body: message.body, kind: signed.kind };
  return toOpenHead === undefined ? event : { ...event, openHead: toOpenHead(head.target.raw, head.headers) };
}

function completeHead({ readBody }: Scheme, signed: SignedHead, body: Buffer, options: HeadOptions): SignedHead | Refusal {
  return readBody === undefined ? signed : readBody(signed, body, options);
}

/** The event, if it is recent. */
function checkAge(
  recency: RecencyOptions | undefined,
  { receivedAt }: ParsedHead,
  event: VerifiedEvent,
): VerifiedEvent | Refusal {
  if (recency === undefined || event.timestamp === undefined) return event;
  return checkRecency(event.timestamp, receivedAt, recency) ?? event;
}

/** A timestamp in the body is checked after the signature: until then, it is only what an untrusted client wrote. */
function isTimeInBody({ timestamp, jwt }: SchemeDescription): boolean {
  if (timestamp === undefined) return false;
  return isBodyPlace(timestamp.from) || ('claim' in timestamp.from && jwt?.content !== undefined);
}

/** All published keys may have expired, and the sender may have published new ones since. */
function toUnavailable(ring: KeyRing): Refusal {
  ring.miss();
  return refuse('secret_unavailable', 'secret_unavailable', 'no key of this route is usable');
}

/** A missing key, or one that the sender has published meanwhile, may be the one that signed. */
function toMismatch(ring: KeyRing, { timestamp: claimedAt }: SignedHead, keys: readonly VerifyKey[]): Refusal {
  if (keys.length === 0) return toUnavailable(ring);
  if (ring.miss()) return refuse('secret_unavailable', 'secret_unavailable', 'no match, but newer keys are being fetched');
  if (ring.isIncomplete) return refuse('secret_unavailable', 'secret_unavailable', 'no match, but a key is missing');
  return refuse('signature_mismatch', 'bad_signature', { claimedAt });
}

/** For a scheme without signatures: the password or certificate identifies the sender. */
function toSenderName({ user, certificateName }: VerifiedSender): string {
  const name = user?.name ?? certificateName;
  if (name === undefined) throw new Error('nothing is signed, and neither a password nor a certificate was required');
  return name;
}
