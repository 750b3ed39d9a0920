/** The composition root: starts a gate from a valid config, reloads it, and stops it. */
import type { Registry } from '@prometheus-io/client';
import { AdminAccess } from '../admin/router.ts';
import type { AdminServer } from '../admin/server.ts';
import { realmsOf, remembersIds } from '../config/schema/config.ts';
import { type CancelTimer, type Milliseconds, within } from '../core/clock.ts';
import type { LocatedProblem } from '../core/problem.ts';
import { type AppRoute, ExchangePort } from '../gateway/exchange.ts';
import { CurrentRoutes } from '../gateway/pipeline/router.ts';
import { toContexts } from '../gateway/server-metrics.ts';
import { type ListenPhase, ListenServer } from '../http/server/server.ts';
import { combineGauges } from '../telemetry/metrics/thread-metrics.ts';
import { KeyRing } from '../verify/schemes/keys.ts';
import { buildAdmin, toAdminRoutes } from './admin.ts';
import type { PreparedConfig } from './check.ts';
import { ConfigReloads } from './config-reloads.ts';
import type { GateAddresses, GateContext } from './context.ts';
import { applyRecording, createRefusalListener } from './explain.ts';
import { findReplacedKeys, type KeysRead, toWatchedKeys } from './keys.ts';
import { HINTS } from './log-events.ts';
import type { Metrics } from './metrics.ts';
import { buildRoute, buildServices, type Services } from './routes.ts';
import { drain } from './shutdown.ts';
import { buildSidePorts, joinPorts, openPorts, type SidePorts, toAllLabels, toJoinedPorts, toTlsPorts } from './side-ports.ts';
import { Upstreams } from './upstreams.ts';
import { type ReloadParts, reloadFiles, type WatchedTlsPort } from './watched-sources.ts';
import { addReport, COMBINED_GAUGES, NO_OTHER_WORKERS, type OtherWorkers, type ReportedParts } from './workers/messages.ts';

const CLEANUP_INTERVAL_MS = 1_000;
const STORE_WAIT_MS = 2_000;
/** Longer than the usual termination grace period of pods. */
const LEAVING_TIMEOUT_MS = 15 * 60_000;
/** A proxy that watches endpoints has left the pod by then; a client of HTTP/2 that has not still reaches another pod before the app ends. */
const PART_OF_PAUSE = 0.8;
/** The hook of a native sidecar does not wait, and so does not say for how long the app goes on: this is the injector's default. */
const USUAL_PAUSE_MS = 5_000;

/** A gate from start to stop. */
export class Gate {
  readonly #context: GateContext;
  readonly #services: Services;
  readonly #requests: ExchangePort;
  readonly #listen: ListenServer;
  /** Only of the worker that opens the ports: another one would share the figures of its requests a second time. */
  #admin: AdminServer | undefined;
  readonly #adminAccess: AdminAccess;
  readonly #upstreams: Upstreams;
  readonly #sidePorts: SidePorts;
  readonly #tlsPorts: readonly WatchedTlsPort[];
  readonly #cancelCleanup: CancelTimer;
  readonly #others: OtherWorkers;
  readonly #configReloads: ConfigReloads;
  readonly #routes = new CurrentRoutes<AppRoute>();
  #table = { isReplaced: false };
  #rings = new Map<string, KeyRing>();
  #ready: PreparedConfig;
  #notReadyBecause: string | undefined = 'starting';
  #cancelReopen: CancelTimer | undefined;
  #cancelEnd: CancelTimer | undefined;

