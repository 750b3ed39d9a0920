import { readFileSync } from 'node:fs';
import { applyPatch, type Operation } from 'rfc6902';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { injectPod } from '../../src/kubernetes/injector/inject.ts';
import { toSidecarDefaults } from '../../src/kubernetes/injector/injector-config.ts';
import { SCHEMA_VERSIONS, toSchemaFile } from '../prepare/kubernetes-schemas.ts';
import { type Cluster, useCluster } from '../support/cluster/cluster.ts';
import { makeGatedPod } from '../support/cluster/gate-pods.ts';
import type { Kube } from '../support/cluster/kube-request.ts';

/** What injection does to a pod with a field: the API server must accept the result, or the injector must deny the pod and say why. */
interface Treatment {
  /** `kept`: no part of injection depends on it. `extended`: injection changes it. `checked`: some values are denied. */
  readonly kind: 'kept' | 'extended' | 'checked';
  readonly why: string;
  /** Values that must work. */
  readonly accepted?: readonly unknown[];
  /** Values with which the injector denies the pod, and a part of the reason. */
  readonly denied?: readonly (readonly [value: unknown, reason: string])[];
  /** The field is in no pod that this API server accepts from a client, or needs other objects. */
  readonly isUntried?: true;
}

const kept = (why: string, ...accepted: readonly unknown[]): Treatment => ({ kind: 'kept', why, accepted });
const untried = (why: string): Treatment => ({ kind: 'kept', why, isUntried: true });
const OF_SCHEDULING = 'the scheduler reads it; it applies to the pod as a whole';
const OF_NAMES = "names of the pod, which the sidecar does not use: it connects to the app's address";

/** Every field of a PodSpec in all versions. A field that Kubernetes adds fails the test below, until it is decided here. */
const FIELDS: Readonly<Record<string, Treatment>> = {
  activeDeadlineSeconds: kept('the kubelet ends all containers', 60),
  affinity: {
    kind: 'checked',
    why: 'it can require Windows',
    accepted: [toNodeAffinity('linux')],
    denied: [[toNodeAffinity('windows'), 'for Windows']],
  },
  automountServiceAccountToken: kept('the sidecar hides the token by an empty volume', true, false),
  containers: { kind: 'extended', why: 'see injector/*.ts', accepted: [] },
  dnsConfig: kept('the sidecar resolves names like the app', { options: [{ name: 'ndots', value: '1' }] }),
  dnsPolicy: kept('the sidecar resolves names like the app', 'Default', 'ClusterFirst'),
  enableServiceLinks: kept('the gate reads no variable that Services can set', true, false),
  ephemeralContainers: untried('the API server denies it in new pods; the policies check updates'),
  hostAliases: kept(OF_NAMES, [{ ip: '10.0.0.1', hostnames: ['db'] }]),
  hostIPC: kept('the gate has no shared memory', true),
  hostNetwork: { kind: 'checked', why: 'clients bypass the sidecar', accepted: [false], denied: [[true, 'hostNetwork']] },
  hostPID: { kind: 'checked', why: "the sidecar's memory is readable", accepted: [false], denied: [[true, 'hostPID']] },
  hostUsers: kept('uids inside of the pod stay the same', true, false),
  hostname: kept(OF_NAMES, 'web'),
  hostnameOverride: kept(OF_NAMES, 'web.example'),
  imagePullSecrets: { kind: 'extended', why: "the sidecar's are added", accepted: [[{ name: 'registry' }]] },
  initContainers: {
    kind: 'extended',
    why: 'the sidecar comes first',
    accepted: [[{ name: 'first', image: 'first:1' }]],
    denied: [[[{ name: 'sidegate', image: 'x:1' }], 'container named sidegate']],
  },
  nodeName: kept(OF_SCHEDULING, 'a-node'),
  nodeSelector: {
    kind: 'checked',
    why: 'it can require Windows',
    accepted: [{ 'kubernetes.io/os': 'linux' }],
    denied: [[{ 'kubernetes.io/os': 'windows' }, 'for Windows']],
  },
  os: {
    kind: 'checked',
    why: 'the image is for Linux',
    accepted: [{ name: 'linux' }],
    denied: [[{ name: 'windows' }, 'for Windows']],
  },
  overhead: untried('the admission plugin RuntimeClass sets it, for the sandbox, not for containers'),
  preemptionPolicy: kept(OF_SCHEDULING, 'PreemptLowerPriority'),
  priority: untried('the admission plugin Priority sets it'),
  priorityClassName: kept(OF_SCHEDULING, 'system-node-critical'),
  readinessGates: kept('the pod is ready only if the sidecar is ready as well', [{ conditionType: 'example.com/ready' }]),
  resourceClaims: kept('devices of the app; the sidecar claims none', [{ name: 'gpu', resourceClaimName: 'gpu' }]),
  resources: {
    kind: 'extended',
    why: 'the containers together must not exceed it',
    accepted: [
      { requests: { cpu: '20m', memory: '64Mi' } },
      { requests: { cpu: '20m', memory: '64Mi' }, limits: { cpu: '20m', memory: '64Mi' } },
      { limits: { memory: '100Mi' } },
      { limits: { cpu: '0.01' } },
    ],
  },
  restartPolicy: kept(
    'a native sidecar is always restarted; with a plain container, other policies are denied',
    'Always',
    'Never',
    'OnFailure',
  ),
  runtimeClassName: untried('it must exist; the sidecar needs nothing of the host'),
  schedulerName: kept(OF_SCHEDULING, 'another'),
  schedulingGates: kept(OF_SCHEDULING, [{ name: 'example.com/wait' }]),
  schedulingGroup: untried(OF_SCHEDULING),
  securityContext: {
    kind: 'checked',
    why: 'the sidecar has its own; what remains, such as supplemental groups, applies to all containers',
    accepted: [
      { runAsUser: 0 },
      { runAsNonRoot: true, runAsUser: 1, runAsGroup: 1, fsGroup: 1, fsGroupChangePolicy: 'OnRootMismatch' },
      { supplementalGroups: [4], supplementalGroupsPolicy: 'Strict' },
      { seLinuxOptions: { level: 's0:c1,c2' }, seLinuxChangePolicy: 'Recursive' },
      { appArmorProfile: { type: 'RuntimeDefault' }, seccompProfile: { type: 'Unconfined' } },
      { sysctls: [{ name: 'net.ipv4.ip_unprivileged_port_start', value: '0' }] },
    ],
    denied: [[{ windowsOptions: { runAsUserName: 'ContainerUser' } }, 'for Windows']],
  },
  serviceAccount: kept('the old name of serviceAccountName', 'default'),
  serviceAccountName: kept('the sidecar hides its token', 'default'),
  setHostnameAsFQDN: kept(OF_NAMES, true),
  shareProcessNamespace: {
    kind: 'checked',
    why: "the sidecar's memory is readable",
    accepted: [false],
    denied: [[true, 'shareProcessNamespace']],
  },
  subdomain: kept(OF_NAMES, 'webs'),
  terminationGracePeriodSeconds: { kind: 'extended', why: 'the delay of preStop is added', accepted: [0, 1, 30, 600, 2 ** 31] },
  tolerations: kept(OF_SCHEDULING, [{ operator: 'Exists' }]),
  topologySpreadConstraints: kept(OF_SCHEDULING, [
    { maxSkew: 1, topologyKey: 'zone', whenUnsatisfiable: 'ScheduleAnyway', labelSelector: { matchLabels: { app: 'web' } } },
  ]),
  volumes: {
    kind: 'extended',
    why: "the sidecar's are added",
    accepted: [[{ name: 'data', emptyDir: {} }]],
    denied: [[[{ name: 'sidegate-config', emptyDir: {} }], 'volume named sidegate-config']],
  },
  workloadRef: untried('Kubernetes 1.35 only; the scheduler reads it'),
};

