/** The composition root: starts a gate from a valid config, reloads it, and stops it. */
import { AdminAccess } from '../../admin/access.ts';
import type { AdminServer } from '../../admin/server.ts';
import { KeyRing } from '../../auth/keys/key-ring.ts';
import { realmsOf, remembersIds } from '../../config/schema/config.ts';
import { formatProblem, type Problem } from '../../config/schema/problem.ts';
import { type Fingerprints, type Watch, watchFiles } from '../../config/sources/watch.ts';
import type { CancelTimer } from '../../core/clock.ts';
import { toErrorText } from '../../core/errors.ts';
import { runDetached } from '../../core/safe-events.ts';
import { Capacity } from '../pipeline/capacity.ts';
import { RequestPipeline } from '../pipeline/request-pipeline.ts';
import { ListenServer } from '../server/server.ts';
import { toContexts } from '../server/tls-settings.ts';
import { buildAdmin, toAdminRoutes } from './admin.ts';
import { type PreparedConfig, prepare } from './check.ts';
import type { GateAddresses, GateContext } from './context.ts';
import { applyRecording, createRefusalListener } from './explain.ts';
import { findFixedChange } from './fixed-sections.ts';
import { type KeysRead, toWatchedKeys } from './keys.ts';
import { HINTS } from './log-events.ts';
import { buildRoute } from './routes.ts';
import { buildServices, type Services } from './services.ts';
import { drain } from './shutdown.ts';
import { buildSidePorts, openPorts, type SidePorts, toAllLabels, toTlsPorts } from './side-ports.ts';
import { Upstreams } from './upstreams.ts';
import { type ReloadParts, reloadFiles, reloadTls, type TlsPort } from './watched-sources.ts';

const CLEANUP_INTERVAL_MS = 1_000;
/** Longer than the usual termination grace period of pods. */
const LEAVING_TIMEOUT_MS = 15 * 60_000;

/** A gate from start to stop. */
export class Gate {
  readonly #context: GateContext;
  readonly #services: Services;
  readonly #capacity: Capacity;
  readonly #pipeline: RequestPipeline;
  readonly #listen: ListenServer;
  readonly #admin: AdminServer;
  readonly #adminAccess: AdminAccess;
  readonly #upstreams: Upstreams;
  readonly #sidePorts: SidePorts;
  readonly #tlsPorts: readonly TlsPort[];
  readonly #cancelCleanup: CancelTimer;
  #rings = new Map<string, KeyRing>();
  #ready: PreparedConfig;
  #watch: Watch | undefined;
  /** Watches the files that a rejected config refers to: one that appears later, as a Secret may, can make it valid. */
  #rejectedWatch: Watch | undefined;
  #reloading: Promise<unknown> = Promise.resolve();
  #notReadyBecause: string | undefined = 'starting';
  #cancelReopen: CancelTimer | undefined;

