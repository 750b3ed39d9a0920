/** Is this verified message the sender's question whether the URL is its receiver's own? Then it is answered here, and claims no id. */

import type { SignedHandshake } from '../../../auth/handshakes/handshake.ts';
import type { KeyRing } from '../../../auth/keys/key-ring.ts';
import type { Exchange } from '../../../core/exchange.ts';
import type { Verdict } from '../../../core/verdict.ts';
import type { Gate } from './gate.ts';

/** Stands behind the signature: strangers' content is never parsed, and nothing is signed for them. */
export function createSignedHandshakeGate(judge: SignedHandshake, ring: KeyRing): Gate {
  return {
    name: 'signed-handshake',
    check({ facts, headers, receivedAt }: Exchange): Verdict {
      const { delivery } = facts;
      if (delivery === undefined) throw new Error('the signed handshake stands behind the signature gate');
      // The key that verified the question makes the answer: any other one is not known to be the sender's.
      const key = ring.live(receivedAt).find(({ name }) => name === delivery.keyName);
      return judge({ headers, body: delivery.body, key });
    },
  };
}
