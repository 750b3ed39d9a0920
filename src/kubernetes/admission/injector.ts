/** Composes and starts the admission server, and stops it without losing a review. */

import { createProbedEndpoints } from '../../admin/api/health.ts';
import { AdminAccess, AdminRouter } from '../../admin/router.ts';
import { AdminServer } from '../../admin/server.ts';
import { readCas } from '../../config/sources/bounded-read.ts';
import { toFingerprints, type Watch, watchFiles } from '../../config/sources/watch.ts';
import { type CancelTimer, type Clock, type Milliseconds, pause, within } from '../../core/clock.ts';
import { toErrorText } from '../../core/errors.ts';
import { runDetached } from '../../core/safe-events.ts';
import type { BoundAddress } from '../../http/server/listener.ts';
import { buildMemory, readContainerMemory, type ServerMemory, toMemoryBudget } from '../../http/server/memory.ts';
import { TlsContexts, type TlsSettings } from '../../http/server/tls.ts';
import { watchEscapedErrors } from '../../telemetry/log/escaped-errors.ts';
import { EventLoopMonitor } from '../../telemetry/metrics/process-metrics.ts';
import { createTemporaryPair, type ServerPair } from '../certificates/server-pair.ts';
import { type KubeClient, toKubePath } from '../client/client.ts';
import { KubeError } from '../client/error.ts';
import type { InjectorConfig, InjectServerConfig } from '../injector/injector-config.ts';
import type { KubeVersion } from '../injector/outcome.ts';
import { ADMISSION_LIMITS, AdmissionServer, MAX_BODY_BYTES } from './admission-server.ts';
import { createAdvice, Lookups } from './advice.ts';
import { CallerNames } from './caller-names.ts';
import { Events } from './events.ts';
import { createInjectorMetrics, type InjectorMetrics } from './injector-metrics.ts';
import type { AdmissionLogger } from './log-events.ts';
import { ADMISSIONS, createReviewer } from './reviewer.ts';
import { DirectorySource, SecretCertificateSource, ServedCertificate } from './served-certificate.ts';

/** The dependencies and settings of an injector. */
export interface InjectorContext {
  readonly config: InjectorConfig;
  readonly server: InjectServerConfig;
  /** The CAs of `server.clientAuth.caFile`, PEM; undefined without `clientAuth`. */
  readonly clientCa: Buffer | undefined;
  readonly kube: KubeClient;
  readonly clock: Clock;
  readonly logger: AdmissionLogger;
  readonly version: string;
  /** The commit that it was built from, if known. */
  readonly revision?: string;
  /** Name of its pod. */
  readonly instance: string;
}

/** The addresses of a running injector. */
export interface InjectorAddresses {
  readonly data: BoundAddress;
  readonly admin: BoundAddress;
}

const REPORT_DROPPED_EVERY_MS: Milliseconds = 1_000;
const TEMPORARY_PAIR_LIFETIME_MS: Milliseconds = 3_600_000;
const HANDSHAKE_LOG_INTERVAL_MS: Milliseconds = 60_000;

/** A running injector. */
export class Injector {
  readonly #context: InjectorContext;
  readonly #metrics: InjectorMetrics;
  readonly #contexts: TlsContexts;
  readonly #memory: ServerMemory;
  readonly #server: AdmissionServer;
  readonly #admin: AdminServer;
  readonly #certificate: ServedCertificate;
  readonly #clusterVersion: ClusterVersion;
  readonly #eventLoopMonitor: EventLoopMonitor;
  readonly #unwatchErrors: () => void;
  readonly #stopReporting: () => void;
  #pair: ServerPair;
  #clientCa: Buffer | undefined;
  #caWatch: Watch | undefined;
  #handshakeLoggedAt: Milliseconds | undefined;
  #isStopping = false;

