/** A healthy cluster for the doctor to look at, made by the injector itself, in which tests break one thing each. */
import { applyPatch, type Operation } from 'rfc6902';
import { CONTROLLER_KINDS, type Facts } from '../../src/kubernetes/doctor/facts.ts';
import type { Controller, NetworkPolicy, Pod, Service } from '../../src/kubernetes/doctor/objects.ts';
import { injectPod } from '../../src/kubernetes/injector/inject.ts';
import { toSidecarDefaults } from '../../src/kubernetes/injector/injector-config.ts';
import type { InjectContext } from '../../src/kubernetes/injector/outcome.ts';
import { toDefaultsHash } from '../../src/kubernetes/injector/status.ts';

/** Unknown in depth, as tests write it. */
// biome-ignore lint/suspicious/noExplicitAny: tests reach deep into objects that they have just written
export type Json = any;

export const NAMESPACE = 'shop';
export const NOW = Date.parse('2026-06-01T00:00:00Z');
const DEFAULTS = toSidecarDefaults('sidegate:1.0.0');
const CONTEXT: InjectContext = { defaults: DEFAULTS, version: '1.0.0', kube: { major: 1, minor: 34 }, namespace: NAMESPACE };
export const HASH = toDefaultsHash(DEFAULTS);
/** What the injector of the healthy cluster makes. */
export const CURRENT = {
  version: '1.0.0',
  hash: HASH,
  rules: { allowedImages: ['sidegate'], allowedEnv: [], allowedMounts: [] },
  unknown: undefined,
};
export const LABEL = { 'sidegate.dev/inject': 'true' };
const SETTINGS = { 'sidegate.dev/config': 'web-gate', 'sidegate.dev/secrets': 'web-secret' };

/** A pod or template as its author wrote it. */
export function makeTemplate({ annotations = {}, labels = {}, spec = {}, container = {} }: Json = {}): Json {
  return {
    metadata: { labels: { app: 'web', ...LABEL, ...labels }, annotations: { ...SETTINGS, ...annotations } },
    spec: {
      containers: [{ name: 'web', image: 'web:1', ports: [{ name: 'http', containerPort: 8080 }], ...container }],
      ...spec,
    },
  };
}

/** A pod without the sidecar. */
export function makeBare(name: string, template: Json = makeTemplate(), owner?: Json): Pod {
  const ownerReferences = owner === undefined ? [] : [{ kind: 'ReplicaSet', controller: true, ...owner }];
  return {
    ...template,
    metadata: {
      ...template.metadata,
      labels: { ...template.metadata.labels, ...toHash(owner) },
      name,
      namespace: NAMESPACE,
      uid: name,
      ownerReferences,
    },
    status: { phase: 'Running', podIP: '10.1.0.1', containerStatuses: [{ name: 'web', ready: true }] },
  };
}

/** The label by which a Deployment tells its ReplicaSets apart. */
function toHash(owner: Json): object {
  return owner?.name === OWNER.name ? { 'pod-template-hash': '1' } : {};
}

/** The same, as the injector makes it of that. */
export function makePod(name: string, template: Json = makeTemplate(), owner?: Json, context: Partial<InjectContext> = {}): Pod {
  const bare = makeBare(name, template, owner);
  const injection = injectPod(bare, { ...CONTEXT, ...context });
  if (injection.outcome !== 'injected') throw new Error(injection.message);
  const pod: Json = structuredClone(bare);
  applyPatch(pod, structuredClone(injection.patch) as Operation[]);
  const place = pod.spec.initContainers?.length ? 'initContainerStatuses' : 'containerStatuses';
  return { ...pod, status: { ...pod.status, [place]: [{ name: 'sidegate', ready: true, restartCount: 0 }] } };
}

/** The Deployment `web` with its ReplicaSet, whose pods' owner is `{ name: 'web-1', uid: 'web-1' }`. */
export function makeDeployment(
  template: Json = makeTemplate(),
  over: Json = {},
): { Deployment: Controller[]; ReplicaSet: Controller[] } {
  const web = {
    metadata: { name: 'web', namespace: NAMESPACE, uid: 'web', ...over.metadata },
    spec: { replicas: 1, template, ...over.spec },
  };
  const ownerReferences = [{ kind: 'Deployment', name: 'web', uid: 'web', controller: true }];
  const set = {
    metadata: { name: 'web-1', namespace: NAMESPACE, uid: 'web-1', ownerReferences },
    spec: { template },
    status: over.setStatus,
  };
  return { Deployment: [web], ReplicaSet: [set] };
}
export const OWNER = { name: 'web-1', uid: 'web-1' };

export function makeService(spec: Json = {}, name = 'web'): Service {
  const ports = [{ port: 80, targetPort: 'sidegate' }];
  return { metadata: { name, namespace: NAMESPACE }, spec: { selector: { app: 'web' }, clusterIP: '10.96.0.9', ports, ...spec } };
}

