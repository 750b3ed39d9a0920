/** One Secret of the cluster, read and replaced as a whole; a write on an old reading is rejected, so two writers never mix. */
import type { KubeClient } from '../client/client.ts';
import { isConflict, toKubeTrouble } from './trouble.ts';

/** What a Secret holds, as the API has it: base64 by key. */
export type SecretData = Readonly<Record<string, string>>;

/** As much of a Secret as is looked at; everything else is written back as it came. */
export interface SecretObject {
  readonly metadata: { readonly name: string; readonly resourceVersion: string };
  readonly data?: SecretData | null;
}

/** Where it is, and which verbs the ServiceAccount needs on it. */
export interface SecretPlace {
  readonly namespace: string;
  readonly name: string;
  readonly verbs: 'get' | 'get and update';
}

/** The Secret. It must exist: nobody needs the right to create Secrets, which RBAC cannot limit to one name. */
export class ClusterSecret {
  readonly title: string;
  readonly #kube: Pick<KubeClient, 'request'>;
  readonly #path: string;
  readonly #verbs: string;

  constructor(kube: Pick<KubeClient, 'request'>, { namespace, name, verbs }: SecretPlace) {
    this.#kube = kube;
    this.#path = `/api/v1/namespaces/${namespace}/secrets/${name}`;
    this.title = `Secret ${name} in namespace ${namespace}`;
    this.#verbs = verbs;
  }

  /** Rejects with Trouble. */
  read(): Promise<SecretObject> {
    return this.#request('GET');
  }

  /** False if the Secret has changed since it was read; rejects with Trouble. */
  async write(object: SecretObject, data: SecretData): Promise<boolean> {
    try {
      // The resourceVersion goes along, so the API server rejects a write on an old reading.
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
      throw toKubeTrouble(thrown, this.title, `${this.#verbs} on this Secret`);
    }
  }
}
