/** Checks the destination of a forward proxy request: first by the allow-list, then by every address that the name resolves to. */

import { refuse } from '../../core/refusal.ts';
import { compileAddressRules, PUBLIC_ONLY } from '../../http/dial/address-rules.ts';
import { type DestinationRule, findDestinationRule } from '../../http/dial/destination.ts';
import type { OwnPorts } from '../../http/dial/own-ports.ts';
import { type Resolve, resolveChecked } from '../../http/dial/resolve.ts';
import type { DestinationGate } from '../pipeline/gates/gate.ts';

/** Builds the gate. It runs after the password check: unauthenticated clients cause no DNS queries. */
export function createDestinationGate(options: {
  readonly rules: readonly DestinationRule[];
  /** Rejects addresses that are not on the public internet. */
  readonly denyPrivate: boolean;
  readonly resolve: Resolve;
  /** The gate's own ports, which are rejected even if the list allows them. */
  readonly own: OwnPorts;
}): DestinationGate {
  const findProblem = options.denyPrivate ? compileAddressRules(PUBLIC_ONLY) : () => undefined;
  return {
    async check({ destination }) {
      if (destination === undefined) throw new Error('only the forward proxy has destinations');
      const rule = findDestinationRule(options.rules, destination);
      if (rule === undefined) return refuse('destination_denied', 'destination_not_allowed');
      const found = await resolveChecked(destination.host, options.resolve, findProblem);
      if ('addresses' in found) {
        if (found.addresses.some((address) => options.own.has(address, destination.port)))
          return refuse('destination_denied', 'destination_not_allowed', "the destination is one of sidegate's own ports");
        return { rule: rule.text, addresses: found.addresses };
      }
      if (found.problem === 'forbidden') return refuse('destination_denied', 'destination_not_public', found.detail);
      return refuse('upstream_unreachable', 'upstream_connect', { detail: found.detail, stage: 'app' });
    },
  };
}
