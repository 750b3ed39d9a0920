import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Kube } from '../../support/cluster/kube-request.ts';
import { makePod } from '../../support/cluster/pods.ts';
import { until } from '../../support/gate.ts';
import { NODE_HINDRANCE } from '../../support/node/availability.ts';
import { NODE_NAME } from '../../support/node/machine.ts';
import { APP_IMAGE } from '../../support/node/settings.ts';
import { type NodeCluster, useNode } from '../../support/node/use-node.ts';
import { createAppNamespace, toService, toTemplate } from '../../support/node/workloads.ts';
import { postEvent } from '../../support/provider/client.ts';

const PORT = 8080;
const POSTERS = 4;
const POST_PAUSE_MS = 10;
/** How many events are accepted before the pod or the node ends, while more are being posted. */
const EVENTS_BEFORE = 100;
const VOLUME_FOLDER = '/var/lib/queue';
const STORAGE_CLASS = 'local';

const SECTIONS = {
  shutdown: { drain: '1s' },
  provider: {
    egress: { allowHttp: true, allowPrivate: ['10.0.0.0/8'] },
    schedule: Array.from({ length: 50 }, () => '1s'),
    timeout: '60s',
    concurrency: 16,
    queue: { sqlite: { path: '/var/lib/sidegate/queue.db' } },
    endpoints: [{ name: 'receiver', url: 'http://receiver/', secret: { file: '../secrets/signing/key' } }],
  },
};
/** The provider's API listens on loopback, so the app passes on what the test posts. */
const SENDER = `const http = require('node:http');
  http.createServer((request, response) => {
    if (request.method === 'GET') return response.end();
    const { url, method, headers } = request;
    const passed = http.request({ host: '127.0.0.1', port: 8482, path: url, method, headers }, (answer) => {
      response.writeHead(answer.statusCode, answer.headers);
      answer.pipe(response);
    });
    passed.on('error', () => response.destroy());
    request.pipe(passed);
  }).listen(${PORT});
  process.once('SIGTERM', () => process.exit());`;
/** Responds to no delivery until it is released, so that nothing is delivered before that. */
const RECEIVER = `const held = [], received = [];
  let isReleased = false;
  require('node:http').createServer((request, response) => {
    if (request.url === '/received') return response.end(JSON.stringify(received));
    if (request.url === '/release') {
      isReleased = true;
      for (const settle of held) settle();
      return response.end();
    }
    const settle = () => {
      received.push(request.headers['webhook-id']);
      response.end();
    };
    request.resume().on('end', () => isReleased ? settle() : held.push(settle));
  }).listen(${PORT});
  process.once('SIGTERM', () => process.exit());`;

