import { parseArgs } from 'node:util';
import { describe, expect, test } from 'vitest';
import { override } from '../../../../src/config/load/load.ts';
import { ConfigSchema } from '../../../../src/config/schema/schema.ts';
import { injectPod } from '../../../../src/kubernetes/injector/inject.ts';
import { toSidecarDefaults } from '../../../../src/kubernetes/injector/injector-config.ts';
import type { InjectContext } from '../../../../src/kubernetes/injector/outcome.ts';
import { expandVariables } from '../../../support/cluster/images.ts';

const CONTEXT: InjectContext = {
  defaults: toSidecarDefaults('sidegate:1.0.0'),
  version: '1.0.0',
  kube: { major: 1, minor: 34 },
  namespace: 'default',
};
const WEB = { name: 'web', image: 'web', ports: [{ name: 'http', containerPort: 8080 }] };

const pod = (annotations: object = {}, spec: object = {}): object => ({
  apiVersion: 'v1',
  kind: 'Pod',
  metadata: {
    name: 'web',
    labels: { 'sidegate.dev/inject': 'true' },
    annotations: { 'sidegate.dev/config': 'web-gate', ...annotations },
  },
  spec: { containers: [WEB], ...spec },
});

/** What stands at a path of the patch; the sidecar itself is the first value with a name. */
function inject(annotations: object = {}, spec: object = {}, context: Partial<InjectContext> = {}) {
  const injection = injectPod(pod(annotations, spec), { ...CONTEXT, ...context });
  if (injection.outcome !== 'injected') throw new Error(injection.message);
  const added = injection.patch.flatMap((operation) => ('value' in operation ? operation.value : [])) as { name?: string }[];
  const sidecar = added.find((value) => value?.name === 'sidegate') as Record<string, unknown> & { readonly args: string[] };
  return { ...injection, sidecar, paths: injection.patch.map(({ path }) => path) };
}

test.each([
  [
    'another port than the container declares',
    '80',
    [WEB],
    [/app-port is 80, which the container web does not declare \(it has http: 8080\)/],
  ],
  ['a port of a container that declares none', '80', [{ name: 'web', image: 'web' }], []],
  ['the port that the container declares', '8080', [WEB], []],
])('app-port with %s has the warnings that belong to it', (_, appPort, containers, expected) => {
  const { warnings } = inject({ 'sidegate.dev/app-port': appPort }, { containers });
  expect(warnings).toEqual(expected.map((pattern) => expect.stringMatching(pattern)));
});

test.each([
  [undefined, '5s', 35],
  [0, '5s', 5],
  [-1, '5s', 6],
  [595, '5s', 600],
  [598, '5s', 600],
  [600, '5s', 600],
  [3_600, '5s', 3_600],
  [30, '10m', 630],
])('a grace period of %s s with a delay of %s becomes %i s', (terminationGracePeriodSeconds, preStop, expected) => {
  const spec = terminationGracePeriodSeconds === undefined ? {} : { terminationGracePeriodSeconds };
  const { patch } = inject({ 'sidegate.dev/pre-stop': preStop }, spec);
  const changed = patch.find(({ path }) => path === '/spec/terminationGracePeriodSeconds');
  const value = changed !== undefined && 'value' in changed ? changed.value : terminationGracePeriodSeconds;
  expect(value).toBe(expected);
});

