/** The data that is recorded of each request when it arrives, on any port. */
import { randomUUID } from 'node:crypto';
import type { Client } from '../../core/client.ts';
import type { Clock } from '../../core/clock.ts';
import type { Arrival } from '../../core/parsed-head.ts';

/** `method`: empty if the bytes are not a request. */
export function toArrival(method: string, client: Client, clock: Clock): Arrival {
  return { requestId: randomUUID(), method, client, receivedAt: clock.now(), startedAt: clock.monotonic() };
}

/** A client that connects directly, without a trusted proxy. */
export function toDirectClient(peer: string, isEncrypted: boolean): Client {
  return { address: peer, peer, viaTrustedProxy: false, viaIdentityProxy: false, scheme: isEncrypted ? 'https' : 'http' };
}
