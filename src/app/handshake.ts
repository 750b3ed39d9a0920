/** Builds the gates of a route's handshake: one for what comes unsigned, one for what comes signed like any delivery. */
import { appMethodsOf, type RouteConfig, type WebhookConfig } from '../config/config.ts';
import type { Gate } from '../gates/gate.ts';
import type { KeyRing } from '../gates/key-ring.ts';
import { createOpenHandshakeGate } from '../gates/open-handshake.ts';
import { createSignedHandshakeGate } from '../gates/signed-handshake.ts';
import { compileHandshake, HANDSHAKES } from '../handshakes/catalogue.ts';
import type { Handshake } from '../handshakes/handshake.ts';
import { compileScheme } from '../schemes/compile.ts';

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
