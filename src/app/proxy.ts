/** Builds the forward proxy from its config: gates, destinations, port. */
import { randomBytes } from 'node:crypto';
import type { Config, LimitsConfig, ProxyConfig } from '../config/schema/config.ts';
import type { Clock } from '../core/clock.ts';
import { createDestinationGate, EgressProxy, ProxyHeaderPolicy } from '../gateway/egress-proxy/egress-proxy.ts';
import { ProxyServer } from '../gateway/egress-proxy/proxy-server.ts';
import { ExchangePort, type ProxyRoute } from '../gateway/exchange.ts';
import { createForwarder, toReadLimits } from '../gateway/upstream/forwarder.ts';
import { HttpClient } from '../http/client/pool.ts';
import { compileAddressRules, OwnPorts, PUBLIC_ONLY } from '../http/dial/address-rules.ts';
import { type DestinationRule, parseDestinationRule } from '../http/dial/destination.ts';
import { createResolve, LOCAL_NAMES, type Resolve, resolveWithin } from '../http/dial/resolve.ts';
import type { ListenMemory } from '../http/server/limits.ts';
import type { BoundAddress } from '../http/server/listener.ts';
import type { TlsContexts } from '../http/server/tls.ts';
import type { Journal } from '../telemetry/journal/journal.ts';
import type { Tracing } from '../telemetry/tracing/tracer.ts';
import type { Attempts } from '../users/attempts.ts';
import { toBasicChallenge } from '../users/basic.ts';
import type { GateLogger } from './log-events.ts';
import type { GateRouteLabels, Metrics } from './metrics.ts';
import { buildBasicGate, type Realms, toSourceLabels } from './realms.ts';
import type { DrainedProxy } from './shutdown.ts';

/** The dependencies of the proxy. */
interface ProxyParts {
  readonly clock: Clock;
  readonly logger: GateLogger;
  readonly journal: Journal;
  readonly metrics: Metrics;
  readonly tracing: Tracing;
  readonly limits: LimitsConfig;
  readonly memory: ListenMemory;
  readonly realms: Realms;
  readonly attempts: Attempts;
  readonly tls: TlsContexts | undefined;
  /** For tests: resolves names. */
  readonly resolve?: Resolve;
}

/** The route label of the proxy's metrics and log lines; no configured name can be the same. */
const NAME = '_proxy';
const MAX_HEAD_BYTES = 64 * 1024;
/** Fields that are dropped in responses to webhook senders; the proxy forwards all fields of a destination's response. */
const ALLOWED_RESPONSE_HEADERS: ReadonlySet<string> = new Set(['webhook-delivery', 'x-slack-no-retry']);

/** The forward proxy. */
export interface ForwardProxy extends DrainedProxy {
  /** `others`: the gate's other ports. */
  listen(others: readonly number[]): Promise<BoundAddress>;
  refreshTls(): void;
}

/** The labels of the series that the proxy has before its first request; empty without a proxy. */
export function toProxyLabels({ proxy }: Config): GateRouteLabels[] {
  if (proxy === undefined) return [];
  return [
    {
      name: NAME,
      scheme: 'basic',
      keys: toSourceLabels(proxy.basic),
      methods: ['CONNECT', 'GET', 'POST'],
      requiresPassword: true,
    },
  ];
}

/** Builds the proxy; its realm must be loaded before the first request, its labels set in the metrics now. */
export function buildProxy(config: ProxyConfig, parts: ProxyParts): ForwardProxy {
  const { clock, logger, journal, metrics, tracing, limits, memory, tls } = parts;
  const { timeout, idleTimeout, maxDuration, connectTimeout } = config;
  const pseudonym = `sidegate-${randomBytes(6).toString('hex')}`;
  const policy = new ProxyHeaderPolicy(pseudonym, config.trace.trust === 'always');
  const own = new OwnPorts();
  const client = new HttpClient(clock);
  const readLimits = toReadLimits(limits, metrics.limitHit);
  const egress = new EgressProxy({
    clock,
    metrics,
    pseudonym,
    limits: { reads: readLimits, idleTimeout, maxDuration, connectTimeout },
    openForwarder(address, port, atMost) {
      const times = { connectTimeout: atMost, responseTimeout: timeout, idleResponseTimeout: idleTimeout, idleTimeout: 0 };
      const upstream = client.createUpstream({ host: address, port, ...times, maxConnections: 1, maxHeadBytes: MAX_HEAD_BYTES });
      const route = { policy, resend: 'idempotent', allowResponseHeaders: ALLOWED_RESPONSE_HEADERS, readLimits } as const;
      const forwarder = createForwarder({ ...route, connectFailureCode: 'upstream_unreachable' }, upstream, clock);
      return { forwarder, close: () => upstream.close() };
    },
  });
  const route = buildProxyRoute(config, egress, own, parts);
  const requests = new ExchangePort({ clock, logger, journal, metrics, tracing, unrouted: route.metrics, find: () => route });
  const server = new ProxyServer({
    address: config.address,
    limits,
    memory,
    tls,
    clock,
    handler: requests,
    onLimit: metrics.limitHit,
    connections: metrics.connections,
  });
  return {
    async listen(others) {
      const address = await server.listen();
      own.add(...others, address.port);
      return address;
    },
    refreshTls: () => server.refreshTls(),
    enter: (phase) => server.enter(phase),
    idle: () => requests.idle(),
    get inFlight() {
      return requests.inFlight;
    },
    get tunnels() {
      return egress.tunnels;
    },
    destroy: () => server.destroy(),
  };
}

function buildProxyRoute(config: ProxyConfig, egress: EgressProxy, own: OwnPorts, parts: ProxyParts): ProxyRoute {
  const { basic, requireTls, denyPrivate, nat64Prefixes, connectTimeout, trace } = config;
  const findProblem = denyPrivate ? compileAddressRules({ ...PUBLIC_ONLY, nat64Prefixes }) : () => undefined;
  const metrics = parts.metrics.route(NAME);
  const rules = config.allow.map((text) => parseDestinationRule(text) as DestinationRule);
  const resolve = resolveWithin(
    parts.resolve ?? createResolve({ local: denyPrivate ? undefined : LOCAL_NAMES }),
    connectTimeout,
    parts.clock,
  );
  return {
    to: 'destination',
    name: NAME,
    isOpen: false,
    mode: 'enforce',
    gates: {
      password: buildBasicGate({ ...basic, requireTls }, 'proxy', metrics, parts),
      destination: createDestinationGate({ rules, findProblem, resolve, own }),
    },
    challenges: [toBasicChallenge(basic.realm)],
    metrics,
    trace: { trust: trace.trust, template: undefined, app: undefined },
    egress,
  };
}