describe('the sidecar', () => {
  test('is started with arguments that sidegate run accepts, including probes with header fields and variables', () => {
    const livenessProbe = {
      httpGet: { path: '/a=b?c=$(D)&e=$$(F)', port: 'http', httpHeaders: [{ name: 'X-A', value: 'pa$$"w$rd' }] },
    };
    const readinessProbe = { tcpSocket: { port: 8080 } };
    const containers = [{ ...WEB, livenessProbe, readinessProbe }];
    const { sidecar } = inject({ 'sidegate.dev/interception': 'same-port' }, { containers });
    // As the kubelet does it: variables that are set take their place, and of two dollar signs one is left.
    const args = sidecar.args.map((arg) => expandVariables(arg, { SIDEGATE_POD_IPS: '10.0.0.7,fd00::7', D: 'd', F: 'f' }));
    const options = {
      config: { type: 'string' },
      listen: { type: 'string' },
      admin: { type: 'string' },
      upstream: { type: 'string' },
      'app-probe': { type: 'string', multiple: true },
    } as const;
    const { values } = parseArgs({ args: args.slice(1), options });
    const { 'app-probe': appProbes, listen, admin, upstream } = values;
    const file = { routes: [{ name: 'any', match: { path: '/' }, allow: 'anyone' }] };
    const { value, problems } = override(file, { listen, admin, upstream, appProbes });
    expect(problems).toEqual([]);
    expect(ConfigSchema.parse(value)).toMatchObject({
      listen: { address: { hosts: ['10.0.0.7', 'fd00::7'], port: 8080 } },
      admin: {
        address: { port: 8481 },
        appProbes: [
          {
            container: 'web',
            kind: 'livez',
            url: 'http://127.0.0.1:8080/a=b?c=$(D)&e=$$(F)',
            headers: [{ name: 'X-A', value: 'pa$$"w$rd' }],
          },
          { container: 'web', kind: 'readyz', url: 'tcp://127.0.0.1:8080' },
        ],
      },
    });
  });

  test.each([
    [28, 'service', 'container'],
    [29, 'service', 'native'],
    [32, 'rename', 'container'],
    [33, 'rename', 'native'],
  ] as const)('is on Kubernetes 1.%i, with interception %s, %s by default', (minor, interception, kind) => {
    const { sidecar, paths } = inject({ 'sidegate.dev/interception': interception }, {}, { kube: { major: 1, minor } });
    expect(sidecar['restartPolicy']).toBe(kind === 'native' ? 'Always' : undefined);
    expect(paths).toContain(kind === 'native' ? '/spec/initContainers' : '/spec/containers/-');
  });

  test.each([
    [28, {}, 'native sidecars require Kubernetes 1.29, but the cluster has 1.28'],
    [32, { 'sidegate.dev/interception': 'rename' }, 'interception mode rename with a native sidecar requires Kubernetes 1.33'],
  ])('is denied on Kubernetes 1.%i if a native sidecar is requested with %j', (minor, annotations, message) => {
    const asked = { 'sidegate.dev/sidecar': 'native', ...annotations };
    expect(() => inject(asked, {}, { kube: { major: 1, minor } })).toThrow(message);
  });

  test.each([
    ['same-port', 'container', 34, 'interception mode same-port requires a native sidecar'],
    ['env:PORT', 'container', 34, 'interception mode env requires a native sidecar'],
    ['same-port:HOST', 'auto', 28, 'native sidecars require Kubernetes 1.29'],
    ['env', 'auto', 28, 'native sidecars require Kubernetes 1.29'],
  ])(
    'is denied with interception %s if it would be a plain container: %s on Kubernetes 1.%i',
    (interception, sidecar, minor, message) => {
      const asked = { 'sidegate.dev/interception': interception, 'sidegate.dev/sidecar': sidecar };
      expect(() => inject(asked, {}, { kube: { major: 1, minor } })).toThrow(message);
    },
  );

  test('is denied in a pod of a Job if it would be a plain container', () => {
    const injection = injectPod(
      { ...pod(), metadata: { ...(pod() as { metadata: object }).metadata, ownerReferences: [{ kind: 'Job', name: 'x' }] } },
      { ...CONTEXT, kube: { major: 1, minor: 28 } },
    );
    expect(injection).toMatchObject({ outcome: 'denied', reason: 'job_never_completes' });
  });

  test('warns about ports that it cannot serve, and gRPC probes that must stay reachable', () => {
    const containers = [{ ...WEB, ports: [{ containerPort: 80 }], livenessProbe: { grpc: { port: 9090 } } }];
    const { warnings } = inject({ 'sidegate.dev/interception': 'same-port' }, { containers });
    expect(warnings).toEqual([
      'the sidecar listens on port 80: nodes must allow this for containers without root (ip_unprivileged_port_start)',
      'the container web (livez) uses gRPC on port 9090: that port must stay open on the pod’s address'.replace('’', "'"),
    ]);
  });

  test('probes an app over HTTPS on another port', () => {
    const livenessProbe = { httpGet: { path: '/', port: 9443, scheme: 'HTTPS' } };
    const { sidecar } = inject({ 'sidegate.dev/interception': 'same-port' }, { containers: [{ ...WEB, livenessProbe }] });
    expect(sidecar.args.at(-1)).toBe('--app-probe=web/livez=https://127.0.0.1:9443/');
  });
});

