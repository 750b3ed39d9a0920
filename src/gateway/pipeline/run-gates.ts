/** Runs a route's gates in order. The first refusal wins; only a request that passes all gates is admitted. */
import { type Admitted, admit } from '../../core/admitted.ts';
import { toErrorText } from '../../core/errors.ts';
import type { Exchange } from '../../core/exchange.ts';
import { type Refusal, refuse } from '../../core/refusal.ts';
import type { Gate } from './gates/gate.ts';

/** The part of a route that decides. */
export interface GuardedRoute {
  readonly name: string;
  /** Cheap and header-only first. */
  readonly gates: readonly Gate[];
  /** Said in so many words: anyone may pass. */
  readonly isOpen: boolean;
  /** `observe`: judged like any other, but whoever would be refused is let through, and the app is told. */
  readonly mode: 'enforce' | 'observe';
}

/** The proof for the forwarder, or the refusal. A throw in a gate comes out as a rejection: the caller refuses then, too. */
export function runGates(route: GuardedRoute, exchange: Exchange): Promise<Admitted | Refusal> {
  return route.mode === 'observe' ? observe(route, exchange) : enforce(route, exchange);
}

async function enforce(route: GuardedRoute, exchange: Exchange): Promise<Admitted | Refusal> {
  for (const gate of route.gates) {
    const verdict = gate.check(exchange);
    const refusal = verdict instanceof Promise ? await verdict : verdict;
    if (refusal !== undefined) return refusal;
  }
  return admitVerified(route, exchange);
}

function admitVerified(route: GuardedRoute, exchange: Exchange): Admitted {
  const { delivery, user, certificateName } = exchange.facts;
  // The very bytes that were signed.
  if (delivery !== undefined) return admit(exchange, route.name, delivery.body);
  // Fails closed if a route was ever built without a gate that verifies.
  if (user === undefined && certificateName === undefined && !route.isOpen)
    throw new Error(`no gate of route ${route.name} verified the request`);
  return admit(exchange, route.name, exchange.body.open());
}

async function observe(route: GuardedRoute, exchange: Exchange): Promise<Admitted | Refusal> {
  const outcome = await enforce(route, exchange).catch((thrown: unknown) =>
    refuse('internal_error', 'internal_error', toErrorText(thrown)),
  );
  if (!('code' in outcome)) return outcome;
  // What a route takes does not depend on its mode: a method that only its handshake comes by never reaches the app.
  if (outcome.code === 'method_not_allowed') return outcome;
  const { content } = exchange.body;
  // What could not be read cannot be passed on either.
  if (content !== undefined && !Buffer.isBuffer(content)) return content;
  exchange.facts.observed = outcome;
  return admit(exchange, route.name, content ?? exchange.body.open());
}
