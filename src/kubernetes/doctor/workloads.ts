/** Groups pods by the workload that created them: a pod of a Deployment's ReplicaSet belongs to the Deployment. */
import type { Milliseconds } from '../../core/clock.ts';
import { LONGEST_GRACE_SECONDS } from '../injector/shutdown.ts';
import { CONTROLLER_KINDS, type ControllerKind, type Facts, itemsOf, keyOf } from './facts.ts';
import type { Controller, Named, ObjectOwner, Pod, PodTemplate } from './objects.ts';

/** A pod that is being deleted and lasts longer counts like any other: its author chose its grace period. Twice, as clocks differ. */
const LONGEST_ENDING_MS: Milliseconds = 2_000 * LONGEST_GRACE_SECONDS;

/** Kubernetes makes two, such as a ReplicaSet and its Deployment; operators add few. */
const MAX_OWNERS = 8;
/** The kinds of owners that are looked at themselves. */
const READ_KINDS: ReadonlySet<string> = new Set(CONTROLLER_KINDS);

/** A workload: the topmost controller of its pods, or a pod without a controller. */
export interface Workload {
  readonly namespace: string;
  readonly kind: string;
  readonly name: string;
  /** The template of new pods; undefined for a bare pod, or if it could not be read. */
  readonly template: PodTemplate | undefined;
  /** Metadata of the workload itself. Our labels and annotations have no effect there, but people sometimes put them there by mistake. */
  readonly metadata: Named['metadata'] | undefined;
  /** Pods that have neither ended nor are being deleted. */
  readonly pods: readonly Pod[];
  /** Desired number of pods; undefined if not specified. */
  readonly wanted: number | undefined;
  /** Why pods could not be created, as reported by the API server. */
  readonly failure: string | undefined;
}

interface Known {
  readonly kind: ControllerKind;
  readonly object: Controller;
}

interface Chain {
  readonly kind: string;
  readonly name: string;
  readonly controller: Controller | undefined;
}

interface WorkloadDraft extends Chain {
  readonly namespace: string;
  readonly pods: Pod[];
}

/** All workloads, with or without pods, in no particular order. */
export function findWorkloads(facts: Facts): readonly Workload[] {
  const byUid = new Map<string, Known>();
  const all = CONTROLLER_KINDS.flatMap((kind) => itemsOf(facts.controllers[kind]).map((object) => ({ kind, object })));
  for (const each of all) byUid.set(each.object.metadata.uid ?? '', each);
  const deployments = itemsOf(facts.controllers.Deployment);
  const byName = new Map(deployments.map((object) => [`${object.metadata.namespace}/${object.metadata.name}`, object]));
  const drafts = new Map<string, WorkloadDraft>();
  const draftOf = (namespace: string, chain: Chain): WorkloadDraft => {
    const key = `${namespace}/${chain.kind}/${chain.name}`;
    const draft = drafts.get(key) ?? { ...chain, namespace, pods: [] };
    drafts.set(key, draft);
    return draft;
  };
  for (const { kind, object } of all) {
    if (ownerOf(object) === undefined)
      draftOf(object.metadata.namespace ?? '', { kind, name: object.metadata.name, controller: object });
  }
  const passed = new Set<string>();
  for (const pod of itemsOf(facts.pods).filter((each) => isActive(each, facts.now))) {
    draftOf(pod.metadata.namespace ?? '', climb(pod, byUid, byName, passed)).pods.push(pod);
  }
  // Their pods would belong to an owner that is not read, such as an object of an operator.
  for (const { kind, object } of all) {
    const { namespace = '', name, uid = '' } = object.metadata;
    const owner = ownerOf(object);
    if (owner === undefined || byUid.has(owner.uid) || READ_KINDS.has(owner.kind) || passed.has(keyOf(namespace, uid))) continue;
    if ((countWanted(kind, object, facts) ?? 0) > 0) draftOf(namespace, { kind, name, controller: object });
  }
  const workloads = [...drafts.values()].map((draft) => toWorkload(draft, facts));
  // A Job that has no pods and waits for none has ended.
  return workloads.filter(({ kind, pods, wanted = 0 }) => kind !== 'Job' || pods.length > 0 || wanted > 0);
}

/** `deployment/web`, in the notation of kubectl. */
export function nameOf({ kind, name }: Pick<Workload, 'kind' | 'name'>): string {
  return `${kind.toLowerCase()}/${name}`;
}

/** How to recreate its pods. */
export function restartOf({ kind, name, namespace }: Workload): string {
  if (['Deployment', 'StatefulSet', 'DaemonSet'].includes(kind))
    return `kubectl -n ${namespace} rollout restart ${nameOf({ kind, name })}`;
  if (kind === 'CronJob') return 'wait for the next run of the CronJob';
  return `delete and recreate ${nameOf({ kind, name })}`;
}

