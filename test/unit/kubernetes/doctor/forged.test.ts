import { describe, expect, test } from 'vitest';
import { diagnose, toJson, toText } from '../../../../src/kubernetes/doctor/report.ts';
import {
  CURRENT,
  type Json,
  makeBare,
  makeDeployment,
  makeFacts,
  makeNetworkPolicy,
  makePod,
  makeService,
  makeTemplate,
  type Over,
  OWNER,
} from '../../../support/doctor.ts';
import { TAMPERED } from '../../../support/tampered-sidecars.ts';

const SUBJECT = { context: 'prod', namespace: 'shop' };
const sidecarOf = (pod: Json): Json => [...(pod.spec.initContainers ?? []), ...pod.spec.containers].find(isSidecar);
const isSidecar = ({ name }: Json): boolean => name === 'sidegate';

function examine(over: Over) {
  const report = diagnose(makeFacts(over));
  const web = report.workloads.find(({ name }) => name === 'web');
  return { report, state: web?.state, pods: web?.pods, codes: (web?.findings ?? []).map(({ code }) => code), web };
}

function examinePod(change: (sidecar: Json, pod: Json) => void, template = makeTemplate(), over: Over = {}) {
  const pod: Json = makePod('web-1-a', template, OWNER);
  change(sidecarOf(pod), pod);
  return examine({ ...makeDeployment(template), pods: [pod], ...over });
}

describe('a container with the name of the sidecar and the marks of an injected pod', () => {
  test.each(TAMPERED.map(({ what, tamper, named }) => [what, tamper, named] as const))(
    'leaves its workload unprotected with %s',
    (_what, tamper, named) => {
      const { report, state, pods, codes } = examinePod(tamper);
      expect([state, pods?.protected]).toEqual(['unprotected', 0]);
      expect(codes).toContain('sidecar-differs');
      for (const text of [toText(report, SUBJECT, false), toJson(report, SUBJECT)]) {
        expect(text).toContain('is not the one that sidegate injects');
        expect(text).toContain(named);
      }
    },
  );

  test('leaves its workload unprotected with an image that the chart does not allow', () => {
    const { state, web } = examinePod((sidecar) => {
      sidecar.image = 'busybox:1';
    });
    expect(state).toBe('unprotected');
    expect(web?.findings[0]?.message).toContain('it differs in image busybox:1');
  });

  test('counts as a stale sidecar with another tag of an allowed image', () => {
    const pod: Json = makePod('web-1-a', makeTemplate(), OWNER);
    const rules = { ...CURRENT.rules, allowedImages: ['sidegate:1.1.0'] };
    const { state, codes } = examine({ pods: [pod], current: { ...CURRENT, rules } });
    expect([state, codes]).toEqual(['protected', ['image-stale']]);
    sidecarOf(pod).image = 'sidegate:5000/evil:1.1.0';
    expect(examine({ pods: [pod], current: { ...CURRENT, rules } }).state).toBe('unprotected');
  });

  test('counts as the sidecar with an older tag of its image, and with additions that the chart allows other webhooks', () => {
    const pod: Json = makePod('web-1-a', makeTemplate(), OWNER);
    sidecarOf(pod).image = 'sidegate:0.9.0';
    sidecarOf(pod).env = [{ name: 'AWS_REGION', value: 'x' }];
    const rules = { ...CURRENT.rules, allowedEnv: ['AWS_REGION'] };
    expect(examine({ pods: [pod], current: { ...CURRENT, rules } }).state).toBe('protected');
  });
});

