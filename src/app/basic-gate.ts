/**
 * Builds the HTTP Basic gate of a route or of the forward proxy, and the check of passwords on a port with one realm that forwards nothing:
 * the provider's API and the console.
 */
import { type BasicConfig, type PortBasicConfig, toSourceName } from '../config/schema/config.ts';
import type { Clock } from '../core/clock.ts';
import { Refusal } from '../core/refusal.ts';
import { type BasicAuthOptions, createBasicAuthGate } from '../gateway/pipeline/gates/basic-auth.ts';
import type { PasswordGate } from '../gateway/pipeline/gates/gate.ts';
import type { RouteMetrics } from '../gateway/pipeline/route-metrics.ts';
import type { Attempts } from '../users/attempts.ts';
import { toBasicChallenge } from '../users/basic.ts';
import type { GateRouteLabels, Metrics } from './metrics.ts';
import type { Realms } from './realms.ts';

/** The dependencies of the gate. */
export interface BasicGateParts {
  readonly clock: Clock;
  readonly realms: Realms;
  readonly attempts: Attempts;
}

/** The settings that routes and ports share. */
type BasicGateConfig = Pick<BasicConfig, 'realm' | 'latin1' | 'limit' | 'requireTls'>;

/** The users of a port (HTTP Basic). */
interface PortPassword extends PasswordGate {
  /** For `WWW-Authenticate`. */
  readonly challenge: string;
}

/** Builds the gate; its realm must be loaded before the first request. */
export function buildBasicGate(
  { realm, requireTls, latin1, limit }: BasicGateConfig,
  as: BasicAuthOptions['as'],
  metrics: Pick<RouteMetrics, 'keyUsed'>,
  { clock, realms, attempts }: BasicGateParts,
): PasswordGate {
  return createBasicAuthGate(
    { realm, as, requireTls, latin1, limit: limit === 'off' ? undefined : limit },
    {
      clock,
      verifier: () => realms.verifier(realm),
      attempts,
      onUsed: ({ source }) => metrics.keyUsed(source, clock.now()),
    },
  );
}

/** The metric labels of the gate's user sources. */
export function toSourceLabels({ users }: Pick<BasicConfig, 'users'>): string[] {
  return users?.map(toSourceName) ?? [];
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
