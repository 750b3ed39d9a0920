/** What is noted of every request as it comes in, whatever port it came by. */
import { randomUUID } from 'node:crypto';
import type { Client } from '../../core/client.ts';
import type { Clock } from '../../core/clock.ts';
import type { Arrival } from '../../core/parsed-head.ts';

/** `method`: empty where the bytes are no request. */
export function toArrival(method: string, client: Client, clock: Clock): Arrival {
  return { requestId: randomUUID(), method, client, receivedAt: clock.now(), startedAt: clock.monotonic() };
}

/** A client before whom nobody stands whose word would count. */
export function toDirectClient(peer: string, isEncrypted: boolean): Client {
  return { address: peer, peer, viaTrustedProxy: false, viaIdentityProxy: false, scheme: isEncrypted ? 'https' : 'http' };
}