describe('a sidecar whose ports another container could take first', () => {
  const plain = makeTemplate({ annotations: { 'sidegate.dev/sidecar': 'container' } });
  const restart = (restartCount: number | undefined) => (_sidecar: Json, pod: Json) => {
    Object.assign(pod.status.initContainerStatuses[0], { restartCount });
  };
  const put =
    (where: 'push' | 'unshift', over: Json = {}) =>
    (_sidecar: Json, pod: Json) => {
      pod.spec.initContainers[where]({ name: 'mesh', image: 'x:1', ...over });
    };
  const allowing = { ...CURRENT, rules: { ...CURRENT.rules, allowedInitContainers: ['mesh'] } };
  test.each([
    ['is a plain container', () => undefined, plain, 'it is a plain container'],
    ['restarted', restart(2), undefined, 'it restarted 2 times'],
    ['may have restarted', restart(undefined), undefined, 'it restarted an unknown number of times'],
    [
      'has an allowed init container before it',
      put('unshift'),
      undefined,
      'init containers before it could have taken its ports (mesh)',
    ],
    [
      'has a lasting container before it',
      put('unshift', { restartPolicy: 'Always' }),
      undefined,
      'init containers before it could have taken its ports (mesh)',
    ],
    [
      'is beside an ephemeral container',
      (_sidecar: Json, pod: Json) => {
        pod.spec.ephemeralContainers = [{ name: 'debug', image: 'x:1' }];
      },
      undefined,
      'ephemeral containers could have taken its ports while it started (debug)',
    ],
  ])('leaves its workload injected although it responded, if it %s', (_what, change, template, race) => {
    const { state, pods, codes, web } = examinePod(change, template, { current: allowing });
    expect([state, pods?.protected, codes]).toEqual(['injected', 0, ['gate-not-proven']]);
    expect(web?.findings[0]?.message).toContain(race);
  });

  test('leaves its workload protected if all other init containers follow it', () => {
    expect(examinePod(put('push', { restartPolicy: 'Always' }))).toMatchObject({ state: 'protected', codes: [] });
  });
});

describe('a pod around its sidecar', () => {
  test.each([
    ['shareProcessNamespace', { shareProcessNamespace: true }],
    ['hostPID', { hostPID: true }],
    ['an ephemeral container that targets it', { ephemeralContainers: [{ name: 'debug', targetContainerName: 'sidegate' }] }],
  ])('makes its workload bypassable with %s', (_what, spec) => {
    const { state, codes } = examinePod((_sidecar, pod) => Object.assign(pod.spec, spec));
    expect([state, codes.filter((code) => code !== 'gate-not-proven')]).toEqual(['bypassed', ['processes-shared']]);
  });

  test('leaves its workload unprotected if a plain container does not restart', () => {
    const template = makeTemplate({ annotations: { 'sidegate.dev/sidecar': 'container' } });
    const { state, codes } = examinePod((_sidecar, pod) => {
      pod.spec.restartPolicy = 'Never';
    }, template);
    expect([state, codes]).toEqual(['unprotected', ['sidecar-ends']]);
  });
});

describe('a Service', () => {
  const decoy = makeTemplate({
    annotations: { 'sidegate.dev/app-container': 'decoy', 'sidegate.dev/app-port': '9999' },
    spec: {
      containers: [
        { name: 'web', image: 'web:1', ports: [{ name: 'http', containerPort: 8080 }] },
        { name: 'decoy', image: 'pause:1', ports: [{ containerPort: 9999 }] },
      ],
    },
  });

  test.each([
    ['by number', 8080],
    ['by name', 'http'],
  ])('that targets the app %s makes a workload with a decoy in its annotation bypassable', (_how, targetPort) => {
    const services = [makeService({ ports: [{ port: 80, targetPort }] })];
    const { state, web } = examine({ ...makeDeployment(decoy), pods: [makePod('a', decoy, OWNER)], services });
    expect(state).toBe('bypassed');
    expect(web?.findings.find(({ code }) => code === 'port-beside')?.message).toContain('targets port 8080 of the pod');
  });

  test('is not the only bypass with a decoy: a NetworkPolicy that admits all clients to the app is reported', () => {
    const networkPolicies = [makeNetworkPolicy([{ ports: [{ port: 8480 }, { port: 8481 }, { port: 8080 }] }])];
    const { codes, web } = examine({ ...makeDeployment(decoy), pods: [makePod('a', decoy, OWNER)], networkPolicies });
    expect(codes).toEqual(['network-policy-wide']);
    expect(web?.findings[0]?.message).toContain('port 8080 of the container web');
  });

  test('that only targets the sidecar leaves the workload protected, whatever other containers declare', () => {
    expect(examine({ ...makeDeployment(decoy), pods: [makePod('a', decoy, OWNER)] }).state).toBe('protected');
  });

  const stranger = (spec: Json = {}): Json =>
    makeBare('canary', {
      metadata: { labels: { app: 'web' } },
      spec: { containers: [{ name: 'x', image: 'x:1', ports: [{ name: 'sidegate', containerPort: 8080 }] }], ...spec },
    });
  const beside = (pod: Json, service: Json = {}): Over => ({
    pods: [makePod('web-1-a', makeTemplate(), OWNER), pod],
    services: [makeService(service)],
  });

  test.each([
    ['by the name of its port', stranger(), {}],
    ['by number', stranger({ containers: [{ name: 'x' }] }), { ports: [{ port: 80, targetPort: 8480 }] }],
    ['headless', stranger({ containers: [{ name: 'x' }] }), { clusterIP: 'None' }],
    [
      'that is being deleted',
      { ...stranger(), metadata: { ...stranger().metadata, deletionTimestamp: '2026-01-01T00:00:00Z' } },
      {},
    ],
  ])('that also selects a pod without the sidecar makes the workload bypassable: %s', (_how, pod, service) => {
    const { state, web } = examine(beside(pod, service));
    expect(state).toBe('bypassed');
    expect(web?.findings.find(({ code }) => code === 'service-shared')?.message).toBe(
      'Service web also selects canary, which has no sidecar: some of its requests are not verified',
    );
  });

  test('that also selects a pod with a forged sidecar makes the workload bypassable', () => {
    const forged: Json = makePod('canary');
    sidecarOf(forged).command = ['sleep', 'infinity'];
    expect(examine(beside(forged)).codes).toContain('service-shared');
  });

  test.each([
    ['declares no such port', stranger({ containers: [{ name: 'x' }] })],
    ['has ended', { ...stranger(), status: { phase: 'Succeeded' } }],
    ['is in another namespace', { ...stranger(), metadata: { ...stranger().metadata, namespace: 'other' } }],
    ['has other labels', { ...stranger(), metadata: { ...stranger().metadata, labels: { app: 'other' } } }],
  ])('leaves the workload protected if the pod without the sidecar %s', (_why, pod) => {
    expect(examine(beside(pod)).state).toBe('protected');
  });
});

