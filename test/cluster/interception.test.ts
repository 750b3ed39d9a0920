import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { type Cluster, useCluster } from '../support/cluster/cluster.ts';
import { createGateConfig, HOOK, makeGatedPod, sendFour } from '../support/cluster/gate-pods.ts';
import { type Installation, installChart } from '../support/cluster/installation.ts';
import type { Kube } from '../support/cluster/kube-request.ts';
import { startNode, type TestNode } from '../support/cluster/node.ts';
import type { PodRunner } from '../support/cluster/pod-runner.ts';
import { makeJob, makePod } from '../support/cluster/pods.ts';
import { readSlices, type ServiceProxy, startServiceProxy } from '../support/cluster/service-proxy.ts';
import { until } from '../support/gate.ts';
import { NODE_HINDRANCE } from '../support/node/availability.ts';

let cluster: Cluster;
let installation: Installation;
let namespace: string;
let node: TestNode;
const proxies: ServiceProxy[] = [];

beforeAll(async () => {
  cluster = await useCluster();
  installation = await installChart(cluster, { injector: { replicas: 1 } });
  namespace = await cluster.createNamespace({ 'pod-security.kubernetes.io/enforce': 'restricted' });
  await createGateConfig(cluster, namespace);
  node = startNode(cluster, [namespace]);
});
afterAll(async () => {
  await Promise.all(proxies.map((proxy) => proxy.stop()));
  await node?.stop();
  await installation?.stop();
  await cluster?.cleanUp();
});

/** The app's own lines, one for each request but those of probes. */
const received = (pod: PodRunner): Kube[] =>
  pod
    .log('app')
    .split('\n')
    .filter((line) => line.startsWith('{'))
    .map((line) => JSON.parse(line));

async function serve(app: string, targetPort: string | number): Promise<ServiceProxy> {
  const service = {
    apiVersion: 'v1',
    kind: 'Service',
    metadata: { name: app },
    spec: { selector: { app }, ports: [{ port: 80, targetPort }] },
  };
  expect((await cluster.apply(service, { namespace })).status).toBeLessThan(300);
  const proxy = await startServiceProxy(cluster, namespace, app);
  proxies.push(proxy);
  return proxy;
}

async function startGated(name: string, interception: string, container: Kube = {}): Promise<PodRunner> {
  const { status, body } = await cluster.create(makeGatedPod(name, interception, { labels: { app: name }, container }), {
    namespace,
  });
  expect(status, body.message).toBe(201);
  return node.untilReady(namespace, name);
}

const MODES = [
  { interception: 'service', targetPort: 'sidegate', port: 8480, container: {} },
  { interception: 'service', targetPort: 8480, port: 8480, container: {} },
  { interception: 'rename', targetPort: 'http', port: 8480, container: {} },
  { interception: 'same-port', targetPort: 8080, port: 8080, container: { env: [{ name: 'HOST', value: '127.0.0.1' }] } },
  { interception: 'same-port:HOST', targetPort: 'http', port: 8080, container: {} },
  { interception: 'env', targetPort: 8080, port: 8080, container: { env: [{ name: 'PORT', value: '8080' }] } },
  { interception: 'env:PORT', targetPort: 'http', port: 8080, container: {} },
];

test('has no endpoint for an uninjected pod behind a Service to the port name of the sidecar, so that the network fails closed', async () => {
  const app = 'closed';
  const proxy = await serve(app, 'sidegate');
  const labels = { app };
  await cluster.create(makePod('naked', { metadata: { labels } }), { namespace });
  await node.untilReady(namespace, 'naked');
  await cluster.create(makeGatedPod('gated', 'service', { labels }), { namespace });
  const gated = await node.untilReady(namespace, 'gated');
  await until(() => proxy.endpoints().length === 1);
  const slices = await until(async () => {
    const found = await readSlices(cluster, namespace, app);
    return found.reduce((sum, { endpoints }) => sum + (endpoints?.length ?? 0), 0) === 2 && found;
  });
  const ports = slices.flatMap(({ endpoints, ports: list }) =>
    (endpoints as Kube[]).map(({ targetRef }) => [targetRef.name, (list ?? []).map(({ port }: Kube) => port)]),
  );
  expect(Object.fromEntries(ports)).toEqual({ gated: [8480], naked: [] });
  expect(proxy.endpoints()).toEqual([`${gated.addresses.outer}:8480`]);
});