  constructor(context: InjectorContext) {
    const { server, kube, clock, logger, version, revision } = context;
    this.#context = context;
    const metrics = createInjectorMetrics({ version, revision, processMetrics: true, admissions: ADMISSIONS });
    this.#metrics = metrics;
    this.#clusterVersion = new ClusterVersion(kube, clock, logger);
    this.#pair = createTemporaryPair(clock.now(), TEMPORARY_PAIR_LIFETIME_MS);
    this.#clientCa = context.clientCa;
    this.#contexts = new TlsContexts(this.#toSettings(this.#pair));
    const derived = toMemoryBudget({}, readContainerMemory());
    const budget = { ...derived, maxBufferedBytes: Math.min(MAX_BODY_BYTES, derived.maxBufferedBytes) };
    this.#memory = buildMemory(ADMISSION_LIMITS, budget, clock, () => undefined);
    this.#server = this.#buildServer();
    const { certificate } = server;
    const source =
      'secret' in certificate
        ? new SecretCertificateSource(certificate.secret, kube, clock)
        : new DirectorySource(certificate.directory, clock, logger);
    const { webhook } = certificate;
    const serve = (pair: ServerPair): void => this.#serve(pair);
    this.#certificate = new ServedCertificate({ source, webhook, kube, clock, logger, metrics, serve });
    this.#eventLoopMonitor = new EventLoopMonitor(clock);
    this.#unwatchErrors = watchEscapedErrors({ clock, logger, metrics });
    const notReadyBecause = (): string | undefined => this.notReadyBecause();
    metrics.watchReady(() => notReadyBecause() === undefined);
    const endpoints = createProbedEndpoints({ metrics, clock, notReadyBecause, stuckFor: () => this.#eventLoopMonitor.stuckFor });
    const router = new AdminRouter(endpoints, new AdminAccess(undefined), () => undefined);
    this.#admin = new AdminServer(server.adminAddress, clock, router);
    this.#stopReporting = clock.every(REPORT_DROPPED_EVERY_MS, () => logger.reportDropped());
  }

  /** Starts listening. Data from the cluster is loaded later; readiness waits for it. Rejects with the system's error. */
  async start(): Promise<InjectorAddresses> {
    const data = await this.#server.listen();
    const admin = await this.#admin.listen();
    runDetached(this.#certificate.start());
    await this.#watchClientCa();
    runDetached(this.#clusterVersion.start());
    return { data, admin };
  }

  /** Why it is not ready for reviews. */
  notReadyBecause(): string | undefined {
    if (this.#isStopping) return 'it is stopping';
    return this.#certificate.notReadyBecause() ?? this.#clusterVersion.notReadyBecause();
  }

  /** Keeps serving for a grace period while endpoints are removed, then drains. True if every review got its response. */
  async stop(): Promise<boolean> {
    const { server, kube, clock } = this.#context;
    this.#isStopping = true;
    this.#server.startClosing();
    await pause(clock, server.shutdown.grace);
    const isFinished = await within(clock, server.shutdown.drain, this.#server.idle());
    this.#caWatch?.close();
    this.#certificate.close();
    this.#clusterVersion.close();
    this.#server.destroy();
    this.#admin.close();
    kube.close();
    this.#eventLoopMonitor.close();
    this.#memory.close();
    this.#stopReporting();
    this.#unwatchErrors();
    return isFinished;
  }

  #buildServer(): AdmissionServer {
    const { config, server, kube, clock, logger, version, instance } = this.#context;
    const metrics = this.#metrics;
    const events = new Events({ kube, clock, logger, instance, onOutcome: (outcome) => metrics.event(outcome) });
    const lookups = new Lookups(kube, clock, (outcome) => metrics.lookup(outcome));
    const review = createReviewer({
      clock,
      logger,
      metrics,
      defaults: config.sidecar,
      version,
      kube: () => this.#clusterVersion.oldest,
      excludedNamespaces: server.excludedNamespaces,
      advise: createAdvice({ lookups, clock, onLate: () => metrics.lookup('late') }),
      sendEvent: (podEvent, isVerified) => {
        // If the API server is authenticated, no other caller may cause writes to the cluster.
        if (isVerified || server.clientAuth === undefined) events.send(podEvent);
        else metrics.event('unverified');
      },
    });
    return new AdmissionServer({
      address: server.address,
      tls: this.#contexts,
      clock,
      memory: this.#memory,
      review,
      callers: new CallerNames(server.clientAuth?.allowedNames ?? [], clock),
      requiresVerified: server.clientAuth?.mode === 'require',
      perClient: server.perClient,
      onConnectionClosed: (limit) => metrics.connectionClosed(limit),
      onRejected: (rejection) => {
        metrics.rejected(rejection.reason);
        logger.warn('review_rejected', { ...rejection });
      },
      onInFlight: (delta) => metrics.inFlight(delta),
      onHandshakeFailed: (problem) => this.#onHandshakeFailed(problem),
    });
  }

  #serve(pair: ServerPair): void {
    this.#pair = pair;
    this.#contexts.replace(this.#toSettings(pair));
    this.#server.refreshTls();
  }

  async #watchClientCa(): Promise<void> {
    const { server, clock, logger } = this.#context;
    if (server.clientAuth === undefined) return;
    const { caFile } = server.clientAuth;
    this.#caWatch = await watchFiles(await toFingerprints([caFile]), clock, {
      onChange: () => runDetached(this.#reloadClientCa(caFile)),
      onFailure: (message) => logger.warn('watch_failed', { message }),
    });
  }

  /** If the file is invalid, the previous CAs stay in use: without CAs, either every caller or none would be accepted. */
  async #reloadClientCa(file: string): Promise<void> {
    const { logger } = this.#context;
    const read = await readCas(file);
    if ('problem' in read) {
      logger.warn('client_ca_reload_failed', { problem: read.problem });
      return;
    }
    this.#clientCa = read;
    this.#contexts.replace(this.#toSettings(this.#pair));
    this.#server.refreshTls();
    this.#server.endConnections();
    logger.info('client_ca_reloaded', { file });
  }

  #toSettings({ cert, key }: ServerPair): TlsSettings {
    const pairs = [{ at: [], certFile: 'server.certificate', cert, key }];
    const clientCertificate = this.#context.server.clientAuth?.mode === 'optional' ? 'request' : 'require';
    return { pairs, clientCa: this.#clientCa, clientCrl: undefined, clientCertificate, minVersion: '1.2', http2: false };
  }

  /** Logs failed handshakes, which show that the API server does not trust the certificate; rate-limited, because scanners cause them, too. */
  #onHandshakeFailed(problem: string): void {
    const { clock, logger } = this.#context;
    this.#metrics.handshakeFailed();
    const now = clock.monotonic();
    if (this.#handshakeLoggedAt !== undefined && now - this.#handshakeLoggedAt < HANDSHAKE_LOG_INTERVAL_MS) return;
    this.#handshakeLoggedAt = now;
    logger.warn('tls_handshake_failed', { problem });
  }
}

// The version of the cluster: the older of its API server and its oldest kubelet, refreshed at intervals.

interface NodePage {
  readonly items?: readonly { readonly status?: { readonly nodeInfo?: { readonly kubeletVersion?: string } } }[] | null;
  readonly metadata?: { readonly continue?: string };
}

const REFRESH_MS: Milliseconds = 600_000;
const RETRY_MS: Milliseconds = 5_000;
const PAGE_SIZE = 100;
const VERSION = /^v?(\d{1,3})\.(\d{1,4})/;
/** Virtual kubelets run no containers themselves, and report arbitrary versions. */
const REAL_NODES = 'type!=virtual-kubelet';

/** Keeps the version of the cluster. */
export class ClusterVersion {
  readonly #kube: Pick<KubeClient, 'request'>;
  readonly #clock: Clock;
  readonly #logger: AdmissionLogger;
  #oldest: KubeVersion | undefined;
  #problem: string | undefined;
  #logged = '';
  #cancel: CancelTimer = () => undefined;
  #isClosed = false;

