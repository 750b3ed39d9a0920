/** Puts pods under what made them: a pod of a ReplicaSet of a Deployment is the Deployment's. */
import { CONTROLLER_KINDS, type ControllerKind, type Facts, itemsOf } from './facts.ts';
import type { Controller, Named, OwnerReference, Pod, PodTemplate } from './objects.ts';

/** What people deploy: a controller at the top of its chain, or a pod of its own. */
export interface Workload {
  readonly namespace: string;
  readonly kind: string;
  readonly name: string;
  /** What its next pods will be made of; undefined for a bare pod, and where it could not be read. */
  readonly template: PodTemplate | undefined;
  /** Its own labels and annotations, which count for nothing, but where people sometimes write ours. */
  readonly metadata: Named['metadata'] | undefined;
  /** Those that live: neither ended nor about to end. */
  readonly pods: readonly Pod[];
  /** How many pods there should be; undefined where nothing says. */
  readonly wanted: number | undefined;
  /** Why pods could not be made, in the API server's words. */
  readonly trouble: string | undefined;
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

interface Draft extends Chain {
  readonly namespace: string;
  readonly pods: Pod[];
}

/** All workloads, with pods or without, in no particular order. */
export function findWorkloads(facts: Facts): readonly Workload[] {
  const byUid = new Map<string, Known>();
  const all = CONTROLLER_KINDS.flatMap((kind) => itemsOf(facts.controllers[kind]).map((object) => ({ kind, object })));
  for (const each of all) byUid.set(each.object.metadata.uid ?? '', each);
  const deployments = itemsOf(facts.controllers.Deployment);
  const byName = new Map(deployments.map((object) => [`${object.metadata.namespace}/${object.metadata.name}`, object]));
  const drafts = new Map<string, Draft>();
  const draftOf = (namespace: string, chain: Chain): Draft => {
    const key = `${namespace}/${chain.kind}/${chain.name}`;
    const draft = drafts.get(key) ?? { ...chain, namespace, pods: [] };
    drafts.set(key, draft);
    return draft;
  };
  for (const { kind, object } of all) {
    if (ownerOf(object) === undefined)
      draftOf(object.metadata.namespace ?? '', { kind, name: object.metadata.name, controller: object });
  }
  for (const pod of itemsOf(facts.pods).filter(isLiving)) {
    draftOf(pod.metadata.namespace ?? '', climb(pod, byUid, byName)).pods.push(pod);
  }
  // A Job without pods has ended, or is what its CronJob will make.
  const living = [...drafts.values()].filter(({ kind, pods }) => kind !== 'Job' || pods.length > 0);
  return living.map((draft) => toWorkload(draft, facts));
}

/** `deployment/web`, as kubectl takes it. */
export function nameOf({ kind, name }: Pick<Workload, 'kind' | 'name'>): string {
  return `${kind.toLowerCase()}/${name}`;
}

/** How its pods are made anew. */
export function restartOf({ kind, name, namespace }: Workload): string {
  if (['Deployment', 'StatefulSet', 'DaemonSet'].includes(kind))
    return `kubectl -n ${namespace} rollout restart ${nameOf({ kind, name })}`;
  if (kind === 'CronJob') return 'the next run of the CronJob has it';
  return `delete and create ${nameOf({ kind, name })} anew`;
}

/** Mirror pods show what a kubelet runs by itself: nothing in the cluster has a say in them. */
export function isLiving({ metadata, status }: Pod): boolean {
  if (metadata.annotations?.['kubernetes.io/config.mirror'] !== undefined) return false;
  return metadata.deletionTimestamp === undefined && status?.phase !== 'Succeeded' && status?.phase !== 'Failed';
}

function ownerOf({ metadata }: Named): OwnerReference | undefined {
  return metadata.ownerReferences?.find(({ controller }) => controller === true);
}

/** Up the owners, as far as they could be read; the first that could not be is the workload then, by the name that its child knows. */
function climb(pod: Pod, byUid: ReadonlyMap<string, Known>, byName: ReadonlyMap<string, Controller>): Chain {
  let chain: Chain = { kind: 'Pod', name: pod.metadata.name, controller: undefined };
  let owner = ownerOf(pod);
  while (owner !== undefined) {
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
function toDeployment({ metadata }: Pod, { kind, name }: OwnerReference): string | undefined {
  const ending = `-${metadata.labels?.['pod-template-hash']}`;
  return kind === 'ReplicaSet' && name.endsWith(ending) ? name.slice(0, -ending.length) : undefined;
}

function toWorkload({ namespace, kind, name, controller, pods }: Draft, facts: Facts): Workload {
  const { spec, metadata } = controller ?? {};
  return {
    namespace,
    kind,
    name,
    template: spec?.jobTemplate?.spec.template ?? spec?.template,
    metadata,
    pods,
    wanted: kind === 'Deployment' || kind === 'StatefulSet' || kind === 'ReplicaSet' ? spec && (spec.replicas ?? 1) : undefined,
    trouble: findTrouble(controller, facts),
  };
}

/** ReplicaFailure stands on the ReplicaSet, and its Deployment repeats it. */
function findTrouble(controller: Controller | undefined, facts: Facts): string | undefined {
  const uid = controller?.metadata.uid;
  const owned = itemsOf(facts.controllers.ReplicaSet).filter((set) => uid !== undefined && ownerOf(set)?.uid === uid);
  const conditions = [controller, ...owned].flatMap((each) => each?.status?.conditions ?? []);
  return conditions.find(({ type, status }) => type === 'ReplicaFailure' && status === 'True')?.message;
}
