/** Holds by compiling: what did not pass the gates cannot be forwarded. `npm run typecheck` runs it. */
import type { ServerResponse } from 'node:http';
import type { Admitted } from '../../src/core/admitted.ts';
import type { Exchange } from '../../src/core/exchange.ts';
import type { Forwarder } from '../../src/gateway/upstream/forwarder.ts';

export function tryToForward(forwarder: Forwarder, exchange: Exchange, response: ServerResponse): void {
  // @ts-expect-error an Exchange is no Admitted
  void forwarder.forward(exchange, response);
  // @ts-expect-error nor is an object that looks like one: the proof is missing
  void forwarder.forward({ exchange, route: 'billing', body: Buffer.alloc(0) }, response);
  // @ts-expect-error and the proof cannot be named
  const forged: Admitted = { exchange, route: 'billing', body: Buffer.alloc(0), proof: true };
  void forwarder.forward(forged, response);
}
