/** Does the sender ask, unsigned, whether the URL belongs to its receiver? sidegate answers with the handshake's own secret. */

import { decline, type OpenHandshake } from '../../../auth/handshakes/handshake.ts';
import type { KeyRing } from '../../../auth/keys/key-ring.ts';
import type { ParsedHead } from '../../../core/parsed-head.ts';
import { type Refusal, refuse } from '../../../core/refusal.ts';
import type { Verdict } from '../../../core/verdict.ts';
import type { HeadGate } from './gate.ts';

const SOME_CONTENT = 'there is content';

/** Comes before the content gate, whose rules are those of deliveries. `methods`: those of the requests that may reach the app. */
export function createOpenHandshakeGate(open: OpenHandshake, ring: KeyRing, methods: readonly string[]): HeadGate {
  return {
    check(head: ParsedHead): Verdict | Promise<Verdict> {
      const { method, target, headers } = head;
      const secrets = { keys: ring.live(head.receivedAt), token: ring.handshakeToken };
      const verdict = open({ method, query: target.query, headers }, secrets);
      if (verdict?.code === 'handshake') return requireNoContent(verdict, head);
      if (verdict !== undefined || methods.includes(method)) return verdict;
      // The route takes the method for the handshake alone.
      return refuse('method_not_allowed', 'method_not_allowed', { allow: methods });
    },
  };
}

/** No such handshake has content: with any, it is something else. */
function requireNoContent(verdict: Refusal, { body }: ParsedHead): Verdict | Promise<Verdict> {
  const { declaredLength } = body;
  if (declaredLength !== undefined) return declaredLength === 0 ? verdict : decline(SOME_CONTENT);
  return body.read(0).then((content) => {
    if (Buffer.isBuffer(content)) return verdict;
    return content.code === 'body_too_large' ? decline(SOME_CONTENT) : content;
  });
}
