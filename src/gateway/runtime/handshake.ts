/** Decides whether the requests of a route may have a query. */
import { HANDSHAKES } from '../../auth/handshakes/catalogue.ts';
import type { WebhookConfig } from '../../config/schema/config.ts';

/** Deliveries may have a query if the route allows it, the sender signs it, or it can only be the handshake's token. */
export function isQueryAllowed({ allowQuery, description, handshake }: WebhookConfig): boolean {
  const isHandshakeToken = handshake?.verifyToken !== undefined && HANDSHAKES[handshake.type].parameter !== undefined;
  return allowQuery || isHandshakeToken || description.signed.includes('url');
}
