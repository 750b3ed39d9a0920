/** Sources of the injector's certificate: the Secret that the rotation controller writes, or a directory that other tools maintain. */
import type { X509Certificate } from 'node:crypto';
import { join } from 'node:path';
import { readTls } from '../../config/sources/tls-files.ts';
import { toFingerprints, type Watch, watchFiles } from '../../config/sources/watch.ts';
import type { CancelTimer, Clock, Milliseconds } from '../../core/clock.ts';
import { toErrorText } from '../../core/errors.ts';
import { isError } from '../../core/problem.ts';
import { runDetached } from '../../core/safe-events.ts';
import { readCertificates } from '../certificates/chain.ts';
import { ClusterSecret } from '../certificates/cluster-secret.ts';
import { readPairData, type ServerPair } from '../certificates/server-pair.ts';
import type { KubeClient } from '../client/client.ts';
import type { AdmissionLogger } from './log-events.ts';

/** A usable certificate. */
export interface LoadedCertificate {
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
export interface CertificateSource {
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
