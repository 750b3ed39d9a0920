/** The injector's certificate from a directory that others keep: cert-manager, or whoever owns the Secret. */
import type { X509Certificate } from 'node:crypto';
import { join } from 'node:path';
import { findChainProblem, readCertificates } from '../admission/chain.ts';
import type { ServerPair } from '../admission/self-signed.ts';
import { type BundleReading, WebhookBundle } from '../admission/webhook-bundle.ts';
import { toFingerprints, type Watch, watchFiles } from '../config/watch.ts';
import type { CancelTimer, Clock, Milliseconds } from '../core/clock.ts';
import { toErrorText } from '../core/errors.ts';
import { runDetached } from '../core/safe-events.ts';
import type { KubeClient } from '../kube/client.ts';
import type { InjectorMetrics } from '../observe/injector-metrics.ts';
import type { Logger } from '../observe/logger.ts';
import { readTls } from './tls.ts';

/** Where it is, and what it must lead to. */
export interface DirectoryConfig {
  readonly directory: string;
  /** The webhook configuration; undefined: nobody's trust is looked at. */
  readonly webhook?: string | undefined;
}

/** What it stands on. */
export interface DirectoryParts {
  readonly kube: Pick<KubeClient, 'request'>;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly metrics: InjectorMetrics;
  /** Takes the certificate for all connections from now on. */
  readonly serve: (pair: ServerPair) => void;
}

const LOOK_EVERY_MS: Milliseconds = 10_000;

/** Loads it, and again whenever it changes. */
export class DirectoryCertificate {
  readonly #parts: DirectoryParts;
  readonly #files: { readonly certFile: string; readonly keyFile: string };
  readonly #bundle: WebhookBundle | undefined;
  #chain: readonly X509Certificate[] = [];
  #live: BundleReading | undefined;
  #fileTrouble: string | undefined;
  #bundleTrouble: string | undefined;
  #watch: Watch | undefined;
  #cancel: CancelTimer = () => undefined;
  #isClosed = false;

  constructor({ directory, webhook }: DirectoryConfig, parts: DirectoryParts) {
    this.#parts = parts;
    this.#files = { certFile: join(directory, 'tls.crt'), keyFile: join(directory, 'tls.key') };
    this.#bundle = webhook === undefined ? undefined : new WebhookBundle(parts.kube, webhook);
  }

  /** Loads it once, and from then on by itself. */
  async start(): Promise<void> {
    const { clock, logger } = this.#parts;
    const seen = await toFingerprints([this.#files.certFile, this.#files.keyFile]);
    await this.#load();
    const watch = await watchFiles(seen, clock, {
      onChange: () => runDetached(this.#load()),
      onTrouble: (message) => logger.warn('watch_failed', { message }),
    });
    if (this.#isClosed) watch.close();
    this.#watch = watch;
    await this.#look();
  }

  close(): void {
    this.#isClosed = true;
    this.#watch?.close();
    this.#cancel();
  }

  /** Undefined while there is a certificate, and the API server, as it was last seen, accepts it. */
  notReadyBecause(): string | undefined {
    const now = this.#parts.clock.now();
    if (this.#chain.length === 0) return this.#fileTrouble ?? 'there is no certificate yet';
    if (this.#bundle === undefined) return findChainProblem(this.#chain, this.#chain, undefined, now);
    if (this.#live === undefined) return this.#bundleTrouble ?? 'the webhook configuration has not been looked at yet';
    return findChainProblem(this.#chain, this.#live.trusted, this.#live.serverName, now);
  }

  async #load(): Promise<void> {
    const { clock, logger, metrics, serve } = this.#parts;
    const config = { ...this.#files, more: [], clientCertificate: 'require', minVersion: '1.2' } as const;
    const read = await readTls(config, 'server.certificate', clock);
    const [pair] = read?.settings.pairs ?? [];
    const problem = read?.troubles.find(({ severity }) => severity === 'error');
    const chain = pair === undefined ? [] : readCertificates(pair.cert.toString('latin1'));
    const [server] = chain;
    if (pair === undefined || problem !== undefined || server === undefined) {
      // What was served is served on.
      this.#fileTrouble = problem?.message ?? `${this.#files.certFile} holds no certificate`;
      metrics.certificateCheck('failure', clock.now());
      logger.warn('certificate_check_failed', { problem: this.#fileTrouble });
      return;
    }
    serve(pair);
    this.#chain = chain;
    this.#fileTrouble = undefined;
    metrics.certificate('server_loaded');
    metrics.certificateCheck('success', clock.now());
    metrics.serverLasts(Date.parse(server.validFrom), Date.parse(server.validTo));
    const warnings = read?.troubles.map(({ message }) => message) ?? [];
    logger.info('certificate_loaded', {
      serial: server.serialNumber,
      until: server.validTo,
      ...(warnings.length > 0 && { warnings }),
    });
  }

  async #look(): Promise<void> {
    if (this.#bundle === undefined || this.#isClosed) return;
    const { clock, logger } = this.#parts;
    try {
      this.#live = await this.#bundle.read();
      this.#bundleTrouble = undefined;
    } catch (thrown) {
      const problem = toErrorText(thrown);
      if (problem !== this.#bundleTrouble) logger.warn('certificate_check_failed', { problem });
      this.#bundleTrouble = problem;
    }
    if (!this.#isClosed) this.#cancel = clock.after(LOOK_EVERY_MS, () => this.#look());
  }
}
