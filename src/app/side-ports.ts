/** Builds the optional ports: the forward proxy's and the forward-auth endpoint's. */
import type { Config, ListenTlsConfig } from '../config/schema/config.ts';
import type { Clock } from '../core/clock.ts';
import type { ExchangeParts } from '../gateway/exchange.ts';
import { toContexts } from '../gateway/server-metrics.ts';
import type { Resolve } from '../http/dial/resolve.ts';
import type { BoundAddress } from '../http/server/listener.ts';
import type { ServerMemory } from '../http/server/memory.ts';
import type { TlsContexts } from '../http/server/tls.ts';
import type { Provider } from '../provider/runtime/provider.ts';
import type { Journal } from '../telemetry/journal/journal.ts';
import type { Tracing } from '../telemetry/tracing/tracer.ts';
import type { Attempts } from '../users/attempts.ts';
import { toAdminLabels } from './admin.ts';
import { type AuthzEndpoint, buildAuthz } from './authz.ts';
import type { PreparedConfig } from './check.ts';
import type { GateAddresses } from './context.ts';
import type { GateLogger } from './log-events.ts';
import type { GateRouteLabels, Metrics } from './metrics.ts';
import { type RunningProvider, toProviderLabels } from './provider.ts';
import { buildProxy, type ForwardProxy, toProxyLabels } from './proxy.ts';
import type { Realms } from './realms.ts';
import { toRouteLabels } from './routes.ts';
import type { WatchedTlsPort } from './watched-sources.ts';
import type { JoinedPorts } from './workers/share.ts';

/** The ports that the config has. */
export interface SidePorts {
  readonly proxy: ForwardProxy | undefined;
  readonly authz: AuthzEndpoint | undefined;
  readonly provider: Provider | undefined;
  /** Those with TLS. */
  readonly tlsPorts: readonly WatchedTlsPort[];
}

/** The labels of all routes, and of the ports that count as one. */
export function toAllLabels(config: Config): GateRouteLabels[] {
  const routes = config.routes.map((route) => toRouteLabels(config, route));
  return [...routes, ...toProxyLabels(config), ...toProviderLabels(config), ...toAdminLabels(config)];
}

/** Builds the ports; they do not listen yet. */
export function buildSidePorts(
  { loaded, proxyTls, authzTls }: PreparedConfig,
  parts: {
    readonly clock: Clock;
    readonly logger: GateLogger;
    readonly journal: Journal;
    readonly metrics: Metrics;
    readonly tracing: Tracing;
    readonly realms: Realms;
    readonly attempts: Attempts;
    /** Finds the route of a request. */
    readonly find: ExchangeParts['find'];
    readonly memory: ServerMemory;
    readonly provider: RunningProvider | undefined;
    /** For tests: resolves names. */
    readonly resolve?: Resolve | undefined;
  },
): SidePorts {
  const { proxy: proxyConfig, authz: authzConfig, limits, listen } = loaded.config;
  const { clock, logger, journal, metrics, tracing, realms, attempts, find, memory, resolve } = parts;
  const proxyContexts = toContexts('proxy.tls', proxyTls, metrics);
  const shared = { clock, logger, journal, metrics, tracing, limits, realms, attempts, memory, tls: proxyContexts };
  const proxy =
    proxyConfig === undefined ? undefined : buildProxy(proxyConfig, resolve === undefined ? shared : { ...shared, resolve });
  const authzContexts = toContexts('authz.tls', authzTls, metrics);
  const { trustedProxies } = listen;
  const authzParts = { clock, logger, journal, metrics, tracing, limits, memory, tls: authzContexts, find, trustedProxies };
  const authz = authzConfig === undefined ? undefined : buildAuthz(authzConfig, authzParts);
  const tlsPorts = [
    ...toTlsPorts('proxy.tls', proxyConfig?.tls, proxyContexts, proxy),
    ...toTlsPorts('authz.tls', authzConfig?.tls, authzContexts, authz),
    ...toTlsPorts('provider.tls', loaded.config.provider?.tls, parts.provider?.tls, parts.provider?.provider),
  ];
  return { proxy, authz, provider: parts.provider?.provider, tlsPorts };
}

/** A port that can be opened. */
interface OpenedPort {
  listen(): Promise<BoundAddress>;
}

/** All ports of a gate, those of the config's sections only if it has them. */
interface AllPorts {
  readonly admin: OpenedPort;
  /** False without routes, unless the command line names the port. */
  readonly data: OpenedPort | false;
  readonly authz: OpenedPort | undefined;
  readonly proxy: ForwardProxy | undefined;
  readonly provider: Pick<Provider, 'open' | 'startDelivering'> | undefined;
}

/** Opens the ports; rejects with the system's error if one cannot be opened. */
export async function openPorts(ports: AllPorts): Promise<GateAddresses> {
  const admin = await ports.admin.listen();
  // Before the data port: it stores deliveries of routes with an inbox.
  const provider = await ports.provider?.open();
  const data = ports.data === false ? undefined : await ports.data.listen();
  const authz = await ports.authz?.listen();
  const proxy = await ports.proxy?.listen(toPorts(admin, data, authz, provider));
  // Last, so that no delivery reaches a port of this process. The data port may be an endpoint: it verifies what it gets, and an app may send
  // events to itself.
  ports.provider?.startDelivering(toPorts(admin, authz, proxy, provider));
  return { admin, ...(data && { data }), ...(proxy && { proxy }), ...(authz && { authz }), ...(provider && { provider }) };
}

/** Opens the ports of a worker other than the first, which knows the numbers of the ports from the config that it got. */
export async function joinPorts(ports: Pick<AllPorts, 'data' | 'authz' | 'proxy'>, others: readonly number[]): Promise<void> {
  const data = ports.data === false ? undefined : await ports.data.listen();
  const authz = await ports.authz?.listen();
  await ports.proxy?.listen([...others, ...toPorts(data, authz)]);
}

/** The numbers of the ports, for the other workers. */
export function toJoinedPorts({ admin, data, proxy, authz, provider }: GateAddresses): JoinedPorts {
  return { listen: data?.port, proxy: proxy?.port, authz: authz?.port, own: toPorts(admin, data, proxy, authz, provider) };
}

function toPorts(...addresses: readonly (BoundAddress | undefined)[]): number[] {
  return addresses.flatMap((address) => (address === undefined ? [] : [address.port]));
}

/** The port in a list, which is empty if it has no TLS; `section`: its config path. */
export function toTlsPorts(
  section: string,
  config: ListenTlsConfig | undefined,
  contexts: TlsContexts | undefined,
  port: { refreshTls(): void } | undefined,
): WatchedTlsPort[] {
  if (config === undefined || contexts === undefined || port === undefined) return [];
  return [{ section, config, contexts, refreshTls: () => port.refreshTls() }];
}
