/** Reads and writes the CAs that the API server trusts: the caBundle of the injector's webhook in its configuration. */
import type { X509Certificate } from 'node:crypto';
import { CONTENT, type KubeClient } from '../client/client.ts';
import { readCertificates } from './chain.ts';
import { ClusterObjectError, isConflict, toClusterObjectError } from './cluster-object-error.ts';

/** The webhook's name in the configuration. */
const WEBHOOK_NAME = 'inject.sidegate.dev';

interface Configuration {
  readonly metadata: { readonly resourceVersion: string };
  readonly webhooks?: readonly WebhookEntry[] | null;
}

interface WebhookEntry {
  readonly name: string;
  readonly clientConfig: {
    readonly caBundle?: string;
    readonly url?: string;
    readonly service?: { readonly name: string; readonly namespace: string };
  };
}

/** The caBundle at the time it was read. */
export interface BundleReading {
  readonly trusted: readonly X509Certificate[];
  /** The name that the API server expects in the certificate. */
  readonly serverName: string | undefined;
  readonly resourceVersion: string;
}

/** The webhook's configuration in the cluster. */
export class WebhookBundle {
  readonly #kube: Pick<KubeClient, 'request'>;
  readonly #path: string;
  readonly #title: string;

  constructor(kube: Pick<KubeClient, 'request'>, name: string) {
    this.#kube = kube;
    this.#path = `/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/${name}`;
    this.#title = `MutatingWebhookConfiguration ${name}`;
  }

  /** Rejects with ClusterObjectError. */
  async read(): Promise<BundleReading> {
    const { metadata, webhooks } = await this.#request('GET');
    const webhook = webhooks?.find(({ name }) => name === WEBHOOK_NAME);
    if (webhook === undefined) throw new ClusterObjectError(`${this.#title} has no webhook ${WEBHOOK_NAME}`);
    const { caBundle = '', url, service } = webhook.clientConfig;
    return {
      trusted: readCertificates(Buffer.from(caBundle, 'base64').toString('latin1')),
      serverName: service === undefined ? toHost(url) : `${service.name}.${service.namespace}.svc`,
      resourceVersion: metadata.resourceVersion,
    };
  }

  /** False if the configuration has changed since it was read; rejects with ClusterObjectError. */
  async write({ resourceVersion }: BundleReading, trusted: readonly X509Certificate[]): Promise<boolean> {
    const caBundle = Buffer.from(trusted.map((certificate) => certificate.toString()).join(''), 'latin1').toString('base64');
    try {
      // The API server merges webhooks by name, so the position of this one in the list does not matter.
      await this.#request('PATCH', {
        metadata: { resourceVersion },
        webhooks: [{ name: WEBHOOK_NAME, clientConfig: { caBundle } }],
      });
      return true;
    } catch (thrown) {
      if (isConflict(thrown)) return false;
      throw thrown;
    }
  }

  async #request(method: 'GET' | 'PATCH', body?: object): Promise<Configuration> {
    try {
      const options = body === undefined ? {} : { body, contentType: CONTENT.strategicMergePatch };
      return await this.#kube.request<Configuration>(method, this.#path, options);
    } catch (thrown) {
      if (isConflict(thrown)) throw thrown;
      throw toClusterObjectError(thrown, this.#title, `${method.toLowerCase()} on this configuration`);
    }
  }
}

/** Whether both contain the same CA certificates, in any order. */
export function isSameTrust(one: readonly X509Certificate[], other: readonly X509Certificate[]): boolean {
  return one.length === other.length && one.every(({ raw }) => other.some((each) => each.raw.equals(raw)));
}

function toHost(url: string | undefined): string | undefined {
  return url !== undefined && URL.canParse(url) ? new URL(url).hostname : undefined;
}
