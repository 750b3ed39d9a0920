/** `GET /handshakes` and `DELETE /handshakes`: secrets that senders offered in a handshake, which an operator must enter at the sender. */
import { toJson } from '../response.ts';
import type { Endpoint } from '../router.ts';

/** Access to the offered tokens. */
export interface OfferedTokenSource {
  /** Newest first. */
  list(): readonly object[];
  /** Deletes all and returns how many there were. */
  clear(): number;
}

/** Builds the endpoints. */
export function createHandshakesEndpoints(tokens: OfferedTokenSource): Endpoint[] {
  return [
    { path: '/handshakes', method: 'GET', isOpen: false, respond: () => toJson({ tokens: tokens.list() }) },
    { path: '/handshakes', method: 'DELETE', isOpen: false, respond: () => toJson({ deleted: tokens.clear() }) },
  ];
}
