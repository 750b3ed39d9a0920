/** Reads a cluster for the doctor: lists, and the objects that pods refer to. It reports objects that it may not read, and writes nothing. */
import type { Clock, Milliseconds } from '../../core/clock.ts';
import { Counts } from '../../core/collections.ts';
import { type KubeClient, type KubePath, METADATA_ONLY_OBJECT, type Query, toKubePath } from '../client/client.ts';
import { KubeError } from '../client/error.ts';
import { type InjectorConfig, parseInjectorConfig, type SidecarDefaults } from '../injector/injector-config.ts';
import { hasForm, OBJECT_NAME } from '../injector/kubernetes-values.ts';
import { RULES_ANNOTATION } from '../injector/names.ts';
import { isRaw, listAt } from '../injector/raw.ts';
import { repositoryOf, type SidecarRules } from '../injector/sidecar-rules.ts';
import { toDefaultsHash } from '../injector/status.ts';
import { argsOf, concernedOf, configNameOf, secretNamesOf, startingOf } from './check-config.ts';
import { WEBHOOK } from './check-injection.ts';
import {
  type ByName,
  CONTROLLER_KINDS,
  type ControllerKind,
  type Current,
  type Facts,
  type FoundObjects,
  type GateConfig,
  itemsOf,
  keyOf,
  type Live,
  type Presence,
} from './facts.ts';
import { toGateConfig } from './gate-config.ts';
import type {
  Controller,
  EndpointSlice,
  Ingress,
  Named,
  NetworkPolicy,
  Pod,
  PodTemplate,
  PolicyBinding,
  Service,
  WebhookConfiguration,
} from './objects.ts';
import { findSidecar } from './sidecar.ts';
import { findWorkloads } from './workloads.ts';

/** What to read. */
interface DoctorScope {
  /** Undefined: all namespaces. */
  readonly namespace: string | undefined;
  /** Whether to query running sidecars for their config. */
  readonly isLive: boolean;
  /** An injector config to use instead of the one in the injector's ConfigMap, with its version. */
  readonly given: { readonly config: InjectorConfig; readonly version: string } | undefined;
}

const CONTROLLERS: Readonly<Record<ControllerKind, readonly [group: string, plural: string]>> = {
  Deployment: ['apps/v1', 'deployments'],
  ReplicaSet: ['apps/v1', 'replicasets'],
  StatefulSet: ['apps/v1', 'statefulsets'],
  DaemonSet: ['apps/v1', 'daemonsets'],
  Job: ['batch/v1', 'jobs'],
  CronJob: ['batch/v1', 'cronjobs'],
};
const ADMISSION = 'admissionregistration.k8s.io/v1';
const OURS = { labelSelector: 'app.kubernetes.io/part-of=sidegate' };
const INJECTOR = { labelSelector: 'app.kubernetes.io/part-of=sidegate,app.kubernetes.io/component=injector' };
const FORBIDDEN = 403;
const NOT_FOUND = 404;

/** Rejects with KubeError if the API server cannot be reached at all. */
export async function readFacts(client: KubeClient, scope: DoctorScope, clock: Clock): Promise<Facts> {
  const version = await readVersion(client);
  const reader = new Reader(client, scope.namespace);
  const webhooks = await reader.cluster<WebhookConfiguration>(ADMISSION, 'mutatingwebhookconfigurations');
  const [pods, controllers, services, endpointSlices, ingresses, networkPolicies] = await Promise.all([
    reader.namespaced<Pod>('v1', 'pods'),
    readControllers(reader),
    reader.namespaced<Service>('v1', 'services'),
    readEndpointSlices(reader, scope.namespace),
    reader.namespaced<Ingress>('networking.k8s.io/v1', 'ingresses'),
    reader.namespaced<NetworkPolicy>('networking.k8s.io/v1', 'networkpolicies'),
  ]);
  const policies = await reader.cluster<Named>(ADMISSION, 'validatingadmissionpolicies', OURS);
  const [namespaces, bindings, mutatingPolicies, mutatingBindings, injectors, current] = await Promise.all([
    readNamespaces(client, reader, scope.namespace),
    reader.cluster<PolicyBinding>(ADMISSION, 'validatingadmissionpolicybindings', OURS),
    reader.cluster<Named>(ADMISSION, 'mutatingadmissionpolicies', OURS),
    reader.cluster<PolicyBinding>(ADMISSION, 'mutatingadmissionpolicybindings', OURS),
    readInjectors(reader, webhooks),
    readCurrent(client, { webhooks, policies }, scope.given),
  ]);
  const known = {
    now: clock.now(),
    ...{ version, namespaces, pods, controllers, services, endpointSlices, ingresses, networkPolicies },
    ...{ webhooks, policies, bindings, mutatingPolicies, mutatingBindings, injectors, current },
    ...{ configs: new Map(), secrets: new Map(), live: new Map() },
  };
  const configs = await readConfigs(client, known, clock);
  const secrets = await readSecrets(client, known);
  return { ...known, configs, secrets, live: scope.isLive ? await readLive(client, known, clock) : new Map() };
}

