import { describe, expect, test } from 'vitest';
import { FINDINGS } from '../../../../src/kubernetes/doctor/finding.ts';
import type { Pod } from '../../../../src/kubernetes/doctor/objects.ts';
import { diagnose, type WorkloadReport } from '../../../../src/kubernetes/doctor/report.ts';
import {
  CURRENT,
  HASH,
  type Json,
  LABEL,
  makeBare,
  makeDeployment,
  makeFacts,
  makeNetworkPolicy,
  makePod,
  makeService,
  makeTemplate,
  makeWebhook,
  NAMESPACE,
  NOW,
  type Over,
  OWNER,
} from '../../../support/doctor.ts';

const seen = new Set<string>();

/** The codes that are found, and the whole of the one that is asked for. */
function examine(over: Over = {}) {
  const report = diagnose(makeFacts(over));
  const findings = [...report.cluster, ...report.workloads.flatMap((workload) => workload.findings)];
  const codes = findings.map(({ code }) => code);
  for (const code of codes) seen.add(code);
  const messageOf = (code: string): string => findings.find((each) => each.code === code)?.message ?? '';
  const fixOf = (code: string): string => findings.find((each) => each.code === code)?.fix ?? '';
  return { ...report, codes, messageOf, fixOf, web: report.workloads.find(({ name }) => name === 'web') as WorkloadReport };
}

const template = makeTemplate();
/** Of an object that an operator made. */
const OPERATED: Json = {
  ...{ name: 'agent', namespace: NAMESPACE, uid: 'agent' },
  ownerReferences: [{ kind: 'Gateway', name: 'g', uid: 'g', controller: true }],
};
const with_ = (interception: string, more: Json = {}): Json =>
  makeTemplate({ ...more, annotations: { 'sidegate.dev/interception': interception, ...more.annotations } });
/** One Deployment of this template with one pod of it. */
const of = (its: Json, over: Over = {}): Over => ({ ...makeDeployment(its), pods: [makePod('a', its, OWNER)], ...over });
const sound = (over: Json = {}): Json =>
  new Map([
    [
      'shop/web-gate',
      {
        ...{ state: 'valid', hash: 'abc', routes: 1, open: [], observing: [] },
        ...{ isShared: true, remembered: ['handled IDs'], secrets: [], ...over },
      },
    ],
  ]);

test('finds nothing in a healthy cluster', () => {
  const { web, codes, states } = examine();
  expect(codes).toEqual([]);
  expect(web).toMatchObject({
    kind: 'Deployment',
    state: 'protected',
    interceptions: ['service'],
    forms: ['native'],
    versions: ['1.0.0'],
  });
  expect(web.pods).toEqual({ total: 1, injected: 1, protected: 1, ready: 1 });
  expect(states).toMatchObject({ protected: 1, unprotected: 0 });
});

describe('a workload', () => {
  test('is the top owner of its pods: a Deployment, CronJob, StatefulSet, unknown controller, or the pods themselves', () => {
    const owned = (name: string, kind: string, uid: string): Pod => makePod(name, template, { kind, name: uid, uid });
    const job = {
      metadata: {
        name: 'nightly-1',
        namespace: NAMESPACE,
        uid: 'job',
        ownerReferences: [{ kind: 'CronJob', name: 'nightly', uid: 'cron', controller: true }],
      },
      spec: { template },
    };
    const { workloads } = examine({
      pods: [
        makePod('a', template, OWNER),
        owned('b', 'Job', 'job'),
        owned('c', 'StatefulSet', 'db'),
        owned('d', 'Rollout', 'canary'),
        makePod('e'),
      ],
      Job: [job],
      CronJob: [
        { metadata: { name: 'nightly', namespace: NAMESPACE, uid: 'cron' }, spec: { jobTemplate: { spec: { template } } } },
      ],
      StatefulSet: [{ metadata: { name: 'db', namespace: NAMESPACE, uid: 'db' }, spec: { template } }],
    });
    expect(workloads.map(({ kind, name }) => `${kind}/${name}`).sort()).toEqual([
      'CronJob/nightly',
      'Deployment/web',
      'Pod/e',
      'Rollout/canary',
      'StatefulSet/db',
    ]);
  });

  test('does not count finished or terminating pods, or mirrors of static ones', () => {
    const ended = (status: Json, metadata: Json = {}): Pod => {
      const pod = makeBare('x', template, OWNER);
      return { ...pod, metadata: { ...pod.metadata, ...metadata }, status: { ...pod.status, ...status } };
    };
    const pods = [
      makePod('a', template, OWNER),
      ended({ phase: 'Succeeded' }),
      ended({ phase: 'Failed' }),
      ended({}, { deletionTimestamp: '2026-01-01T00:00:00Z' }),
      ended({}, { annotations: { 'kubernetes.io/config.mirror': 'x' } }),
    ];
    expect(examine({ pods }).web.pods.total).toBe(1);
  });

  test('counts a pod that is being deleted, but serves for a long time', () => {
    const pod: Json = makeBare('x', template, OWNER);
    pod.metadata.deletionTimestamp = new Date(NOW + 3_600_000).toISOString();
    expect(examine({ pods: [pod] })).toMatchObject({ codes: ['no-sidecar'], web: { state: 'unprotected' } });
    pod.metadata.deletionTimestamp = new Date(NOW + 600_000).toISOString();
    expect(examine({ pods: [pod] }).web.pods.total).toBe(0);
  });

  test('is ignored if it does not request the sidecar', () => {
    const plain = { ...template, metadata: { labels: { app: 'other' } } };
    const { web, codes, states } = examine({
      ...makeDeployment(plain),
      pods: [makeBare('a', plain, OWNER)],
      services: [makeService({ selector: { app: 'other' } })],
    });
    expect([web.state, codes, states['not-requested']]).toEqual(['not-requested', [], 1]);
  });

  test('is idle without pods, unless replicas are expected', () => {
    expect(examine({ ...makeDeployment(template, { spec: { replicas: 0 } }), pods: [] })).toMatchObject({
      codes: [],
      web: { state: 'idle' },
    });
    const denied = { conditions: [{ type: 'ReplicaFailure', status: 'True', message: 'denied the request: no sidecar' }] };
    const { codes, web, messageOf } = examine({ ...makeDeployment(template, { setStatus: denied }), pods: [] });
    expect([codes, web.state]).toEqual([['pods-missing'], 'idle']);
    expect(messageOf('pods-missing')).toBe('deployment/web should have 1 pod but has none: denied the request: no sidecar');
  });

  test.each([
    ['ImagePullBackOff', { state: { waiting: { reason: 'ImagePullBackOff' } } }, 'kubectl -n shop describe pod a'],
    [
      'OOMKilled',
      { state: { waiting: { reason: 'CrashLoopBackOff' } }, lastState: { terminated: { reason: 'OOMKilled' } } },
      'memory-limit',
    ],
    ['', { state: { waiting: { reason: 'CrashLoopBackOff' } } }, 'kubectl -n shop logs a -c sidegate'],
  ])('is told why its sidecar does not start: %s', (reason, state, fix) => {
    const pod: Json = makePod('a', template, OWNER);
    pod.status.initContainerStatuses = [{ name: 'sidegate', ready: false, restartCount: 0, ...state }];
    const { messageOf, fixOf } = examine({ pods: [pod] });
    expect(messageOf('sidecar-not-ready')).toBe(`the sidecar of a is not ready${reason === '' ? '' : ` (${reason})`}`);
    expect(fixOf('sidecar-not-ready')).toContain(fix);
  });

  test.each([makeBare('old', template, OWNER), makePod('old', template, OWNER)])(
    'is told why new pods are denied, also while old ones run',
    (old) => {
      const denied = { conditions: [{ type: 'ReplicaFailure', status: 'True', message: 'denied the request: set the port' }] };
      const { codes, messageOf, fixOf } = examine({ ...makeDeployment(template, { setStatus: denied }), pods: [old] });
      expect(codes).toContain('pods-missing');
      expect(messageOf('pods-missing')).toBe('deployment/web cannot create new pods: denied the request: set the port');
      if (codes.includes('no-sidecar')) expect(fixOf('no-sidecar')).toBe('let new pods be created: see pods-missing');
    },
  );

  test.each([
    ['DaemonSet', { spec: { template }, status: { desiredNumberScheduled: 3 } }, '3 pods'],
    ['StatefulSet', { spec: { template, replicas: 2 } }, '2 pods'],
    ['Job', { spec: { template }, status: {} }, '1 pod'],
    ['Job', { spec: { template, parallelism: 2 } }, '2 pods'],
    ['Job', { spec: { template, parallelism: 5, completions: 1 } }, '1 pod'],
    ['Deployment', { metadata: OPERATED, spec: { template, replicas: 3 } }, '3 pods'],
    ['Job', { metadata: OPERATED, spec: { template } }, '1 pod'],
  ])('is told that pods are missing if all were denied: %s %#', (kind, object, count) => {
    const each = { metadata: { name: 'agent', namespace: NAMESPACE, uid: 'agent' }, ...object };
    const { codes, workloads, messageOf } = examine({ Deployment: [], ReplicaSet: [], pods: [], [kind]: [each] });
    expect([codes, workloads.map(({ state }) => state)]).toEqual([['pods-missing'], ['idle']]);
    expect(messageOf('pods-missing')).toBe(`${kind.toLowerCase()}/agent should have ${count} but has none`);
  });

  test('is not told that pods are missing if an operator owns it and they are there', () => {
    const Deployment = [{ metadata: OPERATED, spec: { template } }];
    const ownerReferences = [{ kind: 'Deployment', name: 'agent', uid: 'agent', controller: true }];
    const ReplicaSet = [
      { metadata: { name: 'agent-1', namespace: NAMESPACE, uid: 'agent-1', ownerReferences }, spec: { template } },
    ];
    const pods = [makePod('a', template, { name: 'agent-1', uid: 'agent-1' })];
    const { codes, workloads } = examine({ Deployment, ReplicaSet, pods });
    expect([codes, workloads.map(({ kind }) => kind)]).toEqual([[], ['Gateway']]);
    const old = [{ metadata: OPERATED, spec: { template, replicas: 0 } }];
    expect(examine({ Deployment: [], ReplicaSet: old, pods: [] }).workloads).toEqual([]);
  });

  test('has no missing pods if its owner may not be read', () => {
    const { ReplicaSet } = makeDeployment(template, { setStatus: {} });
    expect(examine({ Deployment: { unknown: 'x' }, ReplicaSet, pods: [] }).workloads).toEqual([]);
  });

  test('has no missing pods if its rollout was paused before the first', () => {
    const paused = makeDeployment(template, { spec: { paused: true } });
    expect(examine({ ...paused, ReplicaSet: [], pods: [] }).codes).toEqual([]);
    expect(examine({ ...paused, pods: [] }).codes).toEqual(['pods-missing']);
  });

  test('is told that pods are missing if those of the Jobs of a CronJob were denied', () => {
    const job = (status: Json): Json => {
      const ownerReferences = [{ kind: 'CronJob', name: 'nightly', uid: 'cron', controller: true }];
      return { metadata: { name: 'j', namespace: NAMESPACE, uid: 'j', ownerReferences }, spec: { template }, status };
    };
    const metadata = { name: 'nightly', namespace: NAMESPACE, uid: 'cron' };
    const CronJob = [{ metadata, spec: { jobTemplate: { spec: { template } } } }];
    const codesWith = (status: Json) => examine({ Deployment: [], ReplicaSet: [], pods: [], CronJob, Job: [job(status)] }).codes;
    expect(codesWith({})).toEqual(['pods-missing']);
    expect(codesWith({ succeeded: 1 })).toEqual([]);
  });

  test.each([
    ['completed', {}, { conditions: [{ type: 'Complete', status: 'True' }] }],
    ['failed before its first pod', {}, { conditions: [{ type: 'Failed', status: 'True' }] }],
    ['waits after a pod that failed', {}, { failed: 1 }],
    ['is suspended', { suspend: true }, {}],
  ])('has no missing pods if it is a Job that %s', (_what, spec, status) => {
    const Job = [{ metadata: { name: 'j', namespace: NAMESPACE, uid: 'j' }, spec: { template, ...spec }, status }];
    expect(examine({ Deployment: [], ReplicaSet: [], pods: [], Job })).toMatchObject({ codes: [], workloads: [] });
  });

  test('is told why its pods are denied in a namespace that requires the sidecar, also without the label', () => {
    const plain = { ...template, metadata: { labels: { app: 'web' } } };
    const denied = { conditions: [{ type: 'ReplicaFailure', status: 'True', message: 'denied the request: no sidecar' }] };
    const over = { ...makeDeployment(plain, { setStatus: denied }), pods: [] };
    const namespaces = [{ metadata: { name: NAMESPACE, labels: { 'sidegate.dev/enforce': 'true' } } }];
    expect(examine({ ...over, namespaces }).messageOf('pods-missing')).toBe(
      'deployment/web should have 1 pod but has none: denied the request: no sidecar',
    );
    expect(examine(over).codes).toEqual([]);
  });

  test('is told which annotation helps if a quota denies its pods', () => {
    const message = 'pods "web-1" is forbidden: failed quota: cpu: must specify limits.cpu for: sidegate';
    const denied = { conditions: [{ type: 'ReplicaFailure', status: 'True', message }] };
    const { fixOf } = examine({ ...makeDeployment(template, { setStatus: denied }), pods: [] });
    expect(fixOf('pods-missing')).toMatch(/^set the annotation sidegate\.dev\/cpu-limit in the pod template/);
  });

  test('has no sidecar if its pods are older than the policies', () => {
    const bare: Json = makeBare('a', template, OWNER);
    const policies = [{ metadata: { name: 'sidegate-protected', creationTimestamp: '2026-06-01T00:00:00Z' } }];
    const over = { bindings: { unknown: 'x' }, policies };
    bare.metadata.creationTimestamp = '2026-06-01T00:00:01Z';
    expect(examine({ ...over, pods: [bare] }).messageOf('no-sidecar')).toMatch(
      /; created before the policies of the chart took effect$/,
    );
    bare.metadata.creationTimestamp = '2026-06-01T00:01:00Z';
    expect(examine({ ...over, pods: [bare] }).messageOf('no-sidecar')).not.toContain('created before');
  });

  test('precedes one with less severe findings', () => {
    const { workloads } = examine({
      pods: [
        makePod('a', template, OWNER),
        makeBare('bare'),
        makePod('b', { ...template, metadata: { ...template.metadata, labels: { ...LABEL, app: 'free' } } }),
      ],
    });
    expect(workloads.map(({ name }) => name)).toEqual(['bare', 'b', 'web']);
  });
});

