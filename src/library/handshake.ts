/** The handshake of a verifier, by the code and the rules of the gate. Loaded only for a sender that has one. */
import { checkHandshake } from '../config/rules/validate-handshake.ts';
import type { Secret } from '../core/secret.ts';
import type { HeadGate, VerifiedEventGate } from '../gateway/pipeline/gates/gate.ts';
import { createOpenHandshakeGate, createSignedHandshakeGate } from '../gateway/pipeline/gates/handshakes.ts';
import { compileHandshake, HANDSHAKES, hasTokenInUrl } from '../verify/handshakes/catalogue.ts';
import { MAX_OPEN_BODY_BYTES } from '../verify/handshakes/handshake.ts';
import type { HandshakeName } from '../verify/schemes/description.ts';
import type { KeyRing } from '../verify/schemes/keys.ts';
import type { Scheme } from '../verify/schemes/scheme.ts';
import { compute } from './compute.ts';
import { fail, report } from './settings.ts';
import type { HandshakeSettings } from './types.ts';

/** The gates of a handshake, the method that only it uses, and whether the URL contains its token. */
export interface HandshakeGates {
  readonly method?: string | undefined;
  readonly isTokenInUrl: boolean;
  readonly open?: HeadGate | undefined;
  readonly signed?: VerifiedEventGate | undefined;
}

/** The scheme and the secrets that it is compiled for. */
export interface CompiledScheme {
  readonly scheme: Scheme;
  readonly ring: KeyRing;
  readonly allowQuery: boolean;
  /** The methods of deliveries. */
  readonly methods: readonly string[];
  warn(text: string): void;
  offer(token: string): void;
}

/** Throws VerifierError for wrong settings. */
export function createHandshakeGates(
  type: HandshakeName,
  given: HandshakeSettings,
  { scheme, ring, allowQuery, methods, warn, offer }: CompiledScheme,
): HandshakeGates {
  if (!Object.hasOwn(HANDSHAKES, type))
    fail(`handshake.type: ${JSON.stringify(type)} is unknown; the types are ${Object.keys(HANDSHAKES).join(', ')}`);
  const { method, parameter } = HANDSHAKES[type];
  const handshake = {
    type,
    verifyToken: given.verifyToken,
    parameter: given.parameter ?? parameter,
    allowedOrigins: [...(given.allowedOrigins ?? [])],
    allowedRate: given.allowedRate,
    publicKey: given.publicKey,
  };
  report(checkHandshake({ handshake, description: scheme.description, allowQuery }, ['handshake']), warn);
  const hasToken = handshake.verifyToken !== undefined;
  const { open, openBody, signed } = compileHandshake({
    ...handshake,
    parameter: handshake.parameter ?? '',
    hasToken,
    allowQuery,
    scheme,
  });
  const isOpen = open !== undefined || openBody !== undefined;
  const offerText = (token: Secret): void => offer(token.expose().toString('utf8'));
  return {
    method,
    isTokenInUrl: hasTokenInUrl(handshake),
    open: isOpen ? computeHandshake(createOpenHandshakeGate({ open, openBody }, ring, { methods, offer: offerText })) : undefined,
    signed: signed && createSignedHandshakeGate(signed, ring),
  };
}

/** A short body is read before the gate runs, which then needs no `await` before its cryptography. */
function computeHandshake(gate: HeadGate): HeadGate {
  return {
    async check(head) {
      const { declaredLength } = head.body;
      if (declaredLength !== undefined && declaredLength <= MAX_OPEN_BODY_BYTES) await head.body.read(MAX_OPEN_BODY_BYTES);
      return compute(() => gate.check(head));
    },
  };
}
