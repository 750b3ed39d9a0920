/** Reads a cluster for the doctor: lists, and the objects that pods refer to. It reports objects that it may not read, and writes nothing. */

import type { Clock } from '../../core/clock.ts';
import type { KubeClient, Query } from '../client/client.ts';
import { KubeError } from '../client/error.ts';
import type { InjectorConfig } from '../injector/injector-config.ts';
import { CONTROLLER_KINDS, type ControllerKind, type Facts, type FoundObjects } from './facts.ts';
import type {
  Controller,
  EndpointSlice,
  Ingress,
  Named,
  NetworkPolicy,
  Pod,
  PolicyBinding,
  Service,
  WebhookConfiguration,
} from './objects.ts';
import { readCurrent, serviceOf } from './read-current.ts';
import { readConfigs, readLive, readSecrets } from './read-named.ts';

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
  return { ...known, configs, secrets, live: scope.isLive ? await readLive(client, known) : new Map() };
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
    const folder = namespace === undefined ? '' : `/namespaces/${namespace}`;
    return this.#list(
      `${toRoot(group)}${folder}/${plural}`,
      query,
      namespace === undefined ? `${plural} of all namespaces` : `${plural} in ${namespace}`,
    );
  }

  cluster<T>(group: string, plural: string, query?: Query): Promise<FoundObjects<T>> {
    return this.#list(`${toRoot(group)}/${plural}`, query, plural);
  }

  /** An older cluster that does not know a kind of object has none of them. */
  async #list<T>(path: string, query: Query | undefined, what: string): Promise<FoundObjects<T>> {
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
    const { major, minor } = await client.request<{ major: string; minor: string }>('GET', '/version');
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
    return { items: [await client.request<Named>('GET', `/api/v1/namespaces/${namespace}`)] };
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
