import { applyPatch, type Operation } from 'rfc6902';
import { describe, expect, test } from 'vitest';
import { injectPod } from '../../../../src/kubernetes/injector/inject.ts';
import { toSidecarDefaults } from '../../../../src/kubernetes/injector/injector-config.ts';
import type { InjectContext } from '../../../../src/kubernetes/injector/outcome.ts';
import { findDifferences, findNamed, findPodFaults } from '../../../../src/kubernetes/injector/sidecar-check.ts';
import { isAllowedImage } from '../../../../src/kubernetes/injector/sidecar-rules.ts';
import { readStatusText } from '../../../../src/kubernetes/injector/status.ts';
import { changesOf, isFreeChange, takingsOf, withTwoMounts } from '../../../support/changed-pods.ts';
import { TAMPERED } from '../../../support/tampered-sidecars.ts';

// biome-ignore lint/suspicious/noExplicitAny: tests reach deep into objects that they have just written
type Json = any;

const DEFAULTS = toSidecarDefaults('sidegate:1.0.0');
const CONTEXT: InjectContext = { defaults: DEFAULTS, version: '1.0.0', kube: { major: 1, minor: 36 }, namespace: 'shop' };
const RULES = { allowedImages: ['sidegate:1.0.0'], allowedEnv: [], allowedMounts: [] };

function makeInjected(annotations: Json = {}, context: Partial<InjectContext> = {}): Json {
  const queue = annotations['sidegate.dev/queue-volume'];
  const pod: Json = {
    metadata: {
      name: 'web',
      labels: { 'sidegate.dev/inject': 'true' },
      annotations: { 'sidegate.dev/config': 'gate', 'sidegate.dev/secrets': 'stripe, users', ...annotations },
    },
    spec: {
      volumes: queue === undefined ? [] : [{ name: queue, persistentVolumeClaim: { claimName: queue } }],
      containers: [
        {
          name: 'web',
          ports: [{ name: 'http', containerPort: 8080 }],
          livenessProbe: { httpGet: { path: '/$x', port: 'http', httpHeaders: [{ name: 'A', value: 'b' }] } },
        },
      ],
    },
  };
  const injection = injectPod(pod, { ...CONTEXT, ...context });
  if (injection.outcome !== 'injected') throw new Error(injection.message);
  applyPatch(pod, structuredClone(injection.patch) as Operation[]);
  return pod;
}

const sidecarOf = (pod: Json): Json => findNamed(pod)?.container;

