/** The Secret with the CA and its key, which only the rotation controller reads. */
import type { KubeClient } from '../client/client.ts';
import { type Authorities, readSecretData, toSecretData } from './authority.ts';
import { ClusterSecret, type SecretObject } from './cluster-secret.ts';
import { Trouble } from './trouble.ts';

/** What it held when it was read. */
export interface AuthorityReading {
  readonly authorities: Authorities | undefined;
  readonly object: SecretObject;
}

/** The Secret. */
export class AuthoritySecret {
  readonly #secret: ClusterSecret;

  constructor(kube: Pick<KubeClient, 'request'>, namespace: string, name: string) {
    this.#secret = new ClusterSecret(kube, { namespace, name, verbs: 'get and update' });
  }

  /** Rejects with Trouble. */
  async read(): Promise<AuthorityReading> {
    const object = await this.#secret.read();
    const authorities = readSecretData(object.data ?? {});
    if (authorities !== undefined && 'problem' in authorities) throw new Trouble(`${this.#secret.title}: ${authorities.problem}`);
    return { authorities, object };
  }

  /** False if somebody else has written since; rejects with Trouble. */
  write({ object }: AuthorityReading, authorities: Authorities): Promise<boolean> {
    return this.#secret.write(object, toSecretData(authorities));
  }
}
