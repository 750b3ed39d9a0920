/** The node in the hands of one test file: all that `Cluster` has, and what only real pods can do. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { inject } from 'vitest';
import { stringify } from 'yaml';
import type { ChartInput } from '../../../chart/values.ts';
import { type Memory, readMemory } from '../cgroup-memory.ts';
import { CHART, HELM, runHelm } from '../chart.ts';
import { Cluster } from '../cluster/cluster.ts';
import type { Kube } from '../cluster/kube-request.ts';
import { until } from '../gate.ts';
import { type Ended, run } from '../run.ts';
import { findContainerCgroup } from './cgroups.ts';
import { execute } from './exec.ts';
import { type Forward, forward } from './forward.ts';
import { toInside } from './machine.ts';
import { importImages, type NodeConnection } from './node.ts';
import { type Image, toArchive } from './oci.ts';
import { APP_IMAGE, RUNTIME, SIDEGATE_IMAGE } from './settings.ts';

/** The release of the project's chart, and its namespace. */
export const RELEASE = 'sidegate';
export const CHART_NAMESPACE = 'sidegate-system';
const PATIENCE_MS = 90_000;

/** Gets the node, which is started when the first test asks for it. */
export async function useNode(): Promise<NodeCluster> {
  const answer = await fetch(`${inject('clusterBroker')}/node`);
  if (!answer.ok) throw new Error(await answer.text());
  return new NodeCluster((await answer.json()) as NodeConnection);
}

/** Requests go to the API server of the node; `cleanUp` in afterAll also ends forwards. */
export class NodeCluster extends Cluster {
  readonly #node: NodeConnection;
  readonly #forwards: Forward[] = [];

  constructor(connection: NodeConnection) {
    super(connection);
    this.#node = connection;
  }

  /** Runs Helm with the rights of admin. */
  helm(...args: readonly string[]): Promise<Ended> {
    return this.helmWith(HELM, ...args);
  }

