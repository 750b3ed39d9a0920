import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { HELM, HELM_3 } from '../../support/chart.ts';
import type { Kube } from '../../support/cluster/kube-request.ts';
import { NODE_HINDRANCE } from '../../support/node/availability.ts';
import { CHART_NAMESPACE, type NodeCluster, RELEASE, useNode } from '../../support/node/use-node.ts';
import type { Ended } from '../../support/run.ts';

const POD = `/api/v1/namespaces/${CHART_NAMESPACE}/pods/sidegate-self-test`;
/** What `helm uninstall` keeps, so that labeled pods stay denied without their sidecar. */
const KEPT = ['validatingadmissionpolicies', 'validatingadmissionpolicybindings'].flatMap((plural) =>
  ['enforced', 'protected'].map((name) => `/apis/admissionregistration.k8s.io/v1/${plural}: ${RELEASE}-${name}`),
);

describe.skipIf(NODE_HINDRANCE !== undefined)('on a real node, helm test', () => {
  let node: NodeCluster;

  beforeAll(async () => {
    node = await useNode();
  });
  afterAll(async () => {
    await node?.uninstallChart();
    await node?.cleanUp();
  });

  /** The test follows at once: the installation itself waits until pods get their sidecar. */
  async function install(program = HELM): Promise<void> {
    await node.installChart({}, { program });
  }

  const testChart = (program: string, ...options: readonly string[]): Promise<Ended> =>
    node.helmWith(program, 'test', RELEASE, '--namespace', CHART_NAMESPACE, '--timeout', '60s', ...options);
  const hasPod = async (): Promise<boolean> => (await node.request('GET', POD)).status === 200;

  /** What is left of the chart, except Events and what every namespace has. */
  async function findRest(): Promise<string[]> {
    const found: string[] = [];
    for (const path of await listResources(node)) {
      const { items } = await node.ok('GET', path);
      for (const { metadata } of items as Kube[])
        if (metadata.name.startsWith(RELEASE) && metadata.name !== CHART_NAMESPACE) found.push(`${path}: ${metadata.name}`);
    }
    return found;
  }

  test('succeeds, shows the logs of both containers, and leaves nothing but the policies after helm uninstall', async () => {
    await install();
    const { code, stdout, stderr } = await testChart(HELM, '--logs');
    expect(code, stderr).toBe(0);
    expect(stdout).toContain('all 4 as expected');
    expect(stdout).toContain('POD LOGS: sidegate-self-test (sidegate)');
    expect(await hasPod()).toBe(false);
    await node.uninstallChart();
    await node.waitFor(CHART_NAMESPACE, async () => (await findRest()).length === KEPT.length);
    expect((await findRest()).sort()).toEqual(KEPT);
  });

  test('fails if the gate does not work, shows why without being asked, and leaves no pod', async () => {
    await install();
    const config = `/api/v1/namespaces/${CHART_NAMESPACE}/configmaps/sidegate-self-test`;
    const { data } = await node.ok('GET', config);
    const broken = data['gate.yaml'].replace('path: /self-test', 'path: /another');
    await node.ok('PATCH', config, { data: { 'gate.yaml': broken } }, { contentType: 'application/merge-patch+json' });
    const { code, stdout, stderr } = await testChart(HELM);
    expect(code).not.toBe(0);
    expect(stdout + stderr).toContain('4 of 4 not as expected');
    expect(await hasPod()).toBe(false);
  });

  test('succeeds with Helm 3, and shows the logs', async () => {
    await install(HELM_3);
    const { code, stdout, stderr } = await testChart(HELM_3, '--logs');
    expect(code, stderr).toBe(0);
    expect(stdout.split('POD LOGS: sidegate-self-test')).toHaveLength(2);
    expect(stdout).toContain('all 4 as expected');
    // Helm 3 would delete it before it reads the log.
    expect(await hasPod()).toBe(true);
    await node.ok('DELETE', POD);
  });
});

/** The paths of all resources that can be listed, but Events. */
async function listResources(node: NodeCluster): Promise<string[]> {
  const { groups } = await node.ok('GET', '/apis');
  const versions = ['/api/v1', ...groups.map(({ preferredVersion }: Kube) => `/apis/${preferredVersion.groupVersion}`)];
  const lists = await Promise.all(versions.map(async (path) => [path, (await node.ok('GET', path)).resources] as const));
  return lists.flatMap(([path, resources]) =>
    (resources as Kube[])
      .filter(({ name, verbs }) => verbs.includes('list') && name !== 'events')
      .map(({ name }) => `${path}/${name}`),
  );
}
