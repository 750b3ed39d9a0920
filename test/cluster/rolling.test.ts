import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type Cluster, useCluster } from '../support/cluster/cluster.ts';
import { createGateConfig, HOOK, makeGatedPod } from '../support/cluster/gate-pods.ts';
import { type Installation, installChart } from '../support/cluster/installation.ts';
import type { Kube } from '../support/cluster/kube-request.ts';
import { startNode, type TestNode } from '../support/cluster/node.ts';
import { startServiceProxy } from '../support/cluster/service-proxy.ts';
import { formatTally, sendDuring, type Tally } from '../support/delivery-load.ts';
import { until } from '../support/gate.ts';
import { NODE_HINDRANCE } from '../support/node/availability.ts';

/** A pod's second; the pause before the app's end is five of them. */
const SECOND_MS = 400;
/** How late the balancer learns that a pod is leaving. */
const BALANCER_DELAY_MS = 800;
const SENDERS = 6;
const REPLICAS = 2;

let cluster: Cluster;
let installation: Installation;
let namespace: string;
let node: TestNode;

beforeAll(async () => {
  cluster = await useCluster();
  installation = await installChart(cluster, { injector: { replicas: 1 } });
  namespace = await cluster.createNamespace();
  await createGateConfig(cluster, namespace);
  node = startNode(cluster, [namespace], { secondMs: SECOND_MS });
});
afterAll(async () => {
  await node?.stop();
  await installation?.stop();
  await cluster?.cleanUp();
});

async function rollUnderLoad(name: string, annotations: Kube): Promise<Tally> {
  const app = { app: name };
  const { metadata, spec } = makeGatedPod(name, 'service', {
    labels: app,
    annotations,
    container: { env: [{ name: 'WORK_MS', value: '5' }] },
  });
  const deployment: Kube = {
    apiVersion: 'apps/v1',
    kind: 'Deployment',
    metadata: { name },
    spec: {
      replicas: REPLICAS,
      selector: { matchLabels: app },
      template: { metadata: { labels: metadata.labels, annotations: metadata.annotations }, spec },
    },
  };
  const service = {
    apiVersion: 'v1',
    kind: 'Service',
    metadata: { name },
    spec: { selector: app, ports: [{ port: 80, targetPort: 'sidegate' }] },
  };
  for (const object of [service, deployment]) expect((await cluster.create(object, { namespace })).status).toBe(201);
  const before = await node.untilAllReady(namespace, `app=${name}`, REPLICAS);
  const proxy = await startServiceProxy(cluster, namespace, name, BALANCER_DELAY_MS);
  try {
    await until(() => proxy.endpoints().length === REPLICAS);
    return await sendDuring(`http://${proxy.clusterIp}${HOOK}`, { senders: SENDERS, around: 50 }, async () => {
      const restart = { spec: { template: { metadata: { annotations: { restarted: 'now' } } } } };
      await cluster.ok('PATCH', await cluster.pathOf(deployment, namespace), restart, {
        contentType: 'application/merge-patch+json',
      });
      await until(async () => {
        const pods = (await cluster.ok('GET', `/api/v1/namespaces/${namespace}/pods?labelSelector=app=${name}`)).items as Kube[];
        return (
          pods.length === REPLICAS && pods.every((pod) => before.every(({ path }) => !path.endsWith(`/${pod.metadata.name}`)))
        );
      });
      await node.untilAllReady(namespace, `app=${name}`, REPLICAS);
    });
  } finally {
    await proxy.stop();
    await cluster.request('DELETE', await cluster.pathOf(deployment, namespace));
  }
}

// Pods of a node prove the same (test/cluster/node/rolling.test.ts), with their own seconds and kube-proxy.
describe.skipIf(NODE_HINDRANCE === undefined)('where no node can run', () => {
  test('loses no request in a rolling restart under load, behind a load balancer that learns late which pods end', async () => {
    const tally = await rollUnderLoad('pausing', {});
    console.log(`rolling restart with the pause before the end: ${formatTally(tally)}`);
    expect(tally.lost).toEqual([]);
    expect(tally.sent).toBeGreaterThan(200);
  });

  test('loses some without the pause before the end', async () => {
    const tally = await rollUnderLoad('abrupt', { 'sidegate.dev/pre-stop': '0s' });
    console.log(`rolling restart without the pause: ${formatTally(tally)}`);
    expect(tally.lost.length).toBeGreaterThan(0);
  });
});
