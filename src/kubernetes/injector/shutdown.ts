/** Keeps an app running while its pod is removed from its endpoints: without a delay, SIGTERM would arrive before the last requests. */
import { containersOf } from './app.ts';
import { type InjectContext, isAtLeast } from './outcome.ts';
import type { Work } from './plan.ts';
import { has, numberAt, objectAt } from './raw.ts';

/** preStop supports `sleep` by default from this minor version on (KEP-3960). */
const SLEEP_SINCE = 30;
const DEFAULT_GRACE_SECONDS = 30;
/** Some managed clusters reject pods with a longer grace period, so a delay that is shorter does not extend one beyond it. */
export const LONGEST_GRACE_SECONDS = 600;

/** Adds preStop hooks to the app's containers and extends the pod's grace period. Returns the delay of the sidecar's own shutdown in seconds. */
export function delayStop({ pod, plan, patch, findings }: Work, { kube }: InjectContext): number {
  const { preStopSeconds: seconds, isNative } = plan;
  if (seconds === 0) return 0;
  if (!isAtLeast(kube, SLEEP_SINCE)) {
    findings.warn(
      'no preStop hook was added, because its sleep action requires Kubernetes 1.30: requests may be lost when pods stop',
    );
    return 0;
  }
  for (const { container, name, path } of containersOf(pod, 'containers')) {
    const lifecycle = objectAt(container, 'lifecycle');
    const preStop = { sleep: { seconds } };
    if (has(lifecycle, 'preStop'))
      findings.warn(
        `the container ${name} keeps its own preStop hook: it should take ${seconds} s, while the pod is removed from its endpoints`,
      );
    else if (has(container, 'lifecycle')) patch.set([...path, 'lifecycle'], lifecycle, 'preStop', preStop);
    else patch.set(path, container, 'lifecycle', { preStop });
  }
  const spec = objectAt(pod, 'spec');
  const written = numberAt(spec, 'terminationGracePeriodSeconds') ?? DEFAULT_GRACE_SECONDS;
  // The API server turns a negative period into 1 s, and rejects a longer sleep.
  const grace = written < 0 ? 1 : written;
  const extended = grace + seconds;
  const isTooLong = seconds < LONGEST_GRACE_SECONDS && extended > LONGEST_GRACE_SECONDS;
  const period = isTooLong ? Math.max(grace, LONGEST_GRACE_SECONDS) : extended;
  if (period !== grace) patch.set(['spec'], spec, 'terminationGracePeriodSeconds', period);
  return isNative ? 0 : seconds;
}