describe('the sidecar', () => {
  test('is missing in some pods', () => {
    const { web, messageOf, fixOf } = examine({
      pods: [makePod('a', template, OWNER), makeBare('b', template, OWNER), makeBare('c', template, OWNER)],
    });
    expect(web).toMatchObject({ state: 'unprotected', pods: { total: 3, protected: 1 } });
    expect(messageOf('no-sidecar')).toBe(
      '2 of 3 pods (b and c) have no sidecar, although the label sidegate.dev/inject requests it',
    );
    expect(fixOf('no-sidecar')).toBe('make sure that the injector is ready, then kubectl -n shop rollout restart deployment/web');
  });

  test('is missing because of what the policy of the API server wrote on the pod', () => {
    const denied: Json = structuredClone(makeBare('a', template, OWNER));
    denied.metadata.annotations['sidegate.dev/denied'] = 'the pod uses hostNetwork; remove hostNetwork';
    const { messageOf, fixOf } = examine({ pods: [makeBare('b', template, OWNER), denied] });
    expect(messageOf('no-sidecar')).toMatch(/ requests it: the pod uses hostNetwork; remove hostNetwork$/);
    expect(fixOf('no-sidecar')).toMatch(/^change the pod template as the message says, then kubectl -n shop rollout restart/);
  });

  test('is missing in a cluster whose API server injects by a policy', () => {
    const pods = [makeBare('a', template, OWNER)];
    const { fixOf } = examine({ pods, webhooks: [], mutatingPolicies: [{ metadata: { name: 'sidegate-inject' } }] });
    expect(fixOf('no-sidecar')).toBe(
      'make sure that the policy sidegate-inject has a binding for the namespace shop, then kubectl -n shop rollout restart deployment/web',
    );
  });

  const plain = { ...template, metadata: { labels: { app: 'web' } } };
  test.each<[string, Over, number, RegExp]>([
    [
      'old pods are left of before the label',
      { pods: [makeBare('a', plain, OWNER), makeBare('b', plain, OWNER)] },
      0,
      /template of deployment\/web/,
    ],
    [
      'an old pod is left beside a new one',
      of(with_('rename'), {
        pods: [makePod('a', with_('rename'), OWNER), makeBare('b', plain, OWNER)],
        services: [makeService({ ports: [{ port: 80, targetPort: 'http' }] })],
      }),
      1,
      /template of deployment\/web/,
    ],
    [
      'the template no longer asks, and one of two pods is made of it',
      { ...makeDeployment(plain), pods: [makePod('a', template, OWNER), makeBare('b', plain, OWNER)] },
      1,
      /other pods of deployment\/web/,
    ],
    [
      'a foreign controller has one pod with it and one without',
      {
        ...{ Deployment: [], ReplicaSet: [] },
        pods: [
          makePod('a', template, { kind: 'Rollout', name: 'web', uid: 'x' }),
          makeBare('b', plain, { kind: 'Rollout', name: 'web', uid: 'x' }),
        ],
      },
      1,
      /other pods of rollout\/web/,
    ],
  ])('is missing if %s', (_, over, count, message) => {
    const { web, messageOf } = examine(over);
    expect([web.state, web.pods.protected]).toEqual(['unprotected', count]);
    expect(messageOf('no-sidecar')).toMatch(message);
  });

  test('is missing if the namespace requires it for all pods', () => {
    const plain = { ...template, metadata: { labels: { app: 'x' } } };
    const namespaces = [{ metadata: { name: NAMESPACE, labels: { 'sidegate.dev/enforce': 'true' } } }];
    const { codes, messageOf, fixOf } = examine({ ...makeDeployment(plain), pods: [makeBare('a', plain, OWNER)], namespaces });
    expect(codes).toEqual(['no-sidecar']);
    expect(messageOf('no-sidecar')).toBe('1 of 1 pod (a) has no sidecar, in a namespace that is labeled sidegate.dev/enforce');
    expect(fixOf('no-sidecar')).toMatch(/^set the label/);
  });

  test('ends before the app if it is an init container that does not restart', () => {
    const pod: Json = makePod('a', template, OWNER);
    delete pod.spec.initContainers[0].restartPolicy;
    expect(examine({ pods: [pod] })).toMatchObject({ codes: ['sidecar-ends'], web: { state: 'unprotected' } });
  });

  test('can also be a container', () => {
    expect(examine(of(with_('service', { annotations: { 'sidegate.dev/sidecar': 'container' } })))).toMatchObject({
      codes: ['gate-not-proven'],
      web: { state: 'injected', forms: ['container'] },
    });
  });

  test('proves nothing beside a container that could redirect its traffic or replace it', () => {
    const examineWith = (container: Json, spec: Json = {}) => examine(of(makeTemplate({ container, spec })));
    const secured = (securityContext: Json) => ({ securityContext });
    const added = (...add: string[]) => secured({ capabilities: { add } });
    const other = { name: 'other', image: 'x' };
    const host = { volumes: [{ name: 'host', hostPath: { path: '/' } }] };
    const mount = { volumeMounts: [{ name: 'host', mountPath: '/host' }] };
    for (const [container, spec] of [
      [{}, {}],
      [added('NET_BIND_SERVICE'), {}],
      [{}, host],
      [{ resources: { limits: { cpu: '1', 'hugepages-2Mi': '2Mi' } } }, {}],
      [mount, { volumes: [{ name: 'host', csi: { driver: 'secrets-store.csi.k8s.io' } }] }],
    ])
      expect(examineWith(container as Json, spec).web.state).toBe('protected');
    for (const [container, spec, power] of [
      [secured({ privileged: true }), {}, 'web (privileged)'],
      [added('NET_BIND_SERVICE', 'NET_ADMIN'), {}, 'web (NET_ADMIN)'],
      [added('cap_sys_ptrace'), {}, 'web (cap_sys_ptrace)'],
      [mount, host, 'web (hostPath /)'],
      [mount, { volumes: [{ name: 'host', csi: { driver: 'smb.csi.k8s.io' } }] }, 'web (volume of smb.csi.k8s.io)'],
      [mount, { volumes: [{ name: 'host', flexVolume: { driver: 'a/b' } }] }, 'web (volume of a/b)'],
      [added('NET_RAW'), {}, 'web (NET_RAW)'],
      [added('SYS_TIME'), {}, 'web (SYS_TIME)'],
      [added('PERFMON'), {}, 'web (PERFMON)'],
      [added('CHECKPOINT_RESTORE'), {}, 'web (CHECKPOINT_RESTORE)'],
      [{ volumeDevices: [{ name: 'disk', devicePath: '/dev/a' }] }, {}, 'web (device disk)'],
      [{ resources: { claims: [{ name: 'gpu' }] } }, {}, 'web (device gpu)'],
      [{ resources: { limits: { 'example.com/mem': '1' } } }, {}, 'web (device example.com/mem)'],
      [{}, { initContainers: [{ ...other, ...added('ALL') }] }, 'other (ALL)'],
    ] as const) {
      const { web, codes, messageOf } = examineWith(container, spec);
      expect([web.state, codes], power).toEqual(['injected', ['gate-not-proven']]);
      expect(messageOf('gate-not-proven')).toContain(power);
    }
    const pod: Json = makePod('a', template, OWNER);
    pod.spec.ephemeralContainers = [{ ...other, ...added('NET_ADMIN') }];
    expect(examine({ pods: [pod] })).toMatchObject({ codes: ['gate-not-proven'], web: { state: 'injected' } });
  });

  test('proves nothing with several workers if another container could have its user, and so share its port', () => {
    const stateOf = (container: Json, pod: Json = {}, workers = 2): string => {
      const its = makeTemplate({ container: { securityContext: container }, spec: { securityContext: pod } });
      const { web, codes } = examine(of(its, { configs: sound({ workers }) }));
      expect(codes).toEqual(web.state === 'protected' ? [] : ['gate-not-proven']);
      return web.state;
    };
    const closed = { allowPrivilegeEscalation: false };
    expect(stateOf({ ...closed, runAsUser: 1000 })).toBe('protected');
    expect(stateOf(closed, { runAsUser: 1000 })).toBe('protected');
    expect(stateOf({}, {}, 1)).toBe('protected');
    for (const container of [undefined, closed, { runAsUser: 1000 }, { ...closed, runAsUser: 0 }])
      expect(stateOf(container), JSON.stringify(container)).toBe('injected');
    expect(examine(of(template, { configs: sound({ workers: 2 }) })).messageOf('gate-not-proven')).toMatch(
      /has several workers, and web could run as their user/,
    );
  });

  test('is not ready', () => {
    const pod: Json = makePod('a', template, OWNER);
    pod.status.initContainerStatuses[0].ready = false;
    expect(examine({ pods: [pod] })).toMatchObject({
      codes: ['sidecar-not-ready'],
      web: { state: 'injected', pods: { injected: 1, protected: 0, ready: 0 } },
    });
  });

  test('protects nothing before its pod has started', () => {
    const pod: Json = makePod('a', template, OWNER);
    pod.status = { phase: 'Pending' };
    expect(examine({ pods: [pod] })).toMatchObject({ codes: [], web: { state: 'injected', pods: { protected: 0 } } });
  });

  test('does not start while another container listens on its port, and a Service may lead there', () => {
    const pod: Json = makePod('a', template, OWNER);
    const message = 'sidegate: :::8480 is in use by another process; stop it, or change the address';
    const waiting = { waiting: { reason: 'CrashLoopBackOff' } };
    pod.status.initContainerStatuses = [
      { name: 'sidegate', ready: false, state: waiting, lastState: { terminated: { message } } },
    ];
    const services = [makeService({ publishNotReadyAddresses: true })];
    const { codes, web, messageOf } = examine({ pods: [pod], services });
    expect(codes.sort()).toEqual(['port-occupied', 'service-publishes-unready', 'sidecar-not-ready']);
    expect(web.state).toBe('bypassed');
    expect(messageOf('port-occupied')).toContain('a (:::8480)');
    expect(messageOf('service-publishes-unready')).toContain('Service web has publishNotReadyAddresses and selects a');
    expect(examine({ services }).codes).toEqual([]);
  });

  test('is not ready in a pod that is being deleted, which a Service with publishNotReadyAddresses still selects', () => {
    const leaving = (isReady: boolean): Pod => {
      const pod: Json = makePod('b', with_('service', { annotations: { 'sidegate.dev/sidecar': 'container' } }));
      pod.metadata.deletionTimestamp = '2026-05-01T00:00:00Z';
      pod.status.containerStatuses = [{ name: 'sidegate', ready: isReady, restartCount: 0 }];
      return pod;
    };
    const services = [makeService({ publishNotReadyAddresses: true })];
    const pods = [makePod('a', template, OWNER), leaving(false)];
    const { codes, web, messageOf } = examine({ pods, services });
    expect([web.state, codes]).toEqual(['bypassed', ['service-publishes-unready']]);
    expect(messageOf('service-publishes-unready')).toContain('selects b, whose sidecar is not ready');
    expect(examine({ pods: [makePod('a', template, OWNER), leaving(true)], services }).web.state).toBe('protected');
    expect(examine({ pods }).web.state).toBe('protected');
  });

  test('throttles if a LimitRange sets its CPU limit', () => {
    const pod: Json = makePod('a', template, OWNER);
    pod.spec.initContainers[0].resources.limits.cpu = '100m';
    const { codes, messageOf } = examine({ pods: [pod] });
    expect([codes, messageOf('cpu-limited')]).toEqual([['cpu-limited'], expect.stringContaining('a (100m)')]);
    expect(examine({ pods: [pod], current: { ...CURRENT, cpuLimit: '100m' } }).codes).toEqual([]);
    pod.metadata.annotations['sidegate.dev/cpu-limit'] = '100m';
    expect(examine({ pods: [pod] }).codes).toEqual([]);
  });

  test('uses the network of the node', () => {
    const pod: Json = makePod('a', template, OWNER);
    pod.spec.hostNetwork = true;
    expect(examine({ pods: [pod] })).toMatchObject({ codes: ['host-network'], web: { state: 'bypassed' } });
  });

  test('will be missing after the next rollout, because the template lost the label', () => {
    const unlabelled = { ...template, metadata: { labels: { app: 'web' } } };
    expect(examine(makeDeployment(unlabelled))).toMatchObject({ codes: ['label-lost'], web: { state: 'protected' } });
    const off = makeTemplate({ labels: { 'sidegate.dev/inject': 'false' } });
    expect(examine(makeDeployment(off)).messageOf('label-lost')).toMatch(/has another value of the label/);
  });

  test('needs no label if the template contains it', () => {
    const pod = makePod('a', template, OWNER);
    const own = { metadata: { labels: { app: 'web' } }, spec: pod.spec };
    expect(examine({ ...makeDeployment(own), pods: [pod] }).codes).toEqual([]);
  });

  test('is not requested with another value, or with a label in the wrong place', () => {
    const yes = makeTemplate({ labels: { 'sidegate.dev/inject': 'True' } });
    expect(examine({ ...makeDeployment(yes), pods: [makeBare('a', yes, OWNER)] }).messageOf('label-value')).toBe(
      'the label sidegate.dev/inject is "True", which has no effect',
    );
    const plain = { ...template, metadata: { labels: { app: 'web' } } };
    const misplaced = { ...makeDeployment(plain, { metadata: { labels: LABEL } }), pods: [makeBare('a', plain, OWNER)] };
    expect(examine(misplaced)).toMatchObject({ codes: ['label-misplaced'], web: { state: 'not-requested' } });
  });

  test('is never injected in namespaces that the webhook skips', () => {
    const namespaceSelector = {
      matchExpressions: [{ key: 'kubernetes.io/metadata.name', operator: 'NotIn', values: [NAMESPACE] }],
    };
    expect(examine({ webhooks: [makeWebhook({ namespaceSelector })] }).codes).toEqual(['namespace-left-out']);
  });
});

