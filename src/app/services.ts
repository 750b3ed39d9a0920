/** The services that all routes share, built once for the life of the gate: store, settlements, passwords, keys, telemetry. */
import { availableParallelism } from 'node:os';
import { type Clock, toInstant } from '../core/clock.ts';
import { toClientNetwork, toSite } from '../core/ip-address.ts';
import { Captures } from '../diagnostics/explain/captures.ts';
import { Capacity } from '../gateway/pipeline/capacity.ts';
import { ClaimWaiters } from '../gateway/pipeline/claims.ts';
import { Settlements } from '../gateway/pipeline/settlements.ts';
import { toReadLimits } from '../gateway/upstream/forwarder.ts';
import { IdentitySigner } from '../gateway/upstream/identity.ts';
import { buildMemory, readContainerMemory, type ServerMemory, toMemoryBudget } from '../http/server/memory.ts';
import type { MemoryGuard } from '../http/server/memory-guard.ts';
import { AttemptJournal } from '../telemetry/journal/attempt-journal.ts';
import { Journal } from '../telemetry/journal/journal.ts';
import { watchEscapedErrors } from '../telemetry/log/escaped-errors.ts';
import { KeyEvidence } from '../telemetry/log/key-evidence.ts';
import { EventLoopMonitor } from '../telemetry/metrics/process-metrics.ts';
import { OfferedTokens } from '../verify/handshakes/offered-tokens.ts';
import { RemoteCertificates } from '../verify/keys/certificates.ts';
import { BodyStorage } from './body-storage.ts';
import type { PreparedConfig } from './check.ts';
import type { GateContext } from './context.ts';
import type { GateLogger } from './log-events.ts';
import { createMetrics, type Metrics } from './metrics.ts';
import { buildProvider, type RunningProvider } from './provider.ts';
import { Realms } from './realms.ts';
import { Reloads } from './reloads.ts';
import { createHttpsGet, RemoteKeys } from './remote-keys.ts';
import type { RouteParts } from './routes.ts';
import { type OpenedStore, openStore } from './store.ts';
import { type BuiltTracing, buildTracing } from './tracing.ts';
import { toPasswordMemory } from './users.ts';

/** The destinations of logs, metrics, journal entries, captures and spans. */
interface Telemetry {
  readonly clock: Clock;
  readonly logger: GateLogger;
  readonly journal: Journal;
  readonly attemptJournal: AttemptJournal;
  readonly captures: Captures;
  readonly metrics: Metrics;
  readonly tracing: BuiltTracing;
}

/** The services of a gate. */
export interface Services {
  readonly telemetry: Telemetry;
  readonly metrics: Metrics;
  readonly store: OpenedStore;
  /** Resolves once the store is connected, or is known to be down. */
  readonly storeTried: Promise<void>;
  /** Why the store cannot be used, with what Redis replied; undefined while it can. */
  readonly storeProblem: () => string | undefined;
  readonly settlements: Settlements;
  readonly realms: Realms;
  readonly signer: IdentitySigner;
  readonly remoteKeys: RemoteKeys;
  readonly routeParts: RouteParts;
  readonly eventLoopMonitor: EventLoopMonitor;
  readonly unwatchErrors: () => void;
  readonly memory: ServerMemory;
  readonly provider: RunningProvider | undefined;
  readonly reloads: Reloads;
}

/** Of IPv6, all networks of a site are one. */
const toClient = (address: string): string => toSite(toClientNetwork(address));

