/** Did the holder of one of the route's keys sign exactly these bytes, and which event are they? */

import type { KeyRing } from '../../../auth/keys/key-ring.ts';
import type { HeadOptions, Message, Scheme } from '../../../auth/schemes/scheme.ts';
import type { Sender } from '../../../core/admitted.ts';
import type { EpochMilliseconds } from '../../../core/clock.ts';
import type { SignedHead, VerifiedEvent } from '../../../core/event.ts';
import type { ParsedHead } from '../../../core/parsed-head.ts';
import { Refusal, refuse } from '../../../core/refusal.ts';
import type { EventGate } from './gate.ts';
import { createSignedHeadReader, judgeRecency, type RecencyOptions } from './timestamp.ts';

/** What the signature gate needs of its route. */
export interface SignatureOptions extends RecencyOptions, HeadOptions {
  /** Largest content in bytes. */
  readonly maxBody: number;
  /** What stands before the request's target in the URL that the sender signed; empty where the URL is not signed. */
  readonly publicUrl: string;
  /** Receives the key that verified, the time, and the first of the live keys: another one is being rotated out. */
  readonly onKeyUsed: (key: string, at: EpochMilliseconds, first: string) => void;
}

/** Reads the signature headers, then the body, and verifies it. */
export function createSignatureGate(scheme: Scheme, ring: KeyRing, options: SignatureOptions): EventGate {
  const readSignedHead = createSignedHeadReader(scheme, options);
  const isSigned = scheme.description.signature !== undefined;
  const readsTimeInContent = scheme.description.timestamp !== undefined && 'json' in scheme.description.timestamp.from;
  return {
    async verify(head, sender) {
      const signed = readSignedHead(head);
      if (signed instanceof Refusal) return signed;
      const keys = ring.live(head.receivedAt);
      // Our own trouble is never a 4xx: a sender that gets one may drop the event for ever.
      if (isSigned && keys.length === 0)
        return refuse('secret_unavailable', 'secret_unavailable', 'no key of this route is usable');
      const body = await head.body.read(options.maxBody);
      if (!Buffer.isBuffer(body)) return body;
      const message = toMessage(head, body);
      // Names of users are no keys, and no labels: there may be any number of them.
      if (!isSigned) return identify(head, signed, message, toSenderName(sender));
      const key = scheme.verify(signed, message, keys);
      if (key === undefined) return toMismatch(ring);
      options.onKeyUsed(key.name, head.receivedAt, keys[0]?.name ?? key.name);
      return identify(head, signed, message, key.name);
    },
  };

  function toMessage({ method, target }: ParsedHead, body: Buffer): Message {
    return { method, url: scheme.signsUrl ? options.publicUrl + target.raw : '', body };
  }

  function identify(head: ParsedHead, signed: SignedHead, message: Message, keyName: string): VerifiedEvent | Refusal {
    const identity = scheme.identify(signed, message);
    if ('problem' in identity) return refuse('malformed_signature', 'malformed_signature', identity.problem);
    if (readsTimeInContent && identity.timestamp !== undefined) {
      const refusal = judgeRecency(identity.timestamp, head.receivedAt, options);
      if (refusal !== undefined) return refusal;
    }
    return { ...identity, keyName, body: message.body };
  }
}

/** The missing key, or one that the sender has published meanwhile, might have been the one that signed. */
function toMismatch(ring: KeyRing): Refusal {
  if (ring.miss()) return refuse('secret_unavailable', 'secret_unavailable', 'no match, but newer keys are being fetched');
  if (ring.isIncomplete) return refuse('secret_unavailable', 'secret_unavailable', 'no match, but a key is missing');
  return refuse('signature_mismatch', 'bad_signature');
}

/** Of a scheme without signatures: the sender's password or certificate proves who sends. */
function toSenderName({ user, certificateName }: Sender): string {
  const name = user?.name ?? certificateName;
  if (name === undefined) throw new Error('nothing is signed, and neither a password nor a certificate was asked for');
  return name;
}