describe('the volume of the queue', () => {
  const asked = { 'sidegate.dev/queue-volume': 'queue' };
  const claim = { name: 'queue', persistentVolumeClaim: { claimName: 'queue-web-0' } };
  const fsGroup = { securityContext: { fsGroup: 2_000 } };
  const mountsOf = ({ sidecar }: { sidecar: Record<string, unknown> }) => sidecar['volumeMounts'] as readonly object[];
  const owned = (kind: string, spec: object = {}) =>
    injectPod(
      {
        ...pod(asked, { volumes: [claim], ...spec }),
        metadata: {
          ...(pod(asked) as { metadata: object }).metadata,
          ownerReferences: [
            { kind: 'Other', name: 'x' },
            { kind, name: 'web', controller: true },
          ],
        },
      },
      CONTEXT,
    );

  test('is mounted writable into the sidecar, and nothing is added without the annotation', () => {
    const injected = inject(asked, { volumes: [claim], ...fsGroup });
    expect(mountsOf(injected).at(-1)).toEqual({ name: 'queue', mountPath: '/var/lib/sidegate' });
    expect(injected.warnings).toEqual([]);
    expect(JSON.stringify(mountsOf(inject({}, { volumes: [claim] })))).not.toContain('/var/lib');
  });

  test.each([
    ['a volume that does not exist', { volumes: [] }, 'queue-volume is queue, but the pod has no such volume: add queue to the'],
    ['no volumes', {}, 'but the pod has no such volume'],
    ['a Secret', { volumes: [{ name: 'queue', secret: { secretName: 'x' } }] }, 'of the kind secret, which is read-only'],
    ['an image', { volumes: [{ name: 'queue', image: { reference: 'x' } }] }, 'of the kind image, which is read-only'],
    [
      'the volume of the app',
      { volumes: [claim], containers: [{ ...WEB, volumeMounts: [{ name: 'queue', mountPath: '/data' }] }] },
      'the container web mounts the volume queue of sidegate.dev/queue-volume',
    ],
    [
      'a volume that an init container mounts',
      { volumes: [claim], initContainers: [{ name: 'setup', volumeMounts: [{ name: 'queue', mountPath: '/data' }] }] },
      'the container setup mounts the volume queue',
    ],
  ])('denies %s', (_which, spec, message) => {
    const injection = injectPod(pod(asked, spec), CONTEXT);
    expect(injection).toMatchObject({ outcome: 'denied', reason: 'invalid_setting' });
    expect((injection as { message: string }).message).toContain(message);
  });

  test.each(['emptyDir', 'ephemeral'])('warns about %s, which is deleted with the pod', (kind) => {
    const { warnings } = inject(asked, { volumes: [{ name: 'queue', [kind]: {} }] });
    expect(warnings).toEqual([
      expect.stringMatching(`^the volume queue of the queue is of the kind ${kind} and is deleted with`),
    ]);
  });

  test('warns if the pods of the owner share the claim, and if the sidecar may not be able to write to it', () => {
    const shared = expect.stringMatching(
      /^all pods of a ReplicaSet share the volume claim queue, and only one can open the queue/,
    );
    const unwritable = expect.stringMatching(/^the pod has no securityContext\.fsGroup/);
    expect(owned('ReplicaSet', fsGroup)).toMatchObject({ outcome: 'injected', warnings: [shared] });
    expect(owned('StatefulSet', fsGroup)).toMatchObject({ outcome: 'injected', warnings: [] });
    expect(owned('StatefulSet')).toMatchObject({ outcome: 'injected', warnings: [unwritable] });
  });

  test('is found among the claims of a StatefulSet whose template does not have it yet', () => {
    const template = { kind: 'StatefulSet', claims: ['data', 'queue'] };
    expect(mountsOf(inject(asked, fsGroup, { template })).at(-1)).toMatchObject({ name: 'queue' });
    expect(() => inject(asked, fsGroup, { template: { ...template, claims: ['data'] } })).toThrow('no such volume');
  });

  test('has warnings that the API server does not truncate', () => {
    const name = 'q'.repeat(63);
    const injection = inject(
      { 'sidegate.dev/queue-volume': name },
      { volumes: [{ name, emptyDir: {}, persistentVolumeClaim: {} }] },
      { template: { kind: 'Deployment', claims: [] } },
    );
    expect(injection.warnings).toHaveLength(3);
    for (const warning of injection.warnings) expect(`sidegate: ${warning}`.length, warning).toBeLessThanOrEqual(256);
  });
});

