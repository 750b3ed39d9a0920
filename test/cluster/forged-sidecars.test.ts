/** Attacks of a tenant on the validating policies: whoever may write pods of a namespace tries to run one whose gate is another program. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { changesOf, isFreeChange, takingsOf, withTwoMounts } from '../support/changed-pods.ts';
import { renderChart } from '../support/chart.ts';
import { type Cluster, useCluster } from '../support/cluster/cluster.ts';
import type { Kube } from '../support/cluster/kube-request.ts';
import { makePod } from '../support/cluster/pods.ts';
import { until } from '../support/gate.ts';
import { makeSidecar, makeSidecarVolumes } from '../support/sidecar.ts';
import { TAMPERED } from '../support/tampered-sidecars.ts';

const IMAGE = 'registry.example.com/sidegate:1.0.0';
const LABEL = { 'sidegate.dev/inject': 'true' };
const STATUS = '{"version":"1.0.0","takeover":"service","sidecar":"native","hash":"0123456789ab"}';
/** All marks of an injected pod, which anyone can copy. */
const MARKS = { labels: { ...LABEL, 'sidegate.dev/injected': 'true' }, annotations: { 'sidegate.dev/status': STATUS } };
const TOKENS = { name: 'aws-iam-token', projected: { sources: [{ serviceAccountToken: { path: 'token' } }] } };
const TOKEN = { name: TOKENS.name, mountPath: '/var/run/secrets/eks.amazonaws.com/serviceaccount', readOnly: true };

