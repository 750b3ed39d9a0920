/** Did the holder of one of the route's keys sign exactly these bytes? */
import type { EpochMilliseconds } from '../core/clock.ts';
import type { Exchange } from '../core/exchange.ts';
import { refuse } from '../core/refusal.ts';
import type { Verdict } from '../core/verdict.ts';
import type { Scheme, VerifyKey } from '../schemes/scheme.ts';
import type { Gate } from './gate.ts';
import type { KeyRing } from './key-ring.ts';

/** What the signature gate needs of its route. */
export interface SignatureOptions {
  /** Largest content in bytes. */
  readonly maxBody: number;
  /** Told which key verified, and when, and which one is the first of those that are live: another is on its way out. */
  readonly onKeyUsed: (key: string, at: EpochMilliseconds, first: string) => void;
}

/** Reads the content, verifies it, and writes `facts.delivery`. */
export function createSignatureGate(scheme: Scheme, ring: KeyRing, options: SignatureOptions): Gate {
  return {
    name: 'signature',
    async check(exchange: Exchange): Promise<Verdict> {
      const head = exchange.facts.head;
      if (head === undefined) throw new Error('the signature gate stands behind the timestamp gate');
      const keys = ring.live(exchange.receivedAt);
      // Our own trouble is never a 4xx: a sender that gets one may drop the event for ever.
      if (keys.length === 0) return refuse('secret_unavailable', 'secret_unavailable', 'no key of this route is usable');
      const body = await exchange.body.read(options.maxBody);
      if (!Buffer.isBuffer(body)) return body;
      const key = scheme.verify(head, body, keys);
      if (key === undefined) {
        // The missing key might have been the one that signed.
        if (ring.isIncomplete) return refuse('secret_unavailable', 'secret_unavailable', 'no match, but a key is missing');
        return refuse('signature_mismatch', 'bad_signature');
      }
      options.onKeyUsed(key.name, exchange.receivedAt, (keys[0] as VerifyKey).name);
      exchange.facts.delivery = { id: head.id, timestamp: head.timestamp, keyName: key.name, body };
      return undefined;
    },
  };
}
