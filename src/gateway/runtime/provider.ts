/** Connects the sending side with the gate. */
import type { Clock } from '../../core/clock.ts';
import type { Provider } from '../../provider/runtime/provider.ts';
import type { MemoryPressure } from '../server/memory-guard.ts';
import type { TlsContexts } from '../server/tls.ts';
import { toContexts } from '../server/tls-settings.ts';
import type { Upstream } from '../upstream/upstream.ts';
import type { PreparedConfig } from './check.ts';
import type { GateContext } from './context.ts';
import type { GateLogger } from './log-events.ts';
import type { Metrics } from './metrics.ts';
import type { BuiltTracing } from './tracing.ts';

/** The telemetry of the gate. */
interface ProviderContext {
  readonly clock: Clock;
  readonly logger: GateLogger;
  readonly metrics: Metrics;
  readonly tracing: BuiltTracing;
}

/** The provider of a gate, and what the gate needs to reload it. */
export interface RunningProvider {
  readonly provider: Provider;
  readonly tls: TlsContexts | undefined;
  /** Activates a config; `pools`: the connection pools of the apps, in the order of the routes. */
  apply(ready: PreparedConfig, pools: readonly Upstream[]): void;
}

/** Attempts in flight are aborted before the drain ends, so that their outcome can still be stored. */
const DRAIN_SHARE = 0.8;

/** Builds the provider; it opens neither the queue nor its port yet. */
export function buildProvider(
  ready: PreparedConfig,
  { version, providerDetour }: GateContext,
  { clock, logger, metrics, tracing }: ProviderContext,
  memory: MemoryPressure,
): RunningProvider | undefined {
  if (ready.provider === undefined) return undefined;
  const { create, tls } = ready.provider;
  const contexts = toContexts('provider.tls', tls, metrics);
  let apps: ReadonlyMap<string, Upstream> = new Map();
  const provider = create({
    clock,
    logger,
    version,
    registers: metrics.registers,
    onSpan: tracing.onSpan,
    redis: ready.store.redis,
    tls: contexts,
    memory,
    findApp: (route) => apps.get(route),
    drainTimeout: ready.loaded.config.shutdown.drain * DRAIN_SHARE,
    detour: providerDetour,
  });
  return {
    provider,
    tls: contexts,
    apply(next, pools) {
      const { routes } = next.loaded.config;
      apps = new Map(routes.map(({ name }, index) => [name, pools[index] as Upstream]));
      const inbox = routes.filter(({ webhook }) => webhook?.ack === 'onAccept');
      if (next.provider !== undefined) provider.apply(next.provider.settings);
      provider.replaceInbox(inbox.map(({ name, timeout }) => ({ route: name, timeout })));
    },
  };
}
