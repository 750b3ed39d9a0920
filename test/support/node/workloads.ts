/** Apps behind the sidecar on the node, as users write them. */
import { createGateConfig, makeGatedPod } from '../cluster/gate-pods.ts';
import type { Kube } from '../cluster/kube-request.ts';
import { APP_IMAGE } from './settings.ts';
import type { NodeCluster } from './use-node.ts';

/** What differs between apps. */
export interface AppOptions {
  /** Default: `service`. */
  readonly interception?: string;
  /** Where the Service leads to. Default: the sidecar's own port name. */
  readonly targetPort?: string | number;
  readonly replicas?: number;
  readonly annotations?: Kube;
  /** Fields of the app's container. */
  readonly container?: Kube;
}

/** The app's container for many or large requests: it reads them and keeps nothing. The app of the image logs whole bodies. */
export const QUIET_APP: Kube = {
  command: [
    'node',
    '-e',
    `require('node:http').createServer((request, response) => request.resume().on('end', () => response.end('handled')))
      .listen(process.env.PORT ?? 8080, process.env.HOST);
    process.once('SIGTERM', () => process.exit());`,
  ],
};

/** An app that runs. */
export interface DeployedApp {
  readonly pods: readonly Kube[];
  /** Its Service, as this process reaches it. */
  readonly url: string;
}

/** A namespace that enforces PodSecurity restricted, with the config and the key of the sidecars; `sections` are merged over the config. */
export async function createAppNamespace(node: NodeCluster, sections: Kube = {}): Promise<string> {
  const namespace = await node.createNamespace({ 'pod-security.kubernetes.io/enforce': 'restricted' });
  await createGateConfig(node, namespace, sections);
  return namespace;
}

/** Creates a Deployment and its Service, and waits until all pods are ready and sidegate responds at the Service. */
export async function deployApp(
  node: NodeCluster,
  namespace: string,
  name: string,
  options: AppOptions = {},
): Promise<DeployedApp> {
  const replicas = options.replicas ?? 1;
  for (const object of [toService(name, options.targetPort), toDeployment(name, replicas, options)])
    await node.ok('POST', (await node.pathOf(object, namespace)).replace(/\/[^/]+$/, ''), object);
  const pods = await node.waitForPods(namespace, `app=${name}`, replicas);
  const url = await node.forwardService(namespace, name);
  // kube-proxy learns of the endpoints some time after the pods are ready.
  await node.waitFor(namespace, () =>
    fetch(url).then(
      ({ ok }) => !ok,
      () => false,
    ),
  );
  return { pods, url };
}

/** Restarts a Deployment like `kubectl rollout restart`, and waits until none of its earlier pods is left. Returns the new ones. */
export async function restartDeployment(
  node: NodeCluster,
  namespace: string,
  name: string,
  label = `app=${name}`,
): Promise<Kube[]> {
  // Pods of a restart before may still be ending.
  const running = (await node.listPods(namespace, label)).filter(({ metadata }) => metadata.deletionTimestamp === undefined);
  const before = running.map(({ metadata }) => metadata.name);
  const restart = { spec: { template: { metadata: { annotations: { restarted: String(Date.now()) } } } } };
  const path = `/apis/apps/v1/namespaces/${namespace}/deployments/${name}`;
  await node.ok('PATCH', path, restart, { contentType: 'application/merge-patch+json' });
  await node.waitFor(namespace, async () => {
    const found = await node.listPods(namespace, label);
    return found.length === before.length && found.every(({ metadata }) => !before.includes(metadata.name));
  });
  return node.waitForPods(namespace, label, before.length);
}

/** A pod of the app, for workloads of other kinds. */
export function toTemplate(name: string, { interception = 'service', annotations, container }: AppOptions = {}): Kube {
  const pod = makeGatedPod(name, interception, {
    labels: { app: name },
    annotations,
    container: { image: APP_IMAGE, ...container },
  });
  const { labels, annotations: settings } = pod.metadata;
  return { metadata: { labels, annotations: settings }, spec: pod.spec };
}

function toDeployment(name: string, replicas: number, options: AppOptions): Kube {
  return {
    apiVersion: 'apps/v1',
    kind: 'Deployment',
    metadata: { name },
    spec: { replicas, selector: { matchLabels: { app: name } }, template: toTemplate(name, options) },
  };
}

/** A Service on port 80. */
export function toService(name: string, targetPort: string | number = 'sidegate'): Kube {
  const ports = [{ port: 80, targetPort }];
  return { apiVersion: 'v1', kind: 'Service', metadata: { name }, spec: { selector: { app: name }, ports } };
}

/** The requests that the app of a pod got, probes excepted. */
export async function readReceived(node: NodeCluster, pod: Kube): Promise<Kube[]> {
  const log = await node.logs(pod.metadata.namespace, pod.metadata.name, 'app');
  return log.split('\n').flatMap((line) => (line.startsWith('{') ? [JSON.parse(line)] : []));
}
