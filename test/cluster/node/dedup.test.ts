import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { FOUR_EXPECTED, HOOK, sendFour } from '../../support/cluster/gate-pods.ts';
import type { Kube } from '../../support/cluster/kube-request.ts';
import { makePod } from '../../support/cluster/pods.ts';
import { type Delivery, makeDelivery } from '../../support/deliveries.ts';
import { NODE_HINDRANCE } from '../../support/node/availability.ts';
import { REDIS_IMAGE } from '../../support/node/settings.ts';
import { type NodeCluster, useNode } from '../../support/node/use-node.ts';
import { createAppNamespace, type DeployedApp, deployApp, readReceived } from '../../support/node/workloads.ts';

const DELIVERIES = 50;
const COPIES = 4;
const REDIS_PORT = 6379;

describe.skipIf(NODE_HINDRANCE !== undefined)('two pods on a real node, with a Redis that they find by its name', () => {
  let node: NodeCluster;
  let namespace: string;
  let redis: Kube;
  let app: DeployedApp;

  beforeAll(async () => {
    node = await useNode();
    await node.useChart();
    namespace = await createAppNamespace(node, { store: { redis: { url: `redis://redis:${REDIS_PORT}` } } });
    // Without a ClusterIP, the name leads to the address of the pod, which a new pod does not keep.
    const service = { clusterIP: 'None', selector: { app: 'redis' }, ports: [{ port: REDIS_PORT }] };
    await node.create({ apiVersion: 'v1', kind: 'Service', metadata: { name: 'redis' }, spec: service }, { namespace });
    const { spec } = makePod('redis', {
      container: { image: REDIS_IMAGE, readinessProbe: { tcpSocket: { port: REDIS_PORT }, periodSeconds: 1 } },
    });
    const template = { metadata: { labels: { app: 'redis' } }, spec };
    const deployment = { selector: { matchLabels: { app: 'redis' } }, template };
    await node.create(
      { apiVersion: 'apps/v1', kind: 'Deployment', metadata: { name: 'redis' }, spec: deployment },
      { namespace },
    );
    [redis] = await node.waitForPods(namespace, 'app=redis', 1);
    app = await deployApp(node, namespace, 'shared', { replicas: 2 });
  });
  afterAll(() => node?.cleanUp());

  test('the app gets one of several copies that arrive at both at once', async () => {
    const pods = await Promise.all(app.pods.map(({ status }) => node.forward(status.podIP, 8480)));
    const send = async ({ headers, body }: Delivery, at: number): Promise<number> =>
      (await fetch(`${pods[at % pods.length]}${HOOK}`, { method: 'POST', headers, body: new Uint8Array(body) })).status;
    const ids: string[] = [];
    for (let count = 0; count < DELIVERIES; count++) {
      const delivery = makeDelivery();
      const statuses = await Promise.all(Array.from({ length: COPIES }, (_, at) => send(delivery, at)));
      expect(statuses.filter((status) => status !== 200 && status !== 503)).toEqual([]);
      ids.push(delivery.id);
    }
    const received = await node.waitFor(namespace, async () => {
      const lines = await Promise.all(app.pods.map((pod) => readReceived(node, pod)));
      return lines.flat().length >= ids.length && lines;
    });
    expect(received.flat().map(({ headers }) => headers['webhook-id'])).toHaveLength(ids.length);
    expect(new Set(received.flat().map(({ headers }) => headers['webhook-id']))).toEqual(new Set(ids));
    // Neither pod handled all of them.
    for (const lines of received) expect(lines.length).toBeGreaterThan(0);
  });

  test('a new Redis pod is found at its new address', async () => {
    await node.ok('DELETE', `/api/v1/namespaces/${namespace}/pods/${redis.metadata.name}`);
    const found = await node.waitFor(namespace, async () => {
      const [pod] = await node.waitForPods(namespace, 'app=redis', 1);
      return pod?.metadata.name !== redis.metadata.name && pod;
    });
    expect(found.status.podIP).not.toBe(redis.status.podIP);
    for (const { status } of app.pods) {
      const url = await node.forward(status.podIP, 8480);
      await node.waitFor(namespace, async () => (await sendFour(url)).signed.startsWith('200'));
    }
    expect(await sendFour(app.url)).toEqual(FOUR_EXPECTED);
  });
});
