/** The proof that a request passed every gate of its route. Only gateway/pipeline/run-gates.ts may import `admit` (a lint rule holds it). */
import type { ContentStream, Exchange } from './exchange.ts';

declare const proof: unique symbol;

/** An exchange that passed; nothing else can be forwarded. */
export interface Admitted {
  readonly [proof]: true;
  readonly exchange: Exchange;
  /** The route's configured name. */
  readonly route: string;
  /** The content to forward: the very bytes that were verified, or a stream where no gate looks at it. */
  readonly body: Buffer | ContentStream;
}

/** Mints the proof. */
export function admit(exchange: Exchange, route: string, body: Buffer | ContentStream): Admitted {
  return { exchange, route, body } as unknown as Admitted;
}
