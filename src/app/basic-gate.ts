/** Builds the HTTP Basic gate of a route, of the forward proxy or of the provider's API. */
import { type BasicConfig, toSourceName } from '../config/schema/config.ts';
import type { Clock } from '../core/clock.ts';
import { type BasicAuthOptions, createBasicAuthGate } from '../gateway/pipeline/gates/basic-auth.ts';
import type { PasswordGate } from '../gateway/pipeline/gates/gate.ts';
import type { RouteMetrics } from '../gateway/pipeline/route-metrics.ts';
import type { Attempts } from '../users/attempts.ts';
import type { Realms } from './realms.ts';

/** The dependencies of the gate. */
export interface BasicGateParts {
  readonly clock: Clock;
  readonly realms: Realms;
  readonly attempts: Attempts;
}

/** The settings that routes and ports share. */
type BasicGateConfig = Pick<BasicConfig, 'realm' | 'latin1' | 'limit' | 'requireTls'>;

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
