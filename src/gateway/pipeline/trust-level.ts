/** Derives how far a caller is trusted from what the gates found out about it. */
import type { Exchange } from '../../core/exchange.ts';
import type { Refusal, RefusalCode } from '../../core/refusal.ts';
import type { TrustLevel } from '../../telemetry/tracing/tracer.ts';
import type { GuardedRoute } from './run-gates.ts';

/** Refusals that do not doubt the sender: it holds the key. */
export const PROVEN: ReadonlySet<RefusalCode> = new Set(['duplicate', 'stale', 'handshake']);

/** An observing route forwards untrusted clients, and an open route verifies nobody. */
export function toTrustLevel(route: GuardedRoute, { facts }: Exchange, refusal: Refusal | undefined): TrustLevel {
  if (refusal !== undefined && !PROVEN.has(refusal.code)) return 'refused';
  return route.isOpen || facts.observed !== undefined ? 'stranger' : 'verified';
}