  constructor(kube: Pick<KubeClient, 'request'>, clock: Clock, logger: AdmissionLogger) {
    this.#kube = kube;
    this.#clock = clock;
    this.#logger = logger;
  }

  /** Reads the version once, and then at intervals. */
  async start(): Promise<void> {
    await this.#refresh();
  }

  close(): void {
    this.#isClosed = true;
    this.#cancel();
  }

  /** Throws until `notReadyBecause` is undefined: a response must not depend on a guess. */
  get oldest(): KubeVersion {
    if (this.#oldest === undefined) throw new Error('the version of the cluster is unknown');
    return this.#oldest;
  }

  notReadyBecause(): string | undefined {
    return this.#oldest === undefined ? (this.#problem ?? 'the version of the cluster is unknown') : undefined;
  }

  async #refresh(): Promise<void> {
    try {
      const server = await this.#readServer();
      const kubelet = await this.#readKubelets();
      this.#oldest = kubelet === undefined ? server : older(server, kubelet);
      this.#log({ apiServer: toText(server), oldestKubelet: kubelet === undefined ? 'unknown' : toText(kubelet) });
    } catch (thrown) {
      // Keeps the known version, because clusters are rarely downgraded.
      this.#problem = `the version of the cluster cannot be read: ${toErrorText(thrown)}`;
      this.#logger.warn('cluster_version_unknown', { problem: toErrorText(thrown) });
    }
    if (!this.#isClosed)
      this.#cancel = this.#clock.after(this.#oldest === undefined ? RETRY_MS : REFRESH_MS, () => this.#refresh());
  }

  async #readServer(): Promise<KubeVersion> {
    const { major, minor } = await this.#kube.request<{ major?: string; minor?: string }>('GET', toKubePath('/version'));
    // Some distributions report 34+.
    const version = parse(`${major}.${minor}`);
    if (version === undefined) throw new Error(`/version gives ${major}.${minor}`);
    return version;
  }