describe('an EndpointSlice with the label of a Service', () => {
  const other: Json = makePod('other', makeTemplate({ labels: { app: 'other' } }));
  other.status.podIP = '10.1.0.2';
  const bare: Json = makeBare('bare', { metadata: { labels: { app: 'bare' } }, spec: { containers: [{ name: 'x' }] } });
  bare.status.podIP = '10.1.0.3';
  const slice = (endpoint: Json, over: Json = {}): Json => ({
    metadata: { name: 'more', namespace: 'shop', labels: { 'kubernetes.io/service-name': 'web' } },
    addressType: 'IPv4',
    endpoints: [endpoint],
    ports: [{ port: 8480 }],
    ...over,
  });
  const to = (address: string, conditions: Json = { ready: true }): Json => ({ addresses: [address], conditions });
  const over = (endpointSlices: Json[], service: Json = {}): Over => ({
    pods: [makePod('web-1-a', makeTemplate(), OWNER), other, bare],
    services: [makeService(service)],
    endpointSlices,
  });
  const otherNamespace = { name: 'more', namespace: 'other', labels: { 'kubernetes.io/service-name': 'web' } };

  test.each<[string, Json, Json, string]>([
    ['a pod without the sidecar', slice(to('10.1.0.3')), {}, '10.1.0.3'],
    ['an address outside of the namespace', slice(to('192.0.2.7')), {}, '192.0.2.7'],
    ['an address without conditions', slice({ addresses: ['192.0.2.7'] }), {}, '192.0.2.7'],
    ['an address that is serving', slice(to('192.0.2.7', { ready: false, serving: true })), {}, '192.0.2.7'],
    [
      'an unready address of a Service that publishes it',
      slice(to('192.0.2.7', { ready: false, serving: false })),
      { publishNotReadyAddresses: true },
      '192.0.2.7',
    ],
    ['a host name', slice(to('evil.example'), { addressType: 'FQDN' }), {}, 'evil.example'],
    ['the app of another gate', slice(to('10.1.0.2'), { ports: [{ port: 8080 }] }), {}, '10.1.0.2'],
    ['another port of another gate', slice(to('10.1.0.2'), { ports: [{ port: 9000 }] }), {}, '10.1.0.2'],
    ['all ports of another gate', slice(to('10.1.0.2'), { ports: [{}] }), {}, '10.1.0.2'],
    ['an unnamed port of another gate', slice(to('10.1.0.2'), { ports: null }), {}, '10.1.0.2'],
  ])('makes the workload behind the Service bypassable if it leads to %s', (_what, endpointSlice, service, address) => {
    const { state, web } = examine(over([endpointSlice], service));
    expect(state).toBe('bypassed');
    expect(web?.findings).toEqual([
      expect.objectContaining({
        code: 'service-shared',
        severity: 'error',
        message: `EndpointSlice more sends requests of Service web to ${address}, where no sidecar verifies them`,
      }),
    ]);
  });

  test('makes the workload behind a Service without a selector bypassable', () => {
    const own = slice(to('10.1.0.1'), { metadata: { ...slice({}).metadata, name: 'own' } });
    const { state, codes } = examine(over([own, slice(to('192.0.2.7'))], { selector: {} }));
    expect([state, codes]).toEqual(['bypassed', ['service-shared']]);
    expect(examine(over([own], { selector: {} })).state).toBe('protected');
  });

  test.each<[string, Json, string]>([
    ['no port', { ports: null }, 'targets 10.1.0.1 without a port, which some clients read as all ports'],
    ['an empty list of ports', { ports: [] }, 'targets 10.1.0.1 without a port, which some clients read as all ports'],
    ['a port without a number', { ports: [{}] }, 'targets all ports of 10.1.0.1'],
    ['a port that is null', { ports: [{ port: null }] }, 'targets all ports of 10.1.0.1'],
  ])('makes the workload bypassable if it has its address with %s', (_what, ports, message) => {
    const { state, codes, web } = examine(over([slice(to('10.1.0.1'), ports)]));
    expect([state, codes]).toEqual(['bypassed', ['endpoints-to-app']]);
    expect(web?.findings[0]?.message).toContain(message);
  });

  test.each<[string, Json[], Json]>([
    ['the gate itself', [slice(to('10.1.0.1'))], {}],
    ['another gate', [slice(to('10.1.0.2'))], {}],
    ['the gate itself, spelled with leading zeros', [slice(to('010.001.000.001'))], {}],
    ['an address that is not ready', [slice(to('192.0.2.7', { ready: false, serving: false }))], {}],
    ['an address from another namespace', [slice(to('192.0.2.7'), { metadata: otherNamespace })], {}],
    ['the gate itself, of a Service without ports', [slice(to('10.1.0.1'), { ports: null })], { clusterIP: 'None', ports: [] }],
  ])('leaves the workload protected if it leads to %s', (_what, endpointSlices, service) => {
    expect(examine(over(endpointSlices, service))).toMatchObject({ state: 'protected', codes: [] });
  });

  test('repeats nothing about a port of the Service that no sidecar guards', () => {
    const metrics = slice(to('10.1.0.2'), { ports: [{ port: 8480 }, { port: 9000 }] });
    const ports = [{ port: 80, targetPort: 'sidegate' }, { port: 9000 }];
    expect(examine(over([metrics], { ports })).codes).toEqual(['port-beside']);
  });

  test('repeats nothing about a pod that the Service selects', () => {
    const services = [makeService({ ports: [{ port: 80, targetPort: 8480 }] })];
    const selected: Json = { ...bare, metadata: { ...bare.metadata, labels: { app: 'web' } } };
    const { codes } = examine({
      ...over([slice(to('10.1.0.3'))]),
      services,
      pods: [makePod('web-1-a', makeTemplate(), OWNER), selected],
    });
    expect(codes).toEqual(['service-shared']);
  });
});

