/** The Secret with the CA and its key, which only the rotation controller reads. */
import type { KubeClient } from '../client/client.ts';
import { type Authorities, readSecretData, toSecretData } from './authority.ts';
import { ClusterObjectError } from './cluster-object-error.ts';
import { ClusterSecret, type SecretObject } from './cluster-secret.ts';

/** The Secret at the time it was read. */
export interface AuthorityReading {
  readonly authorities: Authorities | undefined;
  readonly object: SecretObject;
}

/** Reads and writes the Secret. */
export class AuthoritySecret {
  readonly #secret: ClusterSecret;

  constructor(kube: Pick<KubeClient, 'request'>, namespace: string, name: string) {
    this.#secret = new ClusterSecret(kube, { namespace, name, verbs: 'get and update' });
  }

  /** Rejects with ClusterObjectError. */
  async read(): Promise<AuthorityReading> {
    const object = await this.#secret.read();
    const authorities = readSecretData(object.data ?? {});
    if (authorities !== undefined && 'problem' in authorities)
      throw new ClusterObjectError(`${this.#secret.title}: ${authorities.problem}`);
    return { authorities, object };
  }

  /** False if the Secret has changed since it was read; rejects with ClusterObjectError. */
  write({ object }: AuthorityReading, authorities: Authorities): Promise<boolean> {
    return this.#secret.write(object, toSecretData(authorities));
  }
}