/** Reads lists, or why they cannot be read. */
class Reader {
  readonly #client: KubeClient;
  readonly #namespace: string | undefined;

  constructor(client: KubeClient, namespace: string | undefined) {
    this.#client = client;
    this.#namespace = namespace;
  }

  namespaced<T>(group: string, plural: string, query?: Query): Promise<FoundObjects<T>> {
    return this.within<T>(this.#namespace, group, plural, query);
  }

  within<T>(namespace: string | undefined, group: string, plural: string, query?: Query): Promise<FoundObjects<T>> {
    const folder = namespace === undefined ? [] : ['namespaces', namespace];
    return this.#list(
      toKubePath(toRoot(group), ...folder, plural),
      query,
      namespace === undefined ? `${plural} of all namespaces` : `${plural} in ${namespace}`,
    );
  }

  cluster<T>(group: string, plural: string, query?: Query): Promise<FoundObjects<T>> {
    return this.#list(toKubePath(toRoot(group), plural), query, plural);
  }

  /** An older cluster that does not know a kind of object has none of them. */
  async #list<T>(path: KubePath, query: Query | undefined, what: string): Promise<FoundObjects<T>> {
    try {
      return { items: await this.#client.list<T>(path, query) };
    } catch (thrown) {
      if (!(thrown instanceof KubeError)) throw thrown;
      if (thrown.status === NOT_FOUND) return { items: [] };
      return { unknown: thrown.status === FORBIDDEN ? `you may not list ${what}` : thrown.message };
    }
  }
}

function toRoot(group: string): string {
  return group === 'v1' ? '/api/v1' : `/apis/${group}`;
}

/** Those of one namespace are less than needed: any tenant may create one with the address of a pod in another namespace. */
async function readEndpointSlices(reader: Reader, namespace: string | undefined): Promise<FoundObjects<EndpointSlice>> {
  const [group, plural] = ['discovery.k8s.io/v1', 'endpointslices'];
  const all = await reader.cluster<EndpointSlice>(group, plural);
  if (namespace === undefined || 'items' in all) return all;
  const own = await reader.namespaced<EndpointSlice>(group, plural);
  return 'unknown' in own ? own : { ...own, unread: `${all.unknown} of other namespaces` };
}

/** The first request: if it fails, the others would fail too. */
async function readVersion(client: KubeClient): Promise<Facts['version']> {
  try {
    const { major, minor } = await client.request<{ major: string; minor: string }>('GET', toKubePath('/version'));
    // Some providers write "34+".
    return { major: Number.parseInt(major, 10), minor: Number.parseInt(minor, 10) };
  } catch (thrown) {
    if (thrown instanceof KubeError && thrown.status === FORBIDDEN) return undefined;
    throw thrown;
  }
}

async function readControllers(reader: Reader): Promise<Facts['controllers']> {
  const lists = await Promise.all(
    CONTROLLER_KINDS.map(async (kind) => {
      const [group, plural] = CONTROLLERS[kind];
      return [kind, await reader.namespaced<Controller>(group, plural)] as const;
    }),
  );
  return Object.fromEntries(lists) as Facts['controllers'];
}

