/** Does this verified message ask whether the URL belongs to its receiver? Then sidegate answers it, and claims no id. */

import type { SignedHandshake } from '../../../auth/handshakes/handshake.ts';
import type { KeyRing } from '../../../auth/keys/key-ring.ts';
import type { VerifiedEventGate } from './gate.ts';

/** Nothing is signed for a sender that proved nothing. */
export function createSignedHandshakeGate(judge: SignedHandshake, ring: KeyRing): VerifiedEventGate {
  return {
    check({ body, keyName }, { headers, receivedAt }) {
      // The key that verified the message makes the response: any other one is not known to be the sender's.
      const key = ring.live(receivedAt).find(({ name }) => name === keyName);
      return judge({ headers, body, key });
    },
  };
}