describe('an EndpointSlice with the port of the app', () => {
  const slice = (address: string, over: Json = {}): Json => ({
    metadata: { name: 'more', namespace: 'shop' },
    addressType: 'IPv4',
    endpoints: [{ addresses: [address] }],
    ports: [{ port: 8080 }],
    ...over,
  });
  const other = { metadata: { name: 'more', namespace: 'other' } };

  test('makes the workload bypassable from any namespace, and in any spelling of the address', () => {
    for (const each of [slice('10.1.0.1'), slice('010.001.000.001'), slice('10.1.0.1', other)])
      expect(examine({ endpointSlices: [each] })).toMatchObject({ state: 'bypassed', codes: ['endpoints-to-app'] });
    expect(examine({ endpointSlices: [slice('10.1.0.1', other)] }).web?.findings[0]?.message).toContain(
      'EndpointSlice other/more',
    );
  });

  test('makes its state unknown if the address cannot be read, or is a name', () => {
    for (const each of [slice('10.1.0.1x'), slice('10.1.0.1x', other), slice('app.example', { addressType: 'FQDN' })])
      expect(examine({ endpointSlices: [each] })).toMatchObject({ state: 'unknown', codes: ['addresses-not-read'] });
    const elsewhere = slice('app.example', { addressType: 'FQDN', ...other });
    for (const each of [slice('10.1.0.1x', { ports: [{ port: 8480 }] }), elsewhere])
      expect(examine({ endpointSlices: [each] })).toMatchObject({ state: 'protected', codes: [] });
  });

  test('cannot be excluded in namespaces that were not read', () => {
    const endpointSlices = { items: [], unread: 'you may not list endpointslices of other namespaces' };
    const { state, codes, report } = examine({ endpointSlices });
    expect([state, codes]).toEqual(['injected', []]);
    expect(report.cluster.map(({ code, message }) => [code, message])).toEqual([
      [
        'not-known',
        'cannot determine which EndpointSlices bypass the sidecar: you may not list endpointslices of other namespaces',
      ],
    ]);
  });

  test('of another namespace is none of a Service with the same name', () => {
    const services = [makeService({ clusterIP: 'None', ports: [] })];
    const labels = { 'kubernetes.io/service-name': 'web' };
    const foreign = slice('10.1.0.1', { metadata: { name: 'more', namespace: 'other', labels }, ports: [] });
    expect(examine({ services, endpointSlices: [foreign] }).state).toBe('bypassed');
  });
});

