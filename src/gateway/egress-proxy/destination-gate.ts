/** May the client of the forward proxy go there? By the list first, then by every address that the name leads to. */

import { type DestinationRule, findRule } from '../../core/destination.ts';
import { refuse } from '../../core/refusal.ts';
import type { DestinationGate } from '../pipeline/gates/gate.ts';
import { type Resolve, resolveDestination } from './dial.ts';
import type { OwnPorts } from './own-ports.ts';

/** What may be reached. */
export interface DestinationOptions {
  readonly rules: readonly DestinationRule[];
  /** Refuses addresses that are not of the public internet. */
  readonly denyPrivate: boolean;
  readonly resolve: Resolve;
  /** Whatever the list says, these are not reached. */
  readonly own: OwnPorts;
}

/** Builds the gate. It comes after the password: clients that proved nothing cause no DNS query. */
export function createDestinationGate(options: DestinationOptions): DestinationGate {
  return {
    async check({ destination }) {
      if (destination === undefined) throw new Error('only the forward proxy has destinations');
      const rule = findRule(options.rules, destination);
      if (rule === undefined) return refuse('destination_denied', 'destination_not_allowed');
      const found = await resolveDestination(destination, options);
      if ('addresses' in found) {
        if (found.addresses.some((address) => options.own.has(address, destination.port)))
          return refuse('destination_denied', 'destination_not_allowed', 'it is a port of the gate itself');
        return { rule: rule.text, addresses: found.addresses };
      }
      if (found.problem === 'not_public') return refuse('destination_denied', 'destination_not_public', found.detail);
      return refuse('upstream_unreachable', 'upstream_connect', found.detail);
    },
  };
}