/** Mirror pods represent static pods of a kubelet, which nothing in the cluster controls. */
function isActive(pod: Pod, now: number): boolean {
  const { annotations, deletionTimestamp } = pod.metadata;
  // The API server sets the time at which the grace period ends.
  const isEnding = deletionTimestamp !== undefined && !(Date.parse(deletionTimestamp) - now > LONGEST_ENDING_MS);
  return annotations?.['kubernetes.io/config.mirror'] === undefined && !isEnding && mayServe(pod);
}

/** Whether its containers have not all ended. A pod that is being deleted can serve for hours: it chooses its grace period itself. */
export function mayServe({ status }: Pod): boolean {
  return status?.phase !== 'Succeeded' && status?.phase !== 'Failed';
}

function ownerOf({ metadata }: Named): ObjectOwner | undefined {
  return metadata.ownerReferences?.find(({ controller }) => controller === true);
}

/**
 * Follows the owners as far as they could be read. The first one that could not be read is the workload, with the name in its child's reference.
 * Tenants can make owners that own each other.
 */
function climb(pod: Pod, byUid: ReadonlyMap<string, Known>, byName: ReadonlyMap<string, Controller>, passed: Set<string>): Chain {
  let chain: Chain = { kind: 'Pod', name: pod.metadata.name, controller: undefined };
  let owner = ownerOf(pod);
  for (let hops = 0; owner !== undefined && hops < MAX_OWNERS; hops++) {
    passed.add(keyOf(pod.metadata.namespace ?? '', owner.uid));
    const known = byUid.get(owner.uid);
    const deployment = known === undefined ? toDeployment(pod, owner) : undefined;
    if (deployment !== undefined) {
      return { kind: 'Deployment', name: deployment, controller: byName.get(`${pod.metadata.namespace}/${deployment}`) };
    }
    chain = { kind: owner.kind, name: owner.name, controller: known?.object };
    owner = known === undefined ? undefined : ownerOf(known.object);
  }
  return chain;
}

/** The Deployment of a ReplicaSet that may not be read: its name ends with the hash that pods of Deployments bear as a label. */
function toDeployment({ metadata }: Pod, { kind, name }: ObjectOwner): string | undefined {
  const ending = `-${metadata.labels?.['pod-template-hash']}`;
  return kind === 'ReplicaSet' && name.endsWith(ending) ? name.slice(0, -ending.length) : undefined;
}

function toWorkload({ namespace, kind, name, controller, pods }: WorkloadDraft, facts: Facts): Workload {
  const { spec, metadata } = controller ?? {};
  return {
    namespace,
    kind,
    name,
    template: spec?.jobTemplate?.spec.template ?? spec?.template,
    metadata,
    pods,
    wanted: controller && countWanted(kind, controller, facts),
    failure: findFailure(controller, facts),
  };
}

function countWanted(kind: string, controller: Controller, facts: Facts): number | undefined {
  const { spec, status, metadata } = controller;
  switch (kind) {
    case 'Deployment':
      // A rollout that is paused from the start makes no pods.
      return spec.paused === true && findOwned(controller, facts).length === 0 ? 0 : (spec.replicas ?? 1);
    case 'StatefulSet':
    case 'ReplicaSet':
      return spec.replicas ?? 1;
    case 'DaemonSet':
      return status?.desiredNumberScheduled;
    case 'Job':
      return countFirst(controller);
    case 'CronJob': {
      const jobs = itemsOf(facts.controllers.Job).filter(
        (job) => metadata.uid !== undefined && ownerOf(job)?.uid === metadata.uid,
      );
      return jobs.reduce((sum, job) => sum + countFirst(job), 0);
    }
    default:
      return undefined;
  }
}

/** The pods of a Job that never had one: later, pods that ended are gone, and new ones wait. */
function countFirst({ spec, status = {} }: Controller): number {
  const { active = 0, failed = 0, succeeded = 0, conditions = [] } = status;
  const { parallelism = 1 } = spec;
  const isOver = conditions.some((each) => each.status === 'True' && ['Complete', 'Failed'].includes(each.type));
  return isOver || spec.suspend === true || active + failed + succeeded > 0
    ? 0
    : Math.min(parallelism, spec.completions ?? parallelism);
}

/** ReplicaFailure is a condition of the ReplicaSet, and its Deployment repeats it. */
function findFailure(controller: Controller | undefined, facts: Facts): string | undefined {
  const conditions = [controller, ...findOwned(controller, facts)].flatMap((each) => each?.status?.conditions ?? []);
  return conditions.find(({ type, status }) => type === 'ReplicaFailure' && status === 'True')?.message;
}

function findOwned(controller: Controller | undefined, facts: Facts): readonly Controller[] {
  const uid = controller?.metadata.uid;
  return itemsOf(facts.controllers.ReplicaSet).filter((set) => uid !== undefined && ownerOf(set)?.uid === uid);
}