  constructor(ready: PreparedConfig, context: GateContext) {
    const { clock, logger } = context;
    const { limits, listen, admin } = ready.loaded.config;
    this.#context = context;
    this.#ready = ready;
    this.#services = buildServices(ready, context);
    const { metrics, telemetry } = this.#services;
    // Before the ports are built: the proxy binds its series when it is built.
    metrics.setRoutes(toAllLabels(ready.loaded.config));
    this.#capacity = new Capacity(limits, clock, { onInFlight: metrics.inFlight, onQueued: metrics.queued });
    const onRefused = createRefusalListener(ready.loaded.config, { ...telemetry, current: () => this.#toReloadParts() });
    this.#pipeline = new RequestPipeline({ ...telemetry, capacity: this.#capacity, onRefused });
    const tls = toContexts('listen.tls', ready.tls, metrics);
    this.#listen = new ListenServer({
      listen,
      tls,
      limits,
      clock,
      memory: this.#services.memory,
      handler: this.#pipeline,
      onLimit: metrics.limitHit,
      onConnections: metrics.connections,
    });
    this.#sidePorts = buildSidePorts(ready, {
      ...telemetry,
      memory: this.#services.memory,
      realms: this.#services.realms,
      attempts: this.#services.store.attempts,
      pipeline: this.#pipeline,
      provider: this.#services.provider,
      resolve: context.resolve,
    });
    this.#tlsPorts = [...toTlsPorts('listen.tls', listen.tls, tls, this.#listen), ...this.#sidePorts.tlsPorts];
    this.#upstreams = new Upstreams(clock, limits.maxInFlight, context.createUpstream);
    this.#adminAccess = new AdminAccess(ready.adminToken.token);
    this.#admin = buildAdmin(admin, {
      ...telemetry,
      services: this.#services,
      version: context.version,
      config: () => this.#ready.loaded.config,
      access: this.#adminAccess,
      routes: () => toAdminRoutes(this.#ready.loaded.config, this.#rings),
      toKeySet: () => this.#services.signer.toKeySet(),
      notReadyBecause: () => this.#notReadyBecause,
      stuckFor: () => this.#services.eventLoopMonitor.stuckFor,
      leave: () => this.#leave(),
    });
    this.#cancelCleanup = clock.every(CLEANUP_INTERVAL_MS, () => {
      logger.reportDropped();
      telemetry.captures.forgetOld();
      this.#services.routeParts.offeredTokens.forgetOld();
    });
  }

  /** Opens the ports; rejects with the system's error if one cannot be opened. */
  async start(): Promise<GateAddresses> {
    this.#apply(this.#ready);
    const { store, routes } = this.#ready.loaded.config;
    if (store.redis === undefined && routes.some(remembersIds))
      this.#context.logger.warn('dedup_in_memory', { hint: HINTS.dedupInMemory });
    await this.#rewatch(this.#ready.seen);
    try {
      const addresses = await openPorts({ admin: this.#admin, data: routes.length > 0 && this.#listen, ...this.#sidePorts });
      this.#notReadyBecause = undefined;
      return addresses;
    } catch (thrown) {
      this.#listen.destroy();
      await this.#services.store.close();
      await this.#services.realms.close();
      await this.#sidePorts.provider?.stop();
      this.#close();
      this.#services.unwatchErrors();
      throw thrown;
    }
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
    this.#notReadyBecause = 'draining';
    const isFinished = await drain({
      clock,
      logger,
      listen: this.#listen,
      proxy: this.#sidePorts.proxy,
      authz: this.#sidePorts.authz,
      provider: this.#sidePorts.provider,
      pipeline: this.#pipeline,
      capacity: this.#capacity,
      settlements: this.#services.settlements,
      store: this.#services.store,
      tracing: this.#services.telemetry.tracing,
      config: this.#ready.loaded.config,
    });
    this.#close();
    await this.#services.realms.close();
    this.#services.unwatchErrors();
    return isFinished;
  }

  /** The pod is about to terminate: its keep-alive connections would then be cut while they have requests. */
  #leave(): void {
    if (this.#notReadyBecause === 'draining') return;
    const isFirst = this.#cancelReopen === undefined;
    this.#cancelReopen?.();
    this.#cancelReopen = this.#context.clock.after(LEAVING_TIMEOUT_MS, () => this.#reopen());
    if (!isFirst) return;
    this.#context.logger.info('leaving');
    this.#enter('leaving');
  }

  /** The pod did not terminate: the request to leave did not come from the kubelet. */
  #reopen(): void {
    this.#cancelReopen = undefined;
    this.#context.logger.info('staying');
    this.#enter('open');
  }

  #enter(phase: 'open' | 'leaving'): void {
    for (const port of [this.#listen, this.#sidePorts.authz, this.#sidePorts.proxy]) port?.enter(phase);
  }

  #close(): void {
    this.#sidePorts.proxy?.destroy();
    this.#sidePorts.authz?.destroy();
    this.#watch?.close();
    this.#rejectedWatch?.close();
    this.#services.remoteKeys.close();
    this.#services.eventLoopMonitor.close();
    this.#services.memory.close();
    this.#upstreams.destroy();
    this.#cancelCleanup();
    this.#admin.close();
  }

  /** Reloads the config; on any error the old one stays active. One reload at a time, in order. */
  async reload(): Promise<void> {
    this.#reloading = this.#reloading.then(() => this.#reload());
    await this.#reloading;
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
    const rings = new Map<string, KeyRing>();
    this.#services.routeParts.keyEvidence.take(config.routes.flatMap(toWatchedKeys));
    const routes = ready.routes.map((route, index) => {
      const ring = new KeyRing((ready.keys[index] as KeysRead).set);
      rings.set(route.config.name, ring);
      return buildRoute(route, ring, pools[index] as (typeof pools)[number], this.#services.routeParts);
    });
    this.#services.provider?.apply(ready, pools);
    this.#pipeline.swap(routes);
    for (const { name, mode } of config.routes)
      if (mode === 'observe') logger.warn('route_observed', { route: name, hint: HINTS.routeObserved });
    retire();
    this.#services.remoteKeys.apply(ready.routes, rings);
    applyRecording(this.#services, config, rings);
    this.#rings = rings;
    this.#ready = ready;
    this.#services.reloads.succeed(hash);
  }

  /** False if the old config stays active. */
  async #reload(): Promise<boolean> {
    const { file, overrides, clock, logger } = this.#context;
    try {
      const next = await prepare(file, clock, overrides);
      this.#rejectedWatch?.close();
      if (next.loaded === undefined) {
        this.#rejectedWatch = await this.#watchFor(next.seen, () => this.reload());
        return this.#reject(next.problems);
      }
      const fixed = findFixedChange(this.#ready.loaded.config, next.loaded.config, file);
      if (fixed !== undefined) return this.#reject([fixed]);
      this.#apply(next);
      await this.#rewatch(next.seen);
      await reloadTls(undefined, this.#toReloadParts());
      logger.info('config_reloaded', { hash: next.loaded.hash, routes: next.loaded.config.routes.length });
      for (const problem of next.problems) logger.warn('config_warning', { problem: formatProblem(problem) });
      return true;
    } catch (thrown) {
      return this.#reject([{ severity: 'error', file, path: '', message: toErrorText(thrown) }]);
    }
  }

  #reject(problems: readonly Problem[]): false {
    this.#services.reloads.fail(problems);
    for (const problem of problems) this.#context.logger.error('config_reload_failed', { problem: formatProblem(problem) });
    return false;
  }

  async #rewatch(seen: Fingerprints): Promise<void> {
    this.#watch?.close();
    this.#watch = await this.#watchFor(seen, (changed) => this.#onFiles(changed));
  }

  #watchFor(seen: Fingerprints, onChange: (changed: readonly string[]) => Promise<void>): Promise<Watch> {
    const { clock, logger } = this.#context;
    return watchFiles(seen, clock, {
      onChange: (changed) => runDetached(onChange(changed)),
      onFailure: (message) => logger.warn('watch_failed', { message }),
    });
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
      provider: this.#sidePorts.provider,
      ports: this.#tlsPorts,
    };
  }

  async #onFiles(changed: readonly string[]): Promise<void> {
    this.#reloading = this.#reloading.then(async () => {
      // Users that were removed together with a change of the config lose access even if the config is rejected.
      if (changed.includes(this.#context.file) && (await this.#reload())) return;
      this.#watch?.recheck(await reloadFiles(changed, this.#toReloadParts()));
    });
    await this.#reloading;
  }
}