/** A single namespace can be read without the permission to list all of them. */
async function readNamespaces(client: KubeClient, reader: Reader, namespace: string | undefined): Promise<FoundObjects<Named>> {
  if (namespace === undefined) return reader.cluster<Named>('v1', 'namespaces');
  try {
    return { items: [await client.request<Named>('GET', toKubePath('/api/v1', 'namespaces', namespace))] };
  } catch (thrown) {
    if (!(thrown instanceof KubeError)) throw thrown;
    if (thrown.status === NOT_FOUND) throw new KubeError(NOT_FOUND, 'NotFound', `the namespace ${namespace} does not exist`);
    return { unknown: thrown.status === FORBIDDEN ? `you may not get the namespace ${namespace}` : thrown.message };
  }
}

async function readInjectors(reader: Reader, webhooks: FoundObjects<WebhookConfiguration>): Promise<Facts['injectors']> {
  const service = serviceOf(webhooks);
  if (service === undefined) return { items: [] };
  return reader.within(service.namespace, 'apps/v1', 'deployments', INJECTOR);
}

// Reads how sidecars are created at present: the injector's config, and what the chart's policies allow.

const INJECTOR_KEY = 'injector.yaml';
const VERSION_LABEL = 'app.kubernetes.io/version';

/** The objects that it is read from. */
interface Installed {
  readonly webhooks: FoundObjects<WebhookConfiguration>;
  readonly policies: FoundObjects<Named>;
}
interface Given {
  readonly config: InjectorConfig;
  readonly version: string;
}

/** Uses the given config, or else what is installed in the cluster. */
async function readCurrent(client: KubeClient, installed: Installed, given: Given | undefined): Promise<Current> {
  if (given !== undefined) {
    const { sidecar } = given.config;
    const { cpu: cpuLimit } = sidecar.resources.limits;
    const current = { version: given.version, hash: toDefaultsHash(sidecar), cpuLimit, unknown: undefined };
    return { ...current, defaults: sidecar, rules: toRules(sidecar) };
  }
  const { defaults, ...current } = await readInstalled(client, installed.webhooks);
  const rules = readPolicyRules(installed.policies) ?? (defaults === undefined ? undefined : toRules(defaults));
  return { ...current, cpuLimit: defaults?.resources.limits.cpu, defaults, rules };
}

/** The Service of the injector, from its webhook configuration. */
function serviceOf(
  webhooks: FoundObjects<WebhookConfiguration>,
): { readonly namespace: string; readonly name: string } | undefined {
  const own = itemsOf(webhooks).flatMap((each) => each.webhooks ?? []);
  return own.find(({ name }) => name === WEBHOOK)?.clientConfig.service;
}

type InstalledDefaults = Omit<Current, 'rules'>;

/** The injector's ConfigMap has the name of its Service; its version is a label on all objects of the chart. */
async function readInstalled(client: KubeClient, webhooks: FoundObjects<WebhookConfiguration>): Promise<InstalledDefaults> {
  if ('unknown' in webhooks) return { version: undefined, hash: undefined, unknown: webhooks.unknown };
  const owner = webhooks.items.find((each) => each.webhooks?.some(({ name }) => name === WEBHOOK));
  const version = owner?.metadata.labels?.[VERSION_LABEL];
  const service = serviceOf(webhooks);
  if (service === undefined) return { version, hash: undefined, unknown: 'no injector was found' };
  const { namespace, name } = service;
  try {
    const { data = {} } = await client.request<{ data?: Record<string, string> }>(
      'GET',
      toKubePath('/api/v1', 'namespaces', namespace, 'configmaps', name),
    );
    const { config } = parseInjectorConfig(INJECTOR_KEY, data[INJECTOR_KEY] ?? '');
    if (config === undefined)
      return { version, hash: undefined, unknown: `the ConfigMap ${namespace}/${name} has no valid ${INJECTOR_KEY}` };
    return {
      version,
      hash: toDefaultsHash(config.sidecar),
      unknown: version === undefined ? 'the webhook configuration has no version label' : undefined,
      defaults: config.sidecar,
    };
  } catch (thrown) {
    if (!(thrown instanceof KubeError)) throw thrown;
    const why = thrown.status === FORBIDDEN ? `you may not get the ConfigMap ${namespace}/${name}` : thrown.message;
    return { version, hash: undefined, unknown: why };
  }
}

/** If the config does not list allowed images, those of the default image's repository are allowed. */
function toRules({ image, allowedImages = [repositoryOf(image)], ...rules }: SidecarDefaults): SidecarRules {
  return {
    allowedImages,
    allowedEnv: rules.allowedEnv,
    allowedMounts: rules.allowedMounts,
    allowedInitContainers: rules.allowedInitContainers,
  };
}

