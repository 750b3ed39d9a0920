import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { HOOK } from '../../support/cluster/gate-pods.ts';
import type { Kube } from '../../support/cluster/kube-request.ts';
import { makeDelivery } from '../../support/deliveries.ts';
import { NODE_HINDRANCE } from '../../support/node/availability.ts';
import { findStatus, type NodeCluster, useNode } from '../../support/node/use-node.ts';
import { createAppNamespace, deployApp, toService, toTemplate } from '../../support/node/workloads.ts';

const MERGE = { contentType: 'application/merge-patch+json' };
/** An app that is healthy until it has got a request. */
const FALLS_ILL = `
let isIll = false;
require('http').createServer((request, response) => {
  isIll ||= request.method === 'POST';
  response.writeHead(request.url === '/live' && isIll ? 500 : 200).end();
}).listen(process.env.PORT ?? 8080, process.env.HOST);
process.once('SIGTERM', () => process.exit(0));`;

describe.skipIf(NODE_HINDRANCE !== undefined)('on a real node', () => {
  let node: NodeCluster;
  let namespace: string;

  beforeAll(async () => {
    node = await useNode();
    await node.useChart();
    namespace = await createAppNamespace(node);
  });
  afterAll(() => node?.cleanUp());

  async function deliver(url: string, secret?: string): Promise<number> {
    const { headers, body } = makeDelivery(secret === undefined ? {} : { secret });
    return (await fetch(`${url}${HOOK}`, { method: 'POST', headers, body: new Uint8Array(body) })).status;
  }

  test.concurrent('a Job completes at most three seconds after its app', async () => {
    const { metadata, spec } = toTemplate('batch', { container: { command: ['node', '-e', 'setTimeout(() => 0, 1000)'] } });
    const { startupProbe, readinessProbe, livenessProbe, ...app } = spec.containers[0];
    const template = { metadata, spec: { ...spec, restartPolicy: 'Never', containers: [app] } };
    await node.create({ apiVersion: 'batch/v1', kind: 'Job', metadata: { name: 'batch' }, spec: { template } }, { namespace });
    const pod = await node.waitFor(namespace, async () => {
      const [found] = await node.listPods(namespace, 'app=batch');
      return found?.status.phase === 'Succeeded' && found;
    });
    const endOf = (name: string): number => Date.parse(findStatus(pod, name).state.terminated.finishedAt);
    expect(findStatus(pod, 'sidegate').state.terminated.exitCode).toBe(0);
    expect(endOf('sidegate') - endOf('app')).toBeLessThanOrEqual(3_000);
  });

  test.concurrent('the pods of a StatefulSet get the sidecar, and keep their names', async () => {
    const spec = { serviceName: 'stateful', replicas: 2, selector: { matchLabels: { app: 'stateful' } } };
    const set = { apiVersion: 'apps/v1', kind: 'StatefulSet', metadata: { name: 'stateful' } };
    await node.create(toService('stateful'), { namespace });
    await node.create({ ...set, spec: { ...spec, template: toTemplate('stateful') } }, { namespace });
    const pods = await node.waitForPods(namespace, 'app=stateful', 2);
    expect(pods.map(({ metadata }) => metadata.name).sort()).toEqual(['stateful-0', 'stateful-1']);
    for (const pod of pods) expect(findStatus(pod, 'sidegate').ready).toBe(true);
  });

  test.concurrent('a changed Secret is used without a restart', async () => {
    const secret = `whsec_${Buffer.alloc(24, 7).toString('base64')}`;
    const separate = await createAppNamespace(node);
    const { pods, url } = await deployApp(node, separate, 'rotating');
    expect([await deliver(url), await deliver(url, secret)]).toEqual([200, 401]);
    await node.ok('PATCH', `/api/v1/namespaces/${separate}/secrets/signing`, { stringData: { key: secret } }, MERGE);
    await node.waitFor(separate, async () => (await deliver(url, secret)) === 200);
    expect(await deliver(url)).toBe(401);
    const [pod] = await node.listPods(separate, 'app=rotating');
    expect([pod.metadata.name, findStatus(pod, 'sidegate').restartCount]).toEqual([pods[0]?.metadata.name, 0]);
  });

  test.concurrent('a request in flight survives the deletion of its pod', async () => {
    // Longer than the pause after which the app gets SIGTERM.
    const container = { env: [{ name: 'WORK_MS', value: '7000' }] };
    const { pods, url } = await deployApp(node, namespace, 'leaving', { container });
    const name: string = pods[0]?.metadata.name;
    const answer = deliver(url);
    // The app logs a request when it has arrived.
    await node.waitFor(namespace, async () => (await node.logs(namespace, name, 'app')).includes(HOOK));
    await node.ok('DELETE', `/api/v1/namespaces/${namespace}/pods/${name}`);
    expect(await answer).toBe(200);
  });

  test.concurrent.each(['same-port:HOST', 'env:PORT'])(
    'the kubelet restarts an app whose liveness probe fails, and not its sidecar: %s',
    async (interception) => {
      const name = `ill-${interception.replace(/:.*/, '')}`;
      // Longer than Node takes to start on a busy machine: an app that is restarted before it listens waits longer each time.
      const livenessProbe = { httpGet: { path: '/live', port: 'http' }, periodSeconds: 1, failureThreshold: 10 };
      const container = { command: ['node', '-e', FALLS_ILL], livenessProbe };
      const { url } = await deployApp(node, namespace, name, { interception, targetPort: 'http', container });
      expect(await deliver(url)).toBe(200);
      const pod: Kube = await node.waitFor(namespace, async () => {
        const [found] = await node.waitForPods(namespace, `app=${name}`, 1);
        return findStatus(found, 'app').restartCount > 0 && found;
      });
      expect(findStatus(pod, 'sidegate').restartCount).toBe(0);
      // kube-proxy learns later than the kubelet that the pod is ready again.
      await node.waitFor(namespace, async () => (await deliver(url).catch(() => 0)) === 200);
    },
  );
});
