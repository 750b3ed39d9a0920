/** The composition root: makes a running gate out of a sound config, reloads it, and stops it. */
import type { AddressInfo } from 'node:net';
import { availableParallelism } from 'node:os';
import { AdminServer } from '../admin/server.ts';
import { type ListenTlsConfig, methodsOf, type RouteConfig, realmsOf } from '../config/config.ts';
import { formatProblem, type Problem } from '../config/problem.ts';
import { toTlsFiles } from '../config/tls-files.ts';
import { type Watch, watchFiles } from '../config/watch.ts';
import type { CancelTimer, Clock } from '../core/clock.ts';
import { toErrorText } from '../core/errors.ts';
import { Capacity } from '../gatehouse/capacity.ts';
import { Gatehouse } from '../gatehouse/gatehouse.ts';
import { WaitingRoom } from '../gates/dedup.ts';
import { KeyRing } from '../gates/key-ring.ts';
import { Settlements } from '../gates/settlements.ts';
import { ListenServer } from '../listen/server.ts';
import { TlsContexts } from '../listen/tls.ts';
import type { RouteLabels } from '../observe/families.ts';
import type { Logger } from '../observe/logger.ts';
import { createMetrics, type Metrics } from '../observe/metrics.ts';
import type { Attempts } from '../store/attempts.ts';
import type { SeenIds } from '../store/seen-ids.ts';
import type { Resolve } from '../tunnel/dial.ts';
import { prepare, type Ready } from './check.ts';
import { type KeysRead, toSecretFiles } from './keys.ts';
import { buildProxy, type ForwardProxy, toProxyLabels } from './proxy.ts';
import { Realms } from './realms.ts';
import { type ReloadParts, reloadFiles, type TlsPort } from './reload-files.ts';
import { buildRoute } from './routes.ts';
import { drain } from './shutdown.ts';
import { openStore } from './store.ts';
import { Upstreams } from './upstreams.ts';

/** What a gate runs in. */
export interface GateSurroundings {
  readonly file: string;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly version: string;
  /** For tests: what the names of the forward proxy's destinations lead to. */
  readonly resolve?: Resolve;
}

/** Where a running gate listens. */
export interface GateAddresses {
  readonly data: AddressInfo;
  readonly admin: AddressInfo;
  readonly proxy?: AddressInfo;
}

const FLUSH_INTERVAL_MS = 1_000;
/** What a reload cannot change: these are built once, into sockets and shared stores. */
const FIXED_SECTIONS = ['listen', 'proxy', 'admin', 'store', 'limits', 'shutdown', 'log'] as const;

/** A gate from start to stop. */
export class Gate {
  readonly #surroundings: GateSurroundings;
  readonly #metrics: Metrics;
  readonly #store: SeenIds;
  readonly #settlements: Settlements;
  readonly #waitingRoom: WaitingRoom;
  readonly #capacity: Capacity;
  readonly #gatehouse: Gatehouse;
  readonly #listen: ListenServer;
  readonly #admin: AdminServer;
  readonly #upstreams: Upstreams;
  readonly #realms: Realms;
  readonly #attempts: Attempts;
  readonly #ports: TlsPort[] = [];
  #proxy: ForwardProxy | undefined;
  readonly #cancelFlush: CancelTimer;
  #rings = new Map<string, KeyRing>();
  #ready: Ready;
  #watch: Watch | undefined;
  #reloading: Promise<void> = Promise.resolve();
  #notReadyBecause: string | undefined = 'starting';

