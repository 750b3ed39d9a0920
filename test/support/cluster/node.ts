/** A node of the cluster: takes the pods of some namespaces, runs them, and ends those that the API server deletes. */
import { mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { until } from '../gate.ts';
import type { Cluster } from './cluster.ts';
import type { Kube } from './kube-request.ts';
import { PodRunner } from './pod-runner.ts';

/** What may differ. */
export interface NodeOptions {
  /** 100 to begin with: a pod's seconds pass ten times as fast. */
  readonly secondMs?: number;
}

/** A node at work. */
export interface TestNode {
  /** Waits until a pod is ready, and gives what runs it. */
  untilReady(namespace: string, name: string): Promise<PodRunner>;
  /** Waits until so many pods with a label (`key=value`) are ready, and none is on its way out. */
  untilAllReady(namespace: string, label: string, count: number): Promise<PodRunner[]>;
  /** What runs a pod, or ran it. */
  find(namespace: string, name: string): PodRunner | undefined;
  /** Ends all processes. */
  stop(): Promise<void>;
}

const NAME = 'loopback';
const LOOK_MS = 50;
const PATIENCE_MS = 45_000;

/** Starts a node for the pods of these namespaces. */
export function startNode(cluster: Cluster, namespaces: readonly string[], options: NodeOptions = {}): TestNode {
  const folder = mkdtempSync(join(tmpdir(), 'sidegate-pods-'));
  const hostsFile = join(folder, 'hosts.json');
  const runners = new Map<string, PodRunner>();
  const known = new Map<string, PodRunner>();
  let isStopped = false;

  async function sync(): Promise<void> {
    for (const namespace of namespaces) {
      await writeHosts(cluster, hostsFile);
      const list = await cluster.ok('GET', `/api/v1/namespaces/${namespace}/pods`);
      for (const pod of list.items as Kube[]) await take(pod);
    }
  }
  async function take(pod: Kube): Promise<void> {
    const { uid, deletionTimestamp, deletionGracePeriodSeconds } = pod.metadata;
    const runner = runners.get(uid);
    if (deletionTimestamp !== undefined) void runner?.terminate(deletionGracePeriodSeconds ?? 30);
    else if (runner === undefined) await begin(pod);
  }
  async function begin(pod: Kube): Promise<void> {
    const { uid, name, namespace } = pod.metadata;
    const runner = new PodRunner(cluster, pod, { secondMs: options.secondMs ?? 100, hostsFile });
    runners.set(uid, runner);
    known.set(`${namespace}/${name}`, runner);
    const target = { apiVersion: 'v1', kind: 'Node', name: NAME };
    const binding = { apiVersion: 'v1', kind: 'Binding', metadata: { name, namespace }, target };
    if ((await cluster.request('POST', `${runner.path}/binding`, binding)).status >= 400) return;
    runner.run().catch((thrown: unknown) => runner.steps.push(`failed: ${thrown instanceof Error ? thrown.message : thrown}`));
  }
  const loop = (async () => {
    await registerNode(cluster);
    while (!isStopped) {
      await sync();
      await new Promise((done) => setTimeout(done, LOOK_MS));
    }
  })();
  return {
    find: (namespace, name) => known.get(`${namespace}/${name}`),
    untilReady: (namespace, name) =>
      soon(known, () => {
        const runner = known.get(`${namespace}/${name}`);
        return runner?.isReady === true && runner;
      }),
    untilAllReady: (namespace, label, count) => soon(known, () => findAllReady(cluster, known, { namespace, label, count })),
    stop: async () => {
      isStopped = true;
      await loop;
      await Promise.all([...runners.values()].map((runner) => runner.kill()));
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

/** Waits, and tells what all pods did and wrote where that takes too long. */
async function soon<T>(known: ReadonlyMap<string, PodRunner>, look: () => T | false | Promise<T | false>): Promise<T> {
  const patience = AbortSignal.timeout(PATIENCE_MS);
  const found = await until(async () => (await look()) || (patience.aborted && 'late'));
  if (found !== 'late') return found as T;
  throw new Error([...known].map(([name, runner]) => `${name}: ${runner.report()}`).join('\n') || 'there is no pod at all');
}

/** EndpointSlices leave out pods whose node is unknown, and injectors ask how old the kubelets are. */
async function registerNode(cluster: Cluster): Promise<void> {
  const { gitVersion } = await cluster.ok('GET', '/version');
  const unknown = ['architecture', 'bootID', 'containerRuntimeVersion', 'kernelVersion', 'kubeProxyVersion'];
  const more = ['machineID', 'operatingSystem', 'osImage', 'systemUUID'];
  const nodeInfo = Object.fromEntries([...unknown, ...more].map((key) => [key, '']));
  const node = {
    apiVersion: 'v1',
    kind: 'Node',
    metadata: { name: NAME },
    status: { nodeInfo: { ...nodeInfo, kubeletVersion: gitVersion } },
  };
  const answer = await cluster.request('POST', '/api/v1/nodes', node);
  if (answer.status >= 400 && answer.status !== 409) throw new Error(`the node ${NAME}: ${answer.body.message}`);
}

async function findAllReady(
  cluster: Cluster,
  known: ReadonlyMap<string, PodRunner>,
  { namespace, label, count }: { namespace: string; label: string; count: number },
): Promise<PodRunner[] | false> {
  const path = `/api/v1/namespaces/${namespace}/pods?labelSelector=${encodeURIComponent(label)}`;
  const pods = (await cluster.ok('GET', path)).items as Kube[];
  const found = pods.map(({ metadata }) => known.get(`${namespace}/${metadata.name}`));
  const ready = found.filter((runner): runner is PodRunner => runner?.isReady === true);
  return pods.length === count && ready.length === count && ready;
}

/** Names of Services, as cluster DNS has them. */
async function writeHosts(cluster: Cluster, file: string): Promise<void> {
  const services = (await cluster.ok('GET', '/api/v1/services')).items as Kube[];
  const hosts = services.map(({ metadata, spec }) => [`${metadata.name}.${metadata.namespace}`, spec.clusterIP]);
  // By a rename: a process may read it at any moment.
  writeFileSync(`${file}.new`, JSON.stringify(Object.fromEntries(hosts)));
  renameSync(`${file}.new`, file);
}
