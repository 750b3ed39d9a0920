/** The sending side, from start to stop: queue, endpoints, API and lanes. The entry point of a separate bundle (scripts/bundle.ts). */
import type { Registry } from '@prometheus-io/client';
import type { ProviderConfig } from '../../config/schema/config.ts';
import { type CancelTimer, type Clock, ClockSteps, type Milliseconds, within } from '../../core/clock.ts';
import { type SidegateError, toErrorText } from '../../core/errors.ts';
import type { Path } from '../../core/problem.ts';
import { runDetached } from '../../core/safe-events.ts';
import type { RequestPolicy } from '../../gateway/upstream/forwarder.ts';
import { toAttemptLimits } from '../../http/client/client-handshakes.ts';
import { OwnPorts } from '../../http/dial/address-rules.ts';
import { createResolve, LOCAL_NAMES } from '../../http/dial/resolve.ts';
import type { BoundAddress } from '../../http/server/listener.ts';
import type { MemoryPressure } from '../../http/server/memory-guard.ts';
import type { TlsContexts } from '../../http/server/tls.ts';
import type { ConnectionResult } from '../../state/postgres.ts';
import type { AttemptJournal } from '../../telemetry/journal/attempt-journal.ts';
import type { Logger } from '../../telemetry/log/logger.ts';
import type { Span } from '../../telemetry/tracing/tracer.ts';
import { createSigningSecret } from '../../verify/sign/signing-keys.ts';
import type { OperationParts } from '../api/api-parts.ts';
import { cancelRemoved, cancelWaiting } from '../api/endpoint-operations.ts';
import { type ApiPassword, type ConsoleOperations, createConsoleOperations, ProviderApi } from '../api/provider-api.ts';
import { HttpSender } from '../attempt/sender.ts';
import { type Endpoint, isSameEndpoint, toIdentity } from '../endpoints/endpoint.ts';
import { StoredRegistry } from '../endpoints/stored-registry.ts';
import { isInboxEndpoint } from '../events/event.ts';
import { createInbox, type Inbox, type InboxOptions } from '../inbox/inbox-forwarder.ts';
import { InboxRegistry, type InboxRoute } from '../inbox/inbox-registry.ts';
import { type FindApp, withInbox } from '../inbox/inbox-sender.ts';
import { createLaneRunner, type LaneRunner, toLaneCount } from '../lanes/lane-runner.ts';
import { Outbox } from '../outbox/outbox.ts';
import { testOutbox } from '../outbox/outbox-table.ts';
import type { DeliveryQueue, InboxBacklog, Serving } from '../queue/delivery-queue.ts';
import { createQueue, isOutage, testQueue } from '../queue/sql-queue.ts';
import { type ProviderSettings, readProviderSettings } from '../settings/read-settings.ts';
import {
  createApiHooks,
  createFailingEndpoints,
  createInboxLog,
  createLaneHooks,
  createOutboxHooks,
  createQueueCondition,
  createQueueHooks,
  type LaneHooks,
  type ProviderLogEvent,
  type QueueCondition,
  type TelemetryParts,
  toLabel,
} from '../telemetry/hooks.ts';
import { API_LABEL, createProviderMetrics, type ProviderMetrics } from '../telemetry/provider-metrics.ts';
import { Housekeeping } from './housekeeping.ts';

const INBOX_INTERVAL_MS: Milliseconds = 10_000;
/** Between attempts to open a queue whose database did not respond at the start. */
const REOPEN_MS: Milliseconds = 2_000;
/** So long after a reload removed an endpoint, what waits for it is canceled. */
const REMOVAL_GRACE_MS: Milliseconds = 60_000;

export interface ProviderParts {
  readonly clock: Clock;
  readonly logger: Logger<ProviderLogEvent>;
  readonly registers: readonly Registry[];
  readonly onSpan: ((span: Span) => void) | undefined;
  readonly journal: Pick<AttemptJournal, 'add'>;
  readonly version: string;
  readonly tls: TlsContexts | undefined;
  /** Checks passwords of users of the API; undefined if it has none. */
  readonly password: ApiPassword | undefined;
  readonly memory: MemoryPressure;
  readonly findApp: FindApp;
  readonly findRouteOf: OperationParts['findRouteOf'];
  /** How long attempts in flight may take after a stop. */
  readonly drainTimeout: Milliseconds;
  /** The process has to end, and a restart needs more memory. */
  readonly onFatal: (error: SidegateError) => void;
  /** For tests: redirects connections to endpoints. */
  readonly detour?: ((address: string) => string) | undefined;
}

