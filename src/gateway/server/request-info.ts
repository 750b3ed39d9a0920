/** Creates the data that every request has, on all ports. */
import { randomUUID } from 'node:crypto';
import type { Client } from '../../core/client.ts';
import type { Clock } from '../../core/clock.ts';
import type { RequestInfo } from '../../core/parsed-head.ts';

/** Assigns a new request ID. `method`: empty if the bytes are not a request. */
export function createRequestInfo(method: string, client: Client, clock: Clock): RequestInfo {
  return { requestId: randomUUID(), method, client, receivedAt: clock.now(), startedAt: clock.monotonic() };
}

/** A client that connects directly, without a trusted proxy. */
export function toDirectClient(peer: string, isEncrypted: boolean): Client {
  return { address: peer, peer, viaTrustedProxy: false, viaIdentityProxy: false, scheme: isEncrypted ? 'https' : 'http' };
}
