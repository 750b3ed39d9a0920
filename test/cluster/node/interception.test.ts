import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { FOUR_EXPECTED, HOOK, sendFour } from '../../support/cluster/gate-pods.ts';
import { NODE_HINDRANCE } from '../../support/node/availability.ts';
import { type NodeCluster, useNode } from '../../support/node/use-node.ts';
import { type AppOptions, createAppNamespace, type DeployedApp, deployApp, readReceived } from '../../support/node/workloads.ts';

interface Mode extends AppOptions {
  readonly interception: string;
  /** How another pod fares that asks the pod for the app's port: the app, sidegate or nobody responds. */
  readonly direct: 'handled' | 'sidegate' | 'refused';
}

const MODES: Readonly<Record<string, Mode>> = {
  service: { interception: 'service', direct: 'handled' },
  number: { interception: 'service', targetPort: 8480, direct: 'handled' },
  rename: { interception: 'rename', targetPort: 'http', direct: 'handled' },
  'same-port': {
    interception: 'same-port',
    targetPort: 8080,
    container: { env: [{ name: 'HOST', value: '127.0.0.1' }] },
    direct: 'sidegate',
  },
  'same-port-host': { interception: 'same-port:HOST', targetPort: 'http', direct: 'sidegate' },
  env: {
    interception: 'env',
    targetPort: 8080,
    container: { env: [{ name: 'PORT', value: '8080' }] },
    direct: 'sidegate',
  },
  'env-port': { interception: 'env:PORT', targetPort: 'http', direct: 'sidegate' },
  plain: { interception: 'service', direct: 'handled', annotations: { 'sidegate.dev/sidecar': 'container' } },
};

describe.skipIf(NODE_HINDRANCE !== undefined)('on a real node', () => {
  const apps = new Map<string, DeployedApp>();
  let node: NodeCluster;
  let namespace: string;

  beforeAll(async () => {
    node = await useNode();
    await node.useChart();
    namespace = await createAppNamespace(node);
    const deployed = Object.entries(MODES).map(async ([name, mode]) =>
      apps.set(name, await deployApp(node, namespace, name, mode)),
    );
    await Promise.all(deployed);
  });
  afterAll(() => node?.cleanUp());

  test.each(Object.entries(MODES))('the app gets the signed delivery once and nothing else: %s', async (name, { direct }) => {
    const app = apps.get(name) as DeployedApp;
    const [pod] = app.pods;
    expect(await sendFour(app.url)).toEqual(FOUR_EXPECTED);
    const received = await node.waitFor(namespace, async () => {
      const found = await readReceived(node, pod);
      return found.length > 0 && found;
    });
    expect(received.map(({ method, url }) => [method, url])).toEqual([['POST', HOOK]]);
    // What the docs say about bypasses: only an app on loopback, or one that was moved, is out of reach at its own port.
    const answer = await fetch(`${await node.forward(pod.status.podIP, 8080)}/elsewhere`);
    const text = await answer.text();
    expect(answer.status === 404 && text.includes('urn:sidegate') ? 'sidegate' : text).toBe(direct);
  });

  test('each sidecar has the place that its mode says', () => {
    const places = [...apps].map(([name, { pods }]) => {
      const isNative = pods[0].spec.initContainers?.some((each: { name: string }) => each.name === 'sidegate') === true;
      return [name, isNative ? 'native' : 'container'];
    });
    expect(Object.fromEntries(places)).toEqual(
      Object.fromEntries(Object.keys(MODES).map((name) => [name, name === 'plain' ? 'container' : 'native'])),
    );
  });
});
