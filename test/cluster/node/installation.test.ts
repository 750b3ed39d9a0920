import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { runDoctor, toTable } from '../../support/cluster/doctor.ts';
import { createGateConfig, FOUR_EXPECTED, HOOK, makeGatedPod, sendFour } from '../../support/cluster/gate-pods.ts';
import type { Kube } from '../../support/cluster/kube-request.ts';
import { formatTally, sendDuring } from '../../support/delivery-load.ts';
import { NODE_HINDRANCE } from '../../support/node/availability.ts';
import {
  buildPreviousRelease,
  PREVIOUS_COMMIT,
  PREVIOUS_TAG,
  type PreviousRelease,
} from '../../support/node/previous-release.ts';
import { SIDEGATE_IMAGE } from '../../support/node/settings.ts';
import { CHART_NAMESPACE, type NodeCluster, RELEASE, useNode } from '../../support/node/use-node.ts';
import {
  type AppOptions,
  createAppNamespace,
  type DeployedApp,
  deployApp,
  restartDeployment,
} from '../../support/node/workloads.ts';

const INJECTOR = `${RELEASE}-injector`;
const OF_INJECTOR = 'app.kubernetes.io/component=injector';

const findSidecar = ({ spec }: Kube): Kube => spec.initContainers?.find(({ name }: Kube) => name === 'sidegate');

/** What becomes of a pod that asks for the sidecar: the tag of its sidecar's image, or why it has none. Nothing is stored. */
async function admit(node: NodeCluster, namespace: string): Promise<string> {
  const { status, body } = await node.create(makeGatedPod('asking', 'service'), { namespace, isDryRun: true });
  if (status >= 400) return `denied: ${body.message}`;
  return findSidecar(body)?.image.split(':')[1] ?? 'unprotected';
}

/** Creates such pods one after the other while `work` runs; gives what became of them, each outcome once. */
async function admitDuring(node: NodeCluster, namespace: string, work: () => Promise<unknown>): Promise<Map<string, number>> {
  const outcomes = new Map<string, number>();
  let isDone = false;
  const finished = work().finally(() => {
    isDone = true;
  });
  finished.catch(() => undefined);
  while (!isDone) {
    const outcome = await admit(node, namespace);
    outcomes.set(outcome, (outcomes.get(outcome) ?? 0) + 1);
  }
  await finished;
  return outcomes;
}

if (PREVIOUS_COMMIT === undefined) console.log('the tests of upgrades are skipped: this repository has no history');

let previous: Promise<PreviousRelease>;
let folder: string;

// It is built while the first tests wait for their pods.
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'sidegate-previous-'));
  if (PREVIOUS_COMMIT === undefined) return;
  previous = buildPreviousRelease(PREVIOUS_COMMIT, folder);
  previous.catch(() => undefined);
});
afterAll(async () => {
  // A test that failed may not have waited for it.
  await previous?.catch(() => undefined);
  rmSync(folder, { recursive: true, force: true });
});

describe.skipIf(NODE_HINDRANCE !== undefined)('installed without an injector on a real node', () => {
  let node: NodeCluster;
  let namespace: string;

  beforeAll(async () => {
    node = await useNode();
    await node.installChart({ admission: { mode: 'policy' } });
    namespace = await createAppNamespace(node);
    // The API server reads new policies a moment later.
    await node.waitFor(namespace, async () => (await admit(node, namespace)) === SIDEGATE_IMAGE.tag);
  });
  afterAll(() => node?.cleanUp());

  test('the API server adds the sidecars itself, and the apps get signed deliveries only', async () => {
    const modes: Readonly<Record<string, AppOptions>> = {
      service: {},
      'same-port': { interception: 'same-port:HOST', targetPort: 'http' },
    };
    const deployed = Object.entries(modes).map(([name, options]) => deployApp(node, namespace, name, options));
    for (const { pods, url } of await Promise.all(deployed)) {
      expect(pods.map((pod) => findSidecar(pod).restartPolicy)).toEqual(['Always']);
      expect(await sendFour(url)).toEqual(FOUR_EXPECTED);
    }
    // Those of an earlier installation may still be ending.
    await node.waitForPods(CHART_NAMESPACE, OF_INJECTOR, 0);
  });
});

describe.skipIf(NODE_HINDRANCE !== undefined || PREVIOUS_COMMIT === undefined)(
  'upgraded from the release before on a real node',
  () => {
    let node: NodeCluster;
    let namespace: string;
    let app: DeployedApp;

    beforeAll(async () => {
      node = await useNode();
      const { chart, image } = await previous;
      await node.importImage(image);
      await node.installChart({ image: { ...SIDEGATE_IMAGE, tag: PREVIOUS_TAG } }, { chart });
      namespace = await createAppNamespace(node);
      app = await deployApp(node, namespace, 'billing');
    });
    afterAll(() => node?.cleanUp());

    const examine = async (): Promise<Kube> =>
      toTable((await runDoctor(node.kubeconfig(), namespace, '--live')).report)['Deployment/billing'];

    test('no delivery is lost, and doctor names the old sidecars until their workload is restarted', async () => {
      expect(app.pods.map((pod) => findSidecar(pod).image)).toEqual([`${SIDEGATE_IMAGE.repository}:${PREVIOUS_TAG}`]);
      const tally = await sendDuring(`${app.url}${HOOK}`, { senders: 4, around: 100 }, async () => {
        const outcomes = await admitDuring(node, namespace, async () => {
          await node.upgradeChart();
          // The old ones respond until their grace period ends, which Helm does not wait for.
          await node.waitForPods(CHART_NAMESPACE, OF_INJECTOR, 2);
        });
        console.log('pods created during the upgrade:', Object.fromEntries(outcomes));
        // As the how-to says: what the old injector changed may be denied until it is replaced.
        expect([...outcomes.keys()]).not.toContain('unprotected');
        expect(await admit(node, namespace)).toBe(SIDEGATE_IMAGE.tag);

        // A running sidecar keeps these settings.
        await createGateConfig(node, namespace, { shutdown: { grace: '4s' } });
        expect(await examine()).toEqual(expect.arrayContaining(['image-stale', 'config-not-taken']));
        const pods = await restartDeployment(node, namespace, 'billing');
        expect(pods.map((pod) => findSidecar(pod).image)).toEqual([`${SIDEGATE_IMAGE.repository}:${SIDEGATE_IMAGE.tag}`]);
      });
      console.log(`upgrade: ${formatTally(tally)}`);
      expect(tally.lost).toEqual([]);
      expect(await examine()).toEqual(['protected', 'no-network-policy']);
      expect(await sendFour(app.url)).toEqual(FOUR_EXPECTED);
    });

    // These two at once, as both mostly wait.
    test.concurrent('helm test passes', async () => {
      const { code, stdout, stderr } = await node.helm('test', RELEASE, '--namespace', CHART_NAMESPACE, '--timeout', '90s');
      expect(code, stderr).toBe(0);
      expect(stdout).toMatch(/^Phase: +Succeeded$/m);
    });

    test.concurrent('every pod gets the sidecar while the injector is restarted', async () => {
      const outcomes = await admitDuring(node, namespace, () => restartDeployment(node, CHART_NAMESPACE, INJECTOR, OF_INJECTOR));
      console.log('pods created during the restart of the injector:', Object.fromEntries(outcomes));
      expect([...outcomes.keys()]).toEqual([SIDEGATE_IMAGE.tag]);
    });
  },
);
