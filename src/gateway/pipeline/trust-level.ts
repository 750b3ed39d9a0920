/** What the gates have found out about a caller, for whoever has to know how far to trust it. */
import type { Exchange } from '../../core/exchange.ts';
import type { Refusal, RefusalCode } from '../../core/refusal.ts';
import type { Standing } from '../../telemetry/tracing/tracer.ts';
import type { GuardedRoute } from './run-gates.ts';

/** No failure to prove oneself: the sender holds the key. */
export const PROVEN: ReadonlySet<RefusalCode> = new Set(['duplicate', 'stale', 'handshake']);

/** Who observes lets strangers through, and nobody asks who comes by an open route. */
export function toStanding(route: GuardedRoute, { facts }: Exchange, refusal: Refusal | undefined): Standing {
  if (refusal !== undefined && !PROVEN.has(refusal.code)) return 'refused';
  return route.isOpen || facts.observed !== undefined ? 'stranger' : 'verified';
}
