/** What the API server trusts: the caBundle of our webhook in its live configuration, found and changed by the webhook's name. */
import type { X509Certificate } from 'node:crypto';
import { CONTENT, type KubeClient } from '../client/client.ts';
import { readCertificates } from './chain.ts';
import { isConflict, Trouble, toKubeTrouble } from './trouble.ts';

/** The one webhook of the configuration. */
export const WEBHOOK_NAME = 'inject.sidegate.dev';

interface Configuration {
  readonly metadata: { readonly resourceVersion: string };
  readonly webhooks?: readonly Webhook[] | null;
}

interface Webhook {
  readonly name: string;
  readonly clientConfig: {
    readonly caBundle?: string;
    readonly url?: string;
    readonly service?: { readonly name: string; readonly namespace: string };
  };
}

/** What it held when it was read. */
export interface BundleReading {
  readonly trusted: readonly X509Certificate[];
  /** The name that the API server expects in the certificate. */
  readonly serverName: string | undefined;
  readonly resourceVersion: string;
}

/** The live configuration. */
export class WebhookBundle {
  readonly #kube: Pick<KubeClient, 'request'>;
  readonly #path: string;
  readonly #title: string;

  constructor(kube: Pick<KubeClient, 'request'>, name: string) {
    this.#kube = kube;
    this.#path = `/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/${name}`;
    this.#title = `MutatingWebhookConfiguration ${name}`;
  }

  /** Rejects with Trouble. */
  async read(): Promise<BundleReading> {
    const { metadata, webhooks } = await this.#ask('GET');
    const webhook = webhooks?.find(({ name }) => name === WEBHOOK_NAME);
    if (webhook === undefined) throw new Trouble(`${this.#title} has no webhook ${WEBHOOK_NAME}`);
    const { caBundle = '', url, service } = webhook.clientConfig;
    return {
      trusted: readCertificates(Buffer.from(caBundle, 'base64').toString('latin1')),
      serverName: service === undefined ? toHost(url) : `${service.name}.${service.namespace}.svc`,
      resourceVersion: metadata.resourceVersion,
    };
  }

  /** False where the configuration has changed since it was read; rejects with Trouble. */
  async write({ resourceVersion }: BundleReading, trusted: readonly X509Certificate[]): Promise<boolean> {
    const caBundle = Buffer.from(trusted.map((certificate) => certificate.toString()).join(''), 'latin1').toString('base64');
    try {
      // Webhooks are merged by their names, so this one is hit wherever it stands in the list by now.
      await this.#ask('PATCH', { metadata: { resourceVersion }, webhooks: [{ name: WEBHOOK_NAME, clientConfig: { caBundle } }] });
      return true;
    } catch (thrown) {
      if (isConflict(thrown)) return false;
      throw thrown;
    }
  }

  async #ask(method: 'GET' | 'PATCH', body?: object): Promise<Configuration> {
    try {
      const options = body === undefined ? {} : { body, contentType: CONTENT.strategicMergePatch };
      return await this.#kube.request<Configuration>(method, this.#path, options);
    } catch (thrown) {
      if (isConflict(thrown)) throw thrown;
      throw toKubeTrouble(thrown, this.#title, `${method.toLowerCase()} on this configuration`);
    }
  }
}

/** Whether both are the same authorities, in whatever order. */
export function isSameTrust(one: readonly X509Certificate[], other: readonly X509Certificate[]): boolean {
  return one.length === other.length && one.every(({ raw }) => other.some((each) => each.raw.equals(raw)));
}

function toHost(url: string | undefined): string | undefined {
  return url !== undefined && URL.canParse(url) ? new URL(url).hostname : undefined;
}