describe('an injected sidecar', () => {
  test.each([
    ['service', {}],
    ['rename', { 'sidegate.dev/interception': 'rename' }],
    ['same-port', { 'sidegate.dev/interception': 'same-port:HOST' }],
    ['env', { 'sidegate.dev/interception': 'env' }],
    ['a volume for its queue', { 'sidegate.dev/queue-volume': 'queue' }],
    ['a plain container', { 'sidegate.dev/sidecar': 'container', 'sidegate.dev/port': '9000' }],
  ])('has no differences with %s', (_which, annotations) => {
    const pod = makeInjected(annotations);
    expect(findDifferences(pod, RULES)).toEqual([]);
    expect(findPodFaults(pod)).toEqual([]);
    expect(injectPod(pod, CONTEXT)).toMatchObject({ outcome: 'skipped', reason: 'already_injected' });
  });

  test('has no differences as stored by the API server, with additions of other admission plug-ins', () => {
    const pod = makeInjected({ 'sidegate.dev/interception': 'same-port' });
    const sidecar = sidecarOf(pod);
    for (const probe of ['startupProbe', 'readinessProbe', 'livenessProbe']) {
      sidecar[probe].timeoutSeconds ??= 1;
      sidecar[probe].successThreshold = 1;
      sidecar[probe].failureThreshold ??= 3;
      sidecar[probe].httpGet.scheme = 'HTTP';
    }
    if (sidecar.lifecycle.preStop.httpGet !== undefined) sidecar.lifecycle.preStop.httpGet.scheme = 'HTTP';
    sidecar.env[0].valueFrom.fieldRef.apiVersion = 'v1';
    for (const volume of pod.spec.volumes) Object.assign(volume.configMap ?? volume.secret ?? {}, { defaultMode: 420 });
    Object.assign(sidecar, {
      terminationMessagePath: '/dev/termination-log',
      imagePullPolicy: 'Always',
      resources: { limits: { memory: '1Gi' } },
      resizePolicy: [{ resourceName: 'memory', restartPolicy: 'NotRequired' }],
      stdin: false,
      command: [],
    });
    const token = { name: 'aws-iam-token', mountPath: '/var/run/secrets/eks.amazonaws.com/serviceaccount', readOnly: true };
    sidecar.volumeMounts.push(token);
    pod.spec.volumes.push({ name: token.name, projected: { sources: [] } }, { name: 'vault', secret: { secretName: 'vault' } });
    sidecar.env.push({ name: 'AWS_ROLE_ARN', value: 'arn' });
    expect(findDifferences(pod, RULES)).toEqual(['env AWS_ROLE_ARN']);
    expect(findDifferences(pod, { ...RULES, allowedEnv: ['AWS_ROLE_ARN'] })).toEqual([]);
    sidecar.resources.limits['ephemeral-storage'] = '1Gi';
    sidecar.volumeMounts.push({ name: 'vault', mountPath: '/vault/secrets' });
    expect(findDifferences(pod, { ...RULES, allowedEnv: ['AWS_ROLE_ARN'] })).toEqual(['volumeMounts /vault/secrets']);
    expect(findDifferences(pod, { ...RULES, allowedEnv: ['AWS_ROLE_ARN'], allowedMounts: ['/vault/secrets'] })).toEqual([]);
  });

  test.each([
    ['read-only', { readOnly: true }],
    ['in part', { subPath: 'a' }],
    ['at another path', { mountPath: '/var/lib/sidegate/a' }],
    ['over the program', { mountPath: '/opt/sidegate' }],
  ])('differs if the volume of the queue is mounted %s', (_how, over) => {
    const pod = makeInjected({ 'sidegate.dev/queue-volume': 'queue' });
    Object.assign(sidecarOf(pod).volumeMounts.at(-1), over);
    expect(findDifferences(pod, RULES)?.join()).toContain('volumeMounts');
  });

  test('differs by a setting to change if Istio rewrote its probes', () => {
    const pod = makeInjected();
    for (const [probe, path] of Object.entries({ startupProbe: 'startupz', readinessProbe: 'readyz', livenessProbe: 'livez' }))
      Object.assign(sidecarOf(pod)[probe].httpGet, { path: `/app-health/sidegate/${path}`, port: 15_020 });
    expect(findDifferences(pod, RULES)).toEqual([
      'startupProbe',
      'readinessProbe',
      'livenessProbe (rewritten by a mesh; with Istio, set sidecar.istio.io/rewriteAppHTTPProbers: "false" on the pod)',
    ]);
  });

  test('differs if two volumes are mounted for the queue', () => {
    const pod = makeInjected({ 'sidegate.dev/queue-volume': 'queue' });
    sidecarOf(pod).volumeMounts.push({ name: 'other', mountPath: '/var/lib/sidegate' });
    expect(findDifferences(pod, RULES)).toEqual(['volumeMounts /var/lib/sidegate']);
  });

  test('differs if the app mounts the volume of the queue as well', () => {
    const pod = makeInjected({ 'sidegate.dev/queue-volume': 'queue' });
    pod.spec.containers[0].volumeMounts = [{ name: 'queue', mountPath: '/data' }];
    expect(findDifferences(pod, RULES)).toEqual(['a volume of the sidecar in web']);
  });

  test('differs if a second container has its name', () => {
    const pod = makeInjected();
    pod.spec.containers.push({ name: 'sidegate', image: 'sidegate:1.0.0' });
    expect(findDifferences(pod, RULES)).toEqual(['several containers of the name']);
  });

  test('may start after the init containers that the cluster allows', () => {
    const pod = makeInjected();
    pod.spec.initContainers.unshift({ name: 'istio-init' }, { name: 'other' });
    expect(findDifferences(pod, { ...RULES, allowedInitContainers: ['istio-init'] })).toEqual(['other before sidegate']);
  });

  test('is distinguished from a pod without one', () => {
    expect(findDifferences({ spec: { containers: [{ name: 'web' }] } }, RULES)).toBeUndefined();
  });
});

