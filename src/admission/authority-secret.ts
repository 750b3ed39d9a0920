/** The Secret that all replicas share: whoever writes on what it has read wins, and the others read again. */
import type { KubeClient } from '../kube/client.ts';
import { type Authorities, readSecretData, type SecretData, toSecretData } from './authority.ts';
import { isConflict, Trouble, toKubeTrouble } from './trouble.ts';

/** As much of a Secret as is looked at; everything else is written back as it came. */
interface SecretObject {
  readonly metadata: { readonly name: string; readonly resourceVersion: string };
  readonly data?: SecretData | null;
}

/** What it held when it was read. */
export interface AuthorityReading {
  readonly authorities: Authorities | undefined;
  readonly object: SecretObject;
}

/** The Secret. */
export class AuthoritySecret {
  readonly #kube: Pick<KubeClient, 'request'>;
  readonly #path: string;
  readonly #title: string;

  constructor(kube: Pick<KubeClient, 'request'>, namespace: string, name: string) {
    this.#kube = kube;
    this.#path = `/api/v1/namespaces/${namespace}/secrets/${name}`;
    this.#title = `Secret ${name} in namespace ${namespace}`;
  }

  /** Rejects with Trouble. */
  async read(): Promise<AuthorityReading> {
    const object = await this.#request('GET');
    const authorities = readSecretData(object.data ?? {});
    if (authorities !== undefined && 'problem' in authorities) throw new Trouble(`${this.#title}: ${authorities.problem}`);
    return { authorities, object };
  }

  /** False where somebody else has written since; rejects with Trouble. */
  async write({ object }: AuthorityReading, authorities: Authorities): Promise<boolean> {
    try {
      // The version that was read goes along, so that a write on an old one is refused.
      await this.#request('PUT', { ...object, data: toSecretData(authorities) });
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
      throw toKubeTrouble(thrown, this.#title, 'get and update on this Secret');
    }
  }
}