describe('a probe that Istio redirected to its proxy', () => {
  const asked = (port: number, path: string) => ({
    containers: [
      { ...WEB, livenessProbe: { httpGet: { path, port } } },
      { name: 'istio-proxy', ports: [{ containerPort: 15_090 }] },
    ],
  });
  const message = 'a mesh rewrote the livez of the container web, and its proxy would send it to the sidecar: with Istio, set';

  test.each(['same-port', 'env'])(
    'is denied with interception %s, where the sidecar has the port that the proxy asks',
    (mode) => {
      const annotations = { 'sidegate.dev/interception': mode, 'sidegate.dev/app-container': 'web' };
      expect(() => inject(annotations, asked(15_020, '/app-health/web/livez'))).toThrow(message);
      expect(inject(annotations, asked(8_080, '/app-health/web/livez')).outcome).toBe('injected');
      expect(inject(annotations, asked(15_020, '/health/web/livez')).outcome).toBe('injected');
    },
  );

  const livez = (original: object) => JSON.stringify({ '/app-health/web/livez': original });
  const health = livez({ httpGet: { path: '/', port: 9000, scheme: 'HTTP' }, timeoutSeconds: 1 });
  const open = /^a mesh rewrote the livez of the container web: its port \(9000\) must stay open on the pod's address/;
  const unknown = /^a mesh rewrote the livez of the container web: its port \(which must not be 8080\) must stay open/;

  test.each<[string, string, string | undefined, boolean, RegExp | 'denied' | undefined]>([
    ["of the app's port", 'env', livez({ httpGet: { path: '/', port: 8080 } }), true, 'denied'],
    ["of the name of the app's port", 'env', livez({ httpGet: { path: '/', port: 'http' } }), true, 'denied'],
    ["by TCP of the app's port", 'same-port', livez({ tcpSocket: { port: 8080 } }), true, 'denied'],
    ["by gRPC of the app's port", 'same-port', livez({ grpc: { port: 8080, service: '' } }), true, 'denied'],
    ['of another port', 'same-port', health, true, open],
    ['of another port', 'env', health, true, undefined],
    ['of another port that is not declared', 'env', health, false, undefined],
    ['of a port that is not known', 'same-port', undefined, true, unknown],
    ['of a port that is not known', 'env', undefined, true, unknown],
    ['of which the variable says nothing', 'env', '{}', true, unknown],
    ['of which the variable is no JSON', 'env', '{', true, unknown],
    ['of which the variable says nothing, in an app with one port', 'env', '{}', false, 'denied'],
  ])('and that is %s has the outcome that belongs to it with interception %s', (_, mode, value, hasHealth, expected) => {
    const [web, proxy] = asked(15_020, '/app-health/web/livez').containers;
    const ports = [...WEB.ports, ...(hasHealth ? [{ name: 'health', containerPort: 9000 }] : [])];
    const env = [{ name: 'A' }, ...(value === undefined ? [] : [{ name: 'ISTIO_KUBE_APP_PROBERS', value }])];
    const annotations = {
      ...{ 'sidegate.dev/interception': mode, 'sidegate.dev/app-container': 'web', 'sidegate.dev/app-port': '8080' },
    };
    const run = () =>
      inject(annotations, {
        containers: [
          { ...web, ports },
          { ...proxy, env },
        ],
      });
    if (expected === 'denied') return expect(run).toThrow(message);
    const warnings = run().warnings.filter((text) => text.includes('mesh'));
    expect(warnings).toEqual(expected === undefined ? [] : [expect.stringMatching(expected)]);
    for (const each of warnings) expect(`sidegate: ${each}`.length).toBeLessThanOrEqual(256);
  });

  test.each(['service', 'rename'])('is accepted with interception %s, where the app keeps its port', (mode) => {
    const annotations = { 'sidegate.dev/interception': mode, 'sidegate.dev/app-container': 'web' };
    expect(inject(annotations, asked(15_020, '/app-health/web/livez')).outcome).toBe('injected');
  });
});

