/** Warnings about pods that are allowed: an invalid config, environment variables that the sidecar does not have, replicas without shared state. */
import { posix } from 'node:path';
import type { Clock, Milliseconds } from '../../core/clock.ts';
import { DOMAIN, QUEUE_FOLDER } from '../injector/names.ts';
import type { OwnerReference } from '../injector/review.ts';
import { ConfigChecks } from './config-checks.ts';
import type { Lookups } from './lookups.ts';
import type { AdvisedPod } from './reviewer.ts';

/** Maximum time that a response waits for warnings. */
const MAX_WAIT_MS: Milliseconds = 300;
/** Of a path in a warning, which the API server truncates at 256 characters. */
const MAX_PATH_LENGTH = 40;
const REPLICATED: ReadonlyMap<string, string> = new Map([
  ['ReplicaSet', 'replicasets'],
  ['StatefulSet', 'statefulsets'],
]);

/** Creates the function that computes the warnings; it never rejects. */
export function createAdvice({
  lookups,
  clock,
  onLate,
}: {
  readonly lookups: Lookups;
  readonly clock: Clock;
  readonly onLate: () => void;
}): (pod: AdvisedPod) => Promise<readonly string[]> {
  const checks = new ConfigChecks(clock);
  return (pod) =>
    new Promise((resolve) => {
      const cancel = clock.after(MAX_WAIT_MS, () => {
        onLate();
        resolve([]);
      });
      const done = (warnings: readonly string[]): void => {
        cancel();
        resolve(warnings);
      };
      advise(pod, lookups, checks).then(done, () => done([]));
    });
}

async function advise(
  { request, configMap, queueVolume, overrides }: AdvisedPod,
  lookups: Lookups,
  checks: ConfigChecks,
): Promise<string[]> {
  if (configMap === undefined) return [];
  const { namespace, owner } = request;
  const [found, replicas] = await Promise.all([
    lookups.find('/api/v1', namespace, 'configmaps', configMap),
    findReplicas(lookups, namespace, owner),
  ]);
  if (found === 'unknown') return [];
  if (found === 'absent') return [`the ConfigMap ${configMap} does not exist: the pod does not start before it is created`];
  const checked = checks.check(configMap, found.object, overrides);
  if (checked === undefined) return [];
  const { warnings, unsharedRoute, queueFile } = checked;
  const all = [...warnings, ...warnOfQueue(configMap, queueFile, queueVolume)];
  if (owner === undefined || replicas < 2) return all;
  if (queueFile !== undefined)
    all.push(
      `${owner.kind} ${owner.name} has ${replicas} replicas, but its gate has no provider.queue.postgres: each has its own queue, so limits of endpoints apply to each, and endpoints created with the API exist in one replica only`,
    );
  if (unsharedRoute === undefined) return all;
  return [
    ...all,
    `${owner.kind} ${owner.name} has ${replicas} replicas, but its gate has no store.redis: each replica keeps its own state, so a repeated delivery of route ${unsharedRoute} reaches the app again through another replica`,
  ];
}

/** The sidecar's root file system is read-only, so the queue needs its volume. */
function warnOfQueue(configMap: string, file: string | undefined, volume: string | undefined): readonly string[] {
  if (file === undefined || (volume !== undefined && posix.normalize(file).startsWith(`${QUEUE_FOLDER}/`))) return [];
  const shown = file.slice(0, MAX_PATH_LENGTH);
  return [
    `the sidecar does not start, because the queue of ConfigMap ${configMap} is in ${shown}, on no volume: set ${DOMAIN}/queue-volume and provider.queue.sqlite.path: ${QUEUE_FOLDER}/queue.db`,
  ];
}

async function findReplicas(lookups: Lookups, namespace: string, owner: OwnerReference | undefined): Promise<number> {
  const resource = owner?.apiVersion === 'apps/v1' ? REPLICATED.get(owner.kind) : undefined;
  if (owner === undefined || resource === undefined) return 0;
  const found = await lookups.find('/apis/apps/v1', namespace, resource, owner.name);
  return found === 'unknown' || found === 'absent' ? 0 : (found.object.replicas ?? 1);
}