describe('the embedded queue', () => {
  const FILE = '/var/lib/sidegate/queue.db';
  const asked = { 'sidegate.dev/queue-volume': 'queue' };
  const onVolume = (source: Json): Json =>
    makeTemplate({ annotations: asked, spec: { volumes: [{ name: 'queue', ...source }], securityContext: { fsGroup: 1 } } });
  const claim = (claimName: string): Json => onVolume({ persistentVolumeClaim: { claimName } });
  const withFile = (queueFile = FILE): Over => ({ configs: sound({ queueFile }) });
  const set = (replicas: number, its: Json): Json => [
    { metadata: { name: 'web', namespace: NAMESPACE, uid: 'set' }, spec: { replicas, template: its } },
  ];
  const ofSet = (name: string, its: Json): Pod => makePod(name, its, { kind: 'StatefulSet', name: 'web', uid: 'set' });
  /** A StatefulSet, whose template does not have the volumes of its claims. */
  const stateful = (pods: readonly Pod[], replicas: number = pods.length): Over => ({
    ...{ Deployment: [], ReplicaSet: [], StatefulSet: set(replicas, makeTemplate({ annotations: asked })) },
    pods,
    ...withFile(),
  });

  test('is right on the claim of a StatefulSet with one replica', () => {
    expect(examine(stateful([ofSet('web-0', claim('queue-web-0'))])).codes).toEqual([]);
  });

  test.each([
    ['no volume', template, FILE],
    ['a file beside its volume', claim('a'), '/var/lib/queue.db'],
    ['the default file', claim('a'), './sidegate-queue.db'],
    ['a file that leaves its volume', claim('a'), '/var/lib/sidegate/../queue.db'],
    ['a file beside its config, which is read-only', claim('a'), '/etc/sidegate/config/queue.db'],
  ])('is not mounted with %s', (_which, its, file) => {
    const { codes, messageOf } = examine(of(its, withFile(file)));
    expect(codes).toEqual(['queue-not-mounted']);
    expect(messageOf('queue-not-mounted')).toBe(
      `the ConfigMap web-gate has its queue in ${file}, which is not on a writable volume: the sidecar does not start`,
    );
  });

  test('is not mounted by the next pods if the template lost its annotation', () => {
    const { Deployment, ReplicaSet } = makeDeployment(template);
    const over = { Deployment, ReplicaSet, pods: [makePod('a', claim('a'), OWNER)], ...withFile() };
    expect(examine(over).codes).toEqual(['queue-not-mounted']);
  });

  test('is not mounted by new pods if only a changed sidecar mounts its volume', () => {
    const pod: Json = makePod('a', claim('a'), OWNER);
    pod.spec.initContainers[0].volumeMounts.push({ name: 'queue', mountPath: '/data' });
    expect(examine({ ...of(claim('a')), pods: [pod], configs: sound({ queueFile: '/data/queue.db' }) }).codes).toEqual([
      'sidecar-differs',
      'queue-not-mounted',
    ]);
  });

  test.each(['emptyDir', 'ephemeral'])('is lost with the pod on a volume of the kind %s', (kind) => {
    const { codes, messageOf } = examine(of(onVolume({ [kind]: {} }), withFile()));
    expect(codes).toEqual(['queue-not-durable']);
    expect(messageOf('queue-not-durable')).toContain(`the queue is on the volume queue of the kind ${kind}`);
  });

  test('cannot be opened by all replicas on the same claim', () => {
    const two = of(claim('shared'), withFile());
    const { codes, messageOf } = examine({ ...two, ...makeDeployment(claim('shared'), { spec: { replicas: 2 } }) });
    expect(codes).toEqual(['queue-claim-shared']);
    expect(messageOf('queue-claim-shared')).toMatch(/^2 replicas share the volume claim shared, but only one process can/);
    const same = stateful([ofSet('web-0', claim('old')), ofSet('web-1', claim('old'))]);
    expect(examine(same).codes).toEqual(['queue-claim-shared']);
  });

  test('exists once for each replica of a StatefulSet', () => {
    const { codes, messageOf } = examine(stateful([ofSet('web-0', claim('queue-web-0')), ofSet('web-1', claim('queue-web-1'))]));
    expect(codes).toEqual(['queue-not-shared']);
    expect(messageOf('queue-not-shared')).toMatch(/^2 replicas with a queue in a file: each has its own queue/);
  });

  test('is not asked about with a queue in PostgreSQL', () => {
    expect(examine({ ...of(template), ...makeDeployment(template, { spec: { replicas: 3 } }), configs: sound() }).codes).toEqual(
      [],
    );
  });
});

