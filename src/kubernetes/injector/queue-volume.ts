/** Checks the volume for the SQLite queue: it must belong to the sidecar alone, be writable for it, and outlive the pod. */
import { containersOf } from './app.ts';
import type { Findings } from './findings.ts';
import { DOMAIN } from './names.ts';
import type { InjectContext } from './outcome.ts';
import { has, isRaw, listAt, objectAt, type Raw, textAt } from './raw.ts';
import type { PodSettings } from './settings.ts';
import { USER } from './sidecar.ts';

/** The kinds of volumes that no container can write to. The admission policies deny the same (scripts/policy-rules.ts). */
export const READ_ONLY_SOURCES = ['configMap', 'secret', 'projected', 'downwardAPI', 'image'] as const;
/** The kinds that are deleted with the pod. */
export const TEMPORARY_SOURCES = ['emptyDir', 'ephemeral'] as const;
/** Controllers whose pods all get the same volume claim. */
const SHARING_KINDS: ReadonlySet<string> = new Set(['Deployment', 'ReplicaSet', 'DaemonSet']);
const SETTING = `${DOMAIN}/queue-volume`;

interface Parts {
  readonly pod: Raw;
  readonly settings: PodSettings;
  readonly context: InjectContext;
  readonly findings: Findings;
}

/** Denies a volume that cannot work, and warns about one that can lose events. */
export function checkQueueVolume({ pod, settings: { queueVolume: name }, context: { template }, findings }: Parts): void {
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
  const readOnly = READ_ONLY_SOURCES.find((source) => has(volume, source));
  if (readOnly !== undefined)
    findings.deny(
      'invalid_setting',
      `${SETTING} is ${name}, a volume of the kind ${readOnly}, which is read-only: use a volume claim`,
    );
  const other = [...containersOf(pod, 'initContainers'), ...containersOf(pod, 'containers')].find(({ container }) =>
    listAt(container, 'volumeMounts').some((mount) => textAt(mount, 'name') === name),
  );
  if (other !== undefined)
    findings.deny(
      'invalid_setting',
      `the container ${other.name} mounts the volume ${name} of ${SETTING}, so it could change queued events and read secrets of endpoints: use a separate volume`,
    );
  const temporary = TEMPORARY_SOURCES.find((source) => has(volume, source));
  if (temporary !== undefined)
    findings.warn(
      `the volume ${name} of the queue is of the kind ${temporary} and is deleted with the pod, together with all events that are not delivered: use a StatefulSet with a volumeClaimTemplate, or Redis`,
    );
  if (isClaimed || has(volume, 'persistentVolumeClaim')) warnOfClaim(name, kindOf(pod, template), spec, findings);
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
