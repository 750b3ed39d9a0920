/** Access to the cluster: from kubeconfig files, which are found, merged and read like kubectl does, or from inside a pod. */
import { dirname, join, resolve } from 'node:path';
import { FILE_NOT_FOUND, parseYaml, readText } from '../../config/load/document.ts';
import { findNearest } from '../../config/schema/did-you-mean.ts';
import { readPem } from '../../config/sources/bounded-read.ts';
import { SidegateError } from '../../core/errors.ts';
import { error, formatProblem } from '../../core/problem.ts';
import type { ClusterAccess } from './access.ts';
import { createAccess } from './kubeconfig-access.ts';
import {
  type KubeCluster,
  type KubeContext,
  type KubeconfigOptions,
  KubeconfigSchema,
  type KubeUser,
  kubeconfigError,
  type PlacedEntry,
} from './kubeconfig-schema.ts';

/** How a pod finds its cluster. */
const IN_A_POD =
  '; in a pod, sidegate uses KUBERNETES_SERVICE_HOST, which is not set, and the token of the service account (automountServiceAccountToken)';

interface Merged {
  currentContext: string | undefined;
  readonly clusters: Map<string, PlacedEntry<KubeCluster>>;
  readonly users: Map<string, PlacedEntry<KubeUser>>;
  readonly contexts: Map<string, PlacedEntry<KubeContext>>;
}

/** Access to a cluster, with its name. */
interface ClusterEntry {
  readonly access: ClusterAccess;
  /** The default namespace. */
  readonly namespace: string;
  /** The name of the kubeconfig context, or "in-cluster". */
  readonly name: string;
}

type Env = Readonly<Record<string, string | undefined>>;

const FOLDER = '/var/run/secrets/kubernetes.io/serviceaccount';

/** Finds the cluster that kubectl would use: from --kubeconfig, KUBECONFIG, ~/.kube/config, or in a pod. Throws SidegateError. */
export async function findCluster(options: KubeconfigOptions): Promise<ClusterEntry> {
  const { files, mustExist } = toFiles(options);
  const merged = await merge(files, mustExist);
  if (merged === undefined) {
    const entry = options.context === undefined ? await readInCluster(options.env) : undefined;
    if (entry !== undefined) return entry;
    throw kubeconfigError(
      `no kubeconfig found${files.length === 0 ? '' : ` (${files.join(', ')})`}: pass --kubeconfig FILE${options.context === undefined ? IN_A_POD : ''}`,
    );
  }
  const name = options.context ?? merged.currentContext;
  if (!name) throw kubeconfigError(`the kubeconfig has no current-context: pass --context${listNames(merged.contexts)}`);
  const context = find(merged.contexts, name, 'context').value;
  const cluster = find(merged.clusters, context.cluster ?? '', `cluster of the context ${name},`);
  const user = context.user ? find(merged.users, context.user, `user of the context ${name},`) : undefined;
  return { access: await createAccess(cluster, user, options), namespace: context.namespace || 'default', name };
}

function toFiles({ file, env }: KubeconfigOptions): { readonly files: readonly string[]; readonly mustExist: boolean } {
  if (file !== undefined) return { files: [file], mustExist: true };
  const listed = (env['KUBECONFIG'] ?? '').split(':').filter((name) => name !== '');
  if (listed.length > 0) return { files: listed, mustExist: false };
  return { files: env['HOME'] ? [join(env['HOME'], '.kube', 'config')] : [], mustExist: false };
}

/** For each entry, the first file that contains it counts. Files in KUBECONFIG that do not exist are skipped. */
async function merge(files: readonly string[], mustExist: boolean): Promise<Merged | undefined> {
  const merged: Merged = { currentContext: undefined, clusters: new Map(), users: new Map(), contexts: new Map() };
  let isAny = false;
  for (const file of files) {
    const text = await readText(file);
    if (typeof text === 'string') {
      addFile(merged, file, text);
      isAny = true;
    } else if (mustExist || text.message !== FILE_NOT_FOUND) throw kubeconfigError(formatProblem(text));
  }
  return isAny ? merged : undefined;
}

function addFile(merged: Merged, file: string, text: string): void {
  const read = parseKubeconfig(file, text);
  const folder = dirname(resolve(file));
  merged.currentContext ||= read['current-context'] || undefined;
  for (const { name, cluster } of read.clusters ?? []) add(merged.clusters, { name, value: cluster, file, folder });
  for (const { name, user } of read.users ?? []) add(merged.users, { name, value: user, file, folder });
  for (const { name, context } of read.contexts ?? []) add(merged.contexts, { name, value: context, file, folder });
}

function parseKubeconfig(file: string, text: string) {
  const read = parseYaml(file, text, 'expected a kubeconfig as kubectl writes it');
  // Messages of the YAML parser contain no values, and those of the schema only types.
  if ('problems' in read) throw kubeconfigError(read.problems.map(formatProblem).join('\n'));
  const parsed = KubeconfigSchema.safeParse(read.value);
  if (parsed.success) return parsed.data;
  const problems = parsed.error.issues.map(({ path, message }) => formatProblem(read.locate(error(path, message))));
  throw kubeconfigError(problems.join('\n'));
}

function add<T>(into: Map<string, PlacedEntry<T>>, { value, ...rest }: PlacedEntry<T | null | undefined>): void {
  if (value !== null && value !== undefined && !into.has(rest.name)) into.set(rest.name, { ...rest, value });
}

function find<T>(entries: ReadonlyMap<string, T>, name: string, what: string): T {
  const found = entries.get(name);
  if (found !== undefined) return found;
  const nearest = findNearest(name, [...entries.keys()]);
  const hint = nearest === undefined ? listNames(entries) : `; did you mean ${nearest}?`;
  throw kubeconfigError(`the kubeconfig has no ${what} ${name || '(empty name)'}${hint}`);
}

function listNames(entries: ReadonlyMap<string, unknown>): string {
  return entries.size === 0 ? '; it has none' : `; available: ${[...entries.keys()].join(', ')}`;
}

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
