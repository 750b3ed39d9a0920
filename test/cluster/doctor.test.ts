import { afterAll, beforeAll, expect, test } from 'vitest';
import { type Cluster, useCluster } from '../support/cluster/cluster.ts';
import { type DoctorRun, runDoctor, toTable } from '../support/cluster/doctor.ts';
import { askForGate, createGateConfig } from '../support/cluster/gate-pods.ts';
import { type Installation, installChart } from '../support/cluster/installation.ts';
import type { Kube } from '../support/cluster/kube-request.ts';
import { makePod } from '../support/cluster/pods.ts';
import { until } from '../support/gate.ts';
import { makeSidecar, makeSidecarVolumes } from '../support/sidecar.ts';

let cluster: Cluster;
let installation: Installation;
let namespace: string;

/** A controller's object, whose pods have the label app=name. */
function make(kind: string, name: string, metadata: Kube, spec: Kube = {}): Kube {
  const labels = { app: name, ...metadata.labels };
  const { spec: pod } = makePod(name);
  const template = { metadata: { ...metadata, labels }, spec: kind === 'Job' ? { ...pod, restartPolicy: 'Never' } : pod };
  const selector = kind === 'Job' ? {} : { selector: { matchLabels: { app: name } } };
  return {
    apiVersion: kind === 'Job' ? 'batch/v1' : 'apps/v1',
    kind,
    metadata: { name },
    spec: { ...selector, template, ...spec },
  };
}

const service = (name: string, targetPort: number | string, spec: Kube = {}): Kube => ({
  apiVersion: 'v1',
  kind: 'Service',
  metadata: { name },
  spec: { selector: { app: name }, ports: [{ port: 80, targetPort }], ...spec },
});

const asking = (interception = 'service', annotations: Kube = {}): Kube => askForGate(interception, { annotations });

async function create(...objects: Kube[]): Promise<void> {
  for (const object of objects) {
    const { status, body } = await cluster.create(object, { namespace });
    expect(status, body.message).toBe(201);
  }
}

const podsOf = async (app: string): Promise<Kube[]> =>
  (await cluster.ok('GET', `/api/v1/namespaces/${namespace}/pods?labelSelector=app%3D${app}`)).items;

const doctor = (kubeconfig: string, ...args: readonly string[]): Promise<DoctorRun> => runDoctor(kubeconfig, namespace, ...args);

beforeAll(async () => {
  cluster = await useCluster('1.36');
  namespace = await cluster.createNamespace();
  await createGateConfig(cluster, namespace);
  const { spec } = makePod('early');
  // From before the chart was installed.
  await create({ apiVersion: 'v1', kind: 'Pod', metadata: { name: 'early', ...asking() }, spec });
  const marks = {
    labels: { 'sidegate.dev/injected': 'true' },
    annotations: { 'sidegate.dev/status': '{"version":"0.1.0","takeover":"service","sidecar":"native","hash":"abc"}' },
  };
  const forged = makeSidecar({ env: [{ name: 'NODE_OPTIONS', value: '--import=data:text/javascript,0' }] });
  await create({
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name: 'forged', ...askForGate('service', marks) },
    spec: { ...spec, volumes: makeSidecarVolumes(), initContainers: [forged] },
  });
  installation = await installChart(cluster, { injector: { replicas: 1 } });
}, 180_000);
afterAll(async () => {
  await installation?.stop();
  await cluster?.cleanUp();
});