/** The rules that the chart records on its policies. They can be trusted: anyone who can change them can also change what the policies deny. */
function readPolicyRules(policies: FoundObjects<Named>): SidecarRules | undefined {
  const noted = itemsOf(policies).flatMap(({ metadata }) => parseRules(metadata.annotations?.[RULES_ANNOTATION]));
  if (noted.length === 0) return undefined;
  const union = (key: keyof SidecarRules): string[] => [
    ...new Set(noted.flatMap((each) => listAt(each, key).filter((item) => typeof item === 'string'))),
  ];
  return {
    allowedImages: union('allowedImages'),
    allowedEnv: union('allowedEnv'),
    allowedMounts: union('allowedMounts'),
    allowedInitContainers: union('allowedInitContainers'),
  };
}

function parseRules(text: string | undefined): object[] {
  try {
    const value: unknown = JSON.parse(text ?? '');
    return isRaw(value) ? [value] : [];
  } catch {
    return [];
  }
}

// Reads what pods refer to: ConfigMaps with the gate's config loader, Secrets by name only, and the metrics of running sidecars.

const MAX_LINE_LENGTH = 1024;
const CONFIG_INFO = /^[^}\n]*\bhash="([0-9a-f]{1,64})"[^}\n]*\} 1(?:\.0+)?$/;
const BUILD_INFO = /^[^}\n]*\bversion="([0-9a-z.+-]{1,64})"[^}\n]*\} 1(?:\.0+)?$/i;

const CONCURRENCY = 8;
const LIVE_TIMEOUT_MS = 5_000;
/** For all pods together: anyone who may create pods decides how many of them are slow. */
const ALL_LIVE_TIMEOUT_MS = 60_000;
const MAX_EXPOSITION_BYTES = 8_388_608;

/** Every ConfigMap with the config of a pod's gate. */
async function readConfigs(client: KubeClient, facts: Facts, clock: Clock): Promise<ByName<GateConfig>> {
  const args = argsIn(facts);
  return readEach(
    namesIn(facts, (each) => [configNameOf(each) ?? ''].filter((name) => name !== '')),
    async (namespace, name) => {
      if (!hasForm(OBJECT_NAME, name)) return { state: 'missing' };
      try {
        const { data = {} } = await client.request<{ data?: Record<string, string> }>(
          'GET',
          toKubePath('/api/v1', 'namespaces', namespace, 'configmaps', name),
        );
        return toGateConfig(data, clock, args.get(keyOf(namespace, name)) ?? new Set());
      } catch (thrown) {
        if (!(thrown instanceof KubeError)) throw thrown;
        if (thrown.status === NOT_FOUND) return { state: 'missing' };
        return { state: 'unknown', reason: thrown.status === FORBIDDEN ? 'you may not get it' : thrown.message };
      }
    },
  );
}

/** Whether each Secret that a pod refers to exists. Only its metadata is requested. */
async function readSecrets(client: KubeClient, facts: Facts): Promise<ByName<Presence>> {
  return readEach(namesIn(facts, secretNamesOf), async (namespace, name) => {
    if (!hasForm(OBJECT_NAME, name)) return 'missing';
    try {
      const path = toKubePath('/api/v1', 'namespaces', namespace, 'secrets', name);
      await client.request('GET', path, { accept: METADATA_ONLY_OBJECT });
      return 'there';
    } catch (thrown) {
      if (!(thrown instanceof KubeError)) throw thrown;
      if (thrown.status === NOT_FOUND) return 'missing';
      return { unknown: thrown.status === FORBIDDEN ? 'you may not get it' : thrown.message };
    }
  });
}

/** The config of each running sidecar, read through the API server, so that no port in the cluster has to be reachable. */
async function readLive(client: KubeClient, facts: Facts, clock: Clock): Promise<ByName<Live>> {
  const pods = itemsOf(facts.pods).filter((pod) => pod.status?.phase === 'Running' && findSidecar(pod) !== undefined);
  const byKey = new Map(pods.map((pod) => [keyOf(pod.metadata.namespace ?? '', pod.metadata.name), pod]));
  const end = clock.monotonic() + ALL_LIVE_TIMEOUT_MS;
  return readEach(takeTurns([...byKey.keys()]), async (namespace, name) =>
    readOneLive(client, byKey.get(keyOf(namespace, name)), Math.min(LIVE_TIMEOUT_MS, end - clock.monotonic())),
  );
}