function toNodeAffinity(system: string): Kube {
  const matchExpressions = [{ key: 'kubernetes.io/os', operator: 'In', values: [system] }];
  return { nodeAffinity: { requiredDuringSchedulingIgnoredDuringExecution: { nodeSelectorTerms: [{ matchExpressions }] } } };
}

test.each(SCHEMA_VERSIONS)('Kubernetes %s has no field of a pod that is not decided here', (version) => {
  const { definitions } = JSON.parse(readFileSync(toSchemaFile(version), 'utf8'));
  const fields = Object.keys(definitions['io.k8s.api.core.v1.PodSpec'].properties);
  expect(fields.filter((field) => !Object.hasOwn(FIELDS, field))).toEqual([]);
});

const rows = Object.entries(FIELDS);
const accepted = rows.flatMap(([field, { accepted = [] }]) => accepted.map((value) => [field, value] as const));
const denied = rows.flatMap(([field, { denied = [] }]) => denied.map(([value, reason]) => [field, value, reason] as const));

const toPod = (field: string, value: unknown): Kube => {
  const pod = makeGatedPod('web', 'service');
  return {
    ...pod,
    spec: { ...pod['spec'], ...(field === 'os' ? { securityContext: {} } : undefined), [field]: structuredClone(value) },
  };
};
const inject = (pod: Kube, minor: number): ReturnType<typeof injectPod> =>
  injectPod(pod, {
    defaults: toSidecarDefaults('sidegate:1.0.0'),
    version: '1.0.0',
    kube: { major: 1, minor },
    namespace: 'default',
  });

describe.each(['1.34', '1.36'] as const)('an API server of version %s', (version) => {
  let cluster: Cluster;
  let namespace: string;

  beforeAll(async () => {
    cluster = await useCluster(version);
    namespace = await cluster.createNamespace();
  });
  afterAll(() => cluster?.cleanUp());

  test.each(accepted)('accepts a pod with %s: %j, before and after injection', async (field, value) => {
    const pod = toPod(field, value);
    const before = await cluster.create(pod, { namespace, isDryRun: true });
    expect(before.status, before.body.message).toBe(201);
    const injection = inject(pod, Number(version.split('.')[1]));
    if (injection.outcome !== 'injected') throw new Error(injection.message);
    applyPatch(pod, structuredClone(injection.patch) as Operation[]);
    const after = await cluster.create(pod, { namespace, isDryRun: true });
    expect(after.status, after.body.message).toBe(201);
  });
});

test.each(denied)('the injector denies a pod with %s: %j, and says why: %s', (field, value, reason) => {
  const injection = inject(toPod(field, value), 36);
  expect(injection).toMatchObject({ outcome: 'denied', message: expect.stringContaining(reason) });
});

test('each field is tried with a value, unless it says why not', () => {
  const untested = rows.filter(
    ([, { accepted = [], isUntried, kind }]) => accepted.length === 0 && isUntried !== true && kind !== 'extended',
  );
  expect(untested.map(([field]) => field)).toEqual([]);
});