test('reports every kind of fault in workloads that the injector and the controllers changed', async () => {
  const policy = {
    apiVersion: 'networking.k8s.io/v1',
    kind: 'NetworkPolicy',
    metadata: { name: 'gates' },
    spec: { podSelector: {}, ingress: [{ ports: [{ port: 8480 }, { port: 8481 }] }] },
  };
  const cron = make('Job', 'nightly', asking('service', { 'sidegate.dev/config': 'absent', 'sidegate.dev/secrets': 'gone' }));
  await create(
    policy,
    make('Deployment', 'good', asking()),
    service('good', 'sidegate'),
    make('Deployment', 'by-number', asking()),
    service('by-number', 8080, { type: 'NodePort' }),
    make('StatefulSet', 'renamed', asking('rename'), { serviceName: 'renamed' }),
    service('renamed', 'http'),
    service('direct', 'http-app', { selector: { app: 'renamed' }, clusterIP: 'None' }),
    make('Deployment', 'lost', asking()),
    make('Job', 'once', asking()),
    make('Deployment', 'plain', {}),
    { ...make('Deployment', 'misplaced', {}), metadata: { name: 'misplaced', labels: { 'sidegate.dev/inject': 'true' } } },
    {
      apiVersion: 'batch/v1',
      kind: 'CronJob',
      metadata: { name: 'nightly' },
      spec: { schedule: '0 3 * * *', suspend: true, jobTemplate: { spec: cron.spec } },
    },
  );
  for (const app of ['good', 'by-number', 'renamed', 'lost', 'once', 'plain', 'misplaced'])
    await until(async () => (await podsOf(app)).length === 1);
  const unlabelled = { spec: { paused: true, template: { metadata: { labels: { 'sidegate.dev/inject': null } } } } };
  await cluster.ok('PATCH', `/apis/apps/v1/namespaces/${namespace}/deployments/lost`, unlabelled, {
    contentType: 'application/merge-patch+json',
  });

  const { code, report } = await doctor(cluster.kubeconfig());
  expect(code).toBe(1);
  expect(report.cluster).toEqual([]);
  expect(toTable(report)).toEqual({
    'Pod/early': ['unprotected', 'no-sidecar'],
    'Pod/forged': expect.arrayContaining(['unprotected', 'sidecar-differs']),
    'Deployment/by-number': ['bypassed', 'service-to-app'],
    'StatefulSet/renamed': ['bypassed', 'service-to-app'],
    'Deployment/lost': ['injected', 'label-lost'],
    'CronJob/nightly': ['idle', 'config-missing', 'secret-missing'],
    'Deployment/misplaced': ['not-requested', 'label-misplaced'],
    'Deployment/good': ['injected'],
    'Job/once': ['injected'],
    'Deployment/plain': ['not-requested'],
  });
  expect(report.workloads[0].state).toBe('unprotected');
  expect((await doctor(cluster.kubeconfig(), '-n', installation.namespace)).code).toBe(0);
});

test('reports bypasses of correct sidecars', async () => {
  const decoy = { 'sidegate.dev/app-container': 'decoy', 'sidegate.dev/app-port': '9999' };
  const made = make('Deployment', 'decoyed', asking('service', decoy));
  const [app] = made['spec'].template.spec.containers;
  made['spec'].template.spec.containers.push({ ...app, name: 'decoy', ports: [{ containerPort: 9999 }] });
  const { spec } = makePod('canary');
  await create(made, service('decoyed', 8080), make('Deployment', 'shared', asking()), service('shared', 8480), {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name: 'canary', labels: { app: 'shared' } },
    spec,
  });
  await until(async () => (await podsOf('decoyed')).length === 1 && (await podsOf('shared')).length === 2);
  const { report } = await doctor(cluster.kubeconfig());
  expect(toTable(report)).toMatchObject({
    'Deployment/decoyed': ['bypassed', 'port-beside'],
    'Deployment/shared': ['bypassed', 'service-shared'],
    'Pod/canary': ['not-requested'],
  });
});