describe('a Service', () => {
  test.each([
    ['by number', 'service', { targetPort: 8080 }, 'set its targetPort to sidegate'],
    ['by name', 'service', { targetPort: 'http' }, 'set its targetPort to sidegate'],
    ['by leaving the targetPort out', 'service', { port: 8080 }, 'set its targetPort to sidegate'],
    ['past a renamed port', 'rename', { targetPort: 8080 }, 'set its targetPort to http'],
    ["by the app's new name", 'rename', { targetPort: 'http-app' }, 'set its targetPort to http'],
    ['to where the app was moved', 'env', { targetPort: 8482 }, 'set its targetPort to sidegate'],
  ])('bypasses the sidecar %s', (_, interception, port, fix) => {
    const { codes, fixOf, web } = examine(
      of(with_(interception), { services: [makeService({ ports: [{ port: 80, ...port }] })], networkPolicies: { unknown: 'x' } }),
    );
    expect(codes).toContain('service-to-app');
    expect([fixOf('service-to-app'), web.state]).toEqual([fix, 'bypassed']);
  });

  test.each([
    ['service', { targetPort: 'sidegate' }],
    ['service', { targetPort: 8480 }],
    ['service', { targetPort: 8481 }],
    ['service', { port: 53, targetPort: 8080, protocol: 'UDP' }],
    ['rename', { targetPort: 'http' }],
    ['same-port', { targetPort: 8080 }],
    ['same-port', { targetPort: 'http' }],
    ['env', { targetPort: 8080 }],
    ['env', { targetPort: 'http' }],
  ])('is correct in mode %s with %j', (interception, port) => {
    const { codes } = examine(
      of(with_(interception), { services: [makeService({ ports: [{ port: 80, ...port }] })], networkPolicies: { unknown: 'x' } }),
    );
    expect(codes).toEqual(['not-known']);
  });

  test('is named with everything that reaches it from outside', () => {
    const ingress = {
      metadata: { name: 'front', namespace: NAMESPACE },
      spec: { rules: [{ host: 'shop.example', http: { paths: [{ backend: { service: { name: 'web' } } }] } }] },
    };
    const services = [makeService({ type: 'NodePort', ports: [{ port: 80, targetPort: 8080, nodePort: 30080 }] })];
    expect(examine({ services, ingresses: [ingress] }).messageOf('service-to-app')).toBe(
      "Service web (NodePort, nodePort 30080, behind Ingress front for shop.example), port 80, targets port 8080, the app's own, and bypasses the sidecar",
    );
    const fallback = { metadata: { name: 'all', namespace: NAMESPACE }, spec: { defaultBackend: { service: { name: 'web' } } } };
    expect(examine({ services, ingresses: [fallback] }).messageOf('service-to-app')).toContain('behind Ingress all)');
  });

  test.each([
    ['a NodePort', { type: 'NodePort' }, []],
    ['a load balancer', { type: 'LoadBalancer' }, []],
    ['an address of its own', { externalIPs: ['203.0.113.7'] }, []],
    [
      'an Ingress',
      {},
      [{ metadata: { name: 'all', namespace: NAMESPACE }, spec: { defaultBackend: { service: { name: 'web' } } } }],
    ],
  ])('exposes the admin port of the sidecar outside the cluster by %s', (_what, spec, ingresses) => {
    for (const targetPort of [8481, 'sidegate-admin']) {
      const services = [makeService({ ...spec, ports: [{ port: 80, targetPort }] })];
      expect(examine({ services, ingresses })).toMatchObject({ codes: ['admin-exposed'], web: { state: 'protected' } });
    }
    expect(examine({ services: [makeService({ ports: [{ port: 80, targetPort: 8481 }] })] }).codes).toEqual([]);
    const both = [
      { port: 80, targetPort: 'sidegate' },
      { port: 9090, name: 'metrics', targetPort: 8481 },
    ];
    const toPort = (port: Json): Json => ({
      metadata: { name: 'front', namespace: NAMESPACE },
      spec: { rules: [{ http: { paths: [{ backend: { service: { name: 'web', port } } }] } }] },
    });
    const codesOf = (port: Json) => examine({ services: [makeService({ ports: both })], ingresses: [toPort(port)] }).codes;
    expect([{ number: 80 }, { number: 9090 }, { name: 'metrics' }].map(codesOf)).toEqual([
      [],
      ['admin-exposed'],
      ['admin-exposed'],
    ]);
  });

  test('counts only if it selects the pods, in their namespace', () => {
    const ports = [{ port: 80, targetPort: 8080 }];
    const elsewhere = makeService({ ports }, 'elsewhere');
    const services = [
      makeService({ ports, selector: { app: 'other' } }, 'other'),
      makeService({ ports, selector: {} }, 'none'),
      { ...elsewhere, metadata: { ...elsewhere.metadata, namespace: 'elsewhere' } },
    ];
    expect(examine({ services }).codes).toEqual([]);
  });

  test('that is headless bypasses the sidecar on its own port, because its clients connect there', () => {
    const headless = (port: Json) => examine({ services: [makeService({ clusterIP: 'None', ports: [port] })] });
    expect(headless({ port: 8080, targetPort: 'sidegate' })).toMatchObject({
      codes: ['headless-to-app'],
      web: { state: 'bypassed' },
    });
    expect(headless({ port: 8480, targetPort: 'sidegate' }).codes).toEqual([]);
    expect(headless({ port: 80, targetPort: 8080 }).codes).toEqual(['service-to-app']);
  });

  test('has no endpoints if it names a port that does not exist, or that the version does not find', () => {
    const named = (targetPort: string) => ({ services: [makeService({ ports: [{ port: 80, targetPort }] })] });
    expect(examine(named('sidgate')).messageOf('service-to-nothing')).toMatch(
      /targetPort sidgate, a name that no container of the pod declares: it has no endpoints/,
    );
    const old = examine({ version: { major: 1, minor: 32 } });
    const toAdmin = [makeService({ type: 'NodePort', ports: [{ port: 80, targetPort: 'sidegate-admin' }] })];
    expect(examine({ version: { major: 1, minor: 32 }, services: toAdmin }).codes).toEqual(['service-to-nothing']);
    expect([old.codes, old.fixOf('service-to-nothing')]).toEqual([['service-to-nothing'], 'set its targetPort to 8480']);
    expect(
      examine(
        of(with_('service', { annotations: { 'sidegate.dev/sidecar': 'container' } }), { version: { major: 1, minor: 32 } }),
      ).codes,
    ).toEqual(['gate-not-proven']);
    expect(examine({ version: undefined }).codes).toEqual([]);
  });

  test('without a selector has manual endpoints', () => {
    const slice = (port: number, address = '10.1.0.1') => ({
      metadata: { name: 'by-hand', namespace: NAMESPACE },
      endpoints: [{ addresses: [address] }],
      ports: [{ port }],
    });
    expect(examine({ endpointSlices: [slice(8080)] }).messageOf('endpoints-to-app')).toMatch(
      /^EndpointSlice by-hand targets 10\.1\.0\.1:8080/,
    );
    expect(
      examine({
        endpointSlices: [slice(8480), slice(8080, '10.1.0.2'), { metadata: { name: 'x' }, endpoints: null, ports: null }],
      }).codes,
    ).toEqual([]);
  });
});

test.each([
  ['service', ['host-port']],
  ['same-port', []],
  ['env', []],
])('reports a hostPort in mode %s', (interception, codes) => {
  const its = with_(interception, { container: { ports: [{ name: 'http', containerPort: 8080, hostPort: 80 }] } });
  const services = [makeService({ ports: [{ port: 80, targetPort: interception === 'service' ? 'sidegate' : 8080 }] })];
  expect(
    examine(
      of(its, {
        services,
        networkPolicies: [makeNetworkPolicy([{ ports: [{ port: interception === 'service' ? 8480 : 8080 }] }])],
      }),
    ).codes,
  ).toEqual(codes);
});

