/** The certificate that the injector serves: reloaded from its source when it changes, and compared with what the API server trusts. */
import type { X509Certificate } from 'node:crypto';
import { join } from 'node:path';
import { readTls } from '../../config/sources/secrets.ts';
import { toFingerprints, type Watch, watchFiles } from '../../config/sources/watch.ts';
import type { CancelTimer, Clock, Milliseconds } from '../../core/clock.ts';
import { toErrorText } from '../../core/errors.ts';
import { isError } from '../../core/problem.ts';
import { runDetached } from '../../core/safe-events.ts';
import { findChainProblem, readCertificates } from '../certificates/certificate.ts';
import { type BundleReading, ClusterSecret, WebhookBundle } from '../certificates/cluster-objects.ts';
import { readPairData, type ServerPair } from '../certificates/server-pair.ts';
import type { KubeClient } from '../client/client.ts';
import type { InjectorMetrics } from './injector-metrics.ts';
import type { AdmissionLogger } from './log-events.ts';

const CHECK_INTERVAL_MS: Milliseconds = 10_000;
/** While the caBundle does not trust the certificate, because another process is about to write one of them. */
const RECHECK_INTERVAL_MS: Milliseconds = 1_000;

/** Loads the certificate, and reports whether the API server accepts it. */
export class ServedCertificate {
  readonly #parts;
  readonly #bundle: WebhookBundle | undefined;
  #chain: readonly X509Certificate[] = [];
  #live: BundleReading | undefined;
  #problem: string | undefined;
  #bundleProblem: string | undefined;
  #cancel: CancelTimer = () => undefined;
  #isClosed = false;

  constructor(parts: {
    readonly source: CertificateSource;
    /** The webhook configuration whose caBundle must trust the certificate; undefined: not checked. */
    readonly webhook: string | undefined;
    readonly kube: Pick<KubeClient, 'request'>;
    readonly clock: Clock;
    readonly logger: AdmissionLogger;
    readonly metrics: InjectorMetrics;
    /** Uses the certificate for all new connections. */
    readonly serve: (pair: ServerPair) => void;
  }) {
    this.#parts = parts;
    this.#bundle = parts.webhook === undefined ? undefined : new WebhookBundle(parts.kube, parts.webhook);
  }

