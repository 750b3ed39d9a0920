import { applyPatch, type Operation } from 'rfc6902';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { ChartInput } from '../../chart/values.ts';
import { injectPod } from '../../src/kubernetes/injector/inject.ts';
import { parseInjectorConfig } from '../../src/kubernetes/injector/injector-config.ts';
import type { PatchOperation } from '../../src/kubernetes/injector/patch.ts';
import { pick, renderChart } from '../support/chart.ts';
import { type Cluster, useCluster } from '../support/cluster/cluster.ts';
import type { Kube } from '../support/cluster/kube-request.ts';
import { until } from '../support/gate.ts';

const RELEASE = 'policy-mode';
const ALLOWED = ['registry.example/sidegate'];
const VALUES: ChartInput = {
  admission: { mode: 'policy', allowedImages: ALLOWED },
  sidecar: { imagePullSecrets: ['team'], preStop: '1m' },
};

let cluster: Cluster;
let injecting: string;
let plain: string;
let config: NonNullable<ReturnType<typeof parseInjectorConfig>['config']>;
let version: string;

beforeAll(async () => {
  cluster = await useCluster('1.36');
  const objects = await renderChart(VALUES, { release: RELEASE });
  const webhook = await renderChart({ ...VALUES, admission: { mode: 'webhook', allowedImages: ALLOWED } }, { release: RELEASE });
  const text = (pick(webhook, 'ConfigMap', 'policy-mode-sidegate-injector')['data'] as Record<string, string>)['injector.yaml'];
  const parsed = parseInjectorConfig('injector.yaml', text ?? '');
  if (parsed.config === undefined) throw new Error(JSON.stringify(parsed.problems));
  config = parsed.config;
  const mutating: Kube = pick(objects, 'MutatingAdmissionPolicy');
  version = mutating['metadata'].labels['app.kubernetes.io/version'];
  const names = ['inject', 'protected'].map((name) => `${RELEASE}-sidegate-${name}`);
  for (const object of objects.filter(({ metadata }) => names.includes(metadata.name)) as Kube[]) {
    // The control plane is shared with other tests: these policies are for these namespaces alone.
    if (object['kind'].endsWith('Binding'))
      object['spec'].matchResources = { namespaceSelector: { matchLabels: { release: RELEASE } } };
    const { status, body } = await cluster.create(object);
    expect(status, body.message).toBe(201);
  }
  injecting = await cluster.createNamespace({ release: RELEASE });
  plain = await cluster.createNamespace({});
  await until(async () => (await create(injecting, toPod({ annotations: { 'sidegate.dev/x': '1' } }))).status >= 400);
  await until(async () => (await create(injecting, toPod())).body['spec']?.initContainers !== undefined);
});
afterAll(() => cluster?.cleanUp());

const WEB: Kube = { name: 'web', image: 'web:1', ports: [{ name: 'http', containerPort: 8080 }] };

function toPod({
  annotations = {},
  spec = {},
  container = {},
}: {
  annotations?: Kube;
  spec?: Kube;
  container?: Kube;
} = {}): Kube {
  return {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: {
      name: 'web',
      labels: { 'sidegate.dev/inject': 'true' },
      annotations: { 'sidegate.dev/config': 'web-gate', ...annotations },
    },
    // The volume of the account's token has a name by chance.
    spec: { automountServiceAccountToken: false, containers: [{ ...WEB, ...container }], ...spec },
  };
}

/** Nothing stays: what the API server would have made of it is all that is asked. */
const create = (namespace: string, pod: Kube): Promise<{ status: number; body: Kube }> =>
  cluster.create(pod, { namespace, isDryRun: true });

function inject(pod: Kube): ReturnType<typeof injectPod> {
  return injectPod(pod, { defaults: config.sidecar, version, kube: { major: 1, minor: 36 }, namespace: plain });
}

/** What of a pod is not its own place and time. */
function essence({ metadata, spec }: Kube): Kube {
  return { labels: metadata.labels, annotations: metadata.annotations, spec };
}