export class Provider {
  readonly #parts: ProviderParts;
  readonly #metrics: ProviderMetrics;
  readonly #queue: DeliveryQueue;
  readonly #stored: StoredRegistry;
  readonly #registry: InboxRegistry;
  readonly #inboxLog: ReturnType<typeof createInboxLog>;
  #webhookRoutes: readonly InboxRoute[] = [];
  readonly #sender: HttpSender;
  readonly #lanes: LaneRunner;
  readonly #api: ProviderApi | undefined;
  readonly operations: ConsoleOperations;
  readonly #ownPorts = new OwnPorts();
  readonly #housekeeping: Housekeeping;
  readonly #condition: QueueCondition;
  #endpoints: ReadonlyMap<string, Endpoint> = new Map();
  readonly #outbox: Outbox | undefined;
  readonly #steps: ClockSteps;
  #settings: ProviderSettings;
  #isOpen = false;
  #delivers = false;
  #openProblem = '';
  #isStopped = false;
  #cancelLook: CancelTimer | undefined;
  #serving: Serving | undefined;

  /** Reads what the section refers to. A static method, as the bundle of the gate loads only this class. */
  static readSettings(config: ProviderConfig): Promise<ProviderSettings> {
    return readProviderSettings(config);
  }

  /** Connects to the databases of the queue and of the outbox, for `check --connect`. */
  static testDatabases({ config, queue, outbox }: ProviderSettings): Promise<ConnectionResult & { readonly path: Path }>[] {
    const tests = [
      ['queue', queue && testQueue(queue)],
      ['outbox', outbox && config.outbox && testOutbox(outbox, config.outbox.postgres.schema)],
    ] as const;
    return tests.flatMap(([name, test]) =>
      test === undefined ? [] : [test.then((result) => ({ path: ['provider', name, 'postgres', 'url'], ...result }))],
    );
  }

