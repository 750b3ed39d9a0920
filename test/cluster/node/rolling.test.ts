import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { HOOK } from '../../support/cluster/gate-pods.ts';
import { formatTally, sendDuring, type Tally } from '../../support/delivery-load.ts';
import { NODE_HINDRANCE } from '../../support/node/availability.ts';
import { type NodeCluster, useNode } from '../../support/node/use-node.ts';
import { type AppOptions, createAppNamespace, deployApp, restartDeployment } from '../../support/node/workloads.ts';

const LOAD = { senders: 4, around: 100 };
/** kube-proxy syncs every 2 s, and shares two cores with all other tests: 5 s, the default, and 15 s were once too short for it. */
const PRE_STOP = { 'sidegate.dev/pre-stop': '30s' };

describe.skipIf(NODE_HINDRANCE !== undefined)('a rolling restart on a real node under load', () => {
  let node: NodeCluster;
  let namespace: string;

  beforeAll(async () => {
    node = await useNode();
    await node.useChart();
    namespace = await createAppNamespace(node);
  });
  afterAll(() => node?.cleanUp());

  let rolled = 0;
  async function roll(kind: string, options: AppOptions, senders = LOAD.senders): Promise<Tally> {
    // If the test is repeated, the app of the first run is still there.
    const name = `${kind}-${++rolled}`;
    const { url } = await deployApp(node, namespace, name, options);
    const tally = await sendDuring(`${url}${HOOK}`, { ...LOAD, senders }, () => restartDeployment(node, namespace, name));
    console.log(`rolling restart, ${name}: ${formatTally(tally)}`);
    return tally;
  }

  test.concurrent.each<[string, AppOptions]>([
    ['service', { replicas: 2 }],
    ['rename', { interception: 'rename', targetPort: 'http' }],
    ['same-port', { interception: 'same-port:HOST', targetPort: 8080 }],
    ['env', { interception: 'env:PORT', targetPort: 'http' }],
  ])('loses no request: %s', async (name, options) => {
    const tally = await roll(name, { ...options, annotations: PRE_STOP });
    expect(tally.lost).toEqual([]);
    expect(tally.sent).toBeGreaterThan(2 * LOAD.around);
  });

  test.concurrent('loses some without the pause before the end', async () => {
    const tally = await roll('abrupt', { replicas: 3, annotations: { 'sidegate.dev/pre-stop': '0s' } }, 2 * LOAD.senders);
    expect(tally.lost.length).toBeGreaterThan(0);
  });
});
