/** Responds to handshakes, by which a sender verifies that the URL belongs to its receiver: unsigned ones, which have their own secret, and signed ones. */
import { type GateDecision, type Refusal, refuse } from '../../../core/refusal.ts';
import type { ParsedHead } from '../../../core/request.ts';
import type { Secret } from '../../../core/secret.ts';
import {
  decline,
  type Handshake,
  MAX_OPEN_BODY_BYTES,
  type OpenRequest,
  type OpenSecrets,
  type SignedHandshake,
} from '../../../verify/handshakes/handshake.ts';
import type { KeyRing } from '../../../verify/schemes/keys.ts';
import type { HeadGate, VerifiedEventGate } from './gate.ts';

const HAS_CONTENT = 'the request has content';

/** For unsigned handshakes. Runs before the content gate, whose rules apply to deliveries. */
export function createOpenHandshakeGate(
  { open, openBody }: Handshake,
  ring: KeyRing,
  {
    methods,
    offer,
  }: {
    /** The methods of requests that may reach the app. */
    readonly methods: readonly string[];
    /** Keeps a token that a sender offered, for operators. */
    readonly offer: (token: Secret, client: string) => void;
  },
): HeadGate {
  // The route accepts other methods only for the handshake.
  const checkMethod = (method: string): Refusal | undefined =>
    methods.includes(method) ? undefined : refuse('method_not_allowed', 'method_not_allowed', { allow: methods, stage: 'route' });

  const checkBody = async (head: ParsedHead, request: OpenRequest, secrets: OpenSecrets): Promise<GateDecision> => {
    // Later gates get the same bytes.
    const body = head.body.content ?? (await head.body.read(MAX_OPEN_BODY_BYTES));
    if (!Buffer.isBuffer(body)) return body;
    const message = { ...request, body, offer: (token: Secret) => offer(token, head.client.address) };
    return openBody?.(message, secrets) ?? checkMethod(request.method);
  };

  return {
    check(head: ParsedHead): GateDecision | Promise<GateDecision> {
      const { method, target, headers, body } = head;
      const request = { method, query: target.query, headers };
      const secrets = { keys: ring.live(head.receivedAt), token: ring.handshakeToken };
      const refusal = open?.(request, secrets);
      if (refusal?.code === 'handshake') return requireNoContent(refusal, head);
      if (refusal !== undefined) return refusal;
      const isShort = body.declaredLength !== undefined && body.declaredLength <= MAX_OPEN_BODY_BYTES;
      if (openBody !== undefined && method === 'POST' && isShort) return checkBody(head, request, secrets);
      return checkMethod(method);
    },
  };
}

/** Such handshakes have no content; a request with content is something else. */
function requireNoContent(refusal: Refusal, { body }: ParsedHead): GateDecision | Promise<GateDecision> {
  const { declaredLength } = body;
  if (declaredLength !== undefined) return declaredLength === 0 ? refusal : decline(HAS_CONTENT);
  return readNoContent(refusal, body);
}

async function readNoContent(refusal: Refusal, body: ParsedHead['body']): Promise<GateDecision> {
  const content = await body.read(0);
  if (Buffer.isBuffer(content)) return refusal;
  return content.code === 'body_too_large' ? decline(HAS_CONTENT) : content;
}

/** For signed handshakes. Runs on verified events only, so that untrusted clients get nothing signed, and claims no ID. */
export function createSignedHandshakeGate(respond: SignedHandshake, ring: KeyRing): VerifiedEventGate {
  return {
    check({ body, keyName }, { headers, receivedAt }) {
      // Sign the response with the key that verified the message: no other key is known to be the sender's.
      const key = ring.live(receivedAt).find(({ name }) => name === keyName);
      return respond({ headers, body, key });
    },
  };
}
