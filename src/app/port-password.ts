/** Builds the check of passwords on a port with one realm that forwards nothing: the provider's API and the console. */

import type { PortBasicConfig } from '../config/schema/config.ts';
import { Refusal } from '../core/refusal.ts';
import type { PasswordGate } from '../gateway/pipeline/gates/gate.ts';
import { toBasicChallenge } from '../users/basic.ts';
import { type BasicGateParts, buildBasicGate, toSourceLabels } from './basic-gate.ts';
import type { GateRouteLabels, Metrics } from './metrics.ts';

/** The users of a port (HTTP Basic). */
interface PortPassword extends PasswordGate {
  /** For `WWW-Authenticate`. */
  readonly challenge: string;
}

/** The labels of the series of logins; none without users. */
export function toPortLabels(name: string, basic: PortBasicConfig | undefined): GateRouteLabels[] {
  if (basic === undefined) return [];
  return [{ name, scheme: 'basic', keys: toSourceLabels(basic), methods: [], requiresPassword: true }];
}

/** Counts logins as decisions of the route `name`. The caller checks that passwords do not cross a network in clear text. */
export function buildPortPassword(
  name: string,
  basic: PortBasicConfig,
  parts: BasicGateParts & { readonly metrics: Pick<Metrics, 'route'> },
): PortPassword {
  const { metrics } = parts;
  // The series exist only once the routes are set.
  const onUsed = { keyUsed: (key: string, at: number) => metrics.route(name).keyUsed(key, at) };
  const gate = buildBasicGate({ ...basic, requireTls: false }, 'origin', onUsed, parts);
  return {
    challenge: toBasicChallenge(basic.realm),
    async check(head) {
      const result = await gate.check(head);
      const isDenied = result instanceof Refusal;
      metrics.route(name).decision(isDenied ? 'deny' : 'allow', isDenied ? result.reason : 'ok');
      return result;
    },
  };
}