test('reports a hostPort of the admin port', () => {
  const over = changed('service', (pod) => {
    pod.spec.containers[0].ports.push({ containerPort: 8481, hostPort: 9090 });
  });
  expect(examine(over).messageOf('admin-exposed')).toBe(
    'hostPort 9090 of the container web exposes port 8481, the admin port of the sidecar, outside the cluster',
  );
  const onLoopback = changed('service', (pod) => {
    pod.spec.containers[0].ports.push({ containerPort: 8481, hostPort: 9090, hostIP: '127.0.0.1' });
  });
  expect(examine(onLoopback).codes).not.toContain('admin-exposed');
});

test('reports a hostPort that another native sidecar declares', () => {
  const over = changed('service', (pod) => {
    const ports = [{ containerPort: 8080, hostPort: 18_080 }];
    pod.spec.initContainers.push({ name: 'helper', image: 'x:1', restartPolicy: 'Always', ports });
  });
  expect(examine(over).web).toMatchObject({ state: 'bypassed' });
  expect(examine(over).messageOf('host-port')).toContain('hostPort 18080 of the container helper exposes port 8080');
});

test('a fix never repeats the targetPort that is there: the app may have a port of the same name as the sidecar', () => {
  const over = changed('rename', (pod) => {
    pod.spec.containers[0].ports[0].name = 'http';
  });
  const { codes, fixOf } = examine({ ...over, ...toService({ targetPort: 'http' }) });
  expect([codes, fixOf('service-to-app')]).toEqual([['sidecar-differs', 'service-to-app'], 'set its targetPort to 8480']);
});

describe('a NetworkPolicy', () => {
  const ALL_BUT_A_BLOCK = { ipBlock: { cidr: '0.0.0.0/0', except: ['10.0.0.0/8'] } };
  const NAMED = { matchExpressions: [{ key: 'kubernetes.io/metadata.name', operator: 'Exists' }] };
  const judge = (...policies: Json[]) => examine({ networkPolicies: policies });
  const data = { ports: [{ port: 8480 }] };

  test('is missing, unless the app is on loopback', () => {
    expect(judge().messageOf('no-network-policy')).toMatch(/every pod in the cluster can connect to the app on port 8080/);
    expect(judge().fixOf('no-network-policy')).toBe('allow only 8480 and 8481, by number, in a NetworkPolicy');
    expect(examine(of(with_('same-port'), { networkPolicies: [], services: [] })).codes).toEqual([]);
    for (const other of [{ podSelector: { matchLabels: { app: 'other' } } }, { policyTypes: ['Egress'] }])
      expect(judge(makeNetworkPolicy([data], other)).codes).toEqual(['no-network-policy']);
    const elsewhere = makeNetworkPolicy([data]);
    expect(judge({ ...elsewhere, metadata: { ...elsewhere.metadata, namespace: 'other' } }).codes).toEqual(['no-network-policy']);
  });

  test.each([
    ['no ports and no peers', {}],
    ['its port', { ports: [{ port: 8080 }] }],
    ['its name', { ports: [{ port: 'http' }] }],
    ['a range', { ports: [{ port: 8000, endPort: 9000 }] }],
    ['every port of TCP', { ports: [{ protocol: 'TCP' }] }],
    ['all namespaces', { from: [{ namespaceSelector: {} }] }],
    ['all pods of all namespaces', { from: [{ namespaceSelector: {}, podSelector: {} }] }],
    ['all addresses', { from: [{ ipBlock: { cidr: '0.0.0.0/0' } }] }],
    ['all addresses of IPv6', { from: [{ ipBlock: { cidr: '::/0' } }] }],
    ['all addresses in halves', { from: [{ ipBlock: { cidr: '0.0.0.0/1' } }, { ipBlock: { cidr: '128.0.0.0/1' } }] }],
    ['all addresses but one', { from: [{ ipBlock: { cidr: '0.0.0.0/0', except: ['192.0.2.1/32'] } }] }],
    ['all addresses, in two pieces', { from: [ALL_BUT_A_BLOCK, { ipBlock: { cidr: '10.0.0.0/8' } }] }],
    ['all that have a name', { from: [{ namespaceSelector: NAMED }] }],
  ])('is too wide with %s', (_, rule) => {
    expect(judge(makeNetworkPolicy([data, rule])).codes).toEqual(['network-policy-wide']);
  });

  test.each([
    ['pods of the namespace', { from: [{ podSelector: {} }] }],
    ['some namespaces', { from: [{ namespaceSelector: { matchLabels: { team: 'a' } } }] }],
    ['some pods of all namespaces', { from: [{ namespaceSelector: {}, podSelector: { matchLabels: { app: 'a' } } }] }],
    ['a block', { from: [{ ipBlock: { cidr: '10.0.0.0/8' } }] }],
    ['all but a block', { from: [ALL_BUT_A_BLOCK] }],
    ['half of the addresses of each family', { from: [{ ipBlock: { cidr: '0.0.0.0/1' } }, { ipBlock: { cidr: '8000::/1' } }] }],
    ['some namespaces that have a name', { from: [{ namespaceSelector: { ...NAMED, matchLabels: { team: 'a' } } }] }],
  ])('is noted if it admits %s', (_, rule) => {
    expect(judge(makeNetworkPolicy([data, rule])).codes).toEqual(['network-policy-admits']);
  });

  test.each([
    ['another port', { ports: [{ port: 9090 }] }],
    ['a range beside it', { ports: [{ port: 8081, endPort: 9000 }] }],
    ['another protocol', { ports: [{ port: 8080, protocol: 'UDP' }] }],
    ['a name that no container has', { ports: [{ port: 'nothing' }] }],
  ])('is correct with %s', (_, rule) => {
    expect(judge(makeNetworkPolicy([data, rule])).codes).toEqual([]);
  });

  test('selects with expressions, and if they are unknown', () => {
    const selecting = (operator: string, key: string, values?: string[]) =>
      judge(makeNetworkPolicy([data], { podSelector: { matchExpressions: [{ key, operator, values }] } })).codes;
    expect(selecting('In', 'app', ['web'])).toEqual([]);
    expect(selecting('Exists', 'app')).toEqual([]);
    expect(selecting('NotIn', 'app', ['other'])).toEqual([]);
    expect(selecting('DoesNotExist', 'tier')).toEqual([]);
    expect(selecting('DoesNotExist', 'constructor')).toEqual([]);
    expect(selecting('Whatever', 'tier')).toEqual([]);
    for (const [operator, key, values] of [
      ['In', 'app', ['x']],
      ['NotIn', 'app', ['web']],
      ['Exists', 'tier'],
      ['Exists', 'constructor'],
      ['DoesNotExist', 'app'],
    ] as const)
      expect(selecting(operator, key, values as Json)).toEqual(['no-network-policy']);
  });

  test('names a port of a native sidecar, which some network plug-ins do not find', () => {
    const named = makeNetworkPolicy([{ ports: [{ port: 'sidegate' }] }]);
    expect(judge(named).fixOf('network-policy-name')).toBe('write 8480 instead');
    expect(
      examine(of(with_('service', { annotations: { 'sidegate.dev/sidecar': 'container' } }), { networkPolicies: [named] })).codes,
    ).toEqual(['gate-not-proven']);
  });

  test('blocks all clients of the sidecar', () => {
    expect(judge(makeNetworkPolicy([])).messageOf('network-policy-shuts')).toBe(
      "NetworkPolicy web does not allow any connection to port 8480, the sidecar's",
    );
    expect(judge(makeNetworkPolicy([]), makeNetworkPolicy([data])).codes).toEqual([]);
  });
});

