/** What is worth a warning although the pod may be: a config that the sidecar will not start with, variables that it does not have, replicas that forget what the others handled. */
import type { Clock, Milliseconds } from '../../core/clock.ts';
import type { OwnerReference } from '../injector/review.ts';
import type { Lookups } from './lookups.ts';
import type { AdvisedPod } from './reviewer.ts';
import { Verdicts } from './verdicts.ts';

/** What it stands on. */
export interface AdviceParts {
  readonly lookups: Lookups;
  readonly clock: Clock;
  readonly onLate: () => void;
}

/** Nobody waits longer for a warning. */
const AT_MOST_MS: Milliseconds = 300;
const REPLICATED: Readonly<Record<string, string>> = { ReplicaSet: 'replicasets', StatefulSet: 'statefulsets' };

/** Builds it; what it gives never rejects. */
export function createAdvice({ lookups, clock, onLate }: AdviceParts): (pod: AdvisedPod) => Promise<readonly string[]> {
  const verdicts = new Verdicts(clock);
  return (pod) =>
    new Promise((resolve) => {
      const cancel = clock.after(AT_MOST_MS, () => {
        onLate();
        resolve([]);
      });
      const done = (warnings: readonly string[]): void => {
        cancel();
        resolve(warnings);
      };
      advise(pod, lookups, verdicts).then(done, () => done([]));
    });
}

async function advise({ request, configMap, overrides }: AdvisedPod, lookups: Lookups, verdicts: Verdicts): Promise<string[]> {
  if (configMap === undefined) return [];
  const { namespace, owner } = request;
  const [found, replicas] = await Promise.all([
    lookups.find('/api/v1', namespace, 'configmaps', configMap),
    findReplicas(lookups, namespace, owner),
  ]);
  if (found === 'unknown') return [];
  if (found === 'absent') return [`there is no ConfigMap ${configMap}: the pod waits for it`];
  const verdict = verdicts.judge(configMap, found.object, overrides);
  if (verdict === undefined) return [];
  const { warnings, forgetful } = verdict;
  if (forgetful === undefined || owner === undefined || replicas < 2) return [...warnings];
  return [
    ...warnings,
    `${owner.kind} ${owner.name} has ${replicas} replicas, and its gate no store.redis: each remembers alone what it handled, so a repeated delivery of route ${forgetful} reaches the app again by another replica`,
  ];
}

async function findReplicas(lookups: Lookups, namespace: string, owner: OwnerReference | undefined): Promise<number> {
  const resource = owner?.apiVersion === 'apps/v1' ? REPLICATED[owner.kind] : undefined;
  if (owner === undefined || resource === undefined) return 0;
  const found = await lookups.find('/apis/apps/v1', namespace, resource, owner.name);
  return found === 'unknown' || found === 'absent' ? 0 : (found.object.replicas ?? 1);
}