  constructor(ready: Ready, surroundings: GateSurroundings) {
    const { clock, logger, version } = surroundings;
    const { limits, listen, admin } = ready.loaded.config;
    this.#surroundings = surroundings;
    this.#ready = ready;
    this.#metrics = createMetrics({ version, processMetrics: true });
    const store = openStore(ready.store, clock, {
      onUp: () => this.#onStore(true),
      onDown: (message) => this.#onStore(false, message),
      onWarning: (message) => logger.warn('store_warning', { message }),
    });
    this.#store = store.seenIds;
    this.#attempts = store.attempts;
    this.#settlements = new Settlements(this.#store, clock, {
      onOutcome: (outcome) => this.#metrics.dedup(outcome),
      onLost: ({ kind, key }, why) => logger.error('settlement_lost', { kind, key, why }),
    });
    this.#waitingRoom = new WaitingRoom(limits.maxWaiting, () => this.#metrics.limitHit('waiters'));
    this.#capacity = new Capacity(limits, clock, { onInFlight: this.#metrics.inFlight, onQueued: this.#metrics.queued });
    this.#gatehouse = new Gatehouse({ clock, logger, metrics: this.#metrics, capacity: this.#capacity });
    const threads = limits.passwordThreads ?? Math.max(1, availableParallelism() - 1);
    this.#realms = new Realms({ threads, queue: limits.passwordQueue }, clock, (outcome) => this.#metrics.passwordCheck(outcome));
    this.#metrics.watchPendingPasswords(() => this.#realms.pending);
    const tls = ready.tls === undefined ? undefined : new TlsContexts(ready.tls.settings);
    this.#listen = new ListenServer({
      listen,
      tls,
      limits,
      clock,
      handler: this.#gatehouse,
      onLimit: this.#metrics.limitHit,
      onConnections: this.#metrics.connections,
    });
    this.#addPort('listen.tls', listen.tls, tls, this.#listen);
    this.#metrics.watchBufferedBytes(() => this.#listen.bufferedBytes);
    this.#upstreams = new Upstreams(clock, limits.maxInFlight);
    this.#admin = new AdminServer({
      address: admin.address,
      metrics: this.#metrics,
      notReadyBecause: () => this.#notReadyBecause,
    });
    this.#cancelFlush = clock.every(FLUSH_INTERVAL_MS, () => logger.flush());
  }

  /** Opens the ports; rejects with the system's error where one cannot be had. */
  async start(): Promise<GateAddresses> {
    this.#take(this.#ready);
    await this.#rewatch();
    try {
      const admin = await this.#admin.listen();
      const data = await this.#listen.listen();
      const proxy = await this.#openProxy([admin.port, data.port]);
      this.#notReadyBecause = undefined;
      return proxy === undefined ? { data, admin } : { data, admin, proxy };
    } catch (thrown) {
      this.#listen.destroy();
      await this.#store.close();
      await this.#realms.close();
      this.#close();
      throw thrown;
    }
  }

  /** Drains and closes everything; true when every request under way was finished. */
  async stop(): Promise<boolean> {
    const { clock, logger } = this.#surroundings;
    this.#notReadyBecause = 'draining';
    const isFinished = await drain({
      clock,
      logger,
      listen: this.#listen,
      proxy: this.#proxy,
      gatehouse: this.#gatehouse,
      capacity: this.#capacity,
      settlements: this.#settlements,
      store: this.#store,
      times: this.#ready.loaded.config.shutdown,
    });
    this.#close();
    await this.#realms.close();
    return isFinished;
  }

  #close(): void {
    this.#proxy?.destroy();
    this.#watch?.close();
    this.#upstreams.destroy();
    this.#cancelFlush();
    this.#admin.close();
  }

  /** Loads the config again; on any error the old one keeps serving. One reload at a time, in order. */
  reload(): Promise<void> {
    this.#reloading = this.#reloading.then(() => this.#reload());
    return this.#reloading;
  }

  #addPort(
    section: string,
    config: ListenTlsConfig | undefined,
    contexts: TlsContexts | undefined,
    port: { refreshTls(): void },
  ): void {
    if (config === undefined || contexts === undefined) return;
    this.#ports.push({ section, config, contexts, refreshTls: () => port.refreshTls() });
  }

  async #openProxy(ports: readonly number[]): Promise<AddressInfo | undefined> {
    const { clock, logger, resolve } = this.#surroundings;
    const { proxy, limits } = this.#ready.loaded.config;
    if (proxy === undefined) return undefined;
    const tls = this.#ready.proxyTls === undefined ? undefined : new TlsContexts(this.#ready.proxyTls.settings);
    const shared = { clock, logger, metrics: this.#metrics, limits, realms: this.#realms, attempts: this.#attempts, tls, ports };
    this.#proxy = buildProxy(proxy, resolve === undefined ? shared : { ...shared, resolve });
    this.#addPort('proxy.tls', proxy.tls, tls, this.#proxy);
    return this.#proxy.listen();
  }

  #onStore(isUp: boolean, message?: string): void {
    const { logger } = this.#surroundings;
    this.#metrics.storeUp(isUp);
    if (isUp) logger.info('store_up');
    else logger.error('store_down', { message });
  }

  /** Makes a config the one that serves: in one turn, so no request sees half of it. */
  #take(ready: Ready): void {
    const { clock } = this.#surroundings;
    const { config, hash } = ready.loaded;
    const { pools, retire } = this.#upstreams.provide(config.routes);
    const proxies = config.proxy === undefined ? [] : [toProxyLabels(config.proxy)];
    this.#metrics.setRoutes([...config.routes.map(toLabels), ...proxies]);
    const named = realmsOf(config).filter(({ realm }) => realm.users !== undefined);
    this.#realms.take(ready.realms, new Map(named.map(({ realm }) => [realm.realm, realm])));
    const rings = new Map<string, KeyRing>();
    const parts = {
      clock,
      metrics: this.#metrics,
      store: this.#store,
      settlements: this.#settlements,
      waitingRoom: this.#waitingRoom,
      realms: this.#realms,
      attempts: this.#attempts,
    };
    const routes = config.routes.map((route, index) => {
      const ring = new KeyRing((ready.keys[index] as KeysRead).set);
      rings.set(route.name, ring);
      return buildRoute(route, ring, pools[index] as (typeof pools)[number], parts);
    });
    this.#gatehouse.swap(routes);
    retire();
    this.#rings = rings;
    this.#ready = ready;
    this.#metrics.reload(true, clock.now(), hash);
  }

  async #reload(): Promise<void> {
    const { file, clock, logger } = this.#surroundings;
    try {
      const next = await prepare(file, clock);
      if (next.loaded === undefined) return this.#reject(next.problems);
      const changed = this.#findFixedChange(next);
      if (changed.length > 0) {
        const message = `a change of ${changed.join(', ')} takes a restart`;
        return this.#reject([
          { severity: 'error', file, path: changed[0] ?? '', message, hint: 'restart the gate, or undo the change' },
        ]);
      }
      this.#take(next);
      await this.#rewatch();
      logger.info('config_reloaded', { hash: next.loaded.hash, routes: next.loaded.config.routes.length });
      for (const problem of next.problems) logger.warn('config_warning', { problem: formatProblem(problem) });
    } catch (thrown) {
      this.#reject([{ severity: 'error', file, path: '', message: toErrorText(thrown) }]);
    }
  }

  #findFixedChange(next: Ready): string[] {
    const [before, after] = [this.#ready.loaded.config, next.loaded.config];
    return FIXED_SECTIONS.filter((section) => JSON.stringify(before[section]) !== JSON.stringify(after[section]));
  }

  #reject(problems: readonly Problem[]): void {
    const { clock, logger } = this.#surroundings;
    this.#metrics.reload(false, clock.now(), this.#ready.loaded.hash);
    for (const problem of problems) logger.error('config_reload_failed', { problem: formatProblem(problem) });
  }

  async #rewatch(): Promise<void> {
    const { file, clock, logger } = this.#surroundings;
    this.#watch?.close();
    const { routes, listen, proxy } = this.#ready.loaded.config;
    const users = this.#ready.realms.flatMap(({ files }) => files);
    this.#watch = await watchFiles(
      [file, ...routes.flatMap(toSecretFiles), ...users, ...toTlsFiles(listen.tls), ...toTlsFiles(proxy?.tls)],
      clock,
      {
        onChange: (changed) => void this.#onFiles(changed),
        onTrouble: (message) => logger.warn('watch_failed', { message }),
      },
    );
  }

  #toReloadParts(): ReloadParts {
    const { clock, logger } = this.#surroundings;
    const { config } = this.#ready.loaded;
    const rings = this.#rings;
    return { config, clock, logger, metrics: this.#metrics, rings, realms: this.#realms, ports: this.#ports };
  }

  async #onFiles(changed: readonly string[]): Promise<void> {
    if (changed.includes(this.#surroundings.file)) return this.reload();
    this.#reloading = this.#reloading.then(() => reloadFiles(changed, this.#toReloadParts()));
    return this.#reloading;
  }
}

function toLabels(route: RouteConfig): RouteLabels {
  const { name, webhook, basic } = route;
  const sources = basic?.users?.map((source, index) => source.name ?? String(index + 1)) ?? [];
  const scheme = webhook?.scheme ?? (basic === undefined ? 'none' : 'basic');
  return { name, scheme, keys: [...(webhook?.keys.map((key) => key.name) ?? []), ...sources], methods: methodsOf(route) };
}
