/** A pod's volumes as folders: files behind `..data` links that are swapped at once, as the kubelet writes them. */
import { mkdirSync, readdirSync, readFileSync, readlinkSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import type { Cluster } from './cluster.ts';
import type { Kube } from './kube-request.ts';
import { readField } from './pod-env.ts';

/** Writes every volume of a pod below `folder`, or again what has changed since; gives a reason where a source is missing. */
export async function writeVolumes(cluster: Cluster, pod: Kube, folder: string): Promise<string | undefined> {
  for (const volume of (pod.spec.volumes ?? []) as Kube[]) {
    const target = join(folder, volume.name);
    mkdirSync(target, { recursive: true });
    if (volume.emptyDir !== undefined) continue;
    const files = await readVolume(cluster, pod, volume);
    if (typeof files === 'string') return files;
    swapFiles(target, files);
  }
  return undefined;
}

type Files = Map<string, Buffer>;

function readVolume(cluster: Cluster, pod: Kube, volume: Kube): Promise<Files | string> {
  if (volume.projected === undefined) return readSource(cluster, pod, volume);
  return readSources(cluster, pod, volume.projected.sources);
}

async function readSources(cluster: Cluster, pod: Kube, sources: readonly Kube[]): Promise<Files | string> {
  const all: Files = new Map();
  for (const source of sources) {
    const files = await readSource(cluster, pod, source);
    if (typeof files === 'string') return files;
    for (const [name, content] of files) all.set(name, content);
  }
  return all;
}

/** A source names its object by `name` within a projected volume, and a Secret by `secretName` as a volume. */
async function readSource(cluster: Cluster, pod: Kube, source: Kube): Promise<Files | string> {
  const { namespace } = pod.metadata;
  if (source.configMap !== undefined) return readObject(cluster, namespace, 'configmaps', source.configMap);
  if (source.secret !== undefined) return readObject(cluster, namespace, 'secrets', source.secret);
  if (source.downwardAPI !== undefined) {
    const items = source.downwardAPI.items as Kube[];
    return new Map(items.map((item) => [item.path, Buffer.from(readField(pod, item.fieldRef.fieldPath))]));
  }
  if (source.serviceAccountToken !== undefined) {
    const token = await cluster.serviceAccountToken(namespace, pod.spec.serviceAccountName ?? 'default');
    return new Map([[source.serviceAccountToken.path, Buffer.from(token)]]);
  }
  throw new Error(`no volume is made of ${Object.keys(source).join(', ')} here`);
}

async function readObject(cluster: Cluster, namespace: string, plural: string, source: Kube): Promise<Files | string> {
  const name = source.secretName ?? source.name;
  const { status, body } = await cluster.request('GET', `/api/v1/namespaces/${namespace}/${plural}/${name}`);
  if (status === 404) return source.optional === true ? new Map() : `${plural} "${name}" not found`;
  if (status !== 200) throw new Error(`${plural} ${name}: ${status}`);
  const encoding = plural === 'secrets' ? 'base64' : 'utf8';
  const all = new Map(
    Object.entries((body.data ?? {}) as Record<string, string>).map(([key, text]) => [key, Buffer.from(text, encoding)]),
  );
  for (const [key, text] of Object.entries((body.binaryData ?? {}) as Record<string, string>))
    all.set(key, Buffer.from(text, 'base64'));
  if (source.items === undefined) return all;
  const chosen: Files = new Map();
  for (const { key, path } of source.items as { key: string; path: string }[]) {
    const content = all.get(key);
    if (content === undefined) return `${plural} "${name}" has no key ${key}`;
    chosen.set(path, content);
  }
  return chosen;
}

/** A new folder, then one rename of the link that all names lead through: a reader sees all old or all new files. */
function swapFiles(target: string, files: Files): void {
  const link = join(target, '..data');
  const before = readLink(link);
  if (before !== undefined && isSame(join(target, before), files)) return;
  const folder = `..${Date.now()}_${Math.floor(performance.now() * 1_000)}`;
  for (const [name, content] of files) {
    mkdirSync(dirname(join(target, folder, name)), { recursive: true });
    writeFileSync(join(target, folder, name), content, { mode: 0o644 });
  }
  mkdirSync(join(target, folder), { recursive: true });
  symlinkSync(folder, join(target, '..data_tmp'));
  renameSync(join(target, '..data_tmp'), link);
  const names = new Set([...files.keys()].map((name) => name.split('/')[0] as string));
  for (const known of readdirSync(target)) {
    if (known === '..data' || known === folder) continue;
    if (!names.delete(known)) rmSync(join(target, known), { recursive: true, force: true });
  }
  for (const name of names) symlinkSync(join('..data', name), join(target, name));
}

function readLink(path: string): string | undefined {
  try {
    return readlinkSync(path);
  } catch {
    return undefined;
  }
}

function isSame(folder: string, files: Files): boolean {
  const known = readdirSync(folder, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
  if (known.length !== files.size) return false;
  return known.every((entry) => {
    const path = join(entry.parentPath, entry.name);
    return files.get(path.slice(folder.length + 1))?.equals(readFileSync(path)) === true;
  });
}
