/** Checks the embedded queue of the sending side: whether its file is on a volume of the pod, and whether the volume outlives the pod. */
import { posix } from 'node:path';
import { DOMAIN, QUEUE_FOLDER } from '../injector/names.ts';
import { TEMPORARY_SOURCES } from '../injector/queue-volume.ts';
import { concernedOf, configNameOf } from './check-config.ts';
import { type Facts, keyOf } from './facts.ts';
import { type Finding, finding, listNames } from './finding.ts';
import type { PodTemplate, Volume } from './objects.ts';
import { findSidecar } from './sidecar.ts';
import type { Workload } from './workloads.ts';

/** A pod or template whose config has an embedded queue. */
interface Queue {
  readonly config: string;
  readonly file: string;
  readonly pod: PodTemplate;
  /** The volume with the file; undefined if it is on none. */
  readonly volume: string | undefined;
}

/** All findings about embedded queues. */
export function checkQueue(workload: Workload, facts: Facts): Finding[] {
  const queues = concernedOf(workload).flatMap((pod) => findQueue(pod, workload, facts));
  return [
    ...queues.flatMap((queue) => checkPlace(queue)),
    ...queues.flatMap((queue) => checkLifetime(queue)),
    ...checkReplicas(queues, workload),
  ];
}

function findQueue(pod: PodTemplate, { namespace }: Workload, facts: Facts): Queue[] {
  const name = configNameOf(pod);
  const config = facts.configs.get(keyOf(namespace, name ?? ''));
  if (name === undefined || config?.state !== 'valid' || config.queueFile === undefined) return [];
  return [{ config: name, file: config.queueFile, pod, volume: findVolumeOf(config.queueFile, pod) }];
}

/** A template has no sidecar yet; the annotation says which volume its pods will have. */
function findVolumeOf(file: string, pod: PodTemplate): string | undefined {
  const sidecar = findSidecar(pod);
  const asked = pod.metadata?.annotations?.[`${DOMAIN}/queue-volume`];
  const planned = asked === undefined ? [] : [{ name: asked, mountPath: QUEUE_FOLDER, readOnly: false }];
  const mounts = sidecar === undefined ? planned : (sidecar.container.volumeMounts ?? []);
  const holding = mounts.filter(({ mountPath }) => isBelow(file, mountPath));
  const nearest = holding.sort((a, b) => b.mountPath.length - a.mountPath.length)[0];
  return nearest?.readOnly === true ? undefined : nearest?.name;
}

function isBelow(file: string, folder: string): boolean {
  return posix.normalize(file).startsWith(folder.endsWith('/') ? folder : `${folder}/`);
}

function checkPlace({ config, file, volume }: Queue): Finding[] {
  if (volume !== undefined) return [];
  return [
    finding(
      'queue-not-mounted',
      `the ConfigMap ${config} has its queue in ${file}, which is not on a writable volume: the sidecar does not start`,
      `use a StatefulSet with a volumeClaimTemplate, set the annotation ${DOMAIN}/queue-volume to its name, and set provider.queue.sqlite.path to ${QUEUE_FOLDER}/queue.db; or set provider.queue.postgres`,
    ),
  ];
}

function checkLifetime({ pod, volume }: Queue): Finding[] {
  const found = volumeOf(pod, volume);
  const kind = TEMPORARY_SOURCES.find((source) => found?.[source] !== undefined);
  if (kind === undefined) return [];
  return [
    finding(
      'queue-not-durable',
      `the queue is on the volume ${volume} of the kind ${kind}, which is deleted with the pod, together with all events that are not delivered`,
      'use a StatefulSet with a volumeClaimTemplate, or set provider.queue.postgres',
    ),
  ];
}

function checkReplicas(queues: readonly Queue[], { kind, pods, wanted = 0 }: Workload): Finding[] {
  const replicas = Math.max(pods.length, wanted);
  const configs = [...new Set(queues.map(({ config }) => config))];
  if (configs.length === 0 || replicas < 2) return [];
  const claims = queues.flatMap(({ pod, volume }) => volumeOf(pod, volume)?.persistentVolumeClaim?.claimName ?? []);
  const shared = claims.filter((claim, index) => claims.indexOf(claim) !== index);
  // A template that is not of a StatefulSet gives the same claim to all of its pods.
  const same = kind === 'StatefulSet' ? [...new Set(shared)] : [...new Set(claims)];
  if (same.length > 0)
    return [
      finding(
        'queue-claim-shared',
        `${replicas} replicas share the volume claim ${listNames(same)}, but only one process can open the queue: the other replicas do not start`,
        'use a StatefulSet with a volumeClaimTemplate, or set provider.queue.postgres',
      ),
    ];
  return [
    finding(
      'queue-not-shared',
      `${replicas} replicas with a queue in a file: each has its own queue. The concurrency and rate limit of an endpoint apply to each of them, an endpoint that is created with the API exists in one replica only, and events of a replica wait until that replica runs again`,
      `set provider.queue.postgres in the ConfigMap ${listNames(configs)}, or run one replica`,
    ),
  ];
}

function volumeOf({ spec }: PodTemplate, name: string | undefined): Volume | undefined {
  return name === undefined ? undefined : spec.volumes?.find((volume) => volume.name === name);
}
