import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { type Cluster, useCluster } from '../support/cluster/cluster.ts';
import { makeGatedPod } from '../support/cluster/gate-pods.ts';
import { type Installation, installChart } from '../support/cluster/installation.ts';
import type { Kube } from '../support/cluster/kube-request.ts';
import { useFolder } from '../support/fixtures.ts';
import { until } from '../support/gate.ts';
import { LAUNCHER } from '../support/process.ts';
import { run } from '../support/run.ts';

/** By name, so that one pod's name tells which case it is. */
const CASES: Readonly<Record<string, Kube>> = {
  service: makeGatedPod('service', 'service'),
  'same-port': makeGatedPod('same-port', 'same-port:HOST'),
  rename: makeGatedPod('rename', 'rename'),
  env: makeGatedPod('env', 'env:PORT'),
  container: makeGatedPod('container', 'service', { annotations: { 'sidegate.dev/sidecar': 'container' } }),
  sized: makeGatedPod('sized', 'service', {
    annotations: {
      'sidegate.dev/cpu-limit': '1',
      'sidegate.dev/memory-limit': '256Mi',
      'sidegate.dev/pre-stop': '12s',
      'sidegate.dev/port': '9000',
    },
    spec: { terminationGracePeriodSeconds: 50 },
  }),
};
/** What the API server can do by itself; it denies the others with a sentence. */
const BY_POLICY = ['service', 'same-port', 'sized'];

let cluster: Cluster;
const folder = useFolder();
const byWebhook = new Map<string, Kube>();
const byCommand = new Map<string, Kube>();
const byPolicy = new Map<string, Kube>();

/** The pod as the API server stores it, but for what differs from pod to pod whoever makes it. */
async function store(pod: Kube, namespace: string): Promise<Kube> {
  const { status, body } = await cluster.create(pod, { namespace });
  expect(status, body.message).toBe(201);
  const { labels, annotations } = body.metadata;
  return { labels, annotations, spec: body.spec };
}

async function injectByCommand(pod: Kube, config: string): Promise<Kube> {
  const file = join(folder, `${pod.metadata.name}.json`);
  writeFileSync(file, JSON.stringify(pod));
  const args = [LAUNCHER, 'inject', '-f', file, '--config', config, '--kube-version', '1.36', '--format', 'json'];
  const { code, stdout, stderr } = await run(process.execPath, args);
  expect(code, stderr).toBe(0);
  return JSON.parse(stdout);
}

async function useInstallation(
  values: Parameters<typeof installChart>[1],
  action: (installed: Installation) => Promise<void>,
): Promise<void> {
  const installed = await installChart(cluster, values);
  try {
    await action(installed);
  } finally {
    await installed.stop();
    await cluster.cleanUp();
  }
}

beforeAll(async () => {
  cluster = await useCluster('1.36');
  await useInstallation({ injector: { replicas: 1 } }, async ({ objects }) => {
    const config = join(folder, 'injector.yaml');
    writeFileSync(
      config,
      objects.find(({ kind, data }) => kind === 'ConfigMap' && data['injector.yaml'] !== undefined).data['injector.yaml'],
    );
    const [webhook, command] = [await cluster.createNamespace(), await cluster.createNamespace()];
    for (const [name, pod] of Object.entries(CASES)) {
      byWebhook.set(name, await store(pod, webhook));
      byCommand.set(name, await store(await injectByCommand(pod, config), command));
    }
  });
  await useInstallation({ admission: { mode: 'policy' } }, async () => {
    const namespace = await cluster.createNamespace();
    const probe = makeGatedPod('probe', 'service');
    await until(async () => (await cluster.create(probe, { namespace, isDryRun: true })).body.spec?.initContainers !== undefined);
    for (const name of BY_POLICY) byPolicy.set(name, await store(CASES[name], namespace));
  });
});
afterAll(() => cluster?.cleanUp());

test.each(Object.keys(CASES))('inject -f and the webhook produce the same pod: %s', (name) => {
  expect(byWebhook.get(name)?.spec.initContainers ?? byWebhook.get(name)?.spec.containers).toContainEqual(
    expect.objectContaining({ name: 'sidegate' }),
  );
  expect(byCommand.get(name)).toEqual(byWebhook.get(name));
});

test.each(BY_POLICY)('the policy of the API server and the webhook produce the same pod: %s', (name) => {
  expect(byPolicy.get(name)).toEqual(byWebhook.get(name));
});
