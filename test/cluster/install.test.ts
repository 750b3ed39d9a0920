import { afterAll, beforeAll, expect, test } from 'vitest';
import { stringify } from 'yaml';
import { type Cluster, useCluster } from '../support/cluster/cluster.ts';
import { askForGate, createGateConfig, makeGatedPod } from '../support/cluster/gate-pods.ts';
import { type Installation, installChart } from '../support/cluster/installation.ts';
import type { Kube } from '../support/cluster/kube-request.ts';
import { makePod } from '../support/cluster/pods.ts';
import { until } from '../support/gate.ts';

let cluster: Cluster;
let installation: Installation;
let namespace: string;

beforeAll(async () => {
  cluster = await useCluster();
  installation = await installChart(cluster);
  namespace = await cluster.createNamespace({ 'pod-security.kubernetes.io/enforce': 'restricted' });
  await createGateConfig(cluster, namespace);
});
afterAll(async () => {
  await installation?.stop();
  await cluster?.cleanUp();
});

const findSidecar = (pod: Kube): Kube => pod.spec.initContainers?.find(({ name }: Kube) => name === 'sidegate');
const listPods = async (label: string): Promise<Kube[]> =>
  (await cluster.ok('GET', `/api/v1/namespaces/${namespace}/pods?labelSelector=${label}`)).items;

test('is installed with server-side apply without unknown fields, and becomes ready', async () => {
  expect(installation.objects.length).toBeGreaterThan(10);
  const [one, two] = await installation.injectors();
  expect(one?.steps).toContain('injector ready');
  expect(two?.steps).toContain('injector ready');
  const webhook = await cluster.ok(
    'GET',
    '/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/sidegate-injector',
  );
  expect(Buffer.from(webhook.webhooks[0].clientConfig.caBundle, 'base64').toString()).toContain('BEGIN CERTIFICATE');
});

test('injects the sidecar first into a pod of a namespace that enforces PodSecurity restricted, with a warning', async () => {
  const { status, body, warnings } = await cluster.create(makeGatedPod('plain', 'service'), { namespace });
  expect(status).toBe(201);
  expect(body.spec.initContainers[0]).toMatchObject({ name: 'sidegate', restartPolicy: 'Always' });
  expect(body.metadata.labels['sidegate.dev/injected']).toBe('true');
  expect(JSON.parse(body.metadata.annotations['sidegate.dev/status'])).toMatchObject({ takeover: 'service', sidecar: 'native' });
  expect(warnings.join('\n')).toContain('sidegate: native sidecar on port 8480 in front of app on port 8080');
});

test('leaves a pod without the label unchanged', async () => {
  const { body } = await cluster.create(makePod('unlabelled'), { namespace });
  expect(findSidecar(body)).toBeUndefined();
  expect(body.spec.volumes).toBeUndefined();
});

test('denies a pod with a misspelt annotation, with a clear message', async () => {
  const pod = makeGatedPod('misspelt', 'service', { annotations: { 'sidegate.dev/interseption': 'rename' } });
  const { status, body } = await cluster.create(pod, { namespace });
  expect(status).toBe(400);
  expect(body.message).toMatch(/sidegate\.dev\/interseption.*interception/);
});

test('injects the sidecar into the pods of Deployments, StatefulSets and Jobs', async () => {
  const template = (name: string, more: Kube = {}): Kube => ({
    metadata: askForGate('service', { labels: { app: name } }),
    spec: { ...makeGatedPod(name, 'service').spec, ...more },
  });
  const apps = (kind: string, name: string, spec: Kube): Kube => ({
    apiVersion: kind === 'Job' ? 'batch/v1' : 'apps/v1',
    kind,
    metadata: { name },
    spec: { ...(kind !== 'Job' && { selector: { matchLabels: { app: name } } }), ...spec },
  });
  await cluster.create(apps('Deployment', 'deployed', { replicas: 2, template: template('deployed') }), { namespace });
  await cluster.create(apps('StatefulSet', 'stateful', { serviceName: 'none', template: template('stateful') }), { namespace });
  await cluster.create(apps('Job', 'batched', { template: template('batched', { restartPolicy: 'Never' }) }), { namespace });
  for (const [name, count] of [
    ['deployed', 2],
    ['stateful', 1],
    ['batched', 1],
  ] as const) {
    const pods = await until(async () => {
      const found = await listPods(`app=${name}`);
      return found.length === count && found;
    });
    for (const pod of pods) expect(findSidecar(pod)?.restartPolicy, name).toBe('Always');
  }
});

test('reports it on the owner with an Event', async () => {
  const events = await until(async () => {
    const { items } = await cluster.ok('GET', `/apis/events.k8s.io/v1/namespaces/${namespace}/events`);
    const found = (items as Kube[]).filter(({ reportingController }) => String(reportingController).includes('sidegate'));
    return found.some(({ regarding }) => regarding.kind === 'ReplicaSet') && found;
  });
  expect(events.map(({ note }) => note).join('\n')).toContain('native sidecar');
});

test('denies any pod without the sidecar in an enforced namespace, labelled or not', async () => {
  const enforced = await cluster.createNamespace({ 'sidegate.dev/enforce': 'true' });
  await createGateConfig(cluster, enforced);
  const { status, body } = await cluster.create(makePod('forgotten'), { namespace: enforced });
  expect(status).toBe(403);
  expect(body.message).toContain('sidegate.dev/inject');
  expect((await cluster.create(makeGatedPod('labelled', 'service'), { namespace: enforced })).status).toBe(201);
});

test('is not fooled by the marks of an injected pod without its sidecar', async () => {
  const pod = makePod('fake', { metadata: { labels: { 'sidegate.dev/injected': 'true' } } });
  const enforced = await cluster.createNamespace({ 'sidegate.dev/enforce': 'true' });
  const { status, body } = await cluster.create(pod, { namespace: enforced });
  expect(status).toBe(403);
  expect(body.message).toMatch(/sidegate-(?:enforced|protected)/);
});

// The last one: from here on there is no injector.
test('denies labelled pods by policy while the injector is down, allows all others, and the API server counts it', async () => {
  await installation.killInjector();
  const counter = 'apiserver_admission_webhook_fail_open_count{name="inject.sidegate.dev"';
  const before = await cluster.metric(counter);
  const { status, body } = await cluster.create(makeGatedPod('unlucky', 'service'), { namespace });
  expect(status).toBe(403);
  expect(body.message).toContain('sidegate-protected');
  expect((await cluster.create(makePod('other'), { namespace })).status).toBe(201);
  expect(await cluster.metric(counter)).toBe(before + 1);
  const deployment = stringify({
    apiVersion: 'apps/v1',
    kind: 'Deployment',
    metadata: { name: 'held', namespace },
    spec: {
      selector: { matchLabels: { app: 'held' } },
      template: { metadata: askForGate('service', { labels: { app: 'held' } }), spec: makeGatedPod('held', 'service').spec },
    },
  });
  await cluster.applyAll(deployment);
  const conditions = await until(async () => {
    const { items } = await cluster.ok('GET', `/apis/apps/v1/namespaces/${namespace}/replicasets?labelSelector=app=held`);
    return (items as Kube[])[0]?.status.conditions;
  });
  expect(conditions[0]).toMatchObject({ type: 'ReplicaFailure', status: 'True' });
  expect(await listPods('app=held')).toEqual([]);
});
