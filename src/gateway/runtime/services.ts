/** What all routes share, built once for the life of the gate: store, settlements, passwords, keys, what is told. */
import { availableParallelism } from 'node:os';
import { RemoteCertificates } from '../../auth/keys/certificates.ts';
import { createHttpsGet } from '../../auth/keys/https-get.ts';
import { type Clock, toInstant } from '../../core/clock.ts';
import { readContainerMemory } from '../../core/container-memory.ts';
import { Journal } from '../../telemetry/journal/journal.ts';
import { watchEscapedErrors } from '../../telemetry/log/escaped-errors.ts';
import { KeyEvidence } from '../../telemetry/log/key-evidence.ts';
import type { Logger } from '../../telemetry/log/logger.ts';
import { LoopWatch } from '../../telemetry/metrics/loop-watch.ts';
import { createMetrics, type Metrics } from '../../telemetry/metrics/metrics.ts';
import { WaitingRoom } from '../pipeline/claim-waiters.ts';
import { Settlements } from '../pipeline/settlements.ts';
import { buildMemory, type Memory, toMemoryBudget } from '../server/memory.ts';
import { toReadLimits } from '../upstream/forwarder.ts';
import { IdentitySigner } from '../upstream/identity-token.ts';
import type { Ready } from './check.ts';
import type { GateSurroundings } from './context.ts';
import { Realms } from './realms.ts';
import { RemoteKeys } from './remote-keys.ts';
import type { RouteParts } from './routes.ts';
import { type OpenStore, openStore } from './store.ts';
import { type BuiltTracing, buildTracing } from './tracing.ts';
import { toPasswordMemory } from './users.ts';

/** Where everything that happens is told. */
export interface Told {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly journal: Journal;
  readonly metrics: Metrics;
  readonly tracing: BuiltTracing;
}

/** The works of a gate. */
export interface Works {
  readonly told: Told;
  readonly metrics: Metrics;
  readonly store: OpenStore;
  readonly settlements: Settlements;
  readonly realms: Realms;
  readonly signer: IdentitySigner;
  readonly remoteKeys: RemoteKeys;
  readonly routeParts: RouteParts;
  readonly loopWatch: LoopWatch;
  readonly unwatchErrors: () => void;
  readonly memory: Memory;
}

/** Builds them; nothing is fetched or listened to yet, but the store connects. */
export function buildWorks(ready: Ready, surroundings: GateSurroundings): Works {
  const { clock, logger, version, createUpstream } = surroundings;
  const { limits, journal } = ready.loaded.config;
  const metrics = createMetrics({
    version,
    revision: surroundings.revision,
    processMetrics: createUpstream === undefined,
  });
  const tracing = buildTracing(ready.loaded.config.tracing, ready.tracing, { clock, logger, metrics, version });
  const told = { clock, logger, journal: new Journal(journal.size), metrics, tracing };
  const store = openStoreAloud(ready, told);
  const settlements = new Settlements(store.seenIds, clock, {
    onOutcome: (outcome, settled) => ('leave' in settled ? metrics.order(outcome) : metrics.dedup(outcome)),
    onLost: ({ kind, key }, why) => logger.error('settlement_lost', { kind, key, why }),
  });
  const threads = limits.passwordThreads ?? Math.max(1, availableParallelism() - 1);
  const realms = new Realms({ threads, queue: limits.passwordQueue, memory: toPasswordMemory(limits) }, clock, {
    onCache: (outcome) => metrics.passwordCheck(outcome),
    onUsers: (realm, count) => metrics.users(realm, count),
    onRead: (isSound) => metrics.usersReload(isSound),
  });
  metrics.watchPendingPasswords(() => realms.pending);
  const signer = new IdentitySigner(clock);
  const get = surroundings.httpsGet ?? createHttpsGet(clock, surroundings.detour);
  const routeParts = {
    clock,
    metrics,
    store: store.seenIds,
    versions: store.versions,
    settlements,
    waitingRoom: new WaitingRoom(limits.maxWaiting, () => metrics.limitHit('waiters')),
    realms,
    attempts: store.attempts,
    signer,
    keyEvidence: new KeyEvidence(clock, logger),
    certificates: new RemoteCertificates(get, clock),
    readLimits: toReadLimits(limits),
  };
  const remoteKeys = new RemoteKeys({ ...told, get });
  const memory = buildMemory(limits, toMemoryBudget(limits, readContainerMemory()), clock, metrics.limitHit);
  metrics.watchBufferedBytes(() => memory.bodies.buffered);
  const { limit, maxBufferedBytes, maxLargeBodies } = memory.budget;
  logger.info('memory_limits', { containerBytes: limit, maxBufferedBytes, maxLargeBodies });
  const loopWatch = new LoopWatch(clock);
  // A rehearsal's logger shows nothing: there an exception ends the command.
  const unwatchErrors = createUpstream === undefined ? watchEscapedErrors(told) : () => undefined;
  return { told, metrics, store, settlements, realms, signer, remoteKeys, routeParts, loopWatch, unwatchErrors, memory };
}

function openStoreAloud(ready: Ready, { clock, logger, metrics }: Told): OpenStore {
  return openStore(ready.store, clock, {
    onUp() {
      metrics.storeUp(true);
      logger.info('store_up');
    },
    onDown({ message, address, since }) {
      metrics.storeUp(false);
      logger.error('store_down', { store: 'redis', address, since: toInstant(since), message });
    },
    onWarning: (message) => logger.warn('store_warning', { message }),
    onAttemptsFull: () => metrics.limitHit('login_attempts'),
  });
}