const many = <T>(length: number, make: (index: number) => T): T[] => Array.from({ length }, (_, index) => make(index));
const toRequired = (terms: readonly Kube[]): Kube => ({
  affinity: { nodeAffinity: { requiredDuringSchedulingIgnoredDuringExecution: { nodeSelectorTerms: terms } } },
});
const onSystem = (values: readonly string[]): Kube => ({
  matchExpressions: [{ key: 'kubernetes.io/os', operator: 'In', values }],
});
const sameP = { 'sidegate.dev/interception': 'same-port' };
const get = (path: string, port: unknown, more: Kube = {}): Kube => ({ httpGet: { path, port, ...more } });
const CASES: readonly (readonly [string, Kube])[] = [
  ['a plain pod', toPod()],
  [
    'one with every setting',
    toPod({
      annotations: {
        'sidegate.dev/secrets': 'a, b,a',
        'sidegate.dev/port': '9000',
        'sidegate.dev/admin-port': '9001',
        'sidegate.dev/image': 'registry.example/sidegate:2',
        'sidegate.dev/image-pull-secrets': 'x, team',
        'sidegate.dev/cpu-request': '10m',
        'sidegate.dev/cpu-limit': '1.5',
        'sidegate.dev/memory-request': '100Mi',
        'sidegate.dev/memory-limit': '1Gi',
        'sidegate.dev/pre-stop': '7s',
        'sidegate.dev/app-container': 'web',
        'sidegate.dev/app-port': 'http',
        'sidegate.dev/sidecar': 'native',
      },
      spec: { imagePullSecrets: [{ name: 'x' }], terminationGracePeriodSeconds: 60 },
    }),
  ],
  [
    'one among others',
    toPod({
      spec: {
        containers: [
          { name: 'agent', image: 'agent:1', lifecycle: { stopSignal: 'SIGUSR1' } },
          { ...WEB, lifecycle: { postStart: { exec: { command: ['true'] } } } },
        ],
        initContainers: [
          { name: 'mesh', image: 'mesh:1', restartPolicy: 'Always' },
          { name: 'setup', image: 'setup:1' },
        ],
        volumes: [{ name: 'data', emptyDir: {} }],
        os: { name: 'linux' },
      },
    }),
  ],
  [
    'one with a volume for its queue',
    toPod({
      annotations: { 'sidegate.dev/queue-volume': 'queue', 'sidegate.dev/secrets': 'a' },
      spec: {
        securityContext: { fsGroup: 65_532 },
        volumes: [{ name: 'queue', persistentVolumeClaim: { claimName: 'queue-web-0' } }],
      },
    }),
  ],
  ['one that waits for nothing', toPod({ annotations: { 'sidegate.dev/pre-stop': '0s' } })],
  [
    'same-port with probes of each kind',
    toPod({
      annotations: { ...sameP, 'sidegate.dev/interception': 'same-port:HOST' },
      container: {
        env: [
          { name: 'HOST', value: '0.0.0.0' },
          { name: 'A', value: 'b' },
        ],
        livenessProbe: get('/live?a=$(B)&c=$$d$', 'http'),
        readinessProbe: { tcpSocket: { port: 8080 }, periodSeconds: 3 },
        startupProbe: get('/', 9100, { scheme: 'HTTPS' }),
        lifecycle: { postStart: get('warm', 9100), preStop: { exec: { command: ['true'] } } },
      },
      spec: {},
    }),
  ],
  [
    'same-port beside others that ask the app',
    toPod({
      annotations: { ...sameP, 'sidegate.dev/app-container': 'web' },
      spec: {
        containers: [
          { name: 'agent', image: 'agent:1', livenessProbe: get('/live', 8080), readinessProbe: get('/own', 9200) },
          { ...WEB, readinessProbe: get('/ready', 'http') },
        ],
        initContainers: [{ name: 'mesh', image: 'mesh:1', restartPolicy: 'Always', startupProbe: { tcpSocket: { port: 8080 } } }],
      },
    }),
  ],
  [
    'same-port with the first variable of the app',
    toPod({ annotations: { ...sameP, 'sidegate.dev/interception': 'same-port:HOST' } }),
  ],
  [
    'same-port with a variable that is set twice, after many others',
    toPod({
      annotations: { ...sameP, 'sidegate.dev/interception': 'same-port:HOST' },
      container: { env: many(300, (i) => ({ name: i % 50 === 3 ? 'HOST' : `E${i}`, value: '0.0.0.0' })) },
    }),
  ],
  ['as many Secrets as it can', toPod({ annotations: { 'sidegate.dev/secrets': many(32, (i) => `s${i}`).join() } })],
  ['a pod that may also run on Linux', toPod({ spec: toRequired([onSystem(['windows']), onSystem(['linux'])]) })],
  ['a grace period of ten minutes', toPod({ spec: { terminationGracePeriodSeconds: 600 } })],
];

