/** The proof that a request passed every gate of its route. Only gatehouse/pipeline.ts may import `admit` (a lint rule holds it). */
import type { Exchange } from './exchange.ts';

declare const proof: unique symbol;

/** An exchange that passed; nothing else can be forwarded. */
export interface Admitted {
  readonly [proof]: true;
  readonly exchange: Exchange;
  /** The route's configured name. */
  readonly route: string;
  /** The content to forward: the very bytes that were verified. */
  readonly body: Buffer;
}

/** Mints the proof. */
export function admit(exchange: Exchange, route: string, body: Buffer): Admitted {
  return { exchange, route, body } as unknown as Admitted;
}