/** The first pods of all namespaces come before the second ones: slow pods in one namespace leave time for the others. */
function takeTurns(keys: readonly string[]): string[] {
  const counts = new Counts();
  const turns = keys.map((key) => {
    const [namespace = ''] = key.split('/');
    counts.add(namespace, 1);
    return { key, turn: counts.of(namespace) };
  });
  return turns.toSorted((a, b) => a.turn - b.turn).map(({ key }) => key);
}

async function readOneLive(client: KubeClient, pod: Pod | undefined, timeout: Milliseconds): Promise<Live> {
  const port = pod === undefined ? undefined : findSidecar(pod)?.ports.admin;
  if (pod === undefined || port === undefined) return { unknown: 'its arguments contain no --admin port' };
  if (timeout <= 0) return { unknown: `it was not asked, because others took the ${ALL_LIVE_TIMEOUT_MS / 1000} s for all pods` };
  const { namespace = '', name } = pod.metadata;
  try {
    const text = await client.readPod(namespace, `${name}:${port}`, 'metrics', { timeout, maxBytes: MAX_EXPOSITION_BYTES });
    const hash = readConfigHash(text);
    return hash === undefined
      ? { unknown: `port ${port} serves no sidegate_config_info metric` }
      : { hash, version: readBuildVersion(text) };
  } catch (thrown) {
    if (!(thrown instanceof KubeError)) throw thrown;
    return {
      unknown: thrown.status === FORBIDDEN ? 'you may not get pods/proxy, or the pod responded with 403' : thrown.message,
    };
  }
}

/** The names that pods and templates refer to, with their namespaces. Those of volumes can have any form, and no object with them exists. */
function namesIn(facts: Facts, namesOf: (each: PodTemplate) => readonly string[]): readonly string[] {
  const keys = findWorkloads(facts).flatMap((workload) =>
    concernedOf(workload).flatMap((each) => namesOf(each).map((name) => keyOf(workload.namespace, name))),
  );
  return [...new Set(keys)];
}

async function readEach<T>(keys: readonly string[], read: (namespace: string, name: string) => Promise<T>): Promise<ByName<T>> {
  const found = new Map<string, T>();
  const waiting = [...keys];
  const work = async (): Promise<void> => {
    for (let key = waiting.shift(); key !== undefined; key = waiting.shift()) {
      const slash = key.indexOf('/');
      found.set(key, await read(key.slice(0, slash), key.slice(slash + 1)));
    }
  };
  await Promise.all(Array.from({ length: CONCURRENCY }, work));
  return found;
}

/** The arguments of the sidecars with each config, as JSON. */
function argsIn(facts: Facts): ReadonlyMap<string, ReadonlySet<string>> {
  const known = new Map<string, Set<string>>();
  for (const { namespace, ...workload } of findWorkloads(facts)) {
    for (const each of startingOf({ namespace, ...workload })) {
      const key = keyOf(namespace, configNameOf(each) ?? '');
      const args = known.get(key) ?? new Set();
      known.set(key, args.add(argsOf(each, facts.current)));
    }
  }
  return known;
}

/** The hash of the config in use, from the metrics of a sidecar: the text is untrusted, as the owner of the pod can serve anything. */
export function readConfigHash(text: string): string | undefined {
  return readLabel(text, 'sidegate_config_info{', CONFIG_INFO);
}

/** The version of the running program. */
export function readBuildVersion(text: string): string | undefined {
  return readLabel(text, 'sidegate_build_info{', BUILD_INFO);
}

/** Undefined if no line contains it. Takes linear time. */
function readLabel(text: string, name: string, info: RegExp): string | undefined {
  for (let start = 0; start < text.length; ) {
    const found = text.indexOf('\n', start);
    const end = found === -1 ? text.length : found;
    if (end - start <= MAX_LINE_LENGTH && text.startsWith(name, start)) {
      const [, label] = info.exec(text.slice(start + name.length, end)) ?? [];
      // A copy: a part of the text would keep all of it in memory.
      if (label !== undefined) return Buffer.from(label).toString();
    }
    start = end + 1;
  }
  return undefined;
}
