/** The sending side, from start to stop: queue, endpoints, API and lanes. The entry point of a separate bundle (scripts/bundle.ts). */
import type { Registry } from '@prometheus-io/client';
import type { ProviderConfig } from '../../config/schema/config.ts';
import { chooseQueue } from '../../config/schema/queue-choice.ts';
import { type Clock, type Milliseconds, within } from '../../core/clock.ts';
import { OwnPorts } from '../../gateway/egress-proxy/own-ports.ts';
import type { BoundAddress } from '../../gateway/server/listener.ts';
import type { MemoryPressure } from '../../gateway/server/memory-guard.ts';
import type { TlsContexts } from '../../gateway/server/tls.ts';
import type { Forwarder, RequestPolicy } from '../../gateway/upstream/forwarder.ts';
import type { RedisStoreOptions } from '../../state/redis/options.ts';
import type { AttemptJournal } from '../../telemetry/journal/attempt-journal.ts';
import type { Logger } from '../../telemetry/log/logger.ts';
import type { Span } from '../../telemetry/tracing/span.ts';
import type { ApiPassword } from '../api/api-access.ts';
import type { OperationParts } from '../api/api-parts.ts';
import { type ConsoleOperations, createConsoleOperations } from '../api/console-operations.ts';
import { createProviderApi, type ProviderApi } from '../api/provider-api.ts';
import type { Sender } from '../attempt/attempt.ts';
import { createSender, type ReloadableSender } from '../attempt/sender.ts';
import { createSigningSecret, findPublicKey, formatSigningSecret, parseSigningSecret } from '../attempt/signing-keys.ts';
import { findUrlProblem } from '../egress-guard/endpoint-url.ts';
import { createResolve } from '../egress-guard/resolve.ts';
import { findHeaderProblem } from '../endpoints/endpoint-headers.ts';
import type { EndpointRules } from '../endpoints/endpoint-rules.ts';
import { StoredRegistry } from '../endpoints/stored-registry.ts';
import { createInboxForwarder, type InboxOptions } from '../inbox/inbox-forwarder.ts';
import { InboxRegistry, type InboxRoute } from '../inbox/inbox-registry.ts';
import { type FindApp, withInbox } from '../inbox/inbox-sender.ts';
import { createLaneRunner, type LaneRunner, toLaneCount } from '../lanes/lane-runner.ts';
import { createQueue } from '../queue/create-queue.ts';
import type { DeliveryQueue, Serving } from '../queue/delivery-queue.ts';
import { type ProviderSettings, readProviderSettings } from '../settings/read-settings.ts';
import type { ProviderLogEvent } from '../telemetry/log-events.ts';
import { API_LABEL, createProviderMetrics, type ProviderMetrics } from '../telemetry/provider-metrics.ts';
import { FailingEndpoints } from './failing-endpoints.ts';
import { Housekeeping } from './housekeeping.ts';
import { toMemoryShares } from './memory-shares.ts';
import { RateLimits } from './rate-limits.ts';
import { createApiHooks, createLaneHooks, createQueueHooks, type TelemetryParts, toLabel } from './telemetry-hooks.ts';

const API_DRAIN_MS: Milliseconds = 5_000;

/** The dependencies of the provider. */
export interface ProviderParts {
  readonly clock: Clock;
  readonly logger: Logger<ProviderLogEvent>;
  readonly registers: readonly Registry[];
  readonly onSpan: ((span: Span) => void) | undefined;
  readonly journal: Pick<AttemptJournal, 'add'>;
  readonly version: string;
  /** The connection settings of `store.redis`. */
  readonly redis: RedisStoreOptions | undefined;
  readonly tls: TlsContexts | undefined;
  /** Checks passwords of users of the API; undefined if it has none. */
  readonly password: ApiPassword | undefined;
  readonly memory: MemoryPressure;
  readonly findApp: FindApp;
  /** How long attempts in flight may take after a stop. */
  readonly drainTimeout: Milliseconds;
  /** For tests: redirects connections to endpoints. */
  readonly detour?: ((address: string) => string) | undefined;
}

/** The running provider. */
export class Provider {
  readonly #parts: ProviderParts;
  readonly #metrics: ProviderMetrics;
  readonly #queue: DeliveryQueue;
  readonly #stored: StoredRegistry;
  readonly #registry: InboxRegistry;
  readonly #endpointSender: ReloadableSender;
  readonly #sender: Sender;
  readonly #lanes: LaneRunner;
  readonly #api: ProviderApi | undefined;
  /** For the console: operations on endpoints and deliveries. */
  readonly operations: ConsoleOperations;
  readonly #ownPorts = new OwnPorts();
  readonly #housekeeping: Housekeeping;
  readonly #rateLimits = new RateLimits();
  #settings: ProviderSettings;
  #serving: Serving | undefined;

  /** Reads what the section refers to. A static method, as the bundle of the gate loads only this class. */
  static readSettings(config: ProviderConfig): Promise<ProviderSettings> {
    return readProviderSettings(config);
  }

