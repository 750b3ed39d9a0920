/** Rejects events of kinds that the route does not list, before they claim anything: an attacker can invent kinds for captured content. */
import { refuse } from '../../../core/refusal.ts';
import type { VerifiedEventGate } from './gate.ts';

/** `kinds`: normalized, as in the event. */
export function createKindGate(kinds: ReadonlySet<string>): VerifiedEventGate {
  return {
    check({ kind }) {
      if (kind !== undefined && kinds.has(kind)) return undefined;
      return refuse('kind_not_listed', 'kind_not_listed', 'add the kind to webhook.kinds, or unsubscribe from it at the sender');
    },
  };
}
