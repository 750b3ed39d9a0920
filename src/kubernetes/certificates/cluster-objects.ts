/** The objects of the cluster that hold certificates. A write is rejected if the object has changed since it was read, so two writers never mix. */

import type { X509Certificate } from 'node:crypto';
import { toErrorText } from '../../core/errors.ts';
import { CONTENT, type KubeClient, type KubePath, toKubePath } from '../client/client.ts';
import { KubeError } from '../client/error.ts';
import { readCertificates } from './certificate.ts';

// Reads and replaces one Secret.

/** The data of a Secret as in the API: base64 by key. */
export type SecretData = Readonly<Record<string, string>>;

/** The fields of a Secret that are used; all others are written back unchanged. */
export interface SecretObject {
  readonly metadata: { readonly name: string; readonly resourceVersion: string };
  readonly data?: SecretData | null;
}

/** The Secret's name, and the verbs that the ServiceAccount needs on it. */
interface SecretReference {
  readonly namespace: string;
  readonly name: string;
  readonly verbs: 'get' | 'get and update';
}

/** The Secret must exist, so that no account needs the right to create Secrets, which RBAC cannot limit to one name. */
export class ClusterSecret {
  readonly title: string;
  readonly #kube: Pick<KubeClient, 'request'>;
  readonly #path: KubePath;
  readonly #verbs: string;

  constructor(kube: Pick<KubeClient, 'request'>, { namespace, name, verbs }: SecretReference) {
    this.#kube = kube;
    this.#path = toKubePath('/api/v1', 'namespaces', namespace, 'secrets', name);
    this.title = `Secret ${name} in namespace ${namespace}`;
    this.#verbs = verbs;
  }

  /** Rejects with ClusterObjectError. */
  read(): Promise<SecretObject> {
    return this.#request('GET');
  }

  /** False if the Secret has changed since it was read; rejects with ClusterObjectError. */
  async write(object: SecretObject, data: SecretData): Promise<boolean> {
    try {
      // The object includes its resourceVersion, so the API server rejects the write if the Secret has changed.
      await this.#request('PUT', { ...object, data });
      return true;
    } catch (thrown) {
      if (isConflict(thrown)) return false;
      throw thrown;
    }
  }

  async #request(method: 'GET' | 'PUT', body?: object): Promise<SecretObject> {
    try {
      return await this.#kube.request<SecretObject>(method, this.#path, body === undefined ? {} : { body });
    } catch (thrown) {
      if (isConflict(thrown)) throw thrown;
      throw toClusterObjectError(thrown, this.title, `${this.#verbs} on this Secret`);
    }
  }
}

// Reads and writes the CAs that the API server trusts: the caBundle of the injector's webhook in its configuration.

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
  readonly #path: KubePath;
  readonly #title: string;

  constructor(kube: Pick<KubeClient, 'request'>, name: string) {
    this.#kube = kube;
    this.#path = toKubePath('/apis/admissionregistration.k8s.io/v1', 'mutatingwebhookconfigurations', name);
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

// Errors about both, with messages for the operator.

/** An object is missing, unreadable or in the wrong state. An operator can fix it while the injector runs. */
export class ClusterObjectError extends Error {
  constructor(message: string) {
    super(message);
    this.name = 'ClusterObjectError';
  }
}

/** The error for a failed request about `title`, with the reason and a fix. `rule`: the RBAC rule that the request needs. */
function toClusterObjectError(thrown: unknown, title: string, rule: string): ClusterObjectError {
  if (thrown instanceof ClusterObjectError) return thrown;
  if (!(thrown instanceof KubeError)) return new ClusterObjectError(`${title}: ${toErrorText(thrown)}`);
  if (thrown.status === 404) return new ClusterObjectError(`${title}: not found; the chart creates it`);
  if (thrown.status === 403) return new ClusterObjectError(`${title}: forbidden; grant the service account ${rule}`);
  return new ClusterObjectError(`${title}: ${thrown.message}`);
}

/** Whether another client changed the object after it was read. */
function isConflict(thrown: unknown): boolean {
  return thrown instanceof KubeError && thrown.status === 409;
}
