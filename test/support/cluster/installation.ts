/** The chart installed in a cluster: rendered by Helm, applied by the API, its injector run by a node and reached by its Service. */
import type { ChartInput } from '../../../chart/values.ts';
import { renderChart } from '../chart.ts';
import { until } from '../gate.ts';
import type { Cluster } from './cluster.ts';
import type { Kube } from './kube-request.ts';
import { startNode, type TestNode } from './node.ts';
import type { PodRunner } from './pod-runner.ts';
import { type ServiceProxy, startServiceProxy } from './service-proxy.ts';

/** What was installed. */
export interface Installation {
  readonly namespace: string;
  readonly objects: readonly Kube[];
  /** Runs the injector's pods. */
  readonly node: TestNode;
  /** The injector's pods that are ready. */
  injectors(): Promise<PodRunner[]>;
  /** Ends the injector, so that nobody answers the webhook. */
  killInjector(): Promise<void>;
  stop(): Promise<void>;
}

const RELEASE = 'sidegate';
const INJECTOR = `${RELEASE}-injector`;
const COMPONENT = 'app.kubernetes.io/component=injector';

/** Renders and applies the chart, and waits until its injector is ready. */
export async function installChart(cluster: Cluster, values: ChartInput = {}): Promise<Installation> {
  const namespace = await cluster.createNamespace({ 'pod-security.kubernetes.io/enforce': 'restricted' }, 'sidegate-system');
  const { gitVersion } = await cluster.ok('GET', '/version');
  const rendered = await renderChart(values, { release: RELEASE, namespace, kubeVersion: String(gitVersion) });
  const objects: Kube[] = [];
  for (const object of rendered.filter(({ metadata }) => metadata.annotations?.['helm.sh/hook'] === undefined)) {
    const { status, body } = await cluster.apply(object, { namespace });
    if (status >= 400) throw new Error(`${object.kind} ${object.metadata.name}: ${status} ${body.message}`);
    objects.push(body);
  }
  const deployment = objects.find(({ kind, metadata }) => kind === 'Deployment' && metadata.name === INJECTOR);
  const node = startNode(cluster, [namespace]);
  let proxy: ServiceProxy | undefined;
  const injectors = (): Promise<PodRunner[]> => node.untilAllReady(namespace, COMPONENT, deployment.spec.replicas);
  const stop = async (): Promise<void> => {
    await proxy?.stop();
    await node.stop();
  };
  try {
    if (deployment !== undefined) {
      await injectors();
      const started = await startServiceProxy(cluster, namespace, INJECTOR);
      proxy = started;
      await until(() => started.endpoints('webhook').length === deployment.spec.replicas);
    }
  } catch (thrown) {
    await stop();
    throw thrown;
  }
  return {
    namespace,
    objects,
    node,
    injectors,
    killInjector: async () => {
      await cluster.ok(
        'PATCH',
        `${await cluster.pathOf(deployment)}/scale`,
        { spec: { replicas: 0 } },
        {
          contentType: 'application/merge-patch+json',
        },
      );
      // Those that are on their way out still answer on the connections that the API server has kept.
      const pods = `/api/v1/namespaces/${namespace}/pods?labelSelector=${encodeURIComponent(COMPONENT)}`;
      await until(async () => (await cluster.ok('GET', pods)).items.length === 0);
    },
    stop,
  };
}