const CASES: readonly (readonly [string, Json])[] = [
  ['service', { 'sidegate.dev/port': '8480', 'sidegate.dev/admin-port': '8481', 'sidegate.dev/app-port': '8080' }],
  ['rename', { 'sidegate.dev/interception': 'rename', 'sidegate.dev/app-port': 'http' }],
  ['same-port', { 'sidegate.dev/interception': 'same-port:HOST' }],
  ['env', { 'sidegate.dev/interception': 'env' }],
  ['a volume for its queue', { 'sidegate.dev/queue-volume': 'queue' }],
  ['a plain container', { 'sidegate.dev/sidecar': 'container', 'sidegate.dev/pre-stop': '0s' }],
];

test.each(CASES)('any change of an injected pod with %s is found', (_which, annotations) => {
  const pod = makeInjected(annotations);
  const isFound = (changed: Json): boolean => (findDifferences(changed, RULES) ?? ['no sidecar']).length > 0;
  const changes = [...changesOf(pod), ...takingsOf(pod)];
  expect(changes.length).toBeGreaterThan(220);
  expect(changes.filter(({ what, pod: changed }) => !isFreeChange(what) && !isFound(changed)).map(({ what }) => what)).toEqual(
    [],
  );
});

test('of any two added mounts, only Secrets, ConfigMaps and projected volumes beside each other are accepted', () => {
  const pod = makeInjected();
  const isAccepted = (changed: Json): boolean => findDifferences(changed, RULES)?.length === 0;
  const wrong = [...withTwoMounts(pod)].filter(({ pod: changed, isFree }) => isAccepted(changed) !== isFree);
  expect(wrong.map(({ what }) => what)).toEqual([]);
});

test.each<[string, string, Json]>([
  ['a volume that the app can fill', '/certs', { emptyDir: {} }],
  ['a mount in that of the queue', '/var/lib/sidegate/a', { secret: { secretName: 'a' } }],
  ['a mount over that of the queue', '/var/lib', { secret: { secretName: 'a' } }],
])('not even an allowed path may have %s', (_what, mountPath, source) => {
  const pod = makeInjected({ 'sidegate.dev/queue-volume': 'queue' });
  pod.spec.volumes.push({ name: 'mine', ...source });
  sidecarOf(pod).volumeMounts.push({ name: 'mine', mountPath });
  expect(findDifferences(pod, { ...RULES, allowedMounts: [mountPath] })?.join()).toContain('volumeMounts');
});

test('the message about an added mount at an allowed path names the kinds of volumes that it may have', () => {
  const pod = makeInjected();
  pod.spec.volumes.push({ name: 'home', emptyDir: { medium: 'Memory' } });
  sidecarOf(pod).volumeMounts.push({ name: 'home', mountPath: '/vault/secrets' });
  expect(findDifferences(pod, { ...RULES, allowedMounts: ['/vault/secrets'] })).toEqual([
    'volumeMounts /vault/secrets (its volume must be a Secret, a ConfigMap or projected)',
  ]);
  expect(findDifferences(pod, RULES)).toEqual(['volumeMounts /vault/secrets']);
});

test.each(['http://127.0.0.1:8481/prestop', 'tcp://127.0.0.1:8481'])(
  'differs if a probe of the app makes the sidecar ask %s',
  (url) => {
    const pod = makeInjected({ 'sidegate.dev/interception': 'same-port' });
    Object.assign(pod.spec.containers[0].livenessProbe.httpGet, { path: `/app-health/web/livez?${url}`, httpHeaders: [] });
    const { args } = sidecarOf(pod);
    args[args.length - 1] = `--app-probe=web/livez=${url}`;
    expect(findDifferences(pod, RULES)).toEqual(['args']);
  },
);