  constructor(ready: PreparedConfig, context: GateContext) {
    const { clock, logger, others = NO_OTHER_WORKERS } = context;
    const { limits, listen } = ready.loaded.config;
    this.#context = context;
    this.#ready = ready;
    this.#others = others;
    this.#services = buildServices(ready, context);
    const { metrics, telemetry } = this.#services;
    others.onReport((report) => addReport(this.#services, report));
    this.#configReloads = new ConfigReloads({
      context,
      reloads: this.#services.reloads,
      current: () => this.#ready,
      apply: (next) => this.#apply(next),
      toReloadParts: () => this.#toReloadParts(),
    });
    // Before the ports are built: the proxy binds its series when it is built.
    metrics.setRoutes(toAllLabels(ready.loaded.config));
    const explainParts = { ...telemetry, onExplained: context.onExplained, current: () => this.#toReloadParts() };
    const onRefused = createRefusalListener(ready.loaded.config, explainParts);
    const { find } = this.#routes;
    this.#requests = new ExchangePort({ ...telemetry, unrouted: metrics.route(undefined), find, onRefused });
    const tls = toContexts('listen.tls', ready.tls, metrics);
    this.#listen = new ListenServer({
      listen,
      tls,
      limits,
      clock,
      memory: this.#services.memory,
      handler: this.#requests,
      onLimit: metrics.limitHit,
      connections: metrics.connections,
    });
    this.#sidePorts = buildSidePorts(ready, {
      ...telemetry,
      memory: this.#services.memory,
      realms: this.#services.realms,
      attempts: this.#services.store.attempts,
      find,
      provider: this.#services.provider,
      resolve: context.resolve,
    });
    this.#tlsPorts = [...toTlsPorts('listen.tls', listen.tls, tls, this.#listen), ...this.#sidePorts.tlsPorts];
    this.#upstreams = new Upstreams(clock, this.#services.routeParts.capacity.most, context.createUpstream);
    this.#adminAccess = new AdminAccess(ready.adminToken.token);
    this.#cancelCleanup = clock.every(CLEANUP_INTERVAL_MS, () => {
      logger.reportDropped();
      telemetry.captures.forgetOld();
      this.#services.routeParts.offeredTokens.forgetOld();
    });
  }

  /** Opens the ports; rejects with the system's error if one cannot be opened. */
  async start(): Promise<GateAddresses> {
    const admin = this.#buildAdmin();
    this.#admin = admin;
    this.#apply(this.#ready);
    const { store, routes } = this.#ready.loaded.config;
    if (store.redis === undefined && routes.some(remembersIds))
      this.#context.logger.warn('dedup_in_memory', { hint: HINTS.dedupInMemory });
    if (this.#hasDataPort && !this.#listen.relaysUpgrades)
      this.#context.logger.warn('upgrades_ignored', { node: process.version, hint: HINTS.upgradesIgnored });
    await this.#configReloads.watch(this.#ready.seen);
    try {
      const addresses = await openPorts({ admin, data: this.#hasDataPort && this.#listen, ...this.#sidePorts });
      await this.#others.start(toJoinedPorts(addresses), this.#ready.loaded.hash);
      this.#notReadyBecause = undefined;
      return addresses;
    } catch (thrown) {
      this.#listen.destroy();
      await this.#services.store.close();
      await this.#services.realms.close();
      await this.#sidePorts.provider?.stop(0);
      this.#close();
      this.#services.unwatchErrors();
      throw thrown;
    }
  }

  #buildAdmin(): AdminServer {
    const { version, others } = this.#context;
    const { telemetry, metrics } = this.#services;
    return buildAdmin(this.#ready.loaded.config.admin, {
      ...telemetry,
      metrics: others === undefined ? metrics : toCombined(metrics, others),
      services: this.#services,
      version,
      config: () => this.#ready.loaded.config,
      access: this.#adminAccess,
      routes: () => toAdminRoutes(this.#ready.loaded.config, this.#rings),
      toKeySet: () => this.#services.signer.toKeySet(),
      notReadyBecause: () => this.#notReadyBecause,
      degradedBecause: () => this.#services.storeProblem() ?? this.#services.provider?.provider.problem,
      stuckFor: () => this.#services.eventLoopMonitor.stuckFor ?? this.#others.stuckFor,
      collect: others && (() => this.#others.collect(false)),
      leave: (pause) => this.#leave(pause),
    });
  }

  /** For a worker other than the first: joins its ports. */
  async join(): Promise<void> {
    this.#apply(this.#ready);
    // Until it has joined, the first worker serves alone: deliveries that came now would be rejected for want of the store.
    await within(this.#context.clock, STORE_WAIT_MS, this.#services.storeTried);
    await joinPorts({ data: this.#hasDataPort && this.#listen, ...this.#sidePorts }, this.#context.place?.ports?.own ?? []);
  }

  /**
   * Also without routes if the command line names the port, as in every pod with a sidecar: Services send requests there, and the app could
   * answer them unverified in place of a sidecar that is ready and has its config.
   */
  get #hasDataPort(): boolean {
    return this.#ready.loaded.config.routes.length > 0 || this.#context.overrides?.listen !== undefined;
  }

  /** Serves without a port: the caller passes in connections (diagnostics/simulate/simulator.ts). */
  simulate(): ListenServer {
    this.#apply(this.#ready);
    return this.#listen;
  }

  /** Drains and closes everything; true if every request in flight was finished. */
  async stop(): Promise<boolean> {
    const { clock, logger } = this.#context;
    this.#cancelReopen?.();
    this.#cancelEnd?.();
    this.#notReadyBecause = 'draining';
    const othersStopped = this.#others.stop();
    const isOwnFinished = await drain({
      clock,
      logger,
      listen: this.#listen,
      proxy: this.#sidePorts.proxy,
      authz: this.#sidePorts.authz,
      provider: this.#sidePorts.provider,
      requests: this.#requests,
      capacity: this.#services.routeParts.capacity,
      settlements: this.#services.settlements,
      store: this.#services.store,
      tracing: this.#services.telemetry.tracing,
      config: this.#ready.loaded.config,
    });
    const isFinished = (await othersStopped) && isOwnFinished;
    this.#close();
    await this.#services.realms.close();
    this.#services.unwatchErrors();
    return isFinished;
  }

  /** The app ends after the pause: keep-alive connections would be cut while they have requests, and those of HTTP/2 would stay without an app. */
  #leave(pause: Milliseconds): void {
    if (this.#notReadyBecause === 'draining') return;
    const { clock, logger } = this.#context;
    if (this.#cancelReopen === undefined) {
      logger.info('leaving');
      this.enter('leaving');
    }
    this.#cancelReopen?.();
    this.#cancelReopen = clock.after(LEAVING_TIMEOUT_MS, () => this.#reopen());
    this.#cancelEnd?.();
    this.#cancelEnd = clock.after((pause || USUAL_PAUSE_MS) * PART_OF_PAUSE, () => this.enter('ending'));
  }

  /** The pod did not terminate: the request to leave did not come from the kubelet. */
  #reopen(): void {
    this.#cancelReopen = undefined;
    this.#cancelEnd?.();
    this.#context.logger.info('staying');
    this.enter('open');
  }

  /** Enters the phase on all ports. */
  enter(phase: ListenPhase): void {
    this.#others.enter(phase);
    for (const port of [this.#listen, this.#sidePorts.authz, this.#sidePorts.proxy]) port?.enter(phase);
  }

  #close(): void {
    this.#sidePorts.proxy?.destroy();
    this.#sidePorts.authz?.destroy();
    this.#configReloads.close();
    this.#services.remoteKeys.close();
    this.#services.eventLoopMonitor.close();
    this.#services.memory.close();
    this.#upstreams.destroy();
    this.#cancelCleanup();
    this.#admin?.close();
  }

  /** Reloads the config; on any error the old one stays active. One reload at a time, in order. */
  reload(): Promise<void> {
    return this.#configReloads.reload();
  }

  /** For a worker other than the first (ConfigReloads). */
  prepareNext(hash: string): Promise<readonly LocatedProblem[]> {
    return this.#configReloads.prepareNext(hash);
  }

  /** For a worker other than the first (ConfigReloads). */
  applyNext(): Promise<void> {
    return this.#configReloads.applyNext();
  }

  /** For a worker other than the first: reloads files that the config refers to. */
  async reloadFiles(changed: readonly string[]): Promise<void> {
    await reloadFiles(changed, this.#toReloadParts());
  }

  /** For a worker other than the first: what it reports. */
  get reported(): ReportedParts {
    return this.#services;
  }

  /** Activates a config in one turn of the event loop, so that no request sees half of it. */
  #apply(ready: PreparedConfig): void {
    const { logger } = this.#context;
    const { config, hash } = ready.loaded;
    const { pools, retire } = this.#upstreams.provide(config.routes);
    this.#services.metrics.setRoutes(toAllLabels(config));
    const named = realmsOf(config).filter(({ realm }) => realm.users !== undefined);
    this.#services.metrics.keepRealms(new Set(ready.realms.map(({ realm }) => realm)));
    this.#services.realms.apply(ready.realms, new Map(named.map(({ realm }) => [realm.realm, realm])));
    this.#services.signer.replace(ready.identity?.key, config.identity);
    this.#services.store.update(ready.store);
    const rings = new Map<string, KeyRing>();
    this.#services.routeParts.keyEvidence.take(config.routes.flatMap(toWatchedKeys));
    const table = { isReplaced: false };
    const routes = ready.routes.map((route, index) => {
      const ring = new KeyRing((ready.keys[index] as KeysRead).set);
      rings.set(route.config.name, ring);
      const built = { ...buildRoute(route, ring, pools[index] as (typeof pools)[number], this.#services.routeParts), table };
      return config.routes.length === 1 ? built : { ...built, share: built.name };
    });
    this.#services.provider?.apply(ready, pools, rings);
    this.#table.isReplaced = true;
    this.#table = table;
    this.#routes.replace(routes);
    this.#requests.recheck();
    for (const { name, mode } of config.routes)
      if (mode === 'observe') logger.warn('route_observed', { route: name, hint: HINTS.routeObserved });
    retire();
    this.#services.remoteKeys.apply(ready.routes, rings);
    // The watch of the new config takes all files as read.
    if (ready.adminToken.token !== undefined) this.#adminAccess.replace(ready.adminToken.token);
    for (const [name, ring] of this.#rings) {
      for (const key of findReplacedKeys(ring, rings.get(name))) this.#services.routeParts.keyEvidence.renew(name, key);
      ring.retire(rings.get(name));
    }
    applyRecording(this.#services, config, rings);
    this.#rings = rings;
    this.#ready = ready;
    this.#services.reloads.succeed(hash);
  }

  #toReloadParts(): ReloadParts {
    const { clock, logger } = this.#context;
    return {
      config: this.#ready.loaded.config,
      routes: this.#ready.routes,
      clock,
      logger,
      metrics: this.#services.metrics,
      rings: this.#rings,
      keyEvidence: this.#services.routeParts.keyEvidence,
      adminAccess: this.#adminAccess,
      realms: this.#services.realms,
      signer: this.#services.signer,
      store: this.#services.store,
      provider: this.#sidePorts.provider,
      ports: this.#tlsPorts,
    };
  }
}

/** Each exposition first collects what the others counted. */
function toCombined(metrics: Metrics, others: OtherWorkers): Metrics {
  const [registry] = metrics.registers as readonly [Registry];
  combineGauges(registry, COMBINED_GAUGES, () => others.gauges);
  return {
    ...metrics,
    async exposition(format) {
      await others.collect(true);
      return metrics.exposition(format);
    },
  };
}
