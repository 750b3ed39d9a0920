/** Checks the volume for the SQLite queue: it must belong to the sidecar alone, be writable for it, and outlive the pod. */

import { DOMAIN } from './names.ts';
import type { Findings, InjectContext } from './outcome.ts';
import { has, isRaw, listAt, objectAt, type Raw, textAt } from './raw.ts';
import type { PodSettings } from './settings.ts';
import { USER } from './sidecar.ts';

/** The kinds that are deleted with the pod. */
export const TEMPORARY_SOURCES = ['emptyDir', 'ephemeral'] as const;
/**
 * The kinds of volumes for a queue: others are read-only, or can be in the pod a second time under another name, such as a path of the node. The
 * admission policies allow the same.
 */
export const QUEUE_SOURCES = ['persistentVolumeClaim', ...TEMPORARY_SOURCES] as const;
/** Controllers whose pods all get the same volume claim. */
const SHARING_KINDS: ReadonlySet<string> = new Set(['Deployment', 'ReplicaSet', 'DaemonSet']);
const SETTING = `${DOMAIN}/queue-volume`;

/** Denies a volume that cannot work, and warns about one that can lose events. */
export function checkQueueVolume({
  pod,
  settings: { queueVolume: name },
  context: { template },
  findings,
}: {
  readonly pod: Raw;
  readonly settings: PodSettings;
  readonly context: InjectContext;
  readonly findings: Findings;
}): void {
  if (name === undefined) return;
  const spec = objectAt(pod, 'spec');
  const volume = listAt(spec, 'volumes').find((each) => textAt(each, 'name') === name);
  const isClaimed = template?.claims.includes(name) === true;
  if (volume === undefined && !isClaimed) {
    findings.deny(
      'invalid_setting',
      `${SETTING} is ${name}, but the pod has no such volume: add ${name} to the volumeClaimTemplates of the StatefulSet`,
    );
    return;
  }
  const kind = findOtherSource(pod, name);
  if (kind !== undefined)
    findings.deny(
      'invalid_setting',
      `${SETTING} is ${name}, a volume of the kind ${kind}, which is read-only or not of the sidecar alone: use a volume claim`,
    );
  const temporary = TEMPORARY_SOURCES.find((source) => has(volume, source));
  if (temporary !== undefined)
    findings.warn(
      `the volume ${name} of the queue is of the kind ${temporary} and is deleted with the pod, with all undelivered events: use a StatefulSet with a volumeClaimTemplate, or provider.queue.postgres`,
    );
  if (isClaimed || has(volume, 'persistentVolumeClaim')) warnOfClaim(name, kindOf(pod, template), spec, findings);
}

/** The kind of the queue's volume, if no queue may have it. In a template of a StatefulSet, the volume can be missing. */
export function findOtherSource(pod: Raw, name: string): string | undefined {
  const volume = volumesOf(pod).find((each) => textAt(each, 'name') === name) ?? {};
  const known: readonly string[] = ['name', ...QUEUE_SOURCES];
  return Object.keys(volume).find((key) => has(volume, key) && !known.includes(key));
}

/** The names of all volumes of the pod with the storage of the queue's: the same claim can have several names. */
export function volumesOfQueue(pod: Raw, name: string): readonly string[] {
  const queue = volumesOf(pod).find((volume) => textAt(volume, 'name') === name);
  const others = volumesOf(pod).filter((volume) => isSameClaim(volume, queue) || isSameClaim(queue, volume));
  return [name, ...others.map((volume) => textAt(volume, 'name') ?? '')];
}

/** The claim of an ephemeral volume is named POD-VOLUME. */
function isSameClaim(first: unknown, second: unknown): boolean {
  const claim = claimOf(first);
  if (claim === undefined) return false;
  return has(second, 'ephemeral') ? claim.endsWith(`-${textAt(second, 'name')}`) : claim === claimOf(second);
}

function claimOf(volume: unknown): string | undefined {
  return textAt(objectAt(volume, 'persistentVolumeClaim'), 'claimName');
}

function volumesOf(pod: Raw): readonly Raw[] {
  return listAt(objectAt(pod, 'spec'), 'volumes').filter(isRaw);
}

function warnOfClaim(name: string, kind: string | undefined, spec: Raw, findings: Findings): void {
  if (kind !== undefined && SHARING_KINDS.has(kind))
    findings.warn(
      `all pods of a ${kind} share the volume claim ${name}, and only one can open the queue: use a StatefulSet with a volumeClaimTemplate, or one replica with strategy Recreate`,
    );
  if (!has(objectAt(spec, 'securityContext'), 'fsGroup'))
    findings.warn(
      `the pod has no securityContext.fsGroup, so the sidecar (user ${USER}) usually cannot write to the volume ${name}: set fsGroup, for example to 65532`,
    );
}

function kindOf(pod: Raw, template: InjectContext['template']): string | undefined {
  const owners = listAt(objectAt(pod, 'metadata'), 'ownerReferences');
  const owner = owners.find((each) => isRaw(each) && each['controller'] === true) ?? owners[0];
  return template?.kind ?? textAt(owner, 'kind');
}