test('reports sidecars that became stale, and a config that broke', async () => {
  const name = 'sidegate-injector';
  const path = `/api/v1/namespaces/${installation.namespace}/configmaps/${name}`;
  const text: string = (await cluster.ok('GET', path)).data['injector.yaml'];
  const merge = { contentType: 'application/merge-patch+json' };
  const gate = `/api/v1/namespaces/${namespace}/configmaps/gate`;
  const sound: string = (await cluster.ok('GET', gate)).data['gate.yaml'];
  await cluster.ok('PATCH', path, { data: { 'injector.yaml': text.replace('preStop: 5s', 'preStop: 6s') } }, merge);
  await cluster.ok('PATCH', gate, { data: { 'gate.yaml': 'routes: 5' } }, merge);
  expect(toTable((await doctor(cluster.kubeconfig())).report)['Deployment/good']).toEqual([
    'unknown',
    'config-broken',
    'settings-stale',
  ]);
  await cluster.ok('PATCH', path, { data: { 'injector.yaml': text } }, merge);
  await cluster.ok('PATCH', gate, { data: { 'gate.yaml': sound } }, merge);
  await cluster.ok('PATCH', `/apis/apps/v1/namespaces/${namespace}/deployments/good`, { spec: { replicas: 2 } }, merge);
  expect(toTable((await doctor(cluster.kubeconfig())).report)['Deployment/good']).toEqual(['injected', 'memory-not-shared']);
});

test('reports what a user with few permissions cannot read, and checks the rest', async () => {
  await create({ apiVersion: 'v1', kind: 'ServiceAccount', metadata: { name: 'looker' } });
  const rbac = { apiVersion: 'rbac.authorization.k8s.io/v1', metadata: { name: 'looker' } };
  const rules = [
    { apiGroups: [''], resources: ['pods', 'services'], verbs: ['list'] },
    { apiGroups: ['apps'], resources: ['deployments'], verbs: ['list'] },
  ];
  const subjects = [{ kind: 'ServiceAccount', name: 'looker', namespace }];
  const roleRef = { apiGroup: 'rbac.authorization.k8s.io', kind: 'Role', name: 'looker' };
  await create({ ...rbac, kind: 'Role', rules }, { ...rbac, kind: 'RoleBinding', subjects, roleRef });
  const token = await cluster.serviceAccountToken(namespace, 'looker');
  const { code, report } = await doctor(cluster.kubeconfig(token));
  expect(code).toBe(1);
  const table = toTable(report);
  expect(table['Pod/early']).toEqual(['unprotected', 'no-sidecar', 'not-known', 'not-known']);
  expect(table['Deployment/by-number'].slice(0, 2)).toEqual(['bypassed', 'service-to-app']);
  expect(new Set(report.cluster.map(({ code: each }: Kube) => each))).toEqual(new Set(['bypasses-not-known', 'not-known']));
  const told = report.cluster.map(({ message }: Kube) => message).join('\n');
  for (const list of [
    'replicasets',
    'networkpolicies',
    'endpointslices',
    'mutatingwebhookconfigurations',
    'validatingadmissionpolicies',
  ])
    expect(told).toContain(`you may not list ${list}`);
  expect(told).toContain(`you may not get the namespace ${namespace}`);

  const nobody = await doctor(cluster.kubeconfig(cluster.connection.users.nobody));
  expect(nobody.code).toBe(1);
  expect(nobody.report.cluster[0]).toMatchObject({ code: 'pods-not-known', severity: 'error' });
  const stranger = await doctor(cluster.kubeconfig('no-such-token'));
  expect(stranger).toMatchObject({ code: 2, stderr: expect.stringContaining('Unauthorized') });
});

test('reports why pods are missing while no injector responds', async () => {
  await installation.killInjector();
  await create(make('Deployment', 'denied', asking()));
  const path = `/apis/apps/v1/namespaces/${namespace}/deployments/denied`;
  await until(async () => (await cluster.ok('GET', path)).status.conditions?.some(({ type }: Kube) => type === 'ReplicaFailure'));
  const { code, report } = await doctor(cluster.kubeconfig());
  expect(code).toBe(1);
  expect(toTable(report)['Deployment/denied']).toEqual(['idle', 'pods-missing']);
  const denied = report.workloads.find(({ name }: Kube) => name === 'denied');
  expect(denied.findings[0].message).toMatch(/^deployment\/denied should have 1 pod but has none: .*no container `sidegate`/);
  expect(report.cluster.map(({ code: each }: Kube) => each)).toEqual(['injector-down']);
});
