/** Decides about the query of a route that answers its sender's handshake. */
import { HANDSHAKES } from '../../auth/handshakes/catalogue.ts';
import type { WebhookConfig } from '../../config/schema/config.ts';

/** Deliveries may have a query: the route says so, its sender signs it, or it can only be the handshake's token. */
export function isQueryAllowed({ allowQuery, description, handshake }: WebhookConfig): boolean {
  const isJudged = handshake?.verifyToken !== undefined && HANDSHAKES[handshake.type].parameter !== undefined;
  return allowQuery || isJudged || description.signed.includes('url');
}
