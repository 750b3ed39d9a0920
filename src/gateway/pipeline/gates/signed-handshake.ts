/** Responds to signed handshakes, by which a sender verifies that the URL belongs to its receiver; claims no id for them. */

import type { SignedHandshake } from '../../../verify/handshakes/handshake.ts';
import type { KeyRing } from '../../../verify/keys/key-ring.ts';
import type { VerifiedEventGate } from './gate.ts';

/** Runs on verified events only, so that untrusted clients get nothing signed. */
export function createSignedHandshakeGate(respond: SignedHandshake, ring: KeyRing): VerifiedEventGate {
  return {
    check({ body, keyName }, { headers, receivedAt }) {
      // Sign the response with the key that verified the message: no other key is known to be the sender's.
      const key = ring.live(receivedAt).find(({ name }) => name === keyName);
      return respond({ headers, body, key });
    },
  };
}