describe('the API server’s own policy', () => {
  test.each(CASES)('changes %s like the injector', async (_what, pod) => {
    const injection = inject(pod);
    if (injection.outcome !== 'injected') throw new Error(injection.message);
    const expected = structuredClone(pod);
    expect(
      applyPatch(expected, structuredClone(injection.patch) as Operation[] & PatchOperation[]).filter((error) => error !== null),
    ).toEqual([]);
    const byHand = await create(plain, expected);
    expect(byHand.status, byHand.body['message']).toBe(201);
    const byPolicy = await create(injecting, pod);
    expect(byPolicy.status, byPolicy.body['message']).toBe(201);
    expect(essence(byPolicy.body)).toEqual(essence(byHand.body));
  });

  test.each([
    ['an unknown annotation', toPod({ annotations: { 'sidegate.dev/confg': 'a' } }), 'sidegate.dev/confg is unknown'],
    [
      'a setting of another form',
      toPod({ annotations: { 'sidegate.dev/port': '70000' } }),
      'is "70000": expected a port from 1 to 65535',
    ],
    [
      'no config',
      { ...toPod(), metadata: { name: 'web', labels: { 'sidegate.dev/inject': 'true' } } },
      'sidegate.dev/config is missing',
    ],
    [
      'interception rename',
      toPod({ annotations: { 'sidegate.dev/interception': 'rename' } }),
      'the interception mode rename is not supported',
    ],
    [
      'interception env',
      toPod({ annotations: { 'sidegate.dev/interception': 'env:PORT' } }),
      'the interception mode env:PORT is not supported',
    ],
    ['a plain container', toPod({ annotations: { 'sidegate.dev/sidecar': 'container' } }), 'supports only native sidecars'],
    [
      'a plain container that would race for the port',
      toPod({ annotations: { ...sameP, 'sidegate.dev/sidecar': 'container' } }),
      'supports only native sidecars',
    ],
    [
      'hostNetwork',
      toPod({
        spec: {
          hostNetwork: true,
          containers: [{ name: 'web', image: 'web', ports: [{ containerPort: 8080, hostPort: 8080 }] }],
        },
      }),
      'hostNetwork',
    ],
    ['a shared process namespace', toPod({ spec: { shareProcessNamespace: true } }), 'could read the secrets in'],
    ['the processes of the node', toPod({ spec: { hostPID: true } }), 'could read the secrets in'],
    ['a container of the name', toPod({ spec: { containers: [WEB, { name: 'sidegate', image: 'a' }] } }), 'not the injected one'],
    [
      'a volume of the name',
      toPod({ spec: { volumes: [{ name: 'sidegate-config', emptyDir: {} }] } }),
      'which is reserved for the sidecar',
    ],
    [
      'a queue without its volume',
      toPod({ annotations: { 'sidegate.dev/queue-volume': 'queue' } }),
      'queue-volume is queue, but the pod has no such volume',
    ],
    [
      'a queue on a volume that nobody can write to',
      toPod({
        annotations: { 'sidegate.dev/queue-volume': 'queue' },
        spec: { volumes: [{ name: 'queue', configMap: { name: 'a' } }] },
      }),
      'queue-volume is queue, a volume that is read-only',
    ],
    [
      'a queue on the volume of the app',
      toPod({
        annotations: { 'sidegate.dev/queue-volume': 'queue' },
        spec: { volumes: [{ name: 'queue', persistentVolumeClaim: { claimName: 'queue' } }] },
        container: { volumeMounts: [{ name: 'queue', mountPath: '/data' }] },
      }),
      'the container web mounts the volume queue',
    ],
    [
      'a taken port',
      toPod({
        container: { ports: [{ containerPort: 8080, name: 'http' }, { containerPort: 8481 }] },
        annotations: { 'sidegate.dev/app-port': 'http' },
      }),
      'which the sidecar needs',
    ],
    [
      'a taken port name',
      toPod({ container: { ports: [{ containerPort: 8080, name: 'sidegate' }] } }),
      'which is reserved for the sidecar',
    ],
    [
      'two apps',
      toPod({
        spec: {
          containers: [
            { name: 'a', image: 'a' },
            { name: 'b', image: 'b' },
          ],
        },
      }),
      'in the annotation sidegate.dev/app-container',
    ],
    ['no port', toPod({ container: { ports: [] } }), 'declares no TCP port'],
    [
      'a hook on the port',
      toPod({ annotations: sameP, container: { lifecycle: { preStop: get('/admin/shutdown', 'http') } } }),
      'hook uses the port that interception mode same-port moves',
    ],
    [
      'a hook at the start of another container',
      toPod({
        annotations: sameP,
        spec: { containers: [WEB, { name: 'b', image: 'b:1', lifecycle: { postStart: { tcpSocket: { port: 8080 } } } }] },
      }),
      'hook uses the port that interception mode same-port moves',
    ],
    [
      'a probe of the admin port',
      toPod({ annotations: sameP, container: { livenessProbe: get('/', 8481) } }),
      'uses the admin port',
    ],
    ['a gRPC probe', toPod({ annotations: sameP, container: { livenessProbe: { grpc: { port: 8080 } } } }), 'uses gRPC'],
    [
      'header fields of a probe',
      toPod({ annotations: sameP, container: { livenessProbe: get('/', 8080, { httpHeaders: [{ name: 'A', value: 'b' }] }) } }),
      'httpHeaders',
    ],
    [
      'resources of the whole pod',
      toPod({ spec: { resources: { requests: { cpu: '20m', memory: '64Mi' } } } }),
      "the pod has spec.resources, to which the sidecar's would have to be added",
    ],
    [
      'a pod of Knative',
      {
        ...toPod(),
        metadata: { ...toPod()['metadata'], labels: { 'sidegate.dev/inject': 'true', 'serving.knative.dev/revision': 'a' } },
      },
      'the pod belongs to a Knative Service',
    ],
    [
      'options for Windows',
      toPod({ container: { securityContext: { windowsOptions: { runAsUserName: 'ContainerUser' } } } }),
      'the pod is for Windows',
    ],
    ['an affinity to Windows', toPod({ spec: toRequired([onSystem(['windows'])]) }), 'the pod is for Windows'],
    [
      'more Secrets than it can mount',
      toPod({ annotations: { 'sidegate.dev/secrets': many(33, (i) => `s${i}`).join() } }),
      'more than 32 Secrets or imagePullSecrets: install',
    ],
    [
      'more pull secrets than it can add',
      toPod({ annotations: { 'sidegate.dev/image-pull-secrets': many(32, (i) => `s${i}`).join() } }),
      'more than 32 Secrets or imagePullSecrets: install',
    ],
    ['a request above the limit', toPod({ annotations: { 'sidegate.dev/memory-request': '1Gi' } }), 'above its limit'],
  ] as const)('denies %s with a clear message, like the injector', async (what, pod, message) => {
    const { status, body } = await create(injecting, pod);
    expect(body['message']).not.toContain('no injector');
    expect(body['message']).toContain(what === 'a container of the name' ? 'not an allowed image' : message);
    expect([403, 422]).toContain(status);
    // These are within the injector's reach alone.
    const isBeyond = [
      'interception rename',
      'interception env',
      'a plain container',
      'header fields of a probe',
      'resources of the whole pod',
      'more Secrets than it can mount',
      'more pull secrets than it can add',
    ].includes(what);
    expect(inject(pod).outcome).toBe(isBeyond ? 'injected' : 'denied');
  });

  test('does not change a pod that already has the sidecar', async () => {
    const { body } = await create(injecting, toPod());
    const { metadata, spec } = body;
    const again = await create(injecting, {
      apiVersion: 'v1',
      kind: 'Pod',
      metadata: { name: 'again', labels: metadata.labels, annotations: metadata.annotations },
      spec,
    });
    expect(again.status, again.body['message']).toBe(201);
    expect(again.body['spec']).toEqual(spec);
  });
});