describe('the config', () => {
  const configs = (config: Json) => examine({ configs: new Map([['shop/web-gate', config]]) });

  test.each([
    [{ state: 'missing' }, 'config-missing', /ConfigMap web-gate does not exist/],
    [{ state: 'without-key', keys: ['config.yaml'] }, 'config-missing', /has no key gate\.yaml; it has config\.yaml/],
    [{ state: 'without-key', keys: [] }, 'config-missing', /has no key gate\.yaml$/],
    [
      { state: 'broken', problems: ['line 3: routes: missing'] },
      'config-broken',
      /the config in the ConfigMap web-gate is invalid: line 3: routes: missing/,
    ],
    [{ state: 'unknown', reason: 'you may not get it' }, 'not-known', /web-gate was not checked: you may not get it/],
  ])('is checked as %j', (config, code, message) => {
    const { codes, messageOf } = configs(config);
    expect(codes).toEqual([code]);
    expect(messageOf(code)).toMatch(message);
  });

  test('does not start with the arguments of one workload', () => {
    const { args } = (makePod('a') as Json).spec.initContainers[0];
    const conflicts = new Map([[JSON.stringify(args), ['--upstream: it is the API of provider']]]);
    const { codes, messageOf } = examine({ configs: sound({ conflicts }) });
    expect(codes).toEqual(['config-broken']);
    expect(messageOf('config-broken')).toBe(
      'the sidecar does not start with the config in the ConfigMap web-gate: --upstream: it is the API of provider',
    );
    const others = examine(of(with_('env'), { configs: sound({ conflicts }) }));
    expect(others.codes).not.toContain('config-broken');
  });

  test('refers to variables, which only a sidecar that was written by hand has', () => {
    const variables = [{ path: 'routes.0.webhook.keys.0.secret.env', variable: 'STRIPE' }];
    const { codes, messageOf } = examine({ configs: sound({ variables }) });
    expect(codes).toEqual(['config-broken']);
    expect(messageOf('config-broken')).toMatch(/secret\.env is STRIPE, but the sidecar has no such variable$/);
    for (const more of [{ env: [{ name: 'STRIPE' }] }, { envFrom: [{ secretRef: { name: 'stripe' } }] }]) {
      const pod: Json = makePod('a');
      Object.assign(pod.spec.initContainers[0], more);
      const found = examine({ Deployment: [], ReplicaSet: [], pods: [pod], configs: sound({ variables }) });
      expect(found.codes).not.toContain('config-broken');
    }
  });

  test('refers to variables that another webhook adds', () => {
    const configs = sound({ variables: [{ path: 'routes.0.webhook.keys.0.secret.env', variable: 'STRIPE' }] });
    const rules = { ...CURRENT.rules, allowedEnv: ['STRIPE'] };
    const pod: Json = makePod('a', template, OWNER);
    pod.spec.initContainers[0].env = [{ name: 'STRIPE' }];
    const codesOf = (over: Over) => examine({ configs, current: { ...CURRENT, rules }, ...over }).codes;
    expect(codesOf({ pods: [pod] })).not.toContain('config-broken');
    expect(codesOf({ ...makeDeployment(template, { spec: { replicas: 0 } }), pods: [] })).toEqual([]);
    expect(codesOf({ ...makeDeployment(template, { spec: { replicas: 0 } }), pods: [], current: CURRENT })).toEqual([
      'config-broken',
    ]);
    expect(codesOf({})).toEqual(['config-broken']);
  });

  test('reads a Secret that is not mounted', () => {
    const { codes, messageOf, fixOf } = examine({ configs: sound({ secrets: ['web-secret', 'other'] }) });
    expect(codes).toEqual(['secret-not-mounted']);
    expect(messageOf('secret-not-mounted')).toMatch(/reads the Secret other, which is not mounted: new pods do not start/);
    expect(fixOf('secret-not-mounted')).toMatch(/sidegate\.dev\/secrets in the pod template: other$/);
  });

  test('names Secrets that are missing or unknown', () => {
    expect(examine({ secrets: new Map([['shop/web-secret', 'missing']]) }).codes).toEqual(['secret-missing']);
    expect(examine({ secrets: new Map([['shop/web-secret', { unknown: 'you may not get it' }]]) }).messageOf('not-known')).toBe(
      'cannot determine whether the Secret web-secret exists: you may not get it',
    );
  });

  test('remembers IDs per replica without Redis', () => {
    const alone = sound({ isShared: false });
    expect(examine({ configs: alone }).codes).toEqual([]);
    const pods = [makePod('a', template, OWNER), makePod('b', template, OWNER)];
    const { codes, messageOf } = examine({ configs: alone, pods });
    expect(codes).toEqual(['memory-not-shared']);
    expect(messageOf('memory-not-shared')).toBe(
      '2 replicas without Redis: each keeps handled IDs for itself, so what one replica has seen is new to the others',
    );
    expect(examine({ configs: alone, ...makeDeployment(template, { spec: { replicas: 3 } }) }).codes).toEqual([
      'memory-not-shared',
    ]);
    expect(examine({ configs: sound({ isShared: false, remembered: [] }), pods }).codes).toEqual([]);
    expect(examine({ pods }).codes).toEqual([]);
  });

  test('differs between running sidecars and the ConfigMap, or between replicas', () => {
    const pods = [makePod('a', template, OWNER), makePod('b', template, OWNER)];
    const live = (a: Json, b: Json) =>
      examine({
        pods,
        live: new Map([
          ['shop/a', a],
          ['shop/b', b],
        ]),
      });
    expect(live({ hash: 'abc' }, { hash: 'abc' }).codes).toEqual([]);
    expect(live({ hash: 'abc' }, { hash: 'old' }).codes).toEqual(['config-not-taken', 'config-differs']);
    expect(live({ hash: 'abc' }, { unknown: 'no answer' }).messageOf('not-known')).toBe(
      'cannot determine which config b uses: no answer',
    );
  });
});

describe('staleness', () => {
  test('is another version, or other defaults, than those of the injector', () => {
    const { codes, messageOf, fixOf } = examine({ current: { ...CURRENT, version: '1.1.0', hash: 'other' } });
    expect(codes).toEqual(['version-stale', 'settings-stale']);
    expect(messageOf('version-stale')).toBe('the sidecars of web-1-a have version 1.0.0; the injector has 1.1.0');
    expect(fixOf('settings-stale')).toBe('kubectl -n shop rollout restart deployment/web');
  });

  test('ignores the defaults of the injector if the library chart rendered the sidecar, and is fixed in the chart', () => {
    const pod: Json = makePod('a', template, OWNER);
    const its = JSON.parse(pod.metadata.annotations['sidegate.dev/status']);
    pod.metadata.annotations['sidegate.dev/status'] = JSON.stringify({ ...its, hash: 'library' });
    expect(examine({ pods: [pod] }).codes).toEqual([]);
    const { codes, fixOf } = examine({ pods: [pod], current: { ...CURRENT, version: '1.1.0', hash: 'other' } });
    expect(codes).toEqual(['version-stale']);
    expect(fixOf('version-stale')).toBe(
      'upgrade the dependency sidegate-lib of the chart of deployment/web to 1.1.0, then upgrade the release',
    );
  });

  test('is unknown without the injector, which matters only if there are sidecars', () => {
    const current = { version: undefined, hash: undefined, rules: undefined, unknown: 'no injector was found' };
    expect(examine({ current })).toMatchObject({ codes: ['not-known', 'image-not-known'], web: { state: 'unknown' } });
    expect(examine({ current, pods: [], Deployment: [], ReplicaSet: [] }).codes).toEqual([]);
    expect(HASH).toMatch(/^[0-9a-f]{12}$/);
  });
});

describe('admission', () => {
  test('by several releases of the chart is reported', () => {
    const policy = (release: string): Json => ({
      metadata: { name: `${release}-protected`, labels: { 'app.kubernetes.io/instance': release } },
    });
    const binding = { metadata: { name: 'b' }, spec: { policyName: 'a-protected', validationActions: ['Deny'] } };
    const bindings = [binding, { ...binding, spec: { ...binding.spec, policyName: 'b-protected' } }];
    expect(examine({ policies: [policy('a'), policy('b')], bindings }).messageOf('several-releases')).toMatch(
      /^the releases a and b/,
    );
    expect(examine({ policies: [policy('a')], bindings: [binding] }).codes).not.toContain('several-releases');
  });

  test('lacks the webhook, which matters only if a workload requests the sidecar', () => {
    expect(examine({ webhooks: [], injectors: [] }).messageOf('webhook-missing')).toMatch(/^shop\/web request the sidecar/);
    expect(examine({ webhooks: [], injectors: [], pods: [], Deployment: [], ReplicaSet: [] }).codes).toEqual([]);
    const policy = {
      mutatingPolicies: [{ metadata: { name: 'sidegate-inject' } }],
      mutatingBindings: [{ metadata: { name: 'x' }, spec: { policyName: 'sidegate-inject' } }],
    };
    expect(examine({ webhooks: [], injectors: [], ...policy }).codes).toEqual([]);
    expect(examine({ webhooks: [], injectors: [], ...policy, mutatingBindings: [] }).codes).toEqual(['webhook-missing']);
  });

  test('has a webhook that the API server cannot trust', () => {
    expect(examine({ webhooks: [makeWebhook({ caBundle: '' })] }).messageOf('webhook-without-ca')).toMatch(/has no caBundle/);
    expect(
      examine({ webhooks: [makeWebhook({ caBundle: '-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----' })] }).messageOf(
        'webhook-without-ca',
      ),
    ).toMatch(/without a certificate/);
    const END = Date.parse('2036-11-18T00:00:00Z');
    const at = (now: number) => diagnose({ ...makeFacts(), now }).cluster.map(({ code }) => code);
    for (const code of [...at(END - 86_400_000), ...at(END + 2 * 86_400_000)]) seen.add(code);
    expect(at(END - 20 * 86_400_000)).toEqual([]);
    expect(at(END - 86_400_000)).toEqual(['ca-ends-soon']);
    expect(at(END + 2 * 86_400_000)).toEqual(['ca-ended']);
    expect(NOW).toBeLessThan(END);
  });

  test('fails open if no policy denies what the injector missed', () => {
    const none = { policies: [], bindings: [] };
    expect(examine(none).codes).toEqual(['fails-open']);
    expect(examine({ ...none, webhooks: [makeWebhook({ failurePolicy: 'Fail' })] }).codes).toEqual(['policy-missing']);
    expect(examine({ ...none, policies: { unknown: 'you may not list validatingadmissionpolicies' } }).codes).toEqual([
      'not-known',
    ]);
  });

  test('has no policy that denies beside the one that injects', () => {
    const inject = { metadata: { name: 'sidegate-inject' } };
    const mutating = {
      ...{ webhooks: [], injectors: [], mutatingPolicies: [inject] },
      mutatingBindings: [{ ...inject, spec: { policyName: 'sidegate-inject' } }],
    };
    expect(examine(mutating).codes).toEqual([]);
    expect(examine({ ...mutating, policies: [], bindings: [] }).codes).toEqual(['policy-missing']);
  });

  test.each([
    ['namespaces', { namespaceSelector: { matchLabels: { team: 'a' } } }],
    ['objects', { objectSelector: { matchExpressions: [{ key: 'team', operator: 'Exists' }] } }],
    ['operations', { resourceRules: [{ operations: ['UPDATE'] }] }],
    ['all others', { excludeResourceRules: [{ operations: ['CREATE'] }] }],
  ])('does not deny where a binding is only for some %s', (_what, matchResources) => {
    const bindings = ['sidegate-protected', 'sidegate-enforced'].map((policyName) => ({
      metadata: { name: `bind-${policyName}` },
      spec: { policyName, validationActions: ['Deny'], matchResources },
    }));
    const namespaces = [{ metadata: { name: NAMESPACE, labels: { 'sidegate.dev/enforce': 'true' } } }];
    const { codes, messageOf, fixOf } = examine({ bindings, namespaces });
    expect(codes).toEqual(['fails-open', 'enforce-without-policy']);
    expect(messageOf('fails-open')).toMatch(
      /and no policy denies all of them in shop: the binding bind-sidegate-protected denies only some pods, because of its matchResources$/,
    );
    expect(fixOf('fails-open')).toMatch(/^remove matchResources from the binding bind-sidegate-protected,/);
    expect(examine({ bindings, namespaces: { unknown: 'x' } }).messageOf('fails-open')).toMatch(
      /denies all of them: the binding/,
    );
    const [, enforced] = bindings;
    const forAll = { ...bindings[0], spec: { ...bindings[0]?.spec, matchResources: { namespaceSelector: {} } } };
    const forEnforced = { namespaceSelector: { matchLabels: { 'sidegate.dev/enforce': 'true' } } };
    const chart = [forAll, { ...enforced, spec: { ...enforced?.spec, matchResources: forEnforced } }];
    expect(examine({ bindings: chart, namespaces }).codes).toEqual([]);
  });

  test.each(['webhook', 'policy'])('does not fail open where the %s does not inject', (how) => {
    const name = 'kubernetes.io/metadata.name';
    const of = (namespace: string, team = '') => ({ metadata: { name: namespace, labels: { [name]: namespace, team } } });
    const bind = (id: string, namespaceSelector: Json) => ({
      metadata: { name: id },
      spec: { policyName: 'sidegate-protected', validationActions: ['Deny'], matchResources: { namespaceSelector } },
    });
    const namespaceSelector = { matchExpressions: [{ key: name, operator: 'NotIn', values: ['kube-system'] }] };
    const inject = { metadata: { name: 'sidegate-inject' } };
    const installed =
      how === 'webhook'
        ? { webhooks: [makeWebhook({ namespaceSelector, failurePolicy: 'Fail' })] }
        : {
            ...{ webhooks: [], injectors: [], mutatingPolicies: [inject] },
            mutatingBindings: [{ ...inject, spec: { policyName: 'sidegate-inject', matchResources: { namespaceSelector } } }],
          };
    const toTeam = (team: string) => bind(`of-${team}`, { matchLabels: { team } });
    const over = { ...installed, policies: [{ metadata: { name: 'sidegate-protected' } }] };
    const namespaces = [of('kube-system'), of(NAMESPACE, 'a'), of('other', 'b')];
    expect(examine({ ...over, namespaces, bindings: [bind('same', namespaceSelector)] }).codes).toEqual([]);
    expect(examine({ ...over, namespaces, bindings: [toTeam('a'), toTeam('b')] }).codes).toEqual([]);
    const { codes, messageOf } = examine({ ...over, namespaces, bindings: [toTeam('a')] });
    expect([codes, messageOf('policy-missing')]).toEqual([
      ['policy-missing'],
      'no policy denies all pods in other from which another webhook removed the sidecar: the binding of-a denies only some pods, because of its matchResources',
    ]);
  });

  test('has policies without a binding, or that only warn', () => {
    const bindings = (...given: [string, string][]) => ({
      bindings: given.map(([policyName, action]) => ({
        metadata: { name: policyName },
        spec: { policyName, validationActions: [action] },
      })),
    });
    expect(examine(bindings(['sidegate-protected', 'Deny'])).messageOf('policy-unbound')).toBe(
      'the policy sidegate-enforced has no binding, so it has no effect',
    );
    const telling = examine(bindings(['sidegate-protected', 'Warn'], ['sidegate-enforced', 'Deny']));
    expect(telling.codes).toEqual(['fails-open', 'policy-unbound']);
    expect(telling.messageOf('policy-unbound')).toBe('the policy sidegate-protected only reports (Warn) and denies nothing');
  });

  test('does not enforce what a namespace requires', () => {
    const namespaces = [{ metadata: { name: NAMESPACE, labels: { 'sidegate.dev/enforce': 'true' } } }];
    expect(examine({ namespaces }).codes).toEqual([]);
    expect(examine({ namespaces, policies: [{ metadata: { name: 'sidegate-protected' } }] }).codes).toEqual([
      'enforce-without-policy',
    ]);
  });

  test.each(['True', 'TRUE', 'yes', '1', ''])('does not enforce what a namespace requires with the label "%s"', (value) => {
    const namespaces = [{ metadata: { name: NAMESPACE, labels: { 'sidegate.dev/enforce': value } } }];
    const { codes, messageOf } = examine({ namespaces });
    expect(codes).toEqual(['label-value']);
    expect(messageOf('label-value')).toBe(
      `the label sidegate.dev/enforce of the namespace shop is "${value}", which has no effect: pods without the sidecar are not denied`,
    );
  });

  test('accepts a namespace that does not require the sidecar', () => {
    const namespaces = [{ metadata: { name: NAMESPACE, labels: { 'sidegate.dev/enforce': 'false' } } }];
    expect(examine({ namespaces }).codes).toEqual([]);
  });

  test('has no ready injector', () => {
    const injectors = [{ metadata: { name: 'sidegate-injector', namespace: 'sidegate' }, status: {} }];
    expect(examine({ injectors }).messageOf('injector-down')).toBe(
      'no replica of the injector sidegate/sidegate-injector is ready',
    );
  });

  test('has a webhook whose injector was deleted', () => {
    const { codes, messageOf } = examine({ injectors: [] });
    expect(codes).toEqual(['injector-down']);
    expect(messageOf('injector-down')).toBe(
      'the webhook inject.sidegate.dev calls an injector in the namespace sidegate, which has no Deployment of it',
    );
  });
});