describe('a container with the name of the sidecar and the marks of an injected pod', () => {
  test.each(TAMPERED.map(({ what, tamper, named }) => [what, tamper, named] as const))(
    'does not count as the sidecar with %s',
    (_what, tamper, named) => {
      const pod = makeInjected();
      tamper(sidecarOf(pod), pod);
      expect(findDifferences(pod, RULES)?.join(', ')).toContain(named);
      const injection = injectPod(pod, CONTEXT);
      expect(injection).toMatchObject({ outcome: 'denied', reason: 'sidecar_damaged' });
      expect((injection as { message: string }).message).toContain(named);
    },
  );

  test('is denied with a message about webhooks if only its restartPolicy was lost', () => {
    const pod = makeInjected();
    delete sidecarOf(pod).restartPolicy;
    const injection = injectPod(pod, CONTEXT) as { message: string };
    expect(injection.message).toMatch(
      /^the injected sidecar has no restartPolicy: Always, probably because another admission webhook removed it/,
    );
  });

  test.each([
    ['volumeMounts', (index: number) => ({ name: `sidegate-secret-${index}`, mountPath: `/${index}` })],
    ['env', (index: number) => ({ name: `A${index}`, value: 'x' })],
    ['args', (index: number) => `--listen=:${index}`],
    ['ports', (index: number) => ({ containerPort: index })],
  ])('does not block the injector with 50,000 %s, and gets a short message', (field, make) => {
    const pod = makeInjected();
    sidecarOf(pod)[field] = [...(sidecarOf(pod)[field] ?? []), ...Array.from({ length: 50_000 }, (_, index) => make(index))];
    const started = performance.now();
    const injection = injectPod(pod, CONTEXT) as { outcome: string; message: string };
    // Each with each would be billions of comparisons.
    expect(performance.now() - started).toBeLessThan(2_000);
    expect(injection.outcome).toBe('denied');
    expect(injection.message.length).toBeLessThan(1_000);
  });

  test('does not block the injector with 80,000 names of the claim of its queue', () => {
    const pod = makeInjected({ 'sidegate.dev/queue-volume': 'queue' });
    const names = Array.from({ length: 80_000 }, (_, index) => `again-${index}`);
    for (const name of names) pod.spec.volumes.push({ name, persistentVolumeClaim: { claimName: 'queue' } });
    pod.spec.containers[0].volumeMounts = names.toReversed().map((name) => ({ name, mountPath: `/${name}` }));
    const started = performance.now();
    expect(findDifferences(pod, RULES)).toEqual(['a volume of the sidecar in web']);
    expect(performance.now() - started).toBeLessThan(2_000);
  });

  test('does not block the injector with probes of 20,000 containers in another order', () => {
    const pod = makeInjected({ 'sidegate.dev/interception': 'same-port' });
    const target = 'tcp://127.0.0.1:1';
    const names = Array.from({ length: 20_000 }, (_, index) => `app-${String(index).padStart(5, '0')}`);
    for (const name of names) {
      const httpGet = { path: `/app-health/${name}/livez?${target}`, port: 8481 };
      pod.spec.containers.push({ name, livenessProbe: { httpGet } });
    }
    sidecarOf(pod).args.push(...names.toReversed().map((name) => `--app-probe=${name}/livez=${target}`));
    const started = performance.now();
    findDifferences(pod, RULES);
    expect(performance.now() - started).toBeLessThan(2_000);
  });

  test('does not count as the sidecar with another address', () => {
    const pod = makeInjected({ 'sidegate.dev/interception': 'same-port' });
    sidecarOf(pod).env = [{ name: 'SIDEGATE_POD_IPS', value: '127.0.0.1' }];
    expect(findDifferences(pod, { allowedEnv: ['SIDEGATE_POD_IPS_2'], allowedMounts: [] })).toEqual(['env SIDEGATE_POD_IPS']);
  });

  test('is denied by the injector with an image that is not allowed, in a message that cannot be forged', () => {
    const pod = makeInjected();
    sidecarOf(pod).image = `busybox\u001b[2J${'x'.repeat(200)}`;
    const injection = injectPod(pod, { ...CONTEXT, defaults: { ...DEFAULTS, allowedImages: ['sidegate'] } });
    expect(injection.outcome).toBe('denied');
    expect((injection as { message: string }).message).toMatch(/\(image busybox \[2Jx{50,}…\)/);
  });
});

describe('a pod with a valid sidecar', () => {
  test.each([
    ['hostPID: true', { hostPID: true }, 'hostPID'],
    ['shareProcessNamespace: true', { shareProcessNamespace: true }, 'shareProcessNamespace'],
    ['hostNetwork: true', { hostNetwork: true }, 'hostNetwork'],
    [
      'an ephemeral container in its process namespace',
      { ephemeralContainers: [{ name: 'debug', targetContainerName: 'sidegate' }] },
      'ephemeral container debug',
    ],
    [
      'an ephemeral container with its user',
      { ephemeralContainers: [{ name: 'debug', securityContext: { runAsUser: 64_480 } }] },
      'debug runs as user 64480',
    ],
    [
      'an ephemeral container with its user from the pod',
      { securityContext: { runAsUser: 64_480 }, ephemeralContainers: [{ name: 'debug' }] },
      'debug runs as user 64480',
    ],
    [
      'an ephemeral container with one of its volumes',
      { ephemeralContainers: [{ name: 'debug', volumeMounts: [{ name: 'sidegate-secret-1', mountPath: '/a' }] }] },
      'debug mounts sidegate-secret-1',
    ],
    [
      'an ephemeral container with one of its devices',
      { ephemeralContainers: [{ name: 'debug', volumeDevices: [{ name: 'sidegate-secret-1', devicePath: '/a' }] }] },
      'debug mounts sidegate-secret-1',
    ],
  ])('has a fault with %s, and is denied', (_what, spec, named) => {
    const pod = makeInjected();
    Object.assign(pod.spec, spec);
    expect(
      findPodFaults(pod)
        .map(({ text }) => text)
        .join(),
    ).toContain(named);
    expect(injectPod(pod, CONTEXT)).toMatchObject({ outcome: 'denied' });
  });

  test.each(['queue', 'again'])(
    'has a fault with an ephemeral container that mounts %s, which has the claim of its queue',
    (name) => {
      const claim = (volume: string): Json => ({ name: volume, persistentVolumeClaim: { claimName: 'q' } });
      const pod = makeInjected({ 'sidegate.dev/queue-volume': 'queue' });
      pod.spec.volumes = pod.spec.volumes
        .filter((volume: Json) => volume.name !== 'queue')
        .concat([claim('queue'), claim('again')]);
      pod.spec.ephemeralContainers = [{ name: 'debug', volumeMounts: [{ name, mountPath: '/a' }] }];
      expect(findPodFaults(pod).map(({ text }) => text)).toEqual([`the ephemeral container debug mounts ${name}`]);
    },
  );

  test.each([
    ['is not JSON', 'x"takeover":"rename"'],
    ['has spaces', '{"version":"1.0.0", "takeover":"rename","sidecar":"native","hash":"a"}'],
    ['has another mode', '{"version":"1.0.0","takeover":"renamed","sidecar":"native","hash":"a"}'],
  ])('has no status if its annotation %s, as for the admission policies', (_what, status) => {
    const pod = makeInjected();
    pod.metadata.annotations['sidegate.dev/status'] = status;
    expect(readStatusText(pod)).toBeUndefined();
  });

  test.each(['Never', 'OnFailure'])('has a fault with restartPolicy: %s beside a plain container', (restartPolicy) => {
    const pod = makeInjected({ 'sidegate.dev/sidecar': 'container' });
    pod.spec.restartPolicy = restartPolicy;
    expect(findPodFaults(pod)).toEqual([{ kind: 'end', text: `restartPolicy: ${restartPolicy} of the pod` }]);
    const native = makeInjected();
    native.spec.restartPolicy = restartPolicy;
    expect(findPodFaults(native)).toEqual([]);
  });
});

describe('a new pod', () => {
  const make = (spec: Json, annotations: Json = {}): Json => ({
    metadata: { labels: { 'sidegate.dev/inject': 'true' }, annotations: { 'sidegate.dev/config': 'gate', ...annotations } },
    spec: { containers: [{ name: 'web', ports: [{ containerPort: 8080 }] }], ...spec },
  });

  test.each(['hostPID', 'shareProcessNamespace'])('is denied with %s, with the reason', (key) => {
    const injection = injectPod(make({ [key]: true }), CONTEXT);
    expect(injection).toMatchObject({ outcome: 'denied', reason: 'shared_processes' });
    expect((injection as { message: string }).message).toContain('could read the secrets in the sidecar');
  });

  test.each<[string, Json, Json, string, string]>([
    ['the user of the sidecar', { securityContext: { runAsUser: 64_480 } }, {}, 'port_taken', 'runs as user 64480'],
    [
      'a volume of the sidecar',
      {},
      { volumeMounts: [{ name: 'sidegate-config', mountPath: '/a' }] },
      'name_taken',
      'mounts sidegate-config',
    ],
    [
      'a UDP port with a name of the sidecar',
      {},
      { ports: [{ containerPort: 8080 }, { name: 'sidegate', containerPort: 53, protocol: 'UDP' }] },
      'name_taken',
      'a port named sidegate',
    ],
  ])('is denied with %s, with the reason', (_what, spec, container, reason, message) => {
    const injection = injectPod(
      make({ ...spec, containers: [{ name: 'web', ports: [{ containerPort: 8080 }], ...container }] }),
      CONTEXT,
    );
    expect(injection).toMatchObject({ outcome: 'denied', reason });
    expect((injection as { message: string }).message).toContain(message);
  });

  test.each(['httpGet', 'tcpSocket'])('is denied with a probe (%s) of the admin port that the sidecar would answer', (action) => {
    const livenessProbe = { [action]: { port: 8481 } };
    const pod = make(
      { containers: [{ name: 'web', ports: [{ containerPort: 8080 }], livenessProbe }] },
      { 'sidegate.dev/interception': 'same-port' },
    );
    const injection = injectPod(pod, CONTEXT);
    expect(injection).toMatchObject({ outcome: 'denied', reason: 'probe_unreachable' });
    expect((injection as { message: string }).message).toContain('8481, which is the admin port of the sidecar');
  });

  test.each([8480, 8481])('is denied with an init container that ends and declares port %i', (containerPort) => {
    const pod = make({ initContainers: [{ name: 'first', ports: [{ containerPort }] }] });
    expect(injectPod(pod, CONTEXT)).toMatchObject({
      outcome: 'denied',
      message: expect.stringContaining(`the container first uses port ${containerPort}`),
    });
  });

  test.each<[string, Json, Json]>([
    [
      'in the app under another name',
      { persistentVolumeClaim: { claimName: 'q' } },
      { volumeMounts: [{ name: 'b', mountPath: '/a' }] },
    ],
    [
      'in the app as a device',
      { persistentVolumeClaim: { claimName: 'q' } },
      { volumeDevices: [{ name: 'a', devicePath: '/a' }] },
    ],
  ])('is denied with the volume of its queue %s', (_how, source, container) => {
    const volumes = ['a', 'b'].map((name) => ({ name, ...source }));
    const pod = make(
      { volumes, containers: [{ name: 'web', ports: [{ containerPort: 8080 }], ...container }] },
      { 'sidegate.dev/queue-volume': 'a' },
    );
    expect(injectPod(pod, CONTEXT)).toMatchObject({
      outcome: 'denied',
      message: expect.stringMatching(/mounts the volume (?:a of|b, which has the claim of) sidegate.dev\/queue-volume/),
    });
  });

  test.each(['hostPath', 'nfs', 'csi', 'configMap'])('is denied with a queue on a volume of the kind %s', (kind) => {
    const pod = make({ volumes: [{ name: 'a', [kind]: {} }] }, { 'sidegate.dev/queue-volume': 'a' });
    expect(injectPod(pod, CONTEXT)).toMatchObject({ outcome: 'denied', message: expect.stringContaining(`of the kind ${kind}`) });
  });

  test('is denied with a control character in a header of a probe that the sidecar answers', () => {
    const httpGet = { path: '/', port: 8080, httpHeaders: [{ name: 'A', value: 'a\nb' }] };
    const pod = make(
      { containers: [{ name: 'web', ports: [{ containerPort: 8080 }], livenessProbe: { httpGet } }] },
      { 'sidegate.dev/interception': 'same-port' },
    );
    expect(injectPod(pod, CONTEXT)).toMatchObject({ outcome: 'denied', reason: 'probe_unreachable' });
  });

  test('does not block the injector with 100,000 ports that take the name for interception rename', () => {
    const taken = Array.from({ length: 100_000 }, (_, index) => ({
      name: `p-app${index === 0 ? '' : index + 1}`,
      protocol: 'UDP',
    }));
    const containers = [{ name: 'web', ports: [{ name: 'p', containerPort: 8080 }, ...taken] }];
    const started = performance.now();
    const injection = injectPod(make({ containers }, { 'sidegate.dev/interception': 'rename' }), CONTEXT);
    expect(performance.now() - started).toBeLessThan(2_000);
    expect(injection.outcome).toBe('injected');
  });

  test('is denied if its plain container would not restart', () => {
    const pod = make({ restartPolicy: 'OnFailure' }, { 'sidegate.dev/sidecar': 'container' });
    expect(injectPod(pod, CONTEXT)).toMatchObject({ outcome: 'denied', reason: 'sidecar_ends' });
  });

  test('is denied with an image that the cluster does not allow, with a hint who can allow it', () => {
    const context = { ...CONTEXT, defaults: { ...DEFAULTS, allowedImages: ['sidegate:1.0.0'] } };
    const injection = injectPod(make({}, { 'sidegate.dev/image': 'mirror.example/sidegate:1.0.0' }), context);
    expect(injection).toMatchObject({ outcome: 'denied', reason: 'invalid_setting' });
    expect((injection as { message: string }).message).toContain('admission.allowedImages');
    expect(injectPod(make({}), context).outcome).toBe('injected');
  });
});

test.each([
  ['sidegate:1', ['sidegate:1'], true],
  ['sidegate:2', ['sidegate:1'], false],
  ['sidegate:1@sha256:0', ['sidegate:1'], false],
  ['sidegate:1@sha256:0', ['sidegate:1@sha256:0'], true],
  ['sidegate:1@sha256:1', ['sidegate:1@sha256:0'], false],
  ['sidegate@sha256:0@sha256:1', ['sidegate@sha256:0'], false],
  ['sidegate:1:2', ['sidegate:1'], false],
  ['localhost:5000/sidegate@sha256:0', ['localhost:5000/sidegate'], true],
  ['localhost:5000/sidegate:1@sha256:0', ['localhost:5000/sidegate:1'], false],
  ['sidegate:12', ['sidegate:1'], false],
  ['sidegate', ['sidegate'], true],
  ['sidegate:2', ['sidegate'], true],
  ['sidegate@sha256:0', ['sidegate'], true],
  ['sidegate:5000/evil:1', ['sidegate'], false],
  ['sidegate/evil', ['sidegate'], false],
  ['sidegate2', ['sidegate'], false],
  ['busybox', ['*'], true],
  ['busybox', undefined, true],
  ['busybox', [], false],
])('an image %s of %j is allowed: %s', (image, allowed, isAllowed) => {
  expect(isAllowedImage(image, allowed)).toBe(isAllowed);
});