describe('a headless Service without a selector', () => {
  const hl = (namespace: string, over: Json = {}): Json => ({
    metadata: { name: 'hl', namespace },
    spec: { clusterIP: 'None', ports: [{ port: 8080 }], ...over },
  });
  const slice = (namespace: string, address = '10.1.0.1'): Json => ({
    metadata: { name: 'by-hand', namespace, labels: { 'kubernetes.io/service-name': 'hl' } },
    endpoints: [{ addresses: [address] }],
    ports: [{ port: 8480 }],
  });
  const withService = (service: Json, endpointSlice: Json, more: Json[] = []) =>
    examine({ services: [makeService(), service, ...more], endpointSlices: [endpointSlice] });

  test("makes the workload bypassable if it leads to the app's port, in any namespace", () => {
    for (const namespace of ['shop', 'other'])
      expect(withService(hl(namespace), slice(namespace))).toMatchObject({ state: 'bypassed', codes: ['headless-to-app'] });
    expect(withService(hl('other'), slice('other', '010.001.000.001')).web?.findings[0]?.message).toMatch(
      /^Service other\/hl \(headless\), port 8080, is headless/,
    );
    const selecting = hl('shop', { selector: { app: 'another' } });
    expect(withService(selecting, slice('shop')).codes).toEqual(['headless-to-app']);
  });

  test("makes the workload bypassable if another name of it has the app's port", () => {
    const alias = {
      metadata: { name: 'al', namespace: 'shop' },
      spec: { type: 'ExternalName', externalName: 'hl.shop.svc.cluster.local', ports: [{ port: 8080 }] },
    };
    const onSidecar = hl('shop', { ports: [{ port: 8480 }] });
    expect(withService(onSidecar, slice('shop'), [alias]).codes).toEqual(['external-name-to-app']);
  });

  test.each<[string, Json, Json]>([
    ["has the sidecar's port", hl('shop', { ports: [{ port: 8480 }] }), slice('shop')],
    ['has a cluster IP', hl('shop', { clusterIP: '10.96.0.8' }), slice('shop')],
    ['leads to another address', hl('shop'), slice('shop', '10.1.0.9')],
    ['has the name of one in another namespace', hl('other'), slice('shop')],
  ])('leaves the workload protected if it %s', (_what, service, endpointSlice) => {
    expect(withService(service, endpointSlice)).toMatchObject({ codes: [] });
  });
});

