/** Finds the cluster of a command: that of its pod, or the one that kubectl would use. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { readPem } from '../../config/sources/bounded-read.ts';
import { SidegateError } from '../../core/errors.ts';
import { KubeClient, toKubePath } from './client.ts';
import { KubeError } from './error.ts';
import { type KubectlOptions, LOGIN_TIMEOUT, startKubectl } from './kubectl.ts';
import type { ClusterAccess } from './transport.ts';

/** A cluster, with its name. */
export interface Cluster {
  /** Close it at the end. */
  readonly client: KubeClient;
  /** The default namespace. */
  readonly namespace: string;
  /** The name of the kubeconfig's context, or "in-cluster". */
  readonly name: string;
}

const FOLDER = '/var/run/secrets/kubernetes.io/serviceaccount';

/** Uses the service account in a pod where no kubeconfig is chosen, and kubectl otherwise. Throws SidegateError. */
export async function connectCluster(options: KubectlOptions): Promise<Cluster> {
  const own = isKubeconfigChosen(options) ? undefined : await readInCluster(options.io.env);
  const { access, ...rest } = own ?? (await startKubectl(options));
  const client = new KubeClient(access, options.clock);
  try {
    if (own === undefined) await logIn(client);
  } catch (thrown) {
    client.close();
    throw thrown;
  }
  return { client, ...rest };
}

function isKubeconfigChosen({ kubeconfig, context, io }: KubectlOptions): boolean {
  const { KUBECONFIG, HOME } = io.env;
  const isFound = HOME !== undefined && existsSync(join(HOME, '.kube', 'config'));
  return kubeconfig !== undefined || context !== undefined || Boolean(KUBECONFIG) || isFound;
}

/** kubectl runs a credential plugin with the first request, which therefore waits until the user has logged in. */
async function logIn(client: KubeClient): Promise<void> {
  try {
    await client.request('GET', toKubePath('/version'), { timeout: LOGIN_TIMEOUT });
  } catch (thrown) {
    if (!(thrown instanceof KubeError)) throw thrown;
    // A rejection is a response, and whether it matters depends on the command.
    if (thrown.status === 0 || thrown.status >= 500) throw new SidegateError('user', 'kubectl', thrown.message);
  }
}

/** Reads the access to the pod's own cluster; undefined outside a pod. */
export async function readInCluster(
  env: KubectlOptions['io']['env'],
  folder: string = FOLDER,
): Promise<{ readonly access: ClusterAccess & { kind: 'pod' }; readonly namespace: string; readonly name: string } | undefined> {
  const [host, port] = [env['KUBERNETES_SERVICE_HOST'], env['KUBERNETES_SERVICE_PORT']];
  if (!host || !port) return undefined;
  const server = toServer(host, port);
  const namespace = (await readMounted(folder, 'namespace').catch(() => '')) || 'default';
  let ca = await readMounted(folder, 'ca.crt');
  const access = {
    kind: 'pod',
    server,
    get ca() {
      return ca;
    },
    // The kubelet renews the token before it expires after an hour, and the CA when the cluster replaces it.
    async token() {
      const token = await readMounted(folder, 'token');
      ca = await readMounted(folder, 'ca.crt');
      return token;
    },
  } as const;
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
