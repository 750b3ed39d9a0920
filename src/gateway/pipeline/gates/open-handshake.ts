/** Does the sender ask, unsigned, whether this URL is its receiver's own? Answered here, by a secret of the handshake's own. */

import { decline, type OpenHandshake } from '../../../auth/handshakes/handshake.ts';
import type { KeyRing } from '../../../auth/keys/key-ring.ts';
import type { Exchange } from '../../../core/exchange.ts';
import type { Refusal } from '../../../core/refusal.ts';
import type { Verdict } from '../../../core/verdict.ts';
import type { Gate } from './gate.ts';

const SOME_CONTENT = 'there is content';

/** Stands before the content gate, whose rules are those of deliveries. `methods`: those that the app's requests may have. */
export function createOpenHandshakeGate(open: OpenHandshake, ring: KeyRing, methods: readonly string[]): Gate {
  return {
    name: 'open-handshake',
    check(exchange: Exchange): Verdict | Promise<Verdict> {
      const { method, target, headers } = exchange;
      const secrets = { keys: ring.live(exchange.receivedAt), token: ring.handshakeToken };
      const verdict = open({ method, query: target.query, headers }, secrets);
      if (verdict?.code === 'handshake') return requireNoContent(verdict, exchange);
      if (verdict !== undefined || methods.includes(method)) return verdict;
      // The route takes the method for the handshake alone.
      return { code: 'method_not_allowed', reason: 'method_not_allowed', allow: methods };
    },
  };
}

/** No such handshake has content: with any, it is something else. */
function requireNoContent(verdict: Refusal, { body }: Exchange): Verdict | Promise<Verdict> {
  const { declaredLength } = body;
  if (declaredLength !== undefined) return declaredLength === 0 ? verdict : decline(SOME_CONTENT);
  return body.read(0).then((content) => {
    if (Buffer.isBuffer(content)) return verdict;
    return content.code === 'body_too_large' ? decline(SOME_CONTENT) : content;
  });
}