describe('a resource that may not be read', () => {
  const LISTS = [
    'namespaces',
    'ingresses',
    'networkPolicies',
    'webhooks',
    'policies',
    'bindings',
    'mutatingPolicies',
    'mutatingBindings',
    'injectors',
    'Deployment',
    'ReplicaSet',
    'StatefulSet',
    'DaemonSet',
    'Job',
    'CronJob',
  ] as const;

  test.each(LISTS)('is reported for %s, without other findings', (list) => {
    const { codes, messageOf, findings } = examine({ [list]: { unknown: `you may not list ${list}` } });
    expect(codes.every((code) => code === 'not-known')).toBe(true);
    expect(messageOf('not-known')).toMatch(new RegExp(`: you may not list ${list}$`));
    expect(findings.error).toBe(0);
  });

  test('is an error for pods, because then the protection is unknown', () => {
    const { codes, web } = examine({ pods: { unknown: 'you may not list pods in shop' } });
    expect(codes).toEqual(['pods-not-known']);
    expect(web.state).toBe('unknown');
  });

  test.each(['services', 'endpointSlices'])('is an error for %s, because then bypasses are unknown', (list) => {
    const { codes, findings, messageOf } = examine({ [list]: { unknown: `you may not list ${list}` } });
    expect(codes).toContain('bypasses-not-known');
    expect(messageOf('bypasses-not-known')).toMatch(new RegExp(`: you may not list ${list}$`));
    expect(findings.error).toBe(1);
  });

  test('leaves pods under their Deployment without ReplicaSets, and under their named owner without both', () => {
    const unknown = { unknown: 'x' };
    expect(examine({ ReplicaSet: unknown, Deployment: unknown }).workloads).toMatchObject([{ kind: 'Deployment', name: 'web' }]);
    const foreign = [makePod('a', template, { name: 'canary-7', uid: 'x' })];
    expect(examine({ ReplicaSet: unknown, Deployment: unknown, pods: foreign }).workloads).toMatchObject([
      { kind: 'ReplicaSet', name: 'canary-7' },
    ]);
  });
});

/** One pod whose sidecar, or what stands beside it, is changed. */
const changed = (interception: string, change: (pod: Json, sidecar: Json) => void): Over => {
  const its = with_(interception);
  const pod: Json = makePod('a', its, OWNER);
  const all = [...(pod.spec.initContainers ?? []), ...pod.spec.containers];
  change(
    pod,
    all.find(({ name }: Json) => name === 'sidegate'),
  );
  return { ...makeDeployment(its), pods: [pod] };
};
const withoutOption = (name: string) => (_: Json, sidecar: Json) => {
  sidecar.args.splice(sidecar.args.indexOf(name), 2);
};
const unready = (pod: Json) => {
  pod.status.initContainerStatuses = [{ name: 'sidegate', ready: false }];
};
const toService = (port: Json, over: Json = {}) => ({ services: [makeService({ ports: [{ port: 80, ...port }], ...over })] });
const configured = (over: Json): Over => ({ configs: sound({ secrets: ['web-secret'], ...over }) });
const TWO_PORTS = {
  annotations: { 'sidegate.dev/app-port': '8080' },
  container: {
    ports: [
      { name: 'http', containerPort: 8080 },
      { name: 'extra', containerPort: 9000 },
    ],
  },
};
const EXPORTER = {
  spec: {
    containers: [
      { name: 'web', image: 'web:1', ports: [{ name: 'http', containerPort: 8080 }] },
      { name: 'exporter', image: 'exporter:1', ports: [{ containerPort: 9113 }] },
    ],
  },
  annotations: { 'sidegate.dev/app-container': 'web', 'sidegate.dev/app-port': '8080' },
};
/** A pod that nobody labelled, with a port of the name that the Service goes by. */
const STRANGER: Json = {
  metadata: { labels: { app: 'web' } },
  spec: { containers: [{ name: 'x', image: 'x:1', ports: [{ name: 'sidegate', containerPort: 8480 }] }] },
};
const sliceTo = (address: string, port = 8080): Over => ({
  endpointSlices: [
    { metadata: { name: 'by-hand', namespace: NAMESPACE }, endpoints: [{ addresses: [address] }], ports: [{ port }] },
  ],
});
const dual = (pod: Json) => {
  pod.status.podIPs = [{ ip: '10.1.0.1' }, { ip: 'fd00::a1' }];
};

/** As of the endpoints controller: anyone who may create slices can copy its labels and owner. */
const sliceOf = (service: string, port: number): Over => ({
  endpointSlices: [
    {
      metadata: {
        name: `${service}-x`,
        namespace: NAMESPACE,
        labels: {
          'endpointslice.kubernetes.io/managed-by': 'endpointslice-controller.k8s.io',
          'kubernetes.io/service-name': service,
        },
        ownerReferences: [{ apiVersion: 'v1', kind: 'Service', name: service, uid: 'web', controller: true }],
      },
      endpoints: [{ addresses: ['10.1.0.1'] }],
      ports: [{ port }],
    },
  ],
});

test('an EndpointSlice of a Service that selects the pod repeats no finding of the Service', () => {
  const services = [makeService({ ports: [{ port: 80, targetPort: 8080 }] })];
  expect(examine({ ...sliceOf('web', 8480) }).codes).toEqual([]);
  expect(examine({ services, ...sliceOf('web', 8080) }).codes).toEqual(['service-to-app']);
});