describe.skipIf(NODE_HINDRANCE !== undefined)('on a real node', () => {
  const accepted = new Set<string>();
  let node: NodeCluster;
  let namespace: string;

  beforeAll(async () => {
    node = await useNode();
    await node.useChart();
    namespace = await createAppNamespace(node, SECTIONS);
    expect(await node.runInside('mkdir', VOLUME_FOLDER)).toMatchObject({ code: 0 });
    for (const object of [toVolume(namespace), toService('receiver', PORT), toReceiver(), toStatefulSet()])
      expect(await node.create(object, { namespace })).toMatchObject({ status: 201 });
  });
  afterAll(() => node?.cleanUp());

  /** Waits until the app's pod runs that fits. */
  const findPod = (app: string, fits: (pod: Kube) => boolean = () => true): Promise<Kube> =>
    node.waitFor(namespace, async () => {
      const [pod] = await node.listPods(namespace, `app=${app}`);
      return pod !== undefined && pod.metadata.deletionTimestamp === undefined && isRunning(pod) && fits(pod) && pod;
    });

  const forward = ({ status }: Kube): Promise<string> => node.forward(status.podIP, PORT);

  /** Posts events until the pod does not accept any more, because of what happens after some of them. */
  async function postUntil(pod: Kube, happen: () => Promise<unknown>): Promise<void> {
    const port = Number(new URL(await forward(pod)).port);
    const before = accepted.size;
    const post = async (): Promise<void> => {
      for (;;) {
        accepted.add(await postEvent(port));
        await new Promise((done) => setTimeout(done, POST_PAUSE_MS));
      }
    };
    const posting = Promise.allSettled(Array.from({ length: POSTERS }, post));
    await until(() => accepted.size >= before + EVENTS_BEFORE);
    await happen();
    await posting;
  }

  test('each event that was accepted is delivered after its pod was deleted and its node restarted', async () => {
    const first = await findPod('sender');
    await postUntil(first, () => node.ok('DELETE', `/api/v1/namespaces/${namespace}/pods/${first.metadata.name}`));
    const second = await findPod('sender', ({ metadata }) => metadata.uid !== first.metadata.uid);
    await postUntil(second, () => node.restartNode());
    const third = await findPod('sender', isRestarted);
    expect(third.metadata.uid).toBe(second.metadata.uid);
    const receiver = await forward(await findPod('receiver', isRestarted));
    const readReceived = async (): Promise<string[]> => (await (await fetch(`${receiver}/received`)).json()) as string[];
    expect(await readReceived()).toEqual([]);

    await fetch(`${receiver}/release`);
    const received = await node.waitFor(namespace, async () => {
      const all = await readReceived();
      const ids = new Set(all);
      return [...accepted].every((id) => ids.has(id)) && all;
    });
    console.log(`${accepted.size} events were accepted, ${received.length} deliveries received`);
  });
});

function listStatuses({ status }: Kube): Kube[] {
  return [...(status.initContainerStatuses ?? []), ...(status.containerStatuses ?? [])];
}

function isRunning(pod: Kube): boolean {
  const statuses = listStatuses(pod);
  return statuses.length > 0 && statuses.every(({ ready, state }) => ready && state.running !== undefined);
}

function isRestarted(pod: Kube): boolean {
  return listStatuses(pod).every(({ restartCount }) => restartCount > 0);
}

/** A folder of the node as a volume, like a local disk: the kubelet makes it writable for the sidecar. */
function toVolume(namespace: string): Kube {
  const matchExpressions = [{ key: 'kubernetes.io/hostname', operator: 'In', values: [NODE_NAME] }];
  const spec = {
    capacity: { storage: '1Gi' },
    accessModes: ['ReadWriteOncePod'],
    persistentVolumeReclaimPolicy: 'Retain',
    storageClassName: STORAGE_CLASS,
    local: { path: VOLUME_FOLDER },
    nodeAffinity: { required: { nodeSelectorTerms: [{ matchExpressions }] } },
  };
  return { apiVersion: 'v1', kind: 'PersistentVolume', metadata: { name: namespace }, spec };
}

/** As docs/provider-kubernetes.md shows it. */
function toStatefulSet(): Kube {
  const { metadata, spec } = toTemplate('sender', {
    annotations: { 'sidegate.dev/queue-volume': 'queue', 'sidegate.dev/pre-stop': '0s' },
    container: { command: ['node', '-e', SENDER] },
  });
  const securityContext = { ...spec.securityContext, fsGroup: 65_532, fsGroupChangePolicy: 'OnRootMismatch' };
  const claim = {
    accessModes: ['ReadWriteOncePod'],
    storageClassName: STORAGE_CLASS,
    resources: { requests: { storage: '1Gi' } },
  };
  return {
    apiVersion: 'apps/v1',
    kind: 'StatefulSet',
    metadata: { name: 'sender' },
    spec: {
      serviceName: 'sender',
      replicas: 1,
      selector: { matchLabels: { app: 'sender' } },
      persistentVolumeClaimRetentionPolicy: { whenDeleted: 'Retain', whenScaled: 'Retain' },
      template: { metadata, spec: { ...spec, securityContext } },
      volumeClaimTemplates: [{ metadata: { name: 'queue' }, spec: claim }],
    },
  };
}

function toReceiver(): Kube {
  const container = { image: APP_IMAGE, command: ['node', '-e', RECEIVER] };
  return makePod('receiver', { metadata: { labels: { app: 'receiver' } }, container });
}
