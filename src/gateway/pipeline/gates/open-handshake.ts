/** Responds to unsigned handshakes, by which a sender verifies that the URL belongs to its receiver; they have their own secret. */

import { decline, type OpenHandshake } from '../../../auth/handshakes/handshake.ts';
import type { KeyRing } from '../../../auth/keys/key-ring.ts';
import type { ParsedHead } from '../../../core/parsed-head.ts';
import { type GateDecision, type Refusal, refuse } from '../../../core/refusal.ts';
import type { HeadGate } from './gate.ts';

const HAS_CONTENT = 'the request has content';

/** Runs before the content gate, whose rules apply to deliveries. `methods`: those that may reach the app. */
export function createOpenHandshakeGate(open: OpenHandshake, ring: KeyRing, methods: readonly string[]): HeadGate {
  return {
    check(head: ParsedHead): GateDecision | Promise<GateDecision> {
      const { method, target, headers } = head;
      const secrets = { keys: ring.live(head.receivedAt), token: ring.handshakeToken };
      const refusal = open({ method, query: target.query, headers }, secrets);
      if (refusal?.code === 'handshake') return requireNoContent(refusal, head);
      if (refusal !== undefined || methods.includes(method)) return refusal;
      // The route accepts the method only for the handshake.
      return refuse('method_not_allowed', 'method_not_allowed', { allow: methods });
    },
  };
}

/** Such handshakes have no content; a request with content is something else. */
function requireNoContent(refusal: Refusal, { body }: ParsedHead): GateDecision | Promise<GateDecision> {
  const { declaredLength } = body;
  if (declaredLength !== undefined) return declaredLength === 0 ? refusal : decline(HAS_CONTENT);
  return body.read(0).then((content) => {
    if (Buffer.isBuffer(content)) return refusal;
    return content.code === 'body_too_large' ? decline(HAS_CONTENT) : content;
  });
}
