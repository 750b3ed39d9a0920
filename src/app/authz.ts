/** Builds the forward-auth endpoint from its config: request handler, port. */
import type { AuthzConfig, LimitsConfig } from '../config/schema/config.ts';
import type { Clock } from '../core/clock.ts';
import { type ExchangeParts, ExchangePort } from '../gateway/exchange.ts';
import { createAuthRequestHandler } from '../gateway/forward-auth/auth-request.ts';
import type { AuthRequestMetrics } from '../gateway/forward-auth/auth-request-metrics.ts';
import type { RoutesMetrics } from '../gateway/pipeline/route-metrics.ts';
import type { ServerMetrics } from '../gateway/server-metrics.ts';
import { createCallerResolver } from '../http/server/client-address.ts';
import type { ListenMemory } from '../http/server/limits.ts';
import type { BoundAddress } from '../http/server/listener.ts';
import { type ListenPhase, ListenServer } from '../http/server/server.ts';
import type { TlsContexts } from '../http/server/tls.ts';

/** The forward-auth endpoint. */
export interface AuthzEndpoint {
  listen(): Promise<BoundAddress>;
  refreshTls(): void;
  /** Enters a phase of the shutdown, as the data port does: the proxies in front send auth requests as long as they forward requests. */
  enter(phase: ListenPhase): void;
  /** Resolves when no auth request is in flight. */
  idle(): Promise<void>;
  /** Closes all remaining connections. */
  destroy(): void;
}

/** Builds the endpoint; it does not listen yet. */
export function buildAuthz(
  config: AuthzConfig,
  parts: Omit<ExchangeParts, 'unrouted' | 'authRequests' | 'onRefused'> & {
    readonly metrics: RoutesMetrics & AuthRequestMetrics & ServerMetrics;
    readonly clock: Clock;
    readonly limits: LimitsConfig;
    readonly memory: ListenMemory;
    readonly tls: TlsContexts | undefined;
    readonly trustedProxies: readonly string[];
  },
): AuthzEndpoint {
  const { clock, limits, memory, metrics, tls, trustedProxies } = parts;
  const requests = new ExchangePort({ ...parts, unrouted: metrics.route(undefined), authRequests: metrics });
  const { address, trustedCallers } = config;
  const server = new ListenServer({
    // No proxy may vouch for a caller: only the caller's own address is trusted.
    listen: { address, trustedProxies: [], trustedIdentityProxies: [] },
    tls,
    limits,
    memory,
    clock,
    handler: createAuthRequestHandler({ trustedCallers, maxTarget: limits.maxTarget }, requests),
    onLimit: metrics.limitHit,
    connections: metrics.connections,
    callers: { addresses: trustedCallers, resolveClient: createCallerResolver(trustedCallers, trustedProxies) },
  });
  return {
    listen: () => server.listen(),
    refreshTls: () => server.refreshTls(),
    enter: (phase) => server.enter(phase),
    idle: () => requests.idle(),
    destroy: () => server.destroy(),
  };
}
