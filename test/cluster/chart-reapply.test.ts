import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { stringify } from 'yaml';
import { toBinFolder } from '../prepare/cluster-tools.ts';
import { renderChart } from '../support/chart.ts';
import { type Cluster, useCluster } from '../support/cluster/cluster.ts';
import { useFolder } from '../support/fixtures.ts';
import { type Ended, run } from '../support/run.ts';

const KUBECTL = join(toBinFolder(), 'kubectl-v1.37.1');
const folder = useFolder();
const manifests = join(folder, 'chart.yaml');
let cluster: Cluster;

const kubectl = (...args: readonly string[]): Promise<Ended> =>
  run(KUBECTL, [...args, '--kubeconfig', join(folder, 'kubeconfig'), '-f', manifests], { HOME: folder });

beforeAll(async () => {
  cluster = await useCluster();
  const namespace = await cluster.createNamespace();
  writeFileSync(join(folder, 'kubeconfig'), cluster.kubeconfig(cluster.connection.token, namespace));
  const objects = await renderChart({ deliver: { enabled: true, existingConfigMap: 'deliver' } }, { namespace });
  const lasting = objects.filter(({ metadata }) => metadata.annotations?.['helm.sh/hook'] === undefined);
  writeFileSync(manifests, lasting.map((object) => stringify(object)).join('---\n'));
});
afterAll(async () => {
  await kubectl('delete', '--wait=false');
  await cluster?.cleanUp();
});

test('a render that kubectl applies again changes nothing', async () => {
  const first = await kubectl('apply');
  expect(first.code, first.stderr).toBe(0);
  const { stdout } = await kubectl('apply');
  // kubectl always sends the selector of a PodDisruptionBudget (patchStrategy: replace), which changes nothing.
  const changed = stdout.split('\n').filter((line) => line !== '' && !line.startsWith('poddisruptionbudget.policy/'));
  expect(changed.filter((line) => !line.endsWith(' unchanged'))).toEqual([]);
});