test('ends the app before the sidecar, after the pause in which the pod is removed from the endpoints', async () => {
  const pod = await startGated('leaving', 'same-port:HOST');
  await cluster.request('DELETE', pod.path);
  await until(async () => (await cluster.request('GET', pod.path)).status === 404);
  const steps = pod.steps.filter((step) => !step.endsWith('ready'));
  expect(steps).toEqual([
    'sidegate started',
    'app started',
    'sidegate preStop',
    'app preStop',
    'app SIGTERM',
    'app ended 0',
    'sidegate SIGTERM',
    'sidegate ended 0',
  ]);
});

// Pods of a node prove the same (test/cluster/node), in less time.
describe.skipIf(NODE_HINDRANCE === undefined)('where no node can run', () => {
  test.each(MODES)(
    'with $interception and a Service to $targetPort the app gets the signed delivery once and nothing else',
    async ({ interception, targetPort, port, container }) => {
      const name = `${interception.replace(':', '-').toLowerCase()}-${targetPort}`;
      const proxy = await serve(name, targetPort);
      const pod = await startGated(name, interception, container);
      await until(() => proxy.endpoints().length === 1);
      expect(proxy.endpoints()).toEqual([`${pod.addresses.outer}:${port}`]);
      const answers = await sendFour(`http://${proxy.clusterIp}:80`);
      expect(answers.signed).toBe('200 handled');
      expect(answers.tampered).toMatch(/^401 /);
      expect(answers.replayed).toMatch(/^200 /);
      expect(answers.stale).toMatch(/^401 /);
      expect(received(pod).map(({ method, url }) => [method, url])).toEqual([['POST', HOOK]]);
    },
  );

  test.each(['same-port', 'same-port:HOST'])('leaves no bypass to the app in %s', async (interception) => {
    const name = `closed-${interception.replace(':', '-').toLowerCase()}`;
    const pod = await startGated(name, interception, { env: [{ name: 'HOST', value: '127.0.0.1' }] });
    const response = await fetch(`${pod.url(8080)}/anything`);
    expect(response.status).toBe(404);
    expect(received(pod)).toEqual([]);
  });

  test.each(['same-port:HOST', 'env:PORT'])(
    'restarts an app that hangs, through its rewritten probe, in %s',
    async (interception) => {
      const name = `hanging-${interception.replace(':', '-').toLowerCase()}`;
      const hangs =
        "let n = 0; require('http').createServer((q, r) => r.writeHead(q.url === '/live' && ++n > 3 ? 500 : 200).end()).listen(process.env.PORT || 8080, process.env.HOST)";
      const livenessProbe = { httpGet: { path: '/live', port: 'http' }, periodSeconds: 1, failureThreshold: 1 };
      const container = { command: ['node', '-e', hangs], livenessProbe };
      const { body } = await cluster.create(makeGatedPod(name, interception, { container }), { namespace });
      expect(body.spec.containers[0].livenessProbe.httpGet.port).not.toBe('http');
      const pod = await until(() => node.find(namespace, name));
      await until(() => pod.steps.filter((step) => step === 'app started').length > 1);
      expect(pod.steps).toContain('app failed its probe');
      expect(pod.steps.filter((step) => step === 'sidegate started')).toHaveLength(1);
    },
  );

  test('uses a new secret from a swapped mount without a restart', async () => {
    const pod = await startGated('reloading', 'same-port:HOST');
    const secret = { apiVersion: 'v1', kind: 'Secret', metadata: { name: 'signing' } };
    await cluster.apply({ ...secret, stringData: { key: `whsec_${Buffer.alloc(32, 7).toString('base64')}` } }, { namespace });
    try {
      await pod.refreshVolumes();
      await until(async () => (await sendFour(pod.url(8080))).signed.startsWith('401'));
    } finally {
      await createGateConfig(cluster, namespace);
    }
    await pod.refreshVolumes();
    await until(async () => (await sendFour(pod.url(8080))).signed.startsWith('200'));
    expect(pod.steps.filter((step) => step === 'sidegate started')).toHaveLength(1);
  });

  test('completes an injected Job', async () => {
    const template = makeGatedPod('once', 'service', {
      container: { startupProbe: null, readinessProbe: null, livenessProbe: null, command: ['sh', '-c', 'exit 0'] },
    });
    const { metadata, spec } = template;
    const job = makeJob('once', {
      metadata: { labels: metadata.labels, annotations: metadata.annotations },
      spec: { ...spec, restartPolicy: 'Never' },
    });
    await cluster.create(job, { namespace });
    const path = `/apis/batch/v1/namespaces/${namespace}/jobs/once`;
    await until(async () => (await cluster.ok('GET', path)).status.succeeded === 1);
  });
});
