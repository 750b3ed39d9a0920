/** A container's environment, as the kubelet makes it from a pod. */
import type { Cluster } from './cluster.ts';
import { expandVariables } from './images.ts';
import type { Kube } from './kube-request.ts';

/** The variables of one container, later ones seeing earlier ones. */
export async function toEnvironment(cluster: Cluster, pod: Kube, container: Kube): Promise<Record<string, string>> {
  const { hostname, port } = new URL(cluster.connection.server);
  const env: Record<string, string> = { KUBERNETES_SERVICE_HOST: hostname, KUBERNETES_SERVICE_PORT: port };
  for (const source of (container.envFrom ?? []) as Kube[]) {
    const data = await readData(cluster, pod.metadata.namespace, source);
    for (const [key, value] of Object.entries(data)) env[`${source.prefix ?? ''}${key}`] = value;
  }
  for (const { name, value, valueFrom } of (container.env ?? []) as Kube[]) {
    const found = valueFrom === undefined ? expandVariables(value ?? '', env) : await readReference(cluster, pod, valueFrom);
    if (found !== undefined) env[name] = found;
  }
  return env;
}

async function readReference(cluster: Cluster, pod: Kube, from: Kube): Promise<string | undefined> {
  if (from.fieldRef !== undefined) return readField(pod, from.fieldRef.fieldPath);
  const reference = from.configMapKeyRef ?? from.secretKeyRef;
  if (reference === undefined) throw new Error(`no variable is made of ${Object.keys(from).join(', ')} here`);
  const source = from.configMapKeyRef === undefined ? { secretRef: reference } : { configMapRef: reference };
  return (await readData(cluster, pod.metadata.namespace, source))[reference.key];
}

async function readData(cluster: Cluster, namespace: string, source: Kube): Promise<Record<string, string>> {
  const reference = source.configMapRef ?? source.secretRef;
  const plural = source.configMapRef === undefined ? 'secrets' : 'configmaps';
  const { status, body } = await cluster.request('GET', `/api/v1/namespaces/${namespace}/${plural}/${reference.name}`);
  if (status === 404 && reference.optional === true) return {};
  if (status !== 200) throw new Error(`${plural} ${reference.name}: ${status}`);
  const entries = Object.entries((body.data ?? {}) as Record<string, string>);
  if (plural === 'configmaps') return Object.fromEntries(entries);
  return Object.fromEntries(entries.map(([key, text]) => [key, Buffer.from(text, 'base64').toString('utf8')]));
}

/** What the downward API gives for a path such as `metadata.labels['app']` or `status.podIPs`. */
export function readField(pod: Kube, path: string): string {
  const [, map, key] = /^metadata\.(labels|annotations)\['(.+)'\]$/.exec(path) ?? [];
  if (map !== undefined) return pod.metadata[map]?.[key ?? ''] ?? '';
  const { status = {} } = pod;
  if (path === 'status.podIPs') return (status.podIPs as { ip: string }[]).map(({ ip }) => ip).join(',');
  if (path === 'status.hostIP' || path === 'status.hostIPs') return '127.0.0.1';
  const value = path.split('.').reduce((object: Kube, name) => object?.[name], pod);
  if (typeof value !== 'string') throw new Error(`the pod has no text at ${path}`);
  return value;
}