  /** Loads the certificate once, and then whenever it changes. */
  async start(): Promise<void> {
    await this.#parts.source.start({
      onLoaded: (loaded) => runDetached(this.#adopt(loaded)),
      onUnchanged: () => this.#confirm(),
      onProblem: (problem) => this.#note(problem),
    });
    await this.#checkBundle();
  }

  close(): void {
    this.#isClosed = true;
    this.#parts.source.close();
    this.#cancel();
  }

  /** Undefined if there is a certificate that the API server accepts, according to the last check. */
  notReadyBecause(): string | undefined {
    const now = this.#parts.clock.now();
    if (this.#chain.length === 0) return this.#problem ?? 'there is no certificate yet';
    if (this.#bundle === undefined) return findChainProblem(this.#chain, this.#chain, undefined, now);
    if (this.#live === undefined) return this.#bundleProblem ?? 'the webhook configuration has not been read yet';
    const problem = findChainProblem(this.#chain, this.#live.trusted, this.#live.serverName, now);
    return problem === undefined || this.#problem === undefined ? problem : `${problem}; ${this.#problem}`;
  }

  /** Reads the caBundle first: with an outdated one the new certificate could appear untrusted, and the pod would become unready. */
  async #adopt(loaded: LoadedCertificate): Promise<void> {
    if (this.#chain.length > 0) await this.#checkBundle();
    this.#take(loaded);
  }

  #take({ pair, chain, issuer, warnings }: LoadedCertificate): void {
    const { logger, metrics, serve } = this.#parts;
    const [server] = chain;
    if (server === undefined) return;
    serve(pair);
    this.#chain = chain;
    this.#confirm();
    metrics.certificate('server_loaded');
    metrics.serverLasts(Date.parse(server.validFrom), Date.parse(server.validTo));
    if (issuer !== undefined) metrics.caEnds(Date.parse(issuer.validTo));
    logger.info('certificate_loaded', {
      serial: server.serialNumber,
      notAfter: server.validTo,
      ...(warnings.length > 0 && { warnings }),
    });
  }

  #confirm(): void {
    this.#problem = undefined;
    this.#parts.metrics.certificateCheck('success', this.#parts.clock.now());
  }

  #note(problem: string): void {
    const { clock, logger, metrics } = this.#parts;
    metrics.certificateCheck('failure', clock.now());
    if (problem !== this.#problem) logger.warn('certificate_check_failed', { problem });
    this.#problem = problem;
  }

  async #checkBundle(): Promise<void> {
    this.#cancel();
    if (this.#bundle === undefined || this.#isClosed) return;
    const { clock, logger } = this.#parts;
    try {
      this.#live = await this.#bundle.read();
      this.#bundleProblem = undefined;
    } catch (thrown) {
      const problem = toErrorText(thrown);
      if (problem !== this.#bundleProblem) logger.warn('certificate_check_failed', { problem });
      this.#bundleProblem = problem;
    }
    const delay = this.notReadyBecause() === undefined ? CHECK_INTERVAL_MS : RECHECK_INTERVAL_MS;
    this.#cancel();
    if (!this.#isClosed) this.#cancel = clock.after(delay, () => this.#checkBundle());
  }
}

// Sources of the injector's certificate: the Secret that the rotation controller writes, or a directory that other tools maintain.

/** A usable certificate. */
interface LoadedCertificate {
  readonly pair: ServerPair;
  /** The server certificate first. */
  readonly chain: readonly X509Certificate[];
  /** The CA that signed it, if known. */
  readonly issuer: X509Certificate | undefined;
  readonly warnings: readonly string[];
}

/** Callbacks for each attempt to load the certificate. */
interface CertificateListener {
  onLoaded(loaded: LoadedCertificate): void;
  /** The certificate has not changed. */
  onUnchanged(): void;
  /** The current certificate stays in use. */
  onProblem(problem: string): void;
}

/** A source of certificates. */
interface CertificateSource {
  /** Loads the certificate once, and then whenever it changes. */
  start(listener: CertificateListener): Promise<void>;
  close(): void;
}

/** The Secret to read. */
interface SecretSourceConfig {
  readonly namespace: string;
  readonly name: string;
  readonly checkInterval: Milliseconds;
}

const FIRST_INTERVAL_MS: Milliseconds = 1_000;

/** Reads the Secret from the API server at an interval, because a mounted Secret is updated up to a minute late. */
export class SecretCertificateSource implements CertificateSource {
  readonly #secret: ClusterSecret;
  readonly #clock: Clock;
  readonly #checkInterval: Milliseconds;
  #served: string | undefined;
  #cancel: CancelTimer = () => undefined;
  #isClosed = false;

  constructor({ namespace, name, checkInterval }: SecretSourceConfig, kube: Pick<KubeClient, 'request'>, clock: Clock) {
    this.#secret = new ClusterSecret(kube, { namespace, name, verbs: 'get' });
    this.#clock = clock;
    this.#checkInterval = checkInterval;
  }

  async start(listener: CertificateListener): Promise<void> {
    try {
      const { data } = await this.#secret.read();
      const issued = readPairData(data ?? {});
      if (issued === undefined)
        listener.onProblem(`${this.#secret.title} contains no certificate yet: sidegate rotate-certificates writes it`);
      else if (issued.certificate.fingerprint256 === this.#served) listener.onUnchanged();
      else {
        this.#served = issued.certificate.fingerprint256;
        const { pair, certificate, issuer } = issued;
        listener.onLoaded({ pair, chain: [certificate], issuer, warnings: [] });
      }
    } catch (thrown) {
      listener.onProblem(toErrorText(thrown));
    }
    if (!this.#isClosed) this.#cancel = this.#clock.after(this.#toDelay(), () => this.start(listener));
  }

  close(): void {
    this.#isClosed = true;
    this.#cancel();
  }

  /** At least once per second until there is a certificate, because the pod is not ready before. */
  #toDelay(): Milliseconds {
    return this.#served === undefined ? Math.min(this.#checkInterval, FIRST_INTERVAL_MS) : this.#checkInterval;
  }
}

/** Reads `tls.crt` and `tls.key` from a directory, such as a mounted Secret of type kubernetes.io/tls from cert-manager. */
export class DirectorySource implements CertificateSource {
  readonly #files: { readonly certFile: string; readonly keyFile: string };
  readonly #clock: Clock;
  readonly #logger: AdmissionLogger;
  #watch: Watch | undefined;
  #isClosed = false;

  constructor(directory: string, clock: Clock, logger: AdmissionLogger) {
    this.#files = { certFile: join(directory, 'tls.crt'), keyFile: join(directory, 'tls.key') };
    this.#clock = clock;
    this.#logger = logger;
  }

  async start(listener: CertificateListener): Promise<void> {
    const seen = await toFingerprints([this.#files.certFile, this.#files.keyFile]);
    await this.#load(listener);
    const watch = await watchFiles(seen, this.#clock, {
      onChange: () => runDetached(this.#load(listener)),
      onFailure: (message) => this.#logger.warn('watch_failed', { message }),
    });
    if (this.#isClosed) watch.close();
    this.#watch = watch;
  }

  close(): void {
    this.#isClosed = true;
    this.#watch?.close();
  }

  async #load(listener: CertificateListener): Promise<void> {
    const config = { ...this.#files, additionalCertificates: [], clientCertificate: 'require', minVersion: '1.2' } as const;
    const read = await readTls(config, ['server', 'certificate'], this.#clock);
    const [pair] = read?.settings.pairs ?? [];
    const problem = read?.problems.find(isError);
    const chain = pair === undefined ? [] : readCertificates(pair.cert.toString('latin1'));
    if (pair === undefined || problem !== undefined || chain.length === 0)
      listener.onProblem(problem?.message ?? `${this.#files.certFile} contains no certificate`);
    else listener.onLoaded({ pair, chain, issuer: undefined, warnings: read?.problems.map(({ message }) => message) ?? [] });
  }
}
