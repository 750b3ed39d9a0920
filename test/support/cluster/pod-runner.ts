/** The kubelet's part for one pod: volumes, init containers in order, containers, probes, status, and the end in the right order. */
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { until } from '../gate.ts';
import type { Cluster } from './cluster.ts';
import { Container, type ContainerPlace } from './container.ts';
import type { Kube } from './kube-request.ts';
import { type PodAddresses, takeAddresses } from './pod-addresses.ts';
import { toEnvironment } from './pod-env.ts';
import type { PodWorld } from './pod-world.ts';
import { writeVolumes } from './volumes.ts';

/** How pods are run. */
export interface RunnerOptions {
  /** Milliseconds that stand for a second of the pod's periods, delays and sleeps. */
  readonly secondMs: number;
  /** File with the cluster's Services: JSON, name.namespace → ClusterIP. */
  readonly hostsFile: string;
}

/** A step of a pod's life, in the order of the steps. */
export type Step = string;

const isSidecar = ({ restartPolicy }: Kube): boolean => restartPolicy === 'Always';

/** Runs a pod as the API server holds it; tells the API server how it fares. */
export class PodRunner {
  readonly addresses: PodAddresses = takeAddresses();
  /** For example `app SIGTERM`, `sidegate ended 0`. */
  readonly steps: Step[] = [];
  readonly #cluster: Cluster;
  readonly #options: RunnerOptions;
  readonly #folder = mkdtempSync(join(tmpdir(), 'sidegate-pod-'));
  readonly #inits: Container[];
  readonly #mains: Container[];
  #pod: Kube;
  #ending: Promise<void> | undefined;
  #told: Promise<void> = Promise.resolve();
  #toldText = '';
  #isInitialized = false;

