/** The Secret with the CA and its key, which only the rotation controller reads. */
import type { KubeClient } from '../client/client.ts';
import { type CaSet, readSecretData, toSecretData } from './ca.ts';
import { ClusterObjectError } from './cluster-object-error.ts';
import { ClusterSecret, type SecretObject } from './cluster-secret.ts';

/** The Secret at the time it was read. */
export interface CaReading {
  readonly caSet: CaSet | undefined;
  readonly object: SecretObject;
}

/** Reads and writes the Secret. */
export class CaSecret {
  readonly #secret: ClusterSecret;

  constructor(kube: Pick<KubeClient, 'request'>, namespace: string, name: string) {
    this.#secret = new ClusterSecret(kube, { namespace, name, verbs: 'get and update' });
  }

  /** Rejects with ClusterObjectError. */
  async read(): Promise<CaReading> {
    const object = await this.#secret.read();
    const caSet = readSecretData(object.data ?? {});
    if (caSet !== undefined && 'problem' in caSet) throw new ClusterObjectError(`${this.#secret.title}: ${caSet.problem}`);
    return { caSet, object };
  }

  /** False if the Secret has changed since it was read; rejects with ClusterObjectError. */
  write({ object }: CaReading, caSet: CaSet): Promise<boolean> {
    return this.#secret.write(object, toSecretData(caSet));
  }
}
