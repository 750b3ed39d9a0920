import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { FOUR_EXPECTED, sendFour } from '../../support/cluster/gate-pods.ts';
import { NODE_HINDRANCE } from '../../support/node/availability.ts';
import { findStatus, type NodeCluster, useNode } from '../../support/node/use-node.ts';
import { createAppNamespace, deployApp } from '../../support/node/workloads.ts';

describe.skipIf(NODE_HINDRANCE !== undefined)('after the loss of power of a real node', () => {
  let node: NodeCluster;
  let namespace: string;

  beforeAll(async () => {
    node = await useNode();
    await node.useChart();
    namespace = await createAppNamespace(node);
  });
  afterAll(() => node?.cleanUp());

  test('the pods come back with their sidecars and deliver, and new ones get theirs', async () => {
    const { pods, url } = await deployApp(node, namespace, 'billing');
    expect(await sendFour(url)).toEqual(FOUR_EXPECTED);
    const [before] = pods.map((pod) => findStatus(pod, 'sidegate').containerID);

    await node.restartNode();
    // The status of a pod is that of before until the kubelet reports again.
    const after = await node.waitFor(namespace, async () => {
      const [pod] = await node.waitForPods(namespace, 'app=billing', 1);
      return findStatus(pod, 'sidegate').containerID !== before && pod;
    });
    expect(after.metadata.name).toBe(pods[0]?.metadata.name);
    await node.waitFor(namespace, async () => (await sendFour(url).catch(() => undefined))?.signed === FOUR_EXPECTED.signed);
    expect(await sendFour(url)).toEqual(FOUR_EXPECTED);

    const path = `/apis/apps/v1/namespaces/${namespace}/deployments/billing`;
    await node.ok('PATCH', path, { spec: { replicas: 2 } }, { contentType: 'application/merge-patch+json' });
    const both = await node.waitForPods(namespace, 'app=billing', 2);
    expect(both.map((pod) => findStatus(pod, 'sidegate').ready)).toEqual([true, true]);
  });
});