  constructor(cluster: Cluster, pod: Kube, options: RunnerOptions) {
    this.#cluster = cluster;
    this.#options = options;
    const { podIp } = this.addresses;
    this.#pod = { ...pod, status: { ...pod.status, podIP: podIp, podIPs: [{ ip: podIp }] } };
    const policy: string = pod.spec.restartPolicy;
    const shouldRestart = (code: number): boolean => policy === 'Always' || (policy === 'OnFailure' && code !== 0);
    this.#inits = ((pod.spec.initContainers ?? []) as Kube[]).map((spec) => {
      const again = isSidecar(spec) ? () => true : (code: number) => code !== 0 && policy !== 'Never';
      return new Container(spec, this.#toPlace(again));
    });
    this.#mains = (pod.spec.containers as Kube[]).map((spec) => new Container(spec, this.#toPlace(shouldRestart)));
  }

  /** Name and namespace, as the API server has them. */
  get path(): string {
    return `/api/v1/namespaces/${this.#pod.metadata.namespace}/pods/${this.#pod.metadata.name}`;
  }

  /** All containers ready, and not on its way out. */
  get isReady(): boolean {
    const asked = [...this.#inits.filter(({ spec }) => isSidecar(spec)), ...this.#mains];
    return this.#isInitialized && asked.every((container) => container.isReady);
  }

  /** All that a container wrote. */
  log(container: string): string {
    return this.#find(container).log();
  }

  /** What it did and wrote, for whoever has to find out why it is not ready. */
  report(): string {
    const logs = [...this.#inits, ...this.#mains].map((container) => `${container.spec.name}: ${container.log().slice(-2_000)}`);
    return [this.steps.join(', '), ...logs].join('\n');
  }

  /** Where a container's port is reached on this machine. */
  url(port: number): string {
    return `http://${this.addresses.outer}:${port}`;
  }

  /** Starts it; resolves when it is over, whether by itself or because it was ended. */
  async run(): Promise<void> {
    await this.#tell();
    await this.refreshVolumes();
    for (const container of this.#inits) {
      if (this.#ending !== undefined) return;
      await container.start();
      if (isSidecar(container.spec)) await container.started();
      else if ((await container.ended()) !== 0) return this.#complete();
    }
    if (this.#ending !== undefined) return;
    this.#isInitialized = true;
    await Promise.all(this.#mains.map((container) => container.start()));
    await Promise.all(this.#mains.map((container) => container.ended()));
    if (this.#ending === undefined) await this.#complete();
  }

  /** Reads ConfigMaps and Secrets (again); waits for those that do not exist yet. */
  async refreshVolumes(): Promise<void> {
    const folder = join(this.#folder, 'volumes');
    mkdirSync(folder, { recursive: true });
    await until(async () => this.#ending !== undefined || (await writeVolumes(this.#cluster, this.#pod, folder)) === undefined);
  }

  /** Ends it as the kubelet does: hooks, SIGTERM to the app containers, then to the sidecars from last to first, SIGKILL after the grace. */
  terminate(graceSeconds: number): Promise<void> {
    this.#ending ??= this.#terminate(graceSeconds);
    return this.#ending;
  }

  /** Ends it at once, without a word to the API server. */
  async kill(): Promise<void> {
    this.#ending ??= Promise.resolve();
    await Promise.all([...this.#inits, ...this.#mains].map((container) => container.stop('SIGKILL')));
    rmSync(this.#folder, { recursive: true, force: true });
  }

  async #terminate(graceSeconds: number): Promise<void> {
    const all = [...this.#inits, ...this.#mains];
    const over = setTimeout(
      () => void Promise.all(all.map((container) => container.stop('SIGKILL'))),
      // In real seconds, as what the processes do meanwhile takes its real time.
      Math.max(1, graceSeconds) * 1_000,
    );
    await this.#stopInOrder();
    clearTimeout(over);
    await this.#tell();
    await this.#cluster.request('DELETE', this.path, { gracePeriodSeconds: 0, preconditions: { uid: this.#pod.metadata.uid } });
    rmSync(this.#folder, { recursive: true, force: true });
  }

  /** Sidecars' hooks run from the beginning, their SIGTERM waits for everything that started after them. */
  async #stopInOrder(): Promise<void> {
    const hooks = new Map(this.#inits.map((container) => [container, container.prepareStop()]));
    await Promise.all(
      this.#mains.map(async (container) => {
        await container.prepareStop();
        await container.stop('SIGTERM');
      }),
    );
    for (const container of this.#inits.toReversed()) {
      await hooks.get(container);
      await container.stop('SIGTERM');
    }
  }

  async #complete(): Promise<void> {
    this.#ending = this.#stopInOrder();
    await this.#ending;
    await this.#tell();
  }

  #toPlace(shouldRestart: (code: number) => boolean): ContainerPlace {
    return {
      address: this.addresses.outer,
      inner: this.addresses.inner,
      folder: this.#folder,
      secondMs: this.#options.secondMs,
      toEnv: (container) => toEnvironment(this.#cluster, this.#pod, container),
      toWorld: (container) => ({ POD_WORLD: JSON.stringify(this.#toWorld(container)) }),
      onChange: () => void this.#tell(),
      onStep: (step) => this.steps.push(step),
      shouldRestart,
    };
  }

  #toWorld(container: Kube): PodWorld {
    const mounts = ((container.volumeMounts ?? []) as Kube[]).map(({ mountPath, name, subPath }): [string, string] => [
      mountPath,
      join(this.#folder, 'volumes', name, subPath ?? ''),
    ]);
    return {
      addresses: this.addresses,
      mounts,
      hostsFile: this.#options.hostsFile,
      namespace: this.#pod.metadata.namespace,
    };
  }

  #find(name: string): Container {
    const found = [...this.#inits, ...this.#mains].find(({ spec }) => spec.name === name);
    if (found === undefined) throw new Error(`the pod ${this.#pod.metadata.name} has no container ${name}`);
    return found;
  }

  /** One after the other, so that the latest status is the last one written. */
  #tell(): Promise<void> {
    this.#told = this.#told.then(async () => {
      const status = this.#toStatus();
      const text = JSON.stringify(status);
      if (text === this.#toldText) return;
      this.#toldText = text;
      const options = { contentType: 'application/merge-patch+json' };
      const answer = await this.#cluster.request('PATCH', `${this.path}/status`, { status }, options);
      if (answer.status >= 400 && answer.status !== 404) throw new Error(`${this.path}: ${answer.body.message}`);
    });
    return this.#told;
  }

  #toStatus(): Kube {
    const codes = this.#mains.map(({ exitCode }) => exitCode);
    const isOver = codes.every((code) => code !== undefined);
    const phase = isOver
      ? codes.every((code) => code === 0)
        ? 'Succeeded'
        : 'Failed'
      : this.#isInitialized
        ? 'Running'
        : 'Pending';
    const failedInit = this.#inits.some(({ spec, exitCode }) => !isSidecar(spec) && exitCode !== undefined && exitCode !== 0);
    const isReady = this.isReady && !isOver;
    const condition = (type: string, isTrue: boolean): Kube => ({ type, status: isTrue ? 'True' : 'False' });
    return {
      phase: failedInit ? 'Failed' : phase,
      podIP: this.addresses.podIp,
      podIPs: [{ ip: this.addresses.podIp }],
      conditions: [
        condition('PodScheduled', true),
        condition('Initialized', this.#isInitialized),
        condition('ContainersReady', isReady),
        condition('Ready', isReady),
      ],
      initContainerStatuses: this.#inits.map((container) => container.status()),
      containerStatuses: this.#mains.map((container) => container.status()),
    };
  }
}