export function makeNetworkPolicy(ingress: Json, over: Json = {}): NetworkPolicy {
  return {
    metadata: { name: 'web', namespace: NAMESPACE },
    spec: { podSelector: { matchLabels: { app: 'web' } }, ingress, ...over },
  };
}

/** A webhook configuration as the chart and the injector leave it. */
export function makeWebhook(over: Json = {}): Json {
  const service = { namespace: 'sidegate', name: 'sidegate-injector' };
  const { caBundle = CA, ...rest } = over;
  return {
    metadata: { name: 'sidegate-injector', labels: { 'app.kubernetes.io/version': '1.0.0' } },
    webhooks: [
      {
        name: 'inject.sidegate.dev',
        failurePolicy: 'Ignore',
        clientConfig: { service, caBundle: Buffer.from(caBundle).toString('base64') },
        ...rest,
      },
    ],
  };
}

/** What each gate reports with `--live`. */
function confirmed(pods: readonly Pod[]): Facts['live'] {
  return new Map(pods.map(({ metadata }) => [`${metadata.namespace}/${metadata.name}`, { hash: 'abc', version: '1.0.0' }]));
}

/** What a test may have otherwise: lists as arrays. */
export type Over = { readonly [Key in keyof Facts]?: Json } & { readonly [Key in (typeof CONTROLLER_KINDS)[number]]?: Json };

/** The healthy one, with `over` in place of what it has. A list may be an array, or `{ unknown }`. */
export function makeFacts(over: Over = {}): Facts {
  const policy = (name: string): Json => ({ metadata: { name } });
  const binding = (name: string): Json => ({ metadata: { name }, spec: { policyName: name, validationActions: ['Deny'] } });
  const lists: Json = {
    namespaces: [{ metadata: { name: NAMESPACE, labels: { 'kubernetes.io/metadata.name': NAMESPACE } } }],
    pods: [makePod('web-1-a', makeTemplate(), OWNER)],
    services: [makeService()],
    endpointSlices: [],
    ingresses: [],
    networkPolicies: [makeNetworkPolicy([{ ports: [{ port: 8480 }, { port: 8481 }] }])],
    webhooks: [makeWebhook()],
    policies: [policy('sidegate-protected'), policy('sidegate-enforced')],
    bindings: [binding('sidegate-protected'), binding('sidegate-enforced')],
    mutatingPolicies: [],
    mutatingBindings: [],
    injectors: [{ metadata: { name: 'sidegate-injector', namespace: 'sidegate' }, status: { readyReplicas: 2 } }],
  };
  const controllers: Json = { ...Object.fromEntries(CONTROLLER_KINDS.map((kind) => [kind, []])), ...makeDeployment() };
  const toFound = (list: Json): Json => (Array.isArray(list) ? { items: list } : list);
  const pick = (from: Json): Json =>
    Object.fromEntries(Object.entries(from).map(([key, list]) => [key, toFound((over as Json)[key] ?? list)]));
  return {
    now: NOW,
    version: { major: 1, minor: 34 },
    ...pick(lists),
    controllers: pick(controllers),
    current: over.current ?? CURRENT,
    configs:
      over.configs ??
      new Map([
        [
          'shop/web-gate',
          {
            ...{ state: 'valid', hash: 'abc', routes: 1, open: [], observing: [] },
            ...{ isShared: true, remembered: ['handled IDs'], secrets: ['web-secret'] },
          },
        ],
      ]),
    secrets: over.secrets ?? new Map([['shop/web-secret', 'there']]),
    live: over.live ?? confirmed(Array.isArray(over.pods ?? lists.pods) ? (over.pods ?? lists.pods) : []),
    ...(Object.hasOwn(over, 'version') ? { version: over.version } : undefined),
  };
}

/** Self-signed, until 2036-11-18. */
const CA = `-----BEGIN CERTIFICATE-----
MIIBgjCCASegAwIBAgIUTvKGDUtuQ7seNO0F1CiD5eG0pVswCgYIKoZIzj0EAwIw
FjEUMBIGA1UEAwwLc2lkZWdhdGUtY2EwHhcNMjYxMTIxMTY0NjMwWhcNMzYxMTE4
MTY0NjMwWjAWMRQwEgYDVQQDDAtzaWRlZ2F0ZS1jYTBZMBMGByqGSM49AgEGCCqG
SM49AwEHA0IABKivYdKj2QgoBChPw9yWW9KdNLXvFjd78vMOxell/2tzGhxiAQCh
73aUhtqNyIibjMNaxD1ZVk1NjZwspnHfE0ujUzBRMB0GA1UdDgQWBBRv0oyO1tzc
LZsPKhXFxdJgpacdBzAfBgNVHSMEGDAWgBRv0oyO1tzcLZsPKhXFxdJgpacdBzAP
BgNVHRMBAf8EBTADAQH/MAoGCCqGSM49BAMCA0kAMEYCIQCE2NtcIQRqjEGjPT75
15fY0pM/CxcJBoCPqr92i+/jJwIhAL5uHDFUCRhuGlLH5Y374Spmt1tX3BCM0Lch
Skf9h8wu
-----END CERTIFICATE-----`;