  constructor(settings: ProviderSettings, parts: ProviderParts) {
    const { logger, drainTimeout } = parts;
    const { config } = settings;
    this.#settings = settings;
    this.#metrics = createProviderMetrics(parts.registers);
    const place = settings.queue;
    if (place === undefined) throw new Error('the URL of the queue could not be read');
    const isShared = place.kind === 'postgres';
    this.#condition = createQueueCondition(this.#metrics, logger);
    const hooks = createQueueHooks({ logger, clock: parts.clock, metrics: this.#metrics, condition: this.#condition });
    const shares = toMemoryShares(parts.memory.limit);
    this.#queue = createQueue(place, { ...parts, bounds: config.queue, hooks, maxStoreBytes: shares.storing });
    // Only the sender has the time of this process: receivers compare its requests with their own clocks.
    const { clock } = this.#queue;
    this.#parts = { ...parts, clock };
    this.#steps = new ClockSteps(clock);
    const failing = createFailingEndpoints(clock, isShared);
    const telemetry: TelemetryParts = { ...this.#parts, metrics: this.#metrics, failing, condition: this.#condition };
    this.#stored = new StoredRegistry({
      store: this.#queue.endpoints,
      clock,
      defaults: settings.defaults,
      onChanged: () => this.#onEndpoints(),
      onFatal: parts.onFatal,
      cipher: settings.cipher,
      logger,
    });
    this.#registry = new InboxRegistry(this.#stored, isShared);
    this.#inboxLog = createInboxLog(logger, isShared);
    this.#sender = new HttpSender({
      ...parts,
      ...settings,
      resolve: createResolve({ local: config.egress.allowPrivate.length > 0 ? LOCAL_NAMES : undefined }),
      ownPorts: this.#ownPorts,
    });
    const limits = toAttemptLimits(config, parts.memory);
    this.#lanes = createLaneRunner({
      clock,
      queue: this.#queue,
      registry: this.#registry,
      sender: withInbox(this.#sender, parts.findApp, parts.clock),
      hooks: this.#toLaneHooks(telemetry),
      steps: this.#steps,
      settings: { ...config, ...limits, drainTimeout, maxWaitingBytes: shares.waiting, maxSlowBytes: shares.slow },
    });
    const operationParts = this.#toOperationParts(telemetry);
    if (config.roles.includes('accept')) {
      const own = { address: config.address, token: settings.token, maxBufferedBytes: shares.accepting };
      this.#api = new ProviderApi({ ...parts, ...operationParts, ...own });
    }
    this.operations = createConsoleOperations(operationParts);
    this.#outbox = this.#createOutbox(telemetry, operationParts.hooks);
    this.#housekeeping = new Housekeeping({
      ...telemetry,
      queue: this.#queue,
      steps: this.#steps,
      file: place.kind === 'sqlite' ? place.path : undefined,
      registry: this.#registry,
      slots: config.roles.includes('deliver') ? () => this.#lanes.slots : undefined,
      retention: config.queue,
    });
  }

  /** For /readyz: why the queue cannot store events, or what else an operator has to look at. */
  get problem(): string | undefined {
    return this.#condition.problem;
  }

  #toLaneHooks(telemetry: TelemetryParts): LaneHooks {
    const hooks = createLaneHooks(telemetry, (id) => this.#registry.get(id));
    return {
      ...hooks,
      onDisabled: (endpoint, reason) => {
        hooks.onDisabled(endpoint, reason);
        runDetached(this.#run(endpoint.id, cancelWaiting(endpoint.id, { queue: this.#queue, clock: this.#parts.clock })));
      },
      onExhausted: (endpoint, delivery, reason) => {
        hooks.onExhausted(endpoint, delivery, reason);
        if (this.#registry.isMissing(endpoint.id)) this.#inboxLog.onDead(endpoint.id);
      },
    };
  }

  /** Work that can fail without harm: what is not canceled is skipped later, and what is not rescheduled keeps its time. */
  async #run(endpoint: string, work: Promise<void>): Promise<void> {
    await work.catch((thrown: unknown) => {
      if (!this.#isStopped) this.#parts.logger.error('provider_failed', { endpoint, error: toErrorText(thrown) });
    });
  }

  /** Events are taken where they are also accepted from the API. */
  #createOutbox(telemetry: TelemetryParts, { onAccepted }: OperationParts['hooks']): Outbox | undefined {
    const { config, outbox: target } = this.#settings;
    if (config.outbox === undefined || target === undefined || !config.roles.includes('accept')) return undefined;
    const { postgres, pollInterval } = config.outbox;
    return new Outbox(target, {
      clock: this.#parts.clock,
      schema: postgres.schema,
      pollInterval,
      maxEventSize: config.maxEventSize,
      route: (event) => this.#stored.route(event),
      queue: this.#queue,
      hooks: createOutboxHooks(telemetry, onAccepted),
    });
  }

  #toOperationParts(telemetry: TelemetryParts): OperationParts {
    const { config } = this.#settings;
    return {
      queue: this.#queue,
      registry: this.#stored,
      receivers: this.#registry.receivers,
      rules: this.#settings.rules,
      findRouteOf: this.#parts.findRouteOf,
      clock: this.#parts.clock,
      hooks: createApiHooks(telemetry),
      running: { repairs: 0, erasures: 0 },
      isOpen: () => this.#isOpen,
      settings: { maxEventSize: config.maxEventSize, rotationGrace: () => this.#settings.config.rotationGrace },
    };
  }

  /** Opens the queue and the port, after a config was applied. A database that does not respond is opened later: until then, nothing is accepted. */
  async open(): Promise<BoundAddress | undefined> {
    await this.#openQueue().catch((thrown: unknown) => {
      if (this.#settings.queue?.kind !== 'postgres' || !isOutage(thrown)) throw thrown;
      this.#openLater(thrown);
    });
    return this.#api?.listen();
  }

  #openLater(because: unknown): void {
    if (this.#isStopped) return;
    const error = toErrorText(because);
    if (!isOutage(because) && error !== this.#openProblem) this.#parts.logger.error('provider_failed', { error });
    this.#openProblem = error;
    this.#condition.fail('writes', error);
    this.#cancelLook = this.#parts.clock.after(REOPEN_MS, () =>
      runDetached(this.#openQueue().catch((thrown: unknown) => this.#openLater(thrown))),
    );
  }

  async #openQueue(): Promise<void> {
    const { logger, clock } = this.#parts;
    const warnings = await this.#queue.open();
    // `stop` closed what was open then.
    if (this.#isStopped) return this.#queue.close();
    for (const message of warnings) logger.warn('queue_warning', { message });
    // Only now is the time of the store known. If it is ahead of that of this process, nobody set a clock.
    this.#steps.restart();
    const lostKeys = this.#settings.config.encryption?.lostKeys ?? [];
    await this.#stored.open({ lostKeys, createKey: createSigningSecret });
    await this.#reportInboxes();
    if (this.#isStopped) return;
    this.#isOpen = true;
    this.#condition.recover('writes');
    this.#outbox?.start();
    this.#housekeeping.start();
    // Housekeeping reports an outage.
    const look = (): void => runDetached(this.#findInboxes().then(undefined, () => undefined));
    this.#cancelLook = clock.every(INBOX_INTERVAL_MS, look);
    runDetached(this.#run('', this.#reschedule()));
    this.#serve();
  }

  /** One endpoint after the other, as settlements wait for the same transactions. Default: those with a backlog, after a start with other schedules. */
  async #reschedule(changed?: readonly string[]): Promise<void> {
    const { clock } = this.#parts;
    const all = this.#stored.list().map(({ id }) => id);
    const backlogs = changed === undefined ? await this.#queue.backlogs(all, clock.now()) : [];
    for (const id of changed ?? all.filter((_, i) => (backlogs[i]?.waiting ?? 0) > 0)) {
      const schedule = this.#isStopped ? undefined : this.#stored.get(id)?.schedule;
      if (schedule !== undefined) await this.#run(id, this.#queue.reschedule(id, schedule, clock.now()));
    }
  }

  /** Starts to deliver. `ownPorts`: of this process, which deliveries must not reach. */
  startDelivering(ownPorts: readonly number[]): void {
    this.#ownPorts.add(...ownPorts);
    this.#delivers = this.#settings.config.roles.includes('deliver');
    this.#serve();
  }

  #serve(): void {
    if (!this.#isOpen || !this.#delivers) return;
    const toTenant = (id: string): string | undefined => (isInboxEndpoint(id) ? id : this.#registry.get(id)?.tenant);
    this.#serving = this.#queue.serve(toLaneCount(this.#settings.config), this.#lanes.run, toTenant);
  }

  createInbox(options: InboxOptions, policy: RequestPolicy): Inbox {
    return createInbox(options, policy, {
      clock: this.#parts.clock,
      queue: this.#queue,
      retention: this.#settings.config.queue.retention,
      isUsed: (id) => this.#registry.isUsed(id),
    });
  }

  /** Applies a config, a reloaded one, or reloaded secrets, in one turn of the event loop. */
  apply(settings: ProviderSettings): void {
    this.#settings = settings;
    this.#sender.replace(settings);
    this.#api?.replaceToken(settings.token);
    this.#stored.replaceCipher(settings.cipher);
    const before = this.#stored.list();
    this.#stored.replaceConfig(settings.endpoints, settings.defaults);
    const parts = { queue: this.#queue, clock: this.#parts.clock };
    const rescheduled: string[] = [];
    for (const was of before) {
      const { id } = was;
      const endpoint = this.#stored.get(id);
      if (endpoint === undefined) {
        // A config that is still being written, or is corrected soon, ends nothing.
        parts.clock.after(REMOVAL_GRACE_MS, () => {
          if (!this.#isStopped) runDetached(this.#run(id, cancelRemoved(id, { ...parts, registry: this.#stored })));
        });
      } else if (this.#isOpen && endpoint.source !== was.source && toIdentity(endpoint) !== toIdentity(was))
        // Events for the endpoint of the API are not for that of the config, and the other way round.
        runDetached(this.#run(id, cancelWaiting(id, parts, this.#queue.clock.now() + 1)));
      else if (this.#isOpen && endpoint.schedule.join() !== was.schedule.join()) rescheduled.push(id);
    }
    runDetached(this.#run('', this.#reschedule(rescheduled)));
    if (settings.outbox !== undefined) this.#outbox?.replace(settings.outbox);
  }

  replaceInboxes(routes: readonly InboxRoute[]): void {
    this.#webhookRoutes = routes;
    this.#registry.replace(routes, this.#settings.defaults);
    this.#onEndpoints();
    if (this.#isOpen) runDetached(this.#run('', this.#reportInboxes()));
  }

  /** A route can lose `ack` or its name while deliveries wait for it. */
  async #reportInboxes(): Promise<void> {
    const missing = (await this.#findInboxes()).filter(
      ({ endpoint, waiting }) => waiting > 0 && this.#registry.isMissing(endpoint),
    );
    // A replica without webhook routes can be one that only sends what others accept.
    const isOwn = this.#webhookRoutes.length > 0;
    this.#inboxLog.onMissing(missing.filter(({ endpoint }) => isOwn || !this.#registry.isElsewhere(endpoint)));
  }

  /** Also while running: during an update, replicas that still have the route accept further deliveries. */
  async #findInboxes(): Promise<readonly InboxBacklog[]> {
    const inboxes = await this.#queue.inboxes();
    this.#registry.addUsed(inboxes.map(({ endpoint }) => endpoint));
    this.#onEndpoints();
    return inboxes;
  }

  refreshTls(): void {
    this.#api?.refreshTls();
  }

  /** Starts no further attempt, and lets those in flight finish for `drainTimeout`. Events are still accepted. */
  async stopDelivering(): Promise<void> {
    this.#delivers = false;
    await this.#serving?.stop();
    this.#serving = undefined;
  }

  /** Accepts nothing more, lets the API finish its requests for up to `atMost`, and closes the queue. Nothing that was accepted is lost. */
  async stop(atMost: Milliseconds): Promise<void> {
    this.#isStopped = true;
    this.#housekeeping.stop();
    this.#cancelLook?.();
    await this.stopDelivering();
    const isDrained = this.#api === undefined ? undefined : within(this.#parts.clock, atMost, this.#api.drain());
    await Promise.all([this.#outbox?.stop(atMost), isDrained]);
    this.#api?.close();
    this.#sender.close();
    this.#stored.close();
    await this.#queue.close();
  }

  #onEndpoints(): void {
    const endpoints = this.#registry.list();
    this.#sender.retain(new Set(endpoints.map(({ id }) => id)));
    this.#metrics.setEndpoints([...new Set([...endpoints.map(toLabel), API_LABEL])]);
    const before = this.#endpoints;
    this.#endpoints = new Map(endpoints.map((endpoint) => [endpoint.id, endpoint]));
    // If the wake-up fails, the endpoint is served when its pause ends.
    for (const id of findReady(before, endpoints)) this.#queue.wake(id).catch(() => undefined);
  }
}

const MIB = 1024 * 1024;
/** The memory of a process that accepts and sends small events (bench/RESULTS-provider-memory.md). */
const BASE_BYTES = 88 * MIB;
/** Parts of the rest of the memory, and their size without a limit or with a large one. */
const SHARES = {
  /** An event is copied on its way to the store; with garbage and the buffers of the store, about eight times its size was measured. */
  accepting: [1 / 16, 16 * MIB],
  /** The same for what the store takes, and what it is asked for. It also bounds a transaction, which everything else waits for. */
  storing: [1 / 16, 8 * MIB],
  /** Deliveries that wait or have young attempts. A body that is sent is in one buffer, and the kernel holds what the endpoint did not read, up to 1.3 times that. */
  waiting: [1 / 8, 32 * MIB],
  /** Deliveries of slow attempts. */
  slow: [1 / 4, 64 * MIB],
} as const;

/**
 * Divides the memory of the container between events that are accepted and deliveries that are sent: bytes of each part, before copies. They can be
 * too small for a single large event: their users make an exception for it. `limit`: in bytes; undefined: there is none.
 */
export function toMemoryShares(limit = Number.POSITIVE_INFINITY): Record<keyof typeof SHARES, number> {
  const toShare = ([part, most]: readonly [number, number]): number =>
    Math.min(Math.floor(Math.max(0, limit - BASE_BYTES) * part), most);
  const { accepting, storing, waiting, slow } = SHARES;
  return { accepting: toShare(accepting), storing: toShare(storing), waiting: toShare(waiting), slow: toShare(slow) };
}

/** The endpoints whose lanes may be waiting for what no longer counts: they were enabled, have another receiver, or a higher rate limit. */
export function findReady(before: ReadonlyMap<string, Endpoint>, after: readonly Endpoint[]): string[] {
  const toLimit = ({ rateLimit = Number.POSITIVE_INFINITY }: Endpoint): number => rateLimit;
  const isReady = (was: Endpoint | undefined, is: Endpoint): boolean =>
    was !== undefined && (!isSameEndpoint(was, is) || toLimit(is) > toLimit(was));
  return after.flatMap((endpoint) => (isReady(before.get(endpoint.id), endpoint) ? [endpoint.id] : []));
}
