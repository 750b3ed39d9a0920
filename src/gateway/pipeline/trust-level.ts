/** Derives how far a caller is trusted from what the gates decided. */
import type { Acknowledgement, RefusalCode } from '../../core/refusal.ts';
import type { TrustLevel } from '../../telemetry/tracing/tracer.ts';
import { toObservedRefusal } from './request-record.ts';
import type { Decision, GuardedRoute } from './run-gates.ts';

/** Refusals of requests whose sender was verified. */
export const VERIFIED_REFUSALS: ReadonlySet<RefusalCode> = new Set<Acknowledgement>(['duplicate', 'stale', 'handshake']);

/** A route in observe mode forwards unverified requests too, and an open route verifies nobody. */
export function toTrustLevel(route: GuardedRoute, decision: Decision): TrustLevel {
  if (decision.kind === 'refused' && !VERIFIED_REFUSALS.has(decision.refusal.code)) return 'rejected';
  return route.isOpen || toObservedRefusal({ decision }) !== undefined ? 'unverified' : 'verified';
}
