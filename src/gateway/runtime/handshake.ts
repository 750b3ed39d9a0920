/** Builds the gates of a route's handshake: one for what comes unsigned, one for what comes signed like any delivery. */

import { compileHandshake, HANDSHAKES } from '../../auth/handshakes/catalogue.ts';
import type { Handshake } from '../../auth/handshakes/handshake.ts';
import type { KeyRing } from '../../auth/keys/key-ring.ts';
import { compileScheme } from '../../auth/schemes/compile.ts';
import { appMethodsOf, type RouteConfig, type WebhookConfig } from '../../config/schema/config.ts';
import type { Gate } from '../pipeline/gates/gate.ts';
import { createOpenHandshakeGate } from '../pipeline/gates/open-handshake.ts';
import { createSignedHandshakeGate } from '../pipeline/gates/signed-handshake.ts';

/** Before the content is looked at. */
export function buildOpenHandshake(config: RouteConfig, ring: KeyRing): Gate[] {
  const { open } = compile(config.webhook);
  return open === undefined ? [] : [createOpenHandshakeGate(open, ring, appMethodsOf(config))];
}

/** Behind the signature. */
export function buildSignedHandshake(webhook: WebhookConfig, ring: KeyRing): Gate[] {
  const { signed } = compile(webhook);
  return signed === undefined ? [] : [createSignedHandshakeGate(signed, ring)];
}

/** Deliveries may have a query: the route says so, its sender signs it, or it can only be the handshake's token. */
export function isQueryAllowed({ allowQuery, description, handshake }: WebhookConfig): boolean {
  const isJudged = handshake?.verifyToken !== undefined && HANDSHAKES[handshake.type].parameter !== undefined;
  return allowQuery || isJudged || description.signed.includes('url');
}

function compile(webhook: WebhookConfig | undefined): Handshake {
  if (webhook?.handshake === undefined) return {};
  const { type, verifyToken, parameter = '', allowedOrigins, allowedRate } = webhook.handshake;
  return compileHandshake({
    type,
    hasToken: verifyToken !== undefined,
    parameter,
    allowedOrigins,
    allowedRate,
    allowQuery: webhook.allowQuery,
    scheme: compileScheme(webhook.description),
  });
}