test('rename warns of a second name of the port, which still refers to the app', () => {
  const containers = [{ ...WEB, ports: [...WEB.ports, { name: 'web', containerPort: 8080 }, { containerPort: 8080 }] }];
  const { warnings } = inject({ 'sidegate.dev/interception': 'rename', 'sidegate.dev/app-port': 'http' }, { containers });
  expect(warnings).toEqual([expect.stringMatching(/^port 8080 of the container web also has the name web, which still refers/)]);
});

test.each([
  ['env', { name: 'PORT', value: '8482' }],
  ['same-port:HOST', { name: 'HOST', value: '127.0.0.1' }],
])('%s sets a new variable before those that may refer to it', (interception, value) => {
  const containers = [{ ...WEB, env: [{ name: 'URL', value: 'http://$(HOST):$(PORT)' }] }];
  const { patch } = inject({ 'sidegate.dev/interception': interception }, { containers });
  expect(patch).toContainEqual({ op: 'add', path: '/spec/containers/0/env/0', value });
});

describe('a hook over the network', () => {
  const AUTHORIZATION = [{ name: 'Authorization', value: 'Basic YTpi' }];
  const stop = (port: unknown) => ({ preStop: { httpGet: { path: '/admin/shutdown', port, httpHeaders: AUTHORIZATION } } });
  const samePort = { 'sidegate.dev/interception': 'same-port' };

  test.each([
    ['of the app', [{ ...WEB, lifecycle: stop('http') }], 'the container web (preStop) uses port 8080'],
    [
      'at the start',
      [{ ...WEB, lifecycle: { postStart: { tcpSocket: { port: 8080 } } } }],
      'the container web (postStart) uses port 8080',
    ],
    ['of another container', [WEB, { name: 'b', lifecycle: stop(8080) }], 'the container b (preStop) uses port 8080'],
    [
      'on a port that is not declared',
      [{ ...WEB, lifecycle: stop('stop') }],
      'the container web (preStop) uses the name of a port that it does not declare',
    ],
  ])('is denied if same-port takes its port: %s', (_which, containers, message) => {
    expect(() => inject(samePort, { containers })).toThrow(message);
  });

  test('is not relayed by the sidecar, and stays unchanged if it uses another port', () => {
    const { sidecar, warnings, paths } = inject(samePort, { containers: [{ ...WEB, lifecycle: stop(9100) }] });
    expect(sidecar.args.join(' ')).not.toContain('--app-probe');
    expect(paths.filter((path) => path.includes('preStop'))).toEqual([]);
    expect(warnings).toContain("the container web (preStop) uses port 9100: that port must stay open on the pod's address");
  });
});

describe('the app', () => {
  const [a, b] = [{ name: 'a' }, { name: 'b' }];

  test.each([
    ['the one with a port of the name', { 'sidegate.dev/app-port': 'http' }, [{ ...b, ports: [{ containerPort: 1 }] }, WEB]],
    ['the one that declares a port', {}, [a, WEB, b]],
    [
      'the one that others go by',
      { 'kubectl.kubernetes.io/default-container': 'web' },
      [{ ...a, ports: [{ containerPort: 1 }] }, WEB],
    ],
    ['the one that is named', { 'sidegate.dev/app-container': 'web' }, [{ ...a, ports: [{ containerPort: 1 }] }, WEB]],
  ])('is %s', (_which, annotations, containers) => {
    expect(inject(annotations, { containers }).summary).toContain('in front of web on port 8080');
  });

  test.each([
    [{ 'sidegate.dev/app-container': 'c' }, [a, b], 'sidegate.dev/app-container is c, but the pod has the containers a, b'],
    [
      { 'sidegate.dev/app-port': 'grpc' },
      [WEB],
      'the container web declares no TCP port named grpc, which is the value of sidegate.dev/app-port (it has http: 8080)',
    ],
  ])('is unclear with %j', (annotations, containers, message) => {
    expect(() => inject(annotations, { containers })).toThrow(message);
  });

  test('may be on a port that it does not declare', () => {
    expect(inject({ 'sidegate.dev/app-port': '9000' }).sidecar.args).toContain('http://127.0.0.1:9000');
  });
});
