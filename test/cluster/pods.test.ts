import { afterAll, beforeAll, expect, test } from 'vitest';
import { type Cluster, useCluster } from '../support/cluster/cluster.ts';
import type { Kube } from '../support/cluster/kube-request.ts';
import { startNode, type TestNode } from '../support/cluster/node.ts';
import { makeJob, makePod } from '../support/cluster/pods.ts';
import { startServiceProxy } from '../support/cluster/service-proxy.ts';
import { until } from '../support/gate.ts';

let cluster: Cluster;
let namespace: string;
let node: TestNode;

beforeAll(async () => {
  cluster = await useCluster();
  namespace = await cluster.createNamespace();
  node = startNode(cluster, [namespace]);
});
afterAll(async () => {
  await node?.stop();
  await cluster?.cleanUp();
});

const SIDECAR: Kube = {
  name: 'sidecar',
  image: 'app:1',
  restartPolicy: 'Always',
  env: [{ name: 'PORT', value: '9000' }],
  ports: [{ name: 'side', containerPort: 9000 }],
  startupProbe: { httpGet: { path: '/ready', port: 'side' }, periodSeconds: 1, failureThreshold: 100 },
};

test('runs init containers in order, waits for a sidecar to start, and ends it after the app', async () => {
  const first = { name: 'first', image: 'any', command: ['sh', '-c', 'sleep 0.1'] };
  const readinessProbe = { httpGet: { path: '/ready', port: 'http' }, periodSeconds: 1 };
  const lifecycle = { preStop: { sleep: { seconds: 1 } } };
  const spec = { initContainers: [first, SIDECAR], terminationGracePeriodSeconds: 100 };
  await cluster.create(makePod('orderly', { spec, container: { readinessProbe, lifecycle } }), { namespace });
  const pod = await node.untilReady(namespace, 'orderly');
  expect(await (await fetch(`${pod.url(8080)}/anything`)).text()).toBe('handled');
  await cluster.request('DELETE', pod.path);
  await until(async () => (await cluster.request('GET', pod.path)).status === 404);
  expect(pod.steps).toEqual([
    'first started',
    'first ended 0',
    'sidecar started',
    'app started',
    'app ready',
    'app preStop',
    'app SIGTERM',
    'app ended 0',
    'sidecar SIGTERM',
    'sidecar ended 0',
  ]);
});

test('gives each pod a separate loopback and port space', async () => {
  const neighbour = { name: 'neighbour', image: 'app:1', env: [{ name: 'PORT', value: '9001' }] };
  const asksNeighbour =
    "fetch('http://127.0.0.1:9001/hello').then((r) => r.text()).then((t) => { console.log(t); setInterval(() => 0, 1e4) })";
  const asking = { name: 'asking', image: 'any', command: ['node', '-e', asksNeighbour] };
  const alone = { env: [{ name: 'HOST', value: '127.0.0.1' }] };
  for (const name of ['one', 'two'])
    await cluster.create(
      makePod(name, {
        container: alone,
        spec: {
          initContainers: [
            {
              ...neighbour,
              restartPolicy: 'Always',
              startupProbe: { tcpSocket: { port: 9001 }, periodSeconds: 1, failureThreshold: 100 },
            },
          ],
          containers: [{ ...makePod(name).spec.containers[0], ...alone }, asking],
        },
      }),
      { namespace },
    );
  for (const name of ['one', 'two']) {
    const pod = await node.untilReady(namespace, name);
    await until(() => pod.log('asking').includes('handled'));
    await expect(fetch(pod.url(8080))).rejects.toThrow('fetch failed');
    expect((await fetch(pod.url(9001))).status).toBe(200);
  }
});

test('swaps the files of a Secret at once, at the paths of its mounts', async () => {
  const secret = (value: string): Kube => ({
    apiVersion: 'v1',
    kind: 'Secret',
    metadata: { name: 'key' },
    stringData: { value },
  });
  await cluster.apply(secret('before'), { namespace });
  const reads =
    "const fs = require('fs'); setInterval(() => console.log(fs.readFileSync('/keys/value', 'utf8'), process.env.IP), 50)";
  const spec = { volumes: [{ name: 'keys', secret: { secretName: 'key' } }] };
  const env = [{ name: 'IP', valueFrom: { fieldRef: { fieldPath: 'status.podIPs' } } }];
  const container = { command: ['node', '-e', reads], volumeMounts: [{ name: 'keys', mountPath: '/keys' }], env };
  await cluster.create(makePod('reading', { spec, container }), { namespace });
  const pod = await node.untilReady(namespace, 'reading');
  await until(() => pod.log('app').includes(`before ${pod.addresses.podIp}`));
  await cluster.apply(secret('after'), { namespace });
  await pod.refreshVolumes();
  await until(() => pod.log('app').includes('after'));
});

test('restarts a container that fails its liveness probe', async () => {
  const fails = "require('http').createServer((q, s) => s.writeHead(500).end()).listen(8080)";
  const livenessProbe = { httpGet: { path: '/', port: 8080 }, periodSeconds: 1, failureThreshold: 2 };
  await cluster.create(makePod('sick', { container: { command: ['node', '-e', fails], livenessProbe } }), { namespace });
  const pod = await until(() => node.find(namespace, 'sick'));
  await until(async () => (await cluster.ok('GET', pod.path)).status.containerStatuses?.[0]?.restartCount > 0);
  expect(pod.steps.slice(0, 3)).toEqual(['app started', 'app failed its probe', 'app ended 143']);
});

test('completes a Job although its sidecar would run for ever', async () => {
  const { spec } = makePod('x', { container: { command: ['sh', '-c', 'exit 0'] } });
  const job = makeJob('once', { spec: { ...spec, restartPolicy: 'Never', initContainers: [SIDECAR] } });
  const { body } = await cluster.create(job, { namespace });
  const path = `/apis/batch/v1/namespaces/${namespace}/jobs/${body.metadata.name}`;
  await until(async () => (await cluster.ok('GET', path)).status.succeeded === 1);
});

test('forwards connections to a Service to the ready pods, by its name and its ClusterIP', async () => {
  const labels = { app: 'served' };
  const service = {
    apiVersion: 'v1',
    kind: 'Service',
    metadata: { name: 'served' },
    spec: { selector: labels, ports: [{ port: 8080, targetPort: 'side' }] },
  };
  await cluster.apply(service, { namespace });
  const proxy = await startServiceProxy(cluster, namespace, 'served');
  try {
    await cluster.create(makePod('served', { metadata: { labels }, spec: { initContainers: [SIDECAR] } }), { namespace });
    const pod = await node.untilReady(namespace, 'served');
    await until(() => proxy.endpoints().length === 1);
    expect(proxy.endpoints()).toEqual([`${pod.addresses.outer}:9000`]);
    const asks =
      "fetch('http://served:8080/by-name').then((r) => process.exit(r.ok ? 0 : 1), (e) => { console.log(e); process.exit(1) })";
    await cluster.create(makePod('asking', { spec: { restartPolicy: 'Never' }, container: { command: ['node', '-e', asks] } }), {
      namespace,
    });
    await until(
      async () => (await cluster.ok('GET', `/api/v1/namespaces/${namespace}/pods/asking`)).status.phase === 'Succeeded',
    );
    expect(pod.log('sidecar')).toContain('/by-name');
  } finally {
    await proxy.stop();
  }
});
