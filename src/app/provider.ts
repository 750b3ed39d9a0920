/** Connects the sending side with the gate. */
import { apiBasicOf, type Config } from '../config/schema/config.ts';
import { toContexts } from '../gateway/server-metrics.ts';
import type { Upstream } from '../http/client/upstream.ts';
import type { MemoryPressure } from '../http/server/memory-guard.ts';
import type { TlsContexts } from '../http/server/tls.ts';
import type { InboxApp } from '../provider/inbox/inbox-sender.ts';
import type { Provider } from '../provider/runtime/provider.ts';
import type { AttemptJournal } from '../telemetry/journal/attempt-journal.ts';
import type { KeyRing } from '../verify/schemes/keys.ts';
import type { PreparedConfig } from './check.ts';
import type { GateContext } from './context.ts';
import type { GateLogger } from './log-events.ts';
import type { GateRouteLabels, Metrics } from './metrics.ts';
import { type BasicGateParts, buildPortPassword, toPortLabels } from './realms.ts';
import { findRouteOf } from './shared-secrets.ts';
import type { BuiltTracing } from './tracing.ts';
import { FIRST_WORKER } from './workers/share.ts';

/** The provider of a gate, and what the gate needs to reload it. */
export interface RunningProvider {
  readonly provider: Provider;
  readonly tls: TlsContexts | undefined;
  /** Activates a config; `pools`: the connection pools of the apps, in the order of the routes; `rings`: their keys. */
  apply(ready: PreparedConfig, pools: readonly Upstream[], rings: ReadonlyMap<string, KeyRing>): void;
}

/** The route label of logins to the API; no configured name can be the same. */
const NAME = '_provider';
/** Attempts in flight are aborted before the drain ends, so that their outcome can still be stored. */
const DRAIN_SHARE = 0.8;

/** Builds the provider; it opens neither the queue nor its port yet. */
export function buildProvider(
  ready: PreparedConfig,
  { version, providerDetour, onFatal = () => undefined, place = FIRST_WORKER }: GateContext,
  context: BasicGateParts & {
    readonly logger: GateLogger;
    readonly metrics: Metrics;
    readonly tracing: BuiltTracing;
    readonly attemptJournal: AttemptJournal;
    readonly memory: MemoryPressure;
  },
): RunningProvider | undefined {
  if (ready.provider === undefined || place.index > 0) return undefined;
  const { clock, logger, metrics, tracing, attemptJournal, memory } = context;
  const { create, tls } = ready.provider;
  const basic = apiBasicOf(ready.loaded.config);
  const contexts = toContexts('provider.tls', tls, metrics);
  let apps: ReadonlyMap<string, InboxApp> = new Map();
  let keys: ReadonlyMap<string, KeyRing> = new Map();
  const provider = create({
    clock,
    logger,
    version,
    registers: metrics.registers,
    onSpan: tracing.onSpan,
    journal: attemptJournal,
    tls: contexts,
    // Without `requireTls`: a rule of the config requires TLS everywhere but on loopback.
    password: basic && buildPortPassword(NAME, basic, context),
    memory,
    findApp: (route) => apps.get(route),
    findRouteOf: (secret) => findRouteOf(secret, keys),
    drainTimeout: ready.loaded.config.shutdown.drain * DRAIN_SHARE,
    onFatal,
    detour: providerDetour,
  });
  return {
    provider,
    tls: contexts,
    apply(next, pools, rings) {
      keys = rings;
      const { routes } = next.loaded.config;
      const webhooks = routes.flatMap(({ name, upstream, timeout, webhook }, index) =>
        webhook === undefined ? [] : [{ route: name, timeout, webhook, app: { ...upstream, pool: pools[index] as Upstream } }],
      );
      apps = new Map(webhooks.map(({ route, app }) => [route, app]));
      if (next.provider !== undefined) provider.apply(next.provider.settings);
      provider.replaceInboxes(
        webhooks.map(({ route, timeout, webhook: { ack } }) => ({ route, timeout, stores: ack === 'onAccept' })),
      );
    },
  };
}

/** The labels of the series of logins; none if the API has no users. */
export function toProviderLabels(config: Config): GateRouteLabels[] {
  return toPortLabels(NAME, apiBasicOf(config));
}