  /** Undefined if listing nodes is not allowed, or if there are none yet. */
  async #readKubelets(): Promise<KubeVersion | undefined> {
    try {
      let oldest: KubeVersion | undefined;
      for await (const version of this.#listKubelets()) oldest = oldest === undefined ? version : older(oldest, version);
      return oldest;
    } catch (thrown) {
      if (thrown instanceof KubeError && thrown.status === 403) return undefined;
      throw thrown;
    }
  }

  /** Reads page by page and keeps nothing else, because nodes are large objects. */
  async *#listKubelets(): AsyncGenerator<KubeVersion> {
    let token: string | undefined;
    do {
      const query = { limit: PAGE_SIZE, continue: token, labelSelector: REAL_NODES };
      const page: NodePage = await this.#kube.request('GET', toKubePath('/api/v1', 'nodes'), { query });
      for (const { status } of page.items ?? []) {
        const version = parse(status?.nodeInfo?.kubeletVersion ?? '');
        if (version !== undefined) yield version;
      }
      token = page.metadata?.continue || undefined;
    } while (token !== undefined);
  }

  #log(facts: { readonly apiServer: string; readonly oldestKubelet: string }): void {
    const text = JSON.stringify(facts);
    if (text !== this.#logged) this.#logger.info('cluster_version', facts);
    this.#logged = text;
  }
}

function parse(text: string): KubeVersion | undefined {
  const match = VERSION.exec(text);
  return match === null ? undefined : { major: Number(match[1]), minor: Number(match[2]) };
}

function older(one: KubeVersion, other: KubeVersion): KubeVersion {
  return one.major < other.major || (one.major === other.major && one.minor <= other.minor) ? one : other;
}

function toText({ major, minor }: KubeVersion): string {
  return `${major}.${minor}`;
}
