/** Decides whether the requests of a route may have a query. */

import type { WebhookConfig } from '../config/schema/config.ts';
import { HANDSHAKES } from '../verify/handshakes/catalogue.ts';
import { coversQuery, readsQuery } from '../verify/schemes/coverage.ts';

/** Deliveries may have a query if the route allows it, the sender signs it, the scheme reads it strictly, or it can only be the handshake's token. */
export function isQueryAllowed({ allowQuery, description, handshake }: WebhookConfig): boolean {
  const isHandshakeToken = handshake?.verifyToken !== undefined && HANDSHAKES[handshake.type].parameter !== undefined;
  return allowQuery || isHandshakeToken || coversQuery(description) || readsQuery(description);
}