describe('no workload is reported as protected', () => {
  test.each<[string, Over, string, string]>([
    ['behind an EndpointSlice with the labels of another Service', sliceOf('direct', 8080), 'bypassed', 'endpoints-to-app'],
    ['behind an EndpointSlice with the labels of its Service', sliceOf('web', 8080), 'bypassed', 'endpoints-to-app'],
    ['behind an EndpointSlice with an address that cannot be read', sliceTo('10.1.0.1x'), 'unknown', 'addresses-not-read'],
    [
      'with a name for its pod',
      {
        services: [
          makeService(),
          makeService({ type: 'ExternalName', externalName: '10-1-0-1.shop.pod.cluster.local', ports: [{ port: 8080 }] }, 'ext'),
        ],
      },
      'bypassed',
      'external-name-to-app',
    ],
    ['where Services are not known', { services: { unknown: 'x' } }, 'unknown', 'bypasses-not-known'],
    ['where EndpointSlices are not known', { endpointSlices: { unknown: 'x' } }, 'unknown', 'bypasses-not-known'],
    [
      'where its config may not be read',
      { configs: new Map([['shop/web-gate', { state: 'unknown', reason: 'x' }]]) },
      'unknown',
      'not-known',
    ],
    [
      'where its config is not there',
      { configs: new Map([['shop/web-gate', { state: 'missing' }]]) },
      'unknown',
      'config-missing',
    ],
    [
      'where its config is broken',
      { configs: new Map([['shop/web-gate', { state: 'broken', problems: ['x'] }]]) },
      'unknown',
      'config-broken',
    ],
    ['where it serves another config', { live: new Map([['shop/web-1-a', { hash: 'old' }]]) }, 'unknown', 'config-not-taken'],
    [
      'where its config is in no volume',
      changed('service', (pod) => {
        pod.spec.volumes = [];
        delete pod.metadata.annotations['sidegate.dev/config'];
      }),
      'unprotected',
      'sidecar-differs',
    ],
    [
      'by a sidecar without --upstream',
      { ...changed('service', withoutOption('--upstream')), ...toService({ targetPort: 8080 }) },
      'unprotected',
      'ports-not-known',
    ],
    ['by a sidecar without --listen', changed('service', withoutOption('--listen')), 'unprotected', 'ports-not-known'],
    [
      'by a container that only has the name',
      changed('service', (pod, sidecar) => {
        delete pod.metadata.annotations['sidegate.dev/status'];
        delete sidecar.args;
        sidecar.image = 'pause';
      }),
      'unprotected',
      'sidecar-differs',
    ],
    [
      'where a slice has its IPv6 address',
      { ...changed('service', dual), ...sliceTo('fd00::a1') },
      'bypassed',
      'endpoints-to-app',
    ],
    [
      'where a slice spells that address otherwise',
      { ...changed('service', dual), ...sliceTo('FD00:0:0::00a1') },
      'bypassed',
      'endpoints-to-app',
    ],
    ['where a slice leads beside', sliceTo('10.1.0.1', 9000), 'bypassed', 'port-beside'],
    [
      "where a Service leads to the app container's other port",
      { ...of(with_('service', TWO_PORTS)), ...toService({ targetPort: 9000 }) },
      'bypassed',
      'port-beside',
    ],
    [
      'where it does so by name',
      { ...of(with_('rename', TWO_PORTS)), ...toService({ targetPort: 'extra' }) },
      'bypassed',
      'port-beside',
    ],
    [
      'where it does so beside a port that is taken',
      { ...of(with_('same-port', TWO_PORTS)), ...toService({ targetPort: 9000 }) },
      'bypassed',
      'port-beside',
    ],
    ['to a port that no container declares', toService({ targetPort: 9000 }), 'bypassed', 'port-beside'],
    [
      'where a headless Service leads to it by its own port',
      { ...of(with_('service', TWO_PORTS)), ...toService({ port: 9000, targetPort: 'sidegate' }, { clusterIP: 'None' }) },
      'bypassed',
      'port-beside',
    ],
    [
      'where a Service leads to what another container declares',
      { ...of(with_('service', EXPORTER)), ...toService({ targetPort: 9113 }) },
      'bypassed',
      'port-beside',
    ],
    [
      'where other containers reach its process',
      changed('service', (pod) => {
        pod.spec.shareProcessNamespace = true;
      }),
      'bypassed',
      'processes-shared',
    ],
    [
      'where its Service leads to pods without it, too',
      { pods: [makePod('a', template, OWNER), makeBare('b', STRANGER)] },
      'bypassed',
      'service-shared',
    ],
    [
      'where a hostPort leads to it',
      changed('service', (pod) => {
        pod.spec.containers[0].ports.push({ containerPort: 9000, hostPort: 90 });
      }),
      'bypassed',
      'port-beside',
    ],
    [
      'where the app may stand on the port itself',
      { ...changed('same-port', unready), ...toService({ targetPort: 8080 }) },
      'unknown',
      'sidecar-not-ready',
    ],
    [
      'where it may in mode env',
      { ...changed('env', unready), ...toService({ targetPort: 8080 }) },
      'unknown',
      'sidecar-not-ready',
    ],
    [
      'where it may, and people wrote it',
      {
        ...changed('env', (pod) => {
          unready(pod);
          delete pod.metadata.annotations['sidegate.dev/status'];
        }),
        ...toService({ targetPort: 8080 }),
      },
      'unknown',
      'sidecar-not-ready',
    ],
    [
      'by an annotation that the arguments belie',
      {
        ...changed('service', (pod) => {
          const status = JSON.parse(pod.metadata.annotations['sidegate.dev/status']);
          pod.metadata.annotations['sidegate.dev/status'] = JSON.stringify({ ...status, takeover: 'same-port' });
        }),
        ...toService({ port: 8080, targetPort: 'sidegate' }, { clusterIP: 'None' }),
      },
      'bypassed',
      'headless-to-app',
    ],
    ['where its config is open', configured({ routes: 2, open: ['a', 'b'] }), 'bypassed', 'config-open'],
    ['where its config only observes', configured({ routes: 2, observing: ['a', 'b'] }), 'bypassed', 'config-open'],
    ['where it does either', configured({ routes: 2, open: ['a'], observing: ['b'] }), 'bypassed', 'config-open'],
  ])('%s', (_, over, state, code) => {
    const { web, codes } = examine(over);
    expect([web.state, codes]).toEqual([state, expect.arrayContaining([code])]);
  });

  test.each<[string, Over, string]>([
    ['by a gate that was not asked', { live: new Map() }, 'injected'],
    ['by a gate that did not answer', { live: new Map([['shop/web-1-a', { unknown: 'x' }]]) }, 'injected'],
    ['by a gate of an unknown version', { live: new Map([['shop/web-1-a', { hash: 'abc' }]]) }, 'injected'],
    ['by a gate of another version', { live: new Map([['shop/web-1-a', { hash: 'abc', version: '0.9.0' }]]) }, 'injected'],
    [
      'while one of its gates is not asked',
      {
        pods: [makePod('a', template, OWNER), makePod('b', template, OWNER)],
        live: new Map([['shop/a', { hash: 'abc', version: '1.0.0' }]]),
      },
      'injected',
    ],
    ['while its gate is not ready, whoever answers', changed('service', unready), 'injected'],
  ])('%s, only as injected', (_, over, state) => {
    expect(examine(over).web.state).toBe(state);
  });

  test.each<[string, Over, string[]]>([
    ['a slice leads to another address', { ...changed('service', dual), ...sliceTo('fd00::a2') }, []],
    ['some routes are open', configured({ routes: 2, open: ['a'] }), ['config-opens']],
    ['some routes only observe', configured({ routes: 2, observing: ['a'] }), ['config-observes']],
    ['a config has no routes at all', configured({ routes: 0 }), []],
  ])('but one is if %s', (_, over, expected) => {
    const { web, codes } = examine(over);
    expect([web.state, codes]).toEqual(['protected', expected]);
  });

  test('shows a fix if the ports are unknown, and the possible cause if the sidecar is not ready', () => {
    expect(examine(changed('service', withoutOption('--upstream'))).messageOf('ports-not-known')).toBe(
      'the arguments of the container sidegate of a do not contain both --listen and --upstream with a port',
    );
    expect(examine(changed('same-port', unready)).messageOf('sidecar-not-ready')).toBe(
      "the sidecar of a is not ready; it should listen on the app's own port, where the app itself may be listening now, open to everyone",
    );
  });
});

describe('annotations that the injector denies', () => {
  const wrong = makeTemplate({ annotations: { 'sidegate.dev/secrets': 'a b' } });

  test('are an error of the template, and not of pods that were created before', () => {
    const found = examine(of(template, makeDeployment(wrong)));
    expect(found.codes).toEqual(['annotation-invalid']);
    expect(found.messageOf('annotation-invalid')).toMatch(/^new pods are denied: the annotation sidegate\.dev\/secrets is "a b"/);
    const old: Json = makePod('a', template, OWNER);
    old.metadata.annotations['sidegate.dev/secrets'] = 'a b';
    expect(examine({ pods: [old] }).codes).not.toContain('annotation-invalid');
  });

  test('are an error of the pods if their template cannot be read', () => {
    const pods = [makeBare('a', wrong, { kind: 'Rollout', name: 'canary', uid: 'canary' })];
    expect(examine({ pods, Deployment: [], ReplicaSet: [] }).codes).toEqual(
      expect.arrayContaining(['no-sidecar', 'annotation-invalid']),
    );
  });
});

test('has a test for every code', () => {
  expect(Object.keys(FINDINGS).filter((code) => !seen.has(code))).toEqual([]);
});

test('reads a pod once for each Service, however many pods and Services share a label', () => {
  const countReads = (size: number): number => {
    let reads = 0;
    const pods = Array.from({ length: size }, (_, i): Json => {
      const pod: Json = makePod(`p${i}`);
      return { ...pod, status: { ...pod.status, podIP: `10.2.0.${i}` } };
    });
    const { spec } = pods[0];
    Object.defineProperty(pods[0], 'spec', {
      get: () => {
        reads++;
        return spec;
      },
    });
    const services = Array.from({ length: size }, (_, i) => makeService({ clusterIP: 'None' }, `s${i}`));
    const endpoints = pods.map(({ status }) => ({ addresses: [status.podIP], conditions: { ready: true } }));
    const endpointSlices = services.map(({ metadata: { name, namespace } }) => ({
      metadata: { name, namespace, labels: { 'kubernetes.io/service-name': name } },
      ports: [{ port: 80 }],
      endpoints,
    }));
    diagnose(makeFacts({ pods, services, endpointSlices }));
    return reads;
  };
  expect(countReads(40) / countReads(10)).toBeLessThan(8);
});
