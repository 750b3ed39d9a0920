/** Checks whether the container `sidegate` of each pod is what the injector creates, because labels and names prove nothing. */
import { findDifferences, findPodFaults, type PodFault } from '../injector/sidecar-check.ts';
import { isAllowedImage, repositoryOf } from '../injector/sidecar-rules.ts';
import { configNameOf } from './check-config.ts';
import { type Facts, keyOf } from './facts.ts';
import { type Finding, finding, listNames } from './finding.ts';
import type { Pod } from './objects.ts';
import { findSidecar, isProtected, isReady } from './sidecar.ts';
import { restartOf, type Workload } from './workloads.ts';

/** Whether the pod has a sidecar that keeps running and is as the injector creates it. */
export function isGate(pod: Pod, facts: Facts): boolean {
  return (
    isProtected(pod) && differencesOf(pod, facts).length === 0 && !findPodFaults({ ...pod }).some(({ kind }) => kind === 'end')
  );
}

/**
 * Whether the gate itself confirmed it: the kubelet reports it as ready, and it responded on its admin port with the version that the injector recorded
 * and the config of its ConfigMap. The specification of a pod does not say which process has the port.
 */
export function isConfirmed(pod: Pod, { live, configs }: Facts): boolean {
  const { namespace = '', name } = pod.metadata;
  const found = live.get(keyOf(namespace, name));
  const config = configs.get(keyOf(namespace, configNameOf(pod) ?? ''));
  if (found === undefined || 'unknown' in found || config?.state !== 'valid' || isReady(pod) !== true) return false;
  const { version = found.version } = findSidecar(pod)?.status ?? {};
  return found.hash === config.hash && found.version !== undefined && found.version === version;
}

/** Pods with a container of that name that is not the sidecar. */
export function findForged({ pods }: Workload, facts: Facts): readonly Pod[] {
  return pods.filter((pod) => differencesOf(pod, facts).length > 0);
}

/** All findings about the sidecar container. */
export function checkSidecar(workload: Workload, facts: Facts): Finding[] {
  return [...checkForged(workload, facts), ...checkFaults(workload), ...checkImages(workload, facts)];
}

/** Excludes `restartPolicy`, which has a separate finding. Another tag of an allowed repository is stale, not forged. */
function differencesOf(pod: Pod, { current: { rules } }: Facts): readonly string[] {
  const allowedImages = rules?.allowedImages?.flatMap((image) => [image, repositoryOf(image)]);
  const differences = findDifferences({ ...pod }, { allowedEnv: [], allowedMounts: [], ...rules, allowedImages }) ?? [];
  return isProtected(pod) ? differences : differences.filter((name) => name !== 'restartPolicy');
}

function checkForged(workload: Workload, facts: Facts): Finding[] {
  return findForged(workload, facts).map((pod) =>
    finding(
      'sidecar-differs',
      `the container sidegate of ${pod.metadata.name} is not the one that sidegate injects; it differs in ${listNames(differencesOf(pod, facts), 8)}`,
      `find out what changed it (the pod template, a patch of the pod, another webhook), then ${restartOf(workload)}`,
    ),
  );
}

function checkFaults(workload: Workload): Finding[] {
  const sidecars = workload.pods.filter((pod) => findSidecar(pod) !== undefined);
  const faulty = (kind: PodFault['kind']): { readonly names: string; readonly texts: string } | undefined => {
    const found = sidecars.map((pod) => ({ pod, faults: findPodFaults({ ...pod }).filter((fault) => fault.kind === kind) }));
    const hit = found.filter(({ faults }) => faults.length > 0);
    if (hit.length === 0) return undefined;
    const texts = [...new Set(hit.flatMap(({ faults }) => faults.map(({ text }) => text)))];
    return { names: listNames(hit.map(({ pod }) => pod.metadata.name)), texts: listNames(texts) };
  };
  const shared = faulty('processes');
  const ending = faulty('end');
  return [
    ...(shared === undefined
      ? []
      : [
          finding(
            'processes-shared',
            `other containers can access the process of the sidecar of ${shared.names} (${shared.texts}): they can read its secrets, or end it and use its port`,
            `remove that, then ${restartOf(workload)}`,
          ),
        ]),
    ...(ending === undefined
      ? []
      : [
          finding(
            'sidecar-ends',
            `the sidecar of ${ending.names} is not restarted after it ends (${ending.texts}), and the app is then open on its own port`,
            'use a native sidecar (sidegate.dev/sidecar: native), or restartPolicy: Always',
          ),
        ]),
  ];
}

/** The allowed images are recorded on the chart's policies and in the injector's config. */
function checkImages(workload: Workload, { current }: Facts): Finding[] {
  const images = workload.pods.flatMap((pod) => findSidecar(pod)?.container.image ?? []);
  if (images.length === 0) return [];
  const { rules } = current;
  if (rules !== undefined) {
    const stale = [...new Set(images.filter((image) => !isAllowedImage(image, rules.allowedImages)))];
    if (stale.length === 0) return [];
    const message = `the images ${listNames(stale)} are not among those that the chart allows (${listNames(rules.allowedImages ?? [])}): new pods with them are denied`;
    return [finding('image-stale', message, `${restartOf(workload)}, or add them to admission.allowedImages`)];
  }
  return [
    finding(
      'image-not-known',
      'cannot determine which images are allowed in sidecars: neither the policies of the chart nor the config of the injector could be read',
      'pass --config injector.yaml, or run sidegate doctor with an account that may list validatingadmissionpolicies',
    ),
  ];
}