/** Builds the services; the store connects, but nothing is fetched and no port is opened yet. */
export function buildServices(ready: PreparedConfig, context: GateContext): Services {
  const { clock, logger, createUpstream } = context;
  const { limits, workers } = ready.loaded.config;
  const telemetry = buildTelemetry(ready, context);
  const { metrics } = telemetry;
  const { store, storeTried, storeProblem } = openReportedStore(ready, telemetry);
  const settlements = new Settlements(store.seenIds, clock, {
    onOutcome: (outcome, settled) => (settled.of === 'resource' ? metrics.order(outcome) : metrics.dedup(outcome)),
    onLost: ({ kind, key }, message) => logger.error('settlement_lost', { kind, key, message }),
  });
  const threads = limits.passwordThreads ?? Math.max(1, availableParallelism() - 1);
  const realms = new Realms({ threads, queue: limits.passwordQueue, memory: toPasswordMemory(limits) }, clock, {
    onCache: (outcome) => metrics.passwordCheck(outcome),
    onUsers: (realm, count) => metrics.users(realm, count),
    onRead: (isSuccessful) => metrics.usersReload(isSuccessful),
  });
  metrics.watchPendingPasswords(() => realms.pending);
  const signer = new IdentitySigner(clock);
  const get = context.httpsGet ?? createHttpsGet(clock, context.connectOverride);
  const memory = buildMemory(limits, toMemoryBudget(limits, readContainerMemory(), workers), clock, metrics.limitHit);
  metrics.watchBufferedBytes(() => memory.bodies.buffered);
  const { limit, maxBufferedBytes, maxLargeBodies } = memory.budget;
  logger.info('memory_limits', { containerBytes: limit, maxBufferedBytes, maxLargeBodies });
  const passwords = { realms, attempts: store.attempts };
  const provider = buildProvider(ready, context, { ...telemetry, ...passwords, memory: memory.guard });
  const routeParts = {
    clock,
    metrics,
    store: store.seenIds,
    versions: store.versions,
    settlements,
    capacity: new Capacity(limits, clock, { onInFlight: metrics.inFlight, onQueued: metrics.queued }),
    waiters: new ClaimWaiters(limits.maxWaiting, () => metrics.limitHit('waiters'), toClient),
    ...passwords,
    signer,
    keyEvidence: new KeyEvidence(clock, logger),
    certificates: new RemoteCertificates(get, clock),
    offeredTokens: new OfferedTokens(clock),
    readLimits: toReadLimits(limits, metrics.limitHit),
    bodies: buildBodies(ready, telemetry, memory.guard),
    createInbox: context.createInbox ?? ((options, policy) => provider?.provider.createInbox(options, policy)),
  };
  const remoteKeys = new RemoteKeys({ ...telemetry, get });
  const eventLoopMonitor = new EventLoopMonitor(clock);
  // The simulator's logger prints nothing, so an exception ends its command instead.
  const unwatchErrors = createUpstream === undefined ? watchEscapedErrors(telemetry) : () => undefined;
  return {
    telemetry,
    metrics,
    store,
    storeTried,
    storeProblem,
    settlements,
    realms,
    signer,
    remoteKeys,
    routeParts,
    eventLoopMonitor,
    unwatchErrors,
    memory,
    provider,
    reloads: new Reloads(clock, metrics),
  };
}

function buildBodies({ loaded }: PreparedConfig, { clock, metrics }: Telemetry, guard: MemoryGuard): BodyStorage {
  const bodies = new BodyStorage(clock, loaded.config.journal.maxBodyBytes, guard, metrics);
  guard.addShed(() => bodies.shed());
  metrics.watchStoredBodies(() => bodies.bytes);
  return bodies;
}

function buildTelemetry({ loaded, tracing: read }: PreparedConfig, context: GateContext): Telemetry {
  const { clock, logger, version, revision, createUpstream } = context;
  const { journal, tracing } = loaded.config;
  const metrics = createMetrics({ version, revision, processMetrics: createUpstream === undefined });
  return {
    clock,
    logger,
    journal: new Journal(journal),
    attemptJournal: new AttemptJournal(journal.size),
    captures: new Captures(clock, metrics.captured),
    metrics,
    tracing: buildTracing(tracing, read, { clock, logger, metrics, version }),
  };
}

function openReportedStore(
  ready: PreparedConfig,
  { clock, logger, metrics }: Telemetry,
): Pick<Services, 'store' | 'storeTried' | 'storeProblem'> {
  let onTried = (): void => undefined;
  const storeTried = new Promise<void>((resolve) => {
    onTried = resolve;
  });
  let problem: string | undefined;
  const store = openStore(ready.store, clock, {
    onUp() {
      onTried();
      problem = undefined;
      metrics.storeUp(true);
      logger.info('store_up');
    },
    onDown({ message, address, since, reply, hint }) {
      onTried();
      problem = `the store is down: ${reply === undefined ? 'not connected' : `Redis replied ${reply}`}`;
      metrics.storeUp(false);
      logger.error('store_down', { store: 'redis', address, since: toInstant(since), message, hint });
    },
    onWarning: (message) => logger.warn('store_warning', { message }),
    onAttemptsFull: () => metrics.limitHit('login_attempts'),
  });
  return { store, storeTried, storeProblem: () => problem };
}
