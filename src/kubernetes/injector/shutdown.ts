/** Keeps an app serving while its pod leaves the endpoints: a plain SIGTERM would come before the last requests do. */
import { containersOf } from './app.ts';
import { type InjectContext, isAtLeast } from './outcome.ts';
import type { Work } from './plan.ts';
import { has, numberAt, objectAt } from './raw.ts';

/** preStop knows `sleep` by default from here on (KEP-3960). */
const SLEEP_SINCE = 30;
const USUAL_GRACE_SECONDS = 30;

/** Gives the app's containers their preStop and the pod the time for it; the result is how long the sidecar's own SIGTERM waits, in seconds. */
export function delayStop({ pod, plan, patch, findings }: Work, { kube }: InjectContext): number {
  const { preStopSeconds: seconds, isNative } = plan;
  if (seconds === 0) return 0;
  if (!isAtLeast(kube, SLEEP_SINCE)) {
    findings.warn('no preStop was added, as Kubernetes knows its sleep from 1.30 on only: requests may be lost when pods stop');
    return 0;
  }
  for (const { container, name, path } of containersOf(pod, 'containers')) {
    const lifecycle = objectAt(container, 'lifecycle');
    const preStop = { sleep: { seconds } };
    if (has(lifecycle, 'preStop'))
      findings.warn(
        `the container ${name} keeps its own preStop: it should last ${seconds} s, while the pod leaves its endpoints`,
      );
    else if (has(container, 'lifecycle')) patch.set([...path, 'lifecycle'], lifecycle, 'preStop', preStop);
    else patch.set(path, container, 'lifecycle', { preStop });
  }
  const spec = objectAt(pod, 'spec');
  const grace = numberAt(spec, 'terminationGracePeriodSeconds') ?? USUAL_GRACE_SECONDS;
  patch.set(['spec'], spec, 'terminationGracePeriodSeconds', grace + seconds);
  return isNative ? 0 : seconds;
}