  constructor(settings: ProviderSettings, parts: ProviderParts) {
    const { clock, logger } = parts;
    const { config } = settings;
    this.#parts = parts;
    this.#settings = settings;
    this.#metrics = createProviderMetrics(parts.registers);
    const choice = chooseQueue(config.queue, parts.redis);
    const isShared = choice.kind === 'redis';
    const failing = new FailingEndpoints(clock, isShared);
    const telemetry: TelemetryParts = { ...parts, metrics: this.#metrics, failing };
    const { maxEvents, maxBytes } = config.queue;
    this.#queue = createQueue(choice, { clock, maxEvents, maxBytes, hooks: createQueueHooks(telemetry) });
    this.#stored = new StoredRegistry({
      store: this.#queue.endpoints,
      clock,
      defaults: settings.defaults,
      onChanged: () => this.#onEndpoints(),
      onUnreadable: (endpoint) => logger.error('endpoint_unreadable', { endpoint }),
    });
    this.#registry = new InboxRegistry(this.#stored, isShared);
    this.#endpointSender = createSender({
      ...settings,
      clock,
      version: parts.version,
      resolve: createResolve({ asksSystem: config.egress.allowPrivate.length > 0 }),
      ownPorts: this.#ownPorts,
      detour: parts.detour,
    });
    this.#sender = withInbox(this.#endpointSender, parts.findApp, clock);
    const shares = toMemoryShares(parts.memory.limit);
    this.#lanes = createLaneRunner({
      clock,
      queue: this.#queue,
      registry: this.#registry,
      sender: this.#sender,
      hooks: createLaneHooks(telemetry, (id) => this.#registry.get(id)),
      settings: { ...config, drainTimeout: parts.drainTimeout, maxWaitingBytes: shares.waiting, maxSlowBytes: shares.slow },
    });
    const operationParts = this.#toOperationParts(telemetry);
    this.#api = config.roles.includes('accept') ? this.#createApi(operationParts, shares.accepting) : undefined;
    this.operations = createConsoleOperations(operationParts);
    this.#housekeeping = new Housekeeping({
      clock,
      logger,
      metrics: this.#metrics,
      queue: this.#queue,
      registry: this.#registry,
      slots: config.roles.includes('deliver') ? () => this.#lanes.slots : undefined,
      failing,
      retention: config.queue,
    });
  }

  #createApi(operationParts: OperationParts, maxBufferedBytes: number): ProviderApi {
    const { tls, memory, version, password } = this.#parts;
    const { config, token } = this.#settings;
    return createProviderApi({
      ...operationParts,
      address: config.address,
      tls,
      memory,
      maxBufferedBytes,
      version,
      token,
      password,
    });
  }

  #toOperationParts(telemetry: TelemetryParts): OperationParts {
    const { config } = this.#settings;
    return {
      queue: this.#queue,
      registry: this.#stored,
      receivers: this.#registry,
      rules: toRules(this.#settings),
      clock: this.#parts.clock,
      hooks: createApiHooks(telemetry),
      settings: {
        maxEventSize: config.maxEventSize,
        rotationGrace: () => this.#settings.config.rotationGrace,
      },
    };
  }

  /** Opens the queue and the port, after a config was applied. */
  async open(): Promise<BoundAddress | undefined> {
    const { logger } = this.#parts;
    for (const { message } of await this.#queue.open()) logger.warn('queue_warning', { message });
    this.#metrics.queueUp(true);
    await this.#stored.open();
    const address = await this.#api?.listen();
    this.#housekeeping.start();
    return address;
  }

  /** Starts to deliver. `ownPorts`: of this process, which deliveries must not reach. */
  startDelivering(ownPorts: readonly number[]): void {
    const { config } = this.#settings;
    this.#ownPorts.add(...ownPorts);
    if (config.roles.includes('deliver')) this.#serving = this.#queue.serve(toLaneCount(config), this.#lanes.run);
  }

  /** The forwarder of a route with `ack: onAccept`. */
  createInboxForwarder(options: InboxOptions, policy: RequestPolicy): Forwarder {
    return createInboxForwarder(options, policy, { clock: this.#parts.clock, queue: this.#queue });
  }

  /** Applies a config, a reloaded one, or reloaded secrets, in one turn of the event loop. */
  apply(settings: ProviderSettings): void {
    this.#settings = settings;
    this.#endpointSender.replace(settings);
    this.#api?.replaceToken(settings.token);
    this.#stored.replaceConfig(settings.endpoints, settings.defaults);
  }

  /** Replaces the routes with `ack: onAccept`, whose bodies can be larger than those of events. */
  replaceInbox(routes: readonly InboxRoute[]): void {
    this.#lanes.setMaxBody(Math.max(this.#settings.config.maxEventSize, ...routes.map(({ maxBody }) => maxBody)));
    this.#registry.replace(routes, this.#settings.defaults);
    this.#onEndpoints();
  }

  /** Uses the new certificates for new connections. */
  refreshTls(): void {
    this.#api?.refreshTls();
  }

  /** Starts no further attempt, and lets those in flight finish for `drainTimeout`. Events are still accepted. */
  async stopDelivering(): Promise<void> {
    await this.#serving?.stop();
    this.#serving = undefined;
  }

  /** Accepts nothing more, and closes the queue. Nothing that was accepted is lost. */
  async stop(): Promise<void> {
    this.#housekeeping.stop();
    await this.stopDelivering();
    // A replay may stream for long; its client repeats it.
    if (this.#api !== undefined) await within(this.#parts.clock, API_DRAIN_MS, this.#api.drain());
    this.#api?.close();
    this.#sender.close();
    this.#stored.close();
    await this.#queue.close();
  }

  #onEndpoints(): void {
    const endpoints = this.#registry.list();
    this.#sender.retain(new Set(endpoints.map(({ id }) => id)));
    this.#metrics.setEndpoints([...new Set([...endpoints.map(toLabel), API_LABEL])]);
    // If the wake-up fails, the endpoint is served when the old limit allows it.
    for (const id of this.#rateLimits.replace(endpoints)) this.#queue.wake(id).catch(() => undefined);
  }
}

function toRules({ rules }: ProviderSettings): EndpointRules {
  return {
    findUrlProblem: (url) => findUrlProblem(url, rules),
    findHeaderProblem,
    parseSecret: parseSigningSecret,
    createSecret: createSigningSecret,
    formatSecret: formatSigningSecret,
    findPublicKey,
  };
}
