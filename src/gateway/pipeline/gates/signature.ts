/** Verifies that one of the route's keys signed exactly these bytes, and identifies the event. */

import type { KeyRing } from '../../../auth/keys/key-ring.ts';
import { isBodyPlace } from '../../../auth/schemes/body-values.ts';
import type { HeadOptions, Message, Scheme } from '../../../auth/schemes/scheme.ts';
import type { Sender } from '../../../core/admitted.ts';
import type { EpochMilliseconds } from '../../../core/clock.ts';
import type { SignedHead, VerifiedEvent } from '../../../core/event.ts';
import type { ParsedHead } from '../../../core/parsed-head.ts';
import { Refusal, refuse } from '../../../core/refusal.ts';
import type { EventGate } from './gate.ts';
import { checkRecency, createSignedHeadReader, type RecencyOptions } from './timestamp.ts';

/** The gate's options. */
export interface SignatureOptions extends RecencyOptions, HeadOptions {
  /** Maximum size of the content, in bytes. */
  readonly maxBody: number;
  /** The part of the signed URL before the request target; empty if the URL is not signed. */
  readonly publicUrl: string;
  /** Called with the key that verified, the time, and the first live key: any other key is being rotated out. */
  readonly onKeyUsed: (key: string, at: EpochMilliseconds, first: string) => void;
}

/** Reads the signature headers, then the body, and verifies it. */
export function createSignatureGate(scheme: Scheme, ring: KeyRing, options: SignatureOptions): EventGate {
  const readSignedHead = createSignedHeadReader(scheme, options);
  const isSigned = scheme.description.signature !== undefined;
  const readsTimeInContent = isTimeInBody(scheme);
  const { readBody } = scheme;
  return {
    async verify(head, sender) {
      const signedHead = readSignedHead(head);
      if (signedHead instanceof Refusal) return signedHead;
      const keys = ring.live(head.receivedAt);
      // The gate's own problems are never a 4xx: a sender may drop the event permanently on one.
      if (isSigned && keys.length === 0) return toUnavailable(ring);
      const body = await head.body.read(options.maxBody);
      if (!Buffer.isBuffer(body)) return body;
      const signed = completeHead(signedHead, body);
      if (signed instanceof Refusal) return signed;
      const message = toMessage(head, body);
      // User names are not counted as keys: labels must not have an unbounded number of values.
      if (!isSigned) return identify(head, signed, message, toSenderName(sender));
      const key = scheme.verify(signed, message, keys);
      if (key === undefined) return toMismatch(ring, signed);
      options.onKeyUsed(key.name, head.receivedAt, keys[0]?.name ?? key.name);
      return identify(head, signed, message, key.name);
    },
  };

  function completeHead(signed: SignedHead, body: Buffer): SignedHead | Refusal {
    return readBody === undefined ? signed : readBody(signed, body, options);
  }

  function toMessage({ method, target }: ParsedHead, body: Buffer): Message {
    return { method, url: scheme.signsUrl ? options.publicUrl + target.raw : '', body };
  }

  function identify(head: ParsedHead, signed: SignedHead, message: Message, keyName: string): VerifiedEvent | Refusal {
    const identity = scheme.identify(signed, message);
    if ('problem' in identity) return refuse('malformed_signature', 'malformed_signature', identity.problem);
    if (readsTimeInContent && identity.timestamp !== undefined) {
      const refusal = checkRecency(identity.timestamp, head.receivedAt, options);
      if (refusal !== undefined) return refusal;
    }
    return { ...identity, keyName, body: message.body };
  }
}

/** A timestamp in the body is checked after the signature: until then, it is only what an untrusted client wrote. */
function isTimeInBody({ description: { timestamp } }: Scheme): boolean {
  return timestamp !== undefined && isBodyPlace(timestamp.from);
}

/** All published keys may have expired, and the sender may have published new ones since. */
function toUnavailable(ring: KeyRing): Refusal {
  ring.miss();
  return refuse('secret_unavailable', 'secret_unavailable', 'no key of this route is usable');
}

/** A missing key, or one that the sender has published meanwhile, may be the one that signed. */
function toMismatch(ring: KeyRing, { timestamp: claimedAt }: SignedHead): Refusal {
  if (ring.miss()) return refuse('secret_unavailable', 'secret_unavailable', 'no match, but newer keys are being fetched');
  if (ring.isIncomplete) return refuse('secret_unavailable', 'secret_unavailable', 'no match, but a key is missing');
  return refuse('signature_mismatch', 'bad_signature', { claimedAt });
}

/** For a scheme without signatures: the password or certificate identifies the sender. */
function toSenderName({ user, certificateName }: Sender): string {
  const name = user?.name ?? certificateName;
  if (name === undefined) throw new Error('nothing is signed, and neither a password nor a certificate was required');
  return name;
}
