/** Access to the cluster from inside a pod: the address from its environment, and the mounted service account. */
import { join } from 'node:path';
import { readPem } from '../../config/sources/bounded-read.ts';
import { SidegateError } from '../../core/errors.ts';
import type { ClusterAccess } from './access.ts';

/** Access to a cluster, with its name. */
export interface ClusterEntry {
  readonly access: ClusterAccess;
  /** The default namespace. */
  readonly namespace: string;
  /** The name of the kubeconfig context, or "in-cluster". */
  readonly name: string;
}

type Env = Readonly<Record<string, string | undefined>>;

const FOLDER = '/var/run/secrets/kubernetes.io/serviceaccount';

/** Reads the access to the pod's own cluster; undefined outside a pod. */
export async function readInCluster(env: Env, folder: string = FOLDER): Promise<ClusterEntry | undefined> {
  const [host, port] = [env['KUBERNETES_SERVICE_HOST'], env['KUBERNETES_SERVICE_PORT']];
  if (!host || !port) return undefined;
  const server = toServer(host, port);
  const namespace = (await readMounted(folder, 'namespace').catch(() => '')) || 'default';
  let ca = await readMounted(folder, 'ca.crt');
  const access: ClusterAccess = {
    server,
    get ca() {
      return ca;
    },
    // The kubelet renews the token before it expires after an hour, and the CA when the cluster replaces it.
    async credentials() {
      const token = await readMounted(folder, 'token');
      ca = await readMounted(folder, 'ca.crt');
      return { token };
    },
  };
  return { access, namespace, name: 'in-cluster' };
}

function toServer(host: string, port: string): URL {
  try {
    if (/^[0-9]{1,5}$/.test(port)) return new URL(`https://${host.includes(':') ? `[${host}]` : host}:${port}`);
  } catch {
    // Reported below, like a port that is not a number.
  }
  throw new SidegateError(
    'user',
    'in_cluster',
    `KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are ${host} and ${port}, which do not form a valid address`,
  );
}

async function readMounted(folder: string, name: string): Promise<string> {
  const file = join(folder, name);
  const read = await readPem(file);
  if ('problem' in read)
    throw new SidegateError(
      'user',
      'in_cluster',
      `${read.problem}: the pod needs a service account with automountServiceAccountToken`,
    );
  const text = read.toString('utf8').trim();
  if (text === '') throw new SidegateError('user', 'in_cluster', `${file} is empty`);
  return text;
}
