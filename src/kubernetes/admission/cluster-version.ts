/** The version of the cluster: the older of its API server and its oldest kubelet, refreshed at intervals. */
import type { CancelTimer, Clock, Milliseconds } from '../../core/clock.ts';
import { toErrorText } from '../../core/errors.ts';
import type { KubeClient } from '../client/client.ts';
import { KubeError } from '../client/error.ts';
import type { KubeVersion } from '../injector/outcome.ts';
import type { AdmissionLogger } from './log-events.ts';

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
    const { major, minor } = await this.#kube.request<{ major?: string; minor?: string }>('GET', '/version');
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
      const page: NodePage = await this.#kube.request('GET', '/api/v1/nodes', { query });
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