describe('a Service of type ExternalName', () => {
  const alias = (externalName: string, over: Json = {}, name = 'ext'): Json => ({
    metadata: { name, namespace: 'shop' },
    spec: { type: 'ExternalName', externalName, ports: [{ port: 8080 }], ...over },
  });
  const headless = makeService({ clusterIP: 'None', ports: [{ port: 8480 }] }, 'hl');

  test.each<[string, Json[]]>([
    ['a headless Service', [alias('hl.shop.svc.cluster.local')]],
    ['a host of a headless Service', [alias('web-0.HL.shop.svc.cluster.local.')]],
    ['a pod', [alias('10-1-0-1.shop.pod.cluster.local')]],
    ['an address', [alias('10.1.0.1')]],
    ['another name of it', [alias('next.shop.svc.cluster.local'), alias('hl.shop.svc', { ports: [] }, 'next')]],
    ['a target port', [alias('hl.shop.svc', { ports: [{ port: 80, targetPort: 8080 }] })]],
  ])("makes the workload bypassable if it leads to the app's port by %s", (_what, aliases) => {
    const { state, codes } = examine({ services: [makeService(), headless, ...aliases] });
    expect([state, codes]).toEqual(['bypassed', ['external-name-to-app']]);
  });

  test.each<[string, Json]>([
    ['the port of the sidecar', alias('hl.shop.svc.cluster.local', { ports: [{ port: 8480 }] })],
    ['a Service with a cluster IP', alias('web.shop.svc.cluster.local')],
    ['a Service of another namespace', alias('hl.other.svc.cluster.local')],
    ['a host outside of the cluster', alias('shop.example')],
    ['itself', alias('ext.shop.svc.cluster.local')],
  ])('leaves the workload protected if it leads to %s', (_what, each) => {
    expect(examine({ services: [makeService(), headless, each] })).toMatchObject({ state: 'protected', codes: [] });
  });
});

describe('a tenant', () => {
  // Work that grew with the square of a list took more than 20 s.
  test('slows the doctor down only in proportion to the Services and EndpointSlices that it creates', { timeout: 5_000 }, () => {
    const many = (length: number, make: (index: number) => Json): Json[] => Array.from({ length }, (_, index) => make(index));
    const pods = many(100, (i) => {
      const pod: Json = makePod(`web-1-${i}`, makeTemplate(), OWNER);
      return { ...pod, status: { ...pod.status, podIP: `10.2.0.${i}`, podIPs: [] } };
    });
    const aliases = many(1_600, (i) => ({
      metadata: { name: `x${i}`, namespace: 'tenant' },
      spec: { type: 'ExternalName', externalName: `x${(i + 1) % 1_600}.tenant.svc`, ports: [{ port: 8080 }] },
    }));
    const endpointSlices = many(20_000, (i) => ({
      metadata: { name: `s${i}`, namespace: 'tenant', labels: { 'kubernetes.io/service-name': 'z' } },
      endpoints: [{ addresses: ['10.8.8.8'] }],
      ports: [{ port: 1 }],
    }));
    expect(examine({ pods, services: [makeService(), ...aliases], endpointSlices }).codes).toEqual([]);
  });

  test('slows the doctor down only once by Services that select many pods that are alike', () => {
    const many = (length: number, make: (index: number) => Json): Json[] => Array.from({ length }, (_, index) => make(index));
    const base: Json = makePod('web-1-a', makeTemplate(), OWNER);
    const pods = many(200, (i) => ({ ...base, metadata: { ...base.metadata, name: `web-1-${i}` } }));
    let reads = 0;
    const services = many(50, (i) => {
      const service: Json = makeService({}, `s${i}`);
      const spec = {
        ...service.spec,
        get ports() {
          reads++;
          return [{ port: 80, targetPort: 8080 }];
        },
      };
      return { ...service, spec };
    });
    expect(examine({ pods, services }).codes).toHaveLength(50);
    expect(reads).toBeLessThan(50 * 10);
  });

  test.each([
    ['owns itself', ['loop']],
    ['owns its owner', ['loop', 'back']],
  ])('cannot stop the doctor with a ReplicaSet that %s', (_what, names) => {
    const sets = names.map((name, at) => {
      const owner = names[(at + 1) % names.length];
      const ownerReferences = [{ kind: 'ReplicaSet', name: owner, uid: owner, controller: true }];
      return { metadata: { name, namespace: 'shop', uid: name, ownerReferences }, spec: { template: makeTemplate() } };
    });
    const { Deployment, ReplicaSet } = makeDeployment();
    const pods = [makePod('web-1-a', makeTemplate(), OWNER), makeBare('loop-a', makeTemplate(), { name: 'loop', uid: 'loop' })];
    const { report, state } = examine({ Deployment, ReplicaSet: [...ReplicaSet, ...sets], pods });
    expect(state).toBe('protected');
    expect(report.workloads).toContainEqual(
      expect.objectContaining({ kind: 'ReplicaSet', name: names.at(-1), pods: expect.objectContaining({ total: 1 }) }),
    );
  });
});
