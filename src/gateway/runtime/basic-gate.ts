/** Builds the gate that asks for passwords, for a route or for the forward proxy. */
import { type BasicConfig, toSourceName } from '../../config/schema/config.ts';
import type { Clock } from '../../core/clock.ts';
import type { Attempts } from '../../state/login-attempts/attempts.ts';
import { type BasicAuthOptions, createBasicAuthGate } from '../pipeline/gates/basic-auth.ts';
import type { PasswordGate } from '../pipeline/gates/gate.ts';
import type { RouteMetrics } from '../pipeline/route-metrics.ts';
import type { Realms } from './realms.ts';

/** What the gate stands on. */
export interface BasicGateParts {
  readonly clock: Clock;
  readonly realms: Realms;
  readonly attempts: Attempts;
}

/** What routes and the proxy have in common. */
export type BasicGateConfig = Pick<BasicConfig, 'realm' | 'latin1' | 'limit' | 'requireTls'>;

/** Builds it; its realm must be among those that were taken over. */
export function buildBasicGate(
  { realm, requireTls, latin1, limit }: BasicGateConfig,
  as: BasicAuthOptions['as'],
  metrics: RouteMetrics,
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

/** What the gate's passwords are called in metrics. */
export function toSourceLabels({ users }: Pick<BasicConfig, 'users'>): string[] {
  return users?.map(toSourceName) ?? [];
}
