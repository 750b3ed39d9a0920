/** The certificate that the injector serves: reloaded from its source when it changes, and compared with what the API server trusts. */
import type { X509Certificate } from 'node:crypto';
import type { CancelTimer, Clock, Milliseconds } from '../../core/clock.ts';
import { toErrorText } from '../../core/errors.ts';
import { runDetached } from '../../core/safe-events.ts';
import { findChainProblem } from '../certificates/chain.ts';
import type { ServerPair } from '../certificates/server-pair.ts';
import { type BundleReading, WebhookBundle } from '../certificates/webhook-bundle.ts';
import type { KubeClient } from '../client/client.ts';
import type { CertificateSource, LoadedCertificate } from './certificate-sources.ts';
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
