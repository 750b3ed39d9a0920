/** Reads and replaces one Secret of the cluster. A write is rejected if the Secret has changed since it was read, so two writers never mix. */
import type { KubeClient } from '../client/client.ts';
import { isConflict, toClusterObjectError } from './cluster-object-error.ts';

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
  readonly #path: string;
  readonly #verbs: string;

  constructor(kube: Pick<KubeClient, 'request'>, { namespace, name, verbs }: SecretReference) {
    this.#kube = kube;
    this.#path = `/api/v1/namespaces/${namespace}/secrets/${name}`;
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
