/** Did the holder of one of the route's keys sign exactly these bytes, and which event are they? */

import type { KeyRing } from '../../../auth/keys/key-ring.ts';
import type { Message, Scheme } from '../../../auth/schemes/scheme.ts';
import type { EpochMilliseconds } from '../../../core/clock.ts';
import type { Exchange, SignedHead } from '../../../core/exchange.ts';
import { type Refusal, refuse } from '../../../core/refusal.ts';
import type { Verdict } from '../../../core/verdict.ts';
import type { Gate } from './gate.ts';
import { judgeRecency, type RecencyOptions } from './timestamp.ts';

/** What the signature gate needs of its route. */
export interface SignatureOptions extends RecencyOptions {
  /** Largest content in bytes. */
  readonly maxBody: number;
  /** What stands before the request's target in the URL that the sender signed; empty where the URL is not signed. */
  readonly publicUrl: string;
  /** Told which key verified, and when, and which one is the first of those that are live: another is on its way out. */
  readonly onKeyUsed: (key: string, at: EpochMilliseconds, first: string) => void;
}

/** Reads the content, verifies it, and writes `facts.delivery`. */
export function createSignatureGate(scheme: Scheme, ring: KeyRing, options: SignatureOptions): Gate {
  const isSigned = scheme.description.signature !== undefined;
  const readsTimeInContent = scheme.description.timestamp !== undefined && 'json' in scheme.description.timestamp.from;
  return {
    name: 'signature',
    async check(exchange: Exchange): Promise<Verdict> {
      const head = exchange.facts.head;
      if (head === undefined) throw new Error('the signature gate stands behind the timestamp gate');
      const keys = ring.live(exchange.receivedAt);
      // Our own trouble is never a 4xx: a sender that gets one may drop the event for ever.
      if (isSigned && keys.length === 0)
        return refuse('secret_unavailable', 'secret_unavailable', 'no key of this route is usable');
      const body = await exchange.body.read(options.maxBody);
      if (!Buffer.isBuffer(body)) return body;
      const message = toMessage(exchange, body);
      // Names of users are no keys, and no labels: there may be any number of them.
      if (!isSigned) return identify(exchange, head, message, toKnownSender(exchange));
      const key = scheme.verify(head, message, keys);
      if (key === undefined) return toMismatch(ring);
      options.onKeyUsed(key.name, exchange.receivedAt, keys[0]?.name ?? key.name);
      return identify(exchange, head, message, key.name);
    },
  };

  function toMessage(exchange: Exchange, body: Buffer): Message {
    return { method: exchange.method, url: scheme.signsUrl ? options.publicUrl + exchange.target.raw : '', body };
  }

  function identify(exchange: Exchange, head: SignedHead, message: Message, keyName: string): Refusal | undefined {
    const identity = scheme.identify(head, message);
    if ('problem' in identity) return refuse('malformed_signature', 'malformed_signature', identity.problem);
    if (readsTimeInContent && identity.timestamp !== undefined) {
      const refusal = judgeRecency(identity.timestamp, exchange.receivedAt, options);
      if (refusal !== undefined) return refusal;
    }
    exchange.facts.delivery = { ...identity, keyName, body: message.body };
    return undefined;
  }
}

/** The missing key, or one that the sender has published meanwhile, might have been the one that signed. */
function toMismatch(ring: KeyRing): Refusal {
  if (ring.miss()) return refuse('secret_unavailable', 'secret_unavailable', 'no match, but newer keys are being fetched');
  if (ring.isIncomplete) return refuse('secret_unavailable', 'secret_unavailable', 'no match, but a key is missing');
  return refuse('signature_mismatch', 'bad_signature');
}

/** Of a scheme without signatures: a gate before this one let in whom it knows. */
function toKnownSender({ facts }: Exchange): string {
  const name = facts.user ?? facts.certificateName;
  if (name === undefined) throw new Error('nothing is signed, and no gate before this one knows the sender');
  return name;
}