describe.each(['1.34', '1.36'] as const)('on Kubernetes %s', (version) => {
  let cluster: Cluster;
  let namespace: string;
  let enforced: string;
  let names = 0;

  const make = (spec: Kube = {}, metadata: Kube = MARKS, values: Kube = {}): Kube =>
    makePod(`pod-${names++}`, {
      metadata: structuredClone(metadata),
      spec: { volumes: makeSidecarVolumes(), initContainers: [makeSidecar({ image: IMAGE }, values)], ...spec },
    });
  const create = (pod: Kube, where = namespace): Promise<{ status: number; body: Kube }> =>
    cluster.create(pod, { namespace: where });
  const patch = (name: string, body: Kube, subresource = ''): Promise<{ status: number; body: Kube }> =>
    cluster.request('PATCH', `/api/v1/namespaces/${namespace}/pods/${name}${subresource}`, body, {
      contentType: 'application/strategic-merge-patch+json',
    });
  /** As a container beside the app. */
  const plain = (spec: Kube = {}): Kube =>
    make({
      initContainers: [],
      containers: [...makePod('a')['spec'].containers, makeSidecar({ image: IMAGE }, { isNative: false, pause: 5 })],
      ...spec,
    });

  /** The app's liveness probe goes to the sidecar, which asks that URL. */
  const probing = (url: string, httpHeaders?: Kube[], asked = url): Kube => {
    const [app] = makePod('a')['spec'].containers;
    const target = JSON.stringify({ url: asked, headers: httpHeaders });
    const appProbe = `app/livez=${(httpHeaders === undefined ? asked : target).replaceAll('$', '$$$$')}`;
    const livenessProbe = { httpGet: { path: `/app-health/app/livez?${url}`, port: 8481, httpHeaders } };
    const values = { isOnPodAddresses: true, isOnAllAddresses: false, port: 8080, appProbes: [{ appProbe }] };
    return make({ containers: [{ ...app, livenessProbe }] }, MARKS, values);
  };

  beforeAll(async () => {
    cluster = await useCluster(version);
    const release = `forged-${version.replace('.', '-')}`;
    const image = { repository: 'registry.example.com/sidegate', tag: '1.0.0' };
    const values = { image, admission: { allowedMounts: ['/vault/secrets'] } };
    const objects = await renderChart(values, { release, kubeVersion: `${version}.0` });
    for (const object of objects.filter(({ kind }) => kind.startsWith('ValidatingAdmissionPolicy')) as Kube[]) {
      // The control plane is shared with other tests: these policies are for these namespaces alone.
      if (object['kind'].endsWith('Binding'))
        object['spec'].matchResources = {
          namespaceSelector: { matchLabels: { release, ...object['spec'].matchResources?.namespaceSelector.matchLabels } },
        };
      const { status, body } = await cluster.create(object);
      expect(status, body.message).toBe(201);
    }
    namespace = await cluster.createNamespace({ release });
    enforced = await cluster.createNamespace({ release, 'sidegate.dev/enforce': 'true' });
    for (const where of [namespace, enforced])
      await until(async () => (await create(make({ initContainers: [] }, { labels: LABEL }), where)).status === 403);
  });
  afterAll(() => cluster?.cleanUp());

  test.each<[string, () => Kube]>([
    ['the sidecar as the injector makes it', () => make()],
    ['one as the library chart makes it, without the label', () => make({}, {})],
    ['one beside the app', () => plain()],
    ['one of a Job', () => make({ restartPolicy: 'Never' })],
    ['one on the addresses of the pod', () => make({}, MARKS, { isOnPodAddresses: true, isOnAllAddresses: false, port: 8080 })],
    ['one that asks for the probe of the app', () => probing('http://127.0.0.1:8080/$(A)')],
    ['one whose probe has headers', () => probing('http://127.0.0.1:8080/', [{ name: 'A', value: '"b\\\\$' }])],
    [
      'one with a volume for its queue',
      () =>
        make({ volumes: [...makeSidecarVolumes(), { name: 'queue', persistentVolumeClaim: { claimName: 'q' } }] }, MARKS, {
          queueVolume: 'queue',
        }),
    ],
    [
      'one with 200 Secrets',
      () => {
        const secrets = Array.from({ length: 200 }, (_, index) => ({ secret: `secret-${index}`, number: index + 1 }));
        const volumes = secrets.map(({ secret, number }) => ({
          name: `sidegate-secret-${number}`,
          secret: { secretName: secret },
        }));
        const annotations = { 'sidegate.dev/secrets': secrets.map(({ secret }) => secret).join(', ') };
        return make({ volumes: [...makeSidecarVolumes().slice(0, 2), ...volumes] }, { ...MARKS, annotations }, { secrets });
      },
    ],
    [
      'one with the identity of a cloud and an allowed mount',
      () => {
        const pod = make({ volumes: [...makeSidecarVolumes(), TOKENS] });
        const [own] = pod['spec'].initContainers;
        Object.assign(own, {
          volumeMounts: [...own.volumeMounts, TOKEN, { name: TOKENS.name, mountPath: '/vault/secrets' }],
          env: [{ name: 'AWS_ROLE_ARN', value: 'arn' }],
          imagePullPolicy: 'Always',
          resources: { limits: { memory: '1Gi' } },
        });
        return pod;
      },
    ],
  ])('allows %s', async (_what, pod) => {
    for (const where of [namespace, enforced]) {
      const { status, body } = await create(pod(), where);
      expect(status, body.message).toBe(201);
    }
  });

  test.each(TAMPERED.map(({ what, tamper, named }) => [what, tamper, named] as const))(
    'denies a container with the name and all marks of the sidecar, with %s',
    async (_what, tamper, named) => {
      for (const where of [namespace, enforced])
        for (const metadata of [MARKS, {}]) {
          const pod = make({}, metadata);
          tamper(pod['spec'].initContainers[0], pod);
          const { status, body } = await create(pod, where);
          expect(body.message).toContain('has a container `sidegate` that is not the one that sidegate');
          expect(body.message).toContain(named);
          expect(status).toBe(403);
        }
    },
  );

  const withQueue = (pod: Kube, annotations: Kube): Kube => {
    const sidecar = [...pod['spec'].initContainers, ...pod['spec'].containers].find(({ name }) => name === 'sidegate');
    sidecar.volumeMounts.push({ name: 'queue', mountPath: '/var/lib/sidegate' });
    pod['spec'].volumes.push({ name: 'queue', persistentVolumeClaim: { claimName: 'queue' } });
    Object.assign(pod['metadata'].annotations, {
      'sidegate.dev/config': 'gate',
      'sidegate.dev/secrets': 'signing',
      'sidegate.dev/queue-volume': 'queue',
      ...annotations,
    });
    return pod;
  };
  const withPorts = (pod: Kube, ports: Kube[]): Kube => {
    Object.assign(pod['spec'].containers[0], { ports });
    return pod;
  };

  test.each<[string, () => Kube, Kube]>([
    [
      'same-port, with a probe and a queue',
      () => probing('http://127.0.0.1:8080/healthz'),
      { 'sidegate.dev/app-port': '8080', 'sidegate.dev/interception': 'same-port' },
    ],
    ['service, in a plain container', () => plain(), { 'sidegate.dev/port': '8480', 'sidegate.dev/sidecar': 'container' }],
    [
      'rename',
      () => withPorts(make({}, MARKS, { portName: 'http' }), [{ name: 'http-app', containerPort: 8080 }]),
      { 'sidegate.dev/interception': 'rename', 'sidegate.dev/app-port': 'http' },
    ],
    [
      'env',
      () => withPorts(make({}, MARKS, { port: 8080, appPort: 8482 }), [{ containerPort: 8080 }]),
      { 'sidegate.dev/interception': 'env', 'sidegate.dev/admin-port': '8481' },
    ],
  ])('denies any single change of the sidecar with %s, its volumes or its settings', async (_which, toPod, annotations) => {
    const pod = withQueue(toPod(), annotations);
    const dryRun = (each: Kube) => cluster.create(each, { namespace, isDryRun: true });
    const { body: stored, status } = await dryRun(pod);
    expect(status, stored['message']).toBe(201);
    // A field that the API server does not know, or that it sets to its default, makes no other pod.
    const known = JSON.stringify(stored['spec']);
    const isAccepted = async (changed: Kube): Promise<boolean> => {
      const { status: answered, body } = await dryRun(changed);
      return answered === 201 && !(body['kind'] === 'Pod' && JSON.stringify(body['spec']) === known);
    };
    const accepted: string[] = [];
    for (const { what, pod: changed } of [...changesOf(pod), ...takingsOf(pod)])
      if (!isFreeChange(what) && (await isAccepted(changed))) accepted.push(what);
    expect(accepted).toEqual([]);
  });

  test('allows two added mounts only of Secrets, ConfigMaps and projected volumes beside each other', async () => {
    const wrong: string[] = [];
    for (const { what, pod, isFree } of withTwoMounts(make())) {
      const { status } = await cluster.create(pod, { namespace, isDryRun: true });
      if ((status === 201) !== isFree) wrong.push(what);
    }
    expect(wrong).toEqual([]);
  });

  test('says which volumes an added mount at an allowed path may have', async () => {
    const pod = make({ volumes: [...makeSidecarVolumes(), { name: 'home', emptyDir: {} }] });
    pod['spec'].initContainers[0].volumeMounts.push({ name: 'home', mountPath: '/vault/secrets' });
    const { body } = await create(pod);
    expect(body.message).toContain('volumeMounts /vault/secrets (its volume must be a Secret, a ConfigMap or projected)');
  });

  test('denies the volume of the queue in the app', async () => {
    const volumes = [...makeSidecarVolumes(), { name: 'queue', persistentVolumeClaim: { claimName: 'q' } }];
    const pod = make({ volumes }, MARKS, { queueVolume: 'queue' });
    pod['spec'].containers[0].volumeMounts = [{ name: 'queue', mountPath: '/data' }];
    expect((await create(pod)).body.message).toContain('a volume of the sidecar in app');
  });

  test('denies a probe of the app that asks another path than the pod says', async () => {
    const { body } = await create(probing('http://127.0.0.1:8080/healthz', undefined, 'http://127.0.0.1:8080/admin/delete'));
    expect(body.message).toContain('args');
    const elsewhere = 'http://169.254.169.254/';
    expect((await create(probing(elsewhere))).body.message).toContain('args');
    expect((await create(probing('http://127.0.0.1:8481/prestop'))).body.message).toContain('args');
  });

  test('denies the name of its port on the port of the app, with interception rename', async () => {
    const pod = make({}, { ...MARKS, annotations: { 'sidegate.dev/interception': 'rename' } }, { portName: 'http' });
    pod['spec'].containers[0].ports = [{ name: 'http-app', containerPort: 8080 }];
    const created = await create(structuredClone(pod));
    expect(created.status, created.body.message).toBe(201);
    pod['spec'].containers[0].ports = [{ name: 'http', containerPort: 8080 }];
    expect((await create(pod)).body.message).toContain('a port name of app');
  });

  test('denies an address that is not that of the pod', async () => {
    const pod = make({}, MARKS, { isOnPodAddresses: true, isOnAllAddresses: false, port: 8080 });
    pod['spec'].initContainers[0].env = [{ name: 'SIDEGATE_POD_IPS', value: '127.0.0.1' }];
    expect((await create(pod)).body.message).toContain('env SIDEGATE_POD_IPS');
  });

  test.each([
    ['shareProcessNamespace', { shareProcessNamespace: true }],
    ['hostPID', { hostPID: true }],
    ['hostNetwork', { hostNetwork: true }],
  ])('denies %s beside the sidecar, with the reason', async (key, spec) => {
    const pod = make(spec);
    // The API server wants the same hostPort then.
    if (key === 'hostNetwork') delete pod['spec'].containers[0].ports;
    const { status, body } = await create(pod);
    expect(body.message).toContain(`has ${key}: true and a sidecar`);
    expect(status).toBe(403);
  });

  test.each(['Never', 'OnFailure'])(
    'denies restartPolicy: %s beside a sidecar that is a plain container',
    async (restartPolicy) => {
      const { body } = await create(plain({ restartPolicy }));
      expect(body.message).toContain(`has the restartPolicy ${restartPolicy} and a sidecar`);
    },
  );

  test('denies a port with the name that Services use on any other container, in unlabelled pods', async () => {
    const ports = [{ name: 'sidegate', containerPort: 8480 }];
    const pod = makePod('canary', { metadata: { labels: { app: 'web' } }, container: { ports } });
    expect((await create(pod)).body.message).toContain('has a port named sidegate on another container than the sidecar');
  });

  test.each([
    'busybox:1',
    'registry.example.com/sidegate:1.0.1',
    'mirror.example.com/sidegate:1.0.0',
    'registry.example.com/sidegate',
    `registry.example.com/sidegate:1.0.0@sha256:${'0'.repeat(64)}`,
  ])('denies the image %s, because only the image of the chart with its tag is allowed by default', async (image) => {
    const { body } = await create(make({ initContainers: [makeSidecar({ image })] }));
    expect(body.message).toContain(`from ${image}, which is not an allowed image (allowed: ${IMAGE}`);
    expect(body.message).toContain('add its repository to admission.allowedImages');
  });

  describe('in a running pod', () => {
    let name: string;

    beforeAll(async () => {
      name = (await create(make())).body.metadata.name;
    });

    test('denies another image, even after the label was removed', async () => {
      const change = { spec: { initContainers: [{ name: 'sidegate', image: 'busybox:1' }] } };
      expect((await patch(name, change)).body.message).toContain('from busybox:1');
      const unlabelled = { metadata: { labels: { 'sidegate.dev/inject': null, 'sidegate.dev/injected': null } } };
      expect((await patch(name, unlabelled)).status).toBe(200);
      expect((await patch(name, change)).body.message).toContain('from busybox:1');
    });

    test('denies an ephemeral container in the process namespace of the sidecar, and allows another one', async () => {
      const debug = (targetContainerName: string): Kube => ({
        spec: { ephemeralContainers: [{ name: `debug-${targetContainerName}`, image: 'busybox:1', targetContainerName }] },
      });
      const denied = await patch(name, debug('sidegate'), '/ephemeralcontainers');
      expect(denied.body.message).toContain('has an ephemeral container in the process namespace of its sidecar');
      for (const over of [
        { securityContext: { runAsUser: 64_480 } },
        { volumeMounts: [{ name: 'sidegate-secret-1', mountPath: '/a' }] },
      ]) {
        const reaching = { spec: { ephemeralContainers: [{ name: 'reaching', image: 'busybox:1', ...over }] } };
        const { body } = await patch(name, reaching, '/ephemeralcontainers');
        expect(body.message).toContain('or with its user or volumes');
      }
      // Each container of this pod has another user, but an ephemeral one would have that of the pod.
      const ofPod = make({ securityContext: { runAsUser: 64_480 } });
      ofPod['spec'].containers[0].securityContext = { runAsUser: 1 };
      const created = await create(ofPod);
      expect(created.status, created.body.message).toBe(201);
      const inheriting = await patch(created.body.metadata.name, debug('app'), '/ephemeralcontainers');
      expect(inheriting.body.message).toContain('or with its user or volumes');
      const allowed = await patch(name, debug('app'), '/ephemeralcontainers');
      expect(allowed.status, allowed.body.message).toBe(200);
    });

    test('denies an ephemeral container with a volume of the claim of the queue', async () => {
      const claim = (volume: string): Kube => ({ name: volume, persistentVolumeClaim: { claimName: 'q' } });
      const volumes = [...makeSidecarVolumes(), claim('queue'), claim('again')];
      const created = await create(make({ volumes }, MARKS, { queueVolume: 'queue' }));
      expect(created.status, created.body.message).toBe(201);
      for (const volume of ['queue', 'again']) {
        const volumeMounts = [{ name: volume, mountPath: '/a' }];
        const reaching = { spec: { ephemeralContainers: [{ name: 'reaching', image: 'busybox:1', volumeMounts }] } };
        const { body } = await patch(created.body.metadata.name, reaching, '/ephemeralcontainers');
        expect(body.message).toContain('or with its user or volumes');
      }
    });

    test.each([
      ['with', makeSidecarVolumes(), [makeSidecar({ image: IMAGE })], MARKS],
      ['without', [], [], {}],
    ])('allows many ephemeral containers with many mounts in a pod of many containers, %s the sidecar', async (...given) => {
      const [, own, initContainers, metadata] = given;
      const numbers = (count: number): number[] => Array.from({ length: count }, (_, index) => index);
      const containers = numbers(100).map((index) => ({ name: `app-${index}`, image: 'app:1' }));
      const volumes = numbers(50).map((index) => ({ name: `data-${index}`, emptyDir: {} }));
      const volumeMounts = volumes.map((volume) => ({ name: volume.name, mountPath: `/${volume.name}` }));
      const created = await create(make({ containers, initContainers, volumes: [...own, ...volumes] }, metadata));
      expect(created.status, created.body.message).toBe(201);
      const ephemeralContainers = numbers(40).map((index) => ({ name: `debug-${index}`, image: 'busybox:1', volumeMounts }));
      for (const [change, subresource] of [
        [{ spec: { ephemeralContainers } }, '/ephemeralcontainers'],
        [{ metadata: { labels: { other: 'x' } } }, ''],
      ] as const) {
        const { status, body } = await patch(created.body.metadata.name, change, subresource);
        expect(status, body.message).toBe(200);
      }
    });

    test('allows every other change', async () => {
      expect((await patch(name, { metadata: { labels: { other: 'x' } } })).status).toBe(200);
      expect((await patch(name, { spec: { containers: [{ name: 'app', image: 'app:2' }] } })).status).toBe(200);
    });
  });
});