  /** The same with another Helm. */
  helmWith(program: string, ...args: readonly string[]): Promise<Ended> {
    return runHelm(program, args, { KUBECONFIG: this.#node.kubeconfigFile });
  }

  /** Installs the project's chart with its defaults, unless an earlier file did. It stays for all files of a run. */
  async useChart(): Promise<void> {
    const { code } = await this.helm('status', RELEASE, '--namespace', CHART_NAMESPACE);
    if (code !== 0) await this.installChart();
  }

  /** Installs the project's chart into a namespace that enforces PodSecurity restricted, in place of the one that may be there. */
  async installChart(values: ChartInput = {}, { chart = CHART, program = HELM } = {}): Promise<void> {
    await this.uninstallChart();
    const labels = { 'pod-security.kubernetes.io/enforce': 'restricted' };
    const namespace = { apiVersion: 'v1', kind: 'Namespace', metadata: { name: CHART_NAMESPACE, labels } };
    await this.request('POST', '/api/v1/namespaces', namespace);
    await this.#applyChart('install', values, { chart, program });
  }

  /** Upgrades the release to the project's chart, with these values and no others. */
  async upgradeChart(values: ChartInput = {}): Promise<void> {
    await this.#applyChart('upgrade', values, { chart: CHART, program: HELM });
  }

  async #applyChart(
    action: 'install' | 'upgrade',
    values: ChartInput,
    { chart, program }: { readonly chart: string; readonly program: string },
  ): Promise<void> {
    const file = join(this.#node.machine.folder, 'values.yaml');
    writeFileSync(file, stringify({ image: SIDEGATE_IMAGE, ...values }));
    const options = ['--namespace', CHART_NAMESPACE, '--values', file, '--wait', '--timeout', '90s'];
    const ended = await this.helmWith(program, action, RELEASE, chart, ...options);
    if (ended.code !== 0) throw new Error(`helm ${action}: ${ended.stderr}\n${await this.report(CHART_NAMESPACE)}`);
  }

  /** Imports an image, so that pods can use it. */
  async importImage(image: Image): Promise<void> {
    await importImages(this.#node.machine, toArchive([image]));
  }

  /** Uninstalls the chart if it is installed. */
  async uninstallChart(): Promise<void> {
    await this.helm('uninstall', RELEASE, '--namespace', CHART_NAMESPACE, '--wait', '--ignore-not-found');
  }

  /** Waits until so many pods with a label (`key=value`) are ready, and no other one is left. */
  async waitForPods(namespace: string, label: string, count: number): Promise<Kube[]> {
    return this.waitFor(namespace, async () => {
      const pods = await this.listPods(namespace, label);
      return pods.length === count && pods.every(isReady) && pods;
    });
  }

  /** Waits until a pod has run to its end. Returns it. */
  async waitForEnd(namespace: string, name: string): Promise<Kube> {
    return this.waitFor(namespace, async () => {
      const pod = await this.ok('GET', `/api/v1/namespaces/${namespace}/pods/${name}`);
      return ['Succeeded', 'Failed'].includes(pod.status.phase) && pod;
    });
  }

  /** Looks again and again; if nothing is found in time, the error reports what the pods of the namespace do. */
  async waitFor<T>(namespace: string, look: () => Promise<T | undefined | false>): Promise<T> {
    const patience = AbortSignal.timeout(PATIENCE_MS);
    const found = await until(async () => (await look()) || (patience.aborted && LATE));
    if (found === LATE) throw new Error(await this.report(namespace));
    return found as T;
  }

  /** The pods with a label. */
  async listPods(namespace: string, label: string): Promise<Kube[]> {
    const query = new URLSearchParams({ labelSelector: label });
    return (await this.ok('GET', `/api/v1/namespaces/${namespace}/pods?${query}`)).items;
  }

  /** All that a container has written, as `kubectl logs` prints it. */
  async logs(namespace: string, pod: string, container: string, isPrevious = false): Promise<string> {
    const query = new URLSearchParams({ container, previous: String(isPrevious) });
    return String(await this.ok('GET', `/api/v1/namespaces/${namespace}/pods/${pod}/log?${query}`));
  }

  /** Runs a command in a container, as `kubectl exec` does. */
  exec(namespace: string, pod: string, container: string, ...command: readonly string[]): Promise<Ended> {
    return execute(this.#node, `/api/v1/namespaces/${namespace}/pods/${pod}`, container, command);
  }

  /** Runs a script (ECMAScript module) of a client in a new pod of the cluster, to its end. Returns what it wrote. */
  async runClient(namespace: string, script: string): Promise<{ readonly code: number; readonly output: string }> {
    const name = `client-${Date.now().toString(36)}`;
    const container = { name: 'client', image: APP_IMAGE, command: ['node', '--input-type=module', '-e', script] };
    await this.create(
      {
        apiVersion: 'v1',
        kind: 'Pod',
        metadata: { name },
        spec: { ...RESTRICTED.pod, restartPolicy: 'Never', containers: [{ ...container, ...RESTRICTED.container }] },
      },
      { namespace },
    );
    const { status } = await this.waitForEnd(namespace, name);
    const code: number = status.containerStatuses[0].state.terminated.exitCode;
    return { code, output: await this.logs(namespace, name, 'client') };
  }

  /** Gives an image of the node another name. */
  async tagImage(source: string, name: string): Promise<void> {
    const args = ['--address', RUNTIME, '-n', 'k8s.io', 'images', 'tag', '--force', source, name];
    const { code, stderr } = await this.runInside('ctr', ...args);
    if (code !== 0) throw new Error(`${source} was not tagged: ${stderr}`);
  }

  /** Runs a program of this machine inside the node's namespaces. */
  runInside(command: string, ...args: readonly string[]): Promise<Ended> {
    return run(...toInside(this.#node.machine, command, args));
  }

  /** The base URL by which this process reaches an address of the node's network. */
  async forward(host: string, port: number): Promise<string> {
    const opened = await forward(this.#node.machine, host, port);
    this.#forwards.push(opened);
    return `http://127.0.0.1:${opened.port}`;
  }

  /** The same for the ClusterIP of a Service: each connection goes to one of its endpoints. */
  async forwardService(namespace: string, name: string): Promise<string> {
    const { spec } = await this.ok('GET', `/api/v1/namespaces/${namespace}/services/${name}`);
    return this.forward(spec.clusterIP, spec.ports[0].port);
  }

  /** The memory of a container of a pod. */
  memoryOf(pod: Kube, container: string): Memory {
    const id = String(findStatus(pod, container)?.containerID).replace('containerd://', '');
    const { hierarchies, cgroup } = this.#node.machine;
    const folder = findContainerCgroup(hierarchies, cgroup, id);
    if (folder === undefined) throw new Error(`there is no cgroup of the container ${container}`);
    return readMemory(folder, hierarchies.version);
  }

  /** Kills everything on the node and starts it again, as after a loss of power. */
  async restartNode(): Promise<void> {
    const answer = await fetch(`${inject('clusterBroker')}/node/restart`);
    if (!answer.ok) throw new Error(await answer.text());
  }

  /** What the pods of a namespace do, what happened to them, and the last lines that they wrote. */
  async report(namespace: string): Promise<string> {
    const { items: pods } = await this.ok('GET', `/api/v1/namespaces/${namespace}/pods`);
    const { items: events } = await this.ok('GET', `/api/v1/namespaces/${namespace}/events`);
    const lines = (events as Kube[]).map(
      ({ involvedObject, reason, message }) => `${involvedObject.name}: ${reason}: ${message}`,
    );
    for (const { metadata, spec, status } of pods as Kube[]) {
      lines.push(`${metadata.name}: ${status.phase} ${JSON.stringify(status.conditions)}`);
      for (const { name } of [...(spec.initContainers ?? []), ...spec.containers]) {
        const log = await this.logs(namespace, metadata.name, name).catch(String);
        lines.push(`${metadata.name}/${name}: ${log.slice(-2_000)}`);
      }
    }
    return lines.join('\n') || 'there is no pod and no event';
  }

  override async cleanUp(): Promise<void> {
    for (const opened of this.#forwards.splice(0)) await opened.close();
    await super.cleanUp();
  }
}

const LATE = Symbol('late');

/** What PodSecurity restricted requires. */
const RESTRICTED = {
  pod: {
    automountServiceAccountToken: false,
    securityContext: { runAsNonRoot: true, runAsUser: 1000, seccompProfile: { type: 'RuntimeDefault' } },
  },
  container: { securityContext: { allowPrivilegeEscalation: false, capabilities: { drop: ['ALL'] } } },
};

/** The status of a container of a pod, sidecars included; undefined if it was not created yet. */
export function findStatus({ status }: Kube, name: string): Kube {
  return [...(status.initContainerStatuses ?? []), ...(status.containerStatuses ?? [])].find((each: Kube) => each.name === name);
}

function isReady({ metadata, status }: Kube): boolean {
  const conditions: Kube[] = status.conditions ?? [];
  return (
    metadata.deletionTimestamp === undefined && conditions.some(({ type, status: value }) => type === 'Ready' && value === 'True')
  );
}
