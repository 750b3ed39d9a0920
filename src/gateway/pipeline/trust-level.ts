/** Derives how far a caller is trusted from what the gates decided. */
import type { RefusalCode } from '../../core/refusal.ts';
import type { TrustLevel } from '../../telemetry/tracing/tracer.ts';
import type { Decision, GuardedRoute } from './run-gates.ts';

/** Refusals that do not doubt the sender: it holds the key. */
export const PROVEN: ReadonlySet<RefusalCode> = new Set(['duplicate', 'stale', 'handshake']);

/** An observing route forwards untrusted clients, and an open route verifies nobody. */
export function toTrustLevel(route: GuardedRoute, decision: Decision): TrustLevel {
  if (decision.kind === 'refused' && !PROVEN.has(decision.refusal.code)) return 'refused';
  const isObserved = decision.kind === 'admitted' && decision.admitted.observed !== undefined;
  return route.isOpen || isObserved ? 'stranger' : 'verified';
}
