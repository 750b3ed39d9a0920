/** How a pod reaches its own cluster: by the address in its environment and the service account that the kubelet mounts. */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { SidegateError } from '../../core/errors.ts';
import type { ClusterAccess } from './access.ts';

/** A way into a cluster, and whose it is. */
export interface ClusterEntry {
  readonly access: ClusterAccess;
  /** The namespace that is meant where none is given. */
  readonly namespace: string;
  /** What people call it: the context's name, or "in-cluster". */
  readonly name: string;
}

type Env = Readonly<Record<string, string | undefined>>;

const FOLDER = '/var/run/secrets/kubernetes.io/serviceaccount';

/** The pod's own cluster; undefined where this is no pod of one. */
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
    // The kubelet renews the token before its hour is over, and the authority when the cluster exchanges it.
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
    // Said below, as for a port that is no number.
  }
  throw new SidegateError(
    'user',
    'in_cluster',
    `KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are ${host} and ${port}, which make no address`,
  );
}

async function readMounted(folder: string, name: string): Promise<string> {
  const file = join(folder, name);
  try {
    const text = (await readFile(file, 'utf8')).trim();
    if (text !== '') return text;
  } catch (thrown) {
    const code = (thrown as NodeJS.ErrnoException).code ?? 'unknown reason';
    throw new SidegateError(
      'user',
      'in_cluster',
      `${file} cannot be read (${code}): the pod needs a service account with automountServiceAccountToken`,
    );
  }
  throw new SidegateError('user', 'in_cluster', `${file} is empty`);
}
