import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { CHART, HELM, HELM_3, runHelm } from '../support/chart.ts';
import { type Cluster, useCluster } from '../support/cluster/cluster.ts';
import { makeGatedPod } from '../support/cluster/gate-pods.ts';
import { useFolder } from '../support/fixtures.ts';
import { until } from '../support/gate.ts';
import type { Ended } from '../support/run.ts';

const folder = useFolder();
const GROUP = '/apis/admissionregistration.k8s.io/v1';
const KEPT = ['validatingadmissionpolicybindings', 'validatingadmissionpolicies'].flatMap((plural) =>
  ['sidegate-enforced', 'sidegate-protected'].map((name) => `${GROUP}/${plural}/${name}`),
);
let cluster: Cluster;
let namespace: string;

beforeAll(async () => {
  cluster = await useCluster();
  namespace = await cluster.createNamespace();
  writeFileSync(join(folder, 'kubeconfig'), cluster.kubeconfig());
});
afterAll(async () => {
  await helm('uninstall', 'sidegate');
  for (const path of KEPT) await cluster.request('DELETE', path);
  await cluster?.cleanUp();
});

/** There is no node, so hooks would never end. */
function helm(action: string, release: string, ...options: readonly string[]): Promise<Ended> {
  return helmWith(HELM, action, release, ...options);
}

function helmWith(program: string, action: string, release: string, ...options: readonly string[]): Promise<Ended> {
  const chart = action === 'uninstall' ? [] : [CHART];
  const args = [action, release, ...chart, '--namespace', namespace, '--no-hooks', ...options];
  return runHelm(program, args, { KUBECONFIG: join(folder, 'kubeconfig') });
}

const isThere = async (path: string): Promise<boolean> => (await cluster.request('GET', path)).status === 200;

/** The message with which a labeled pod without the sidecar is denied. */
async function denial(): Promise<string> {
  const { status, body } = await cluster.create(makeGatedPod('restarted', 'same-port'), { namespace, isDryRun: true });
  return status === 403 ? String(body.message) : '';
}

test.each([
  ['Helm 4', HELM],
  ['Helm 3', HELM_3],
])(
  'denies a restarted pod without its sidecar after helm uninstall, and adopts the policies again: %s',
  async (_name, program) => {
    const installed = await helmWith(program, 'install', 'sidegate');
    expect(installed.code, installed.stderr).toBe(0);
    await until(async () => (await denial()) !== '');
    const { code, stdout, stderr } = await helmWith(program, 'uninstall', 'sidegate');
    expect(code, stderr).toBe(0);
    expect(stdout + stderr).toContain('sidegate-protected');
    expect(await isThere(`${GROUP}/mutatingwebhookconfigurations/sidegate-injector`)).toBe(false);
    for (const path of KEPT) expect(await isThere(path), path).toBe(true);
    expect(await denial()).toContain('but no container `sidegate`');
    const again = await helmWith(program, 'install', 'sidegate');
    expect(again.code, again.stderr).toBe(0);
    const removed = await helmWith(program, 'uninstall', 'sidegate');
    expect(removed.code, removed.stderr).toBe(0);
  },
);

test('refuses a second release, also while only the policies of the first are left', async () => {
  const tag = ['--set', 'image.tag=other'];
  const left = await helm('install', 'second', ...tag);
  expect([left.code, left.stderr]).toEqual([1, expect.stringContaining('-l app.kubernetes.io/part-of=sidegate')]);
  expect((await helm('install', 'sidegate')).code).toBe(0);
  const second = await helm('install', 'second', ...tag);
  expect(second.code).toBe(1);
  expect(second.stderr).toContain(`of the release sidegate (namespace ${namespace}). A cluster can have one release`);
  expect((await helm('upgrade', 'sidegate', ...tag)).code).toBe(0);
});

test('refuses to disable a policy that Helm keeps, until it is deleted', async () => {
  const off = ['--set', 'admission.enforce=false'];
  const refused = await helm('upgrade', 'sidegate', ...off);
  expect(refused.code).toBe(1);
  expect(refused.stderr).toContain('kubectl delete validatingadmissionpolicybinding,validatingadmissionpolicy sidegate-enforced');
  for (const path of KEPT.filter((each) => each.endsWith('enforced'))) await cluster.ok('DELETE', path);
  const upgraded = await helm('upgrade', 'sidegate', ...off);
  expect(upgraded.code, upgraded.stderr).toBe(0);
});
