/** Finds Services that select pods with the sidecar and pods without one that is ready, so that some of their requests are not verified. */

import { checkUnready, selects } from './check-services.ts';
import { isGate } from './check-sidecar.ts';
import { type Facts, itemsOf } from './facts.ts';
import { type Finding, finding, listNames } from './finding.ts';
import type { Pod, Service } from './objects.ts';
import { resolveTarget } from './ports.ts';
import { mayServe, type Workload } from './workloads.ts';

/**
 * All findings about shared Services. Pods of the workload itself have separate findings, apart from those that are being deleted. These and static
 * pods get requests like others, from a Service with publishNotReadyAddresses or if no other pod is ready.
 */
export function checkShared({ namespace, pods }: Workload, facts: Facts): Finding[] {
  const gates = pods.filter((pod) => isGate(pod, facts));
  if (gates.length === 0) return [];
  const selecting = itemsOf(facts.services).filter(
    (service) => service.metadata.namespace === namespace && gates.some((pod) => selects(service.spec.selector, pod)),
  );
  const own = new Set(pods);
  return selecting.flatMap((service) => {
    const others = itemsOf(facts.pods).filter(
      (pod) => pod.metadata.namespace === namespace && !own.has(pod) && selects(service.spec.selector, pod) && mayServe(pod),
    );
    const reached = others.filter((pod) => isReached(service, pod) && !isGate(pod, facts));
    // A plain container can end long before the app of a pod that is being deleted, and the app can then take its port.
    const unready = others.filter((pod) => isGate(pod, facts)).flatMap((pod) => checkUnready(pod, [service]));
    if (reached.length === 0) return unready;
    const names = listNames(reached.map(({ metadata }) => metadata.name));
    return [
      ...unready,
      finding(
        'service-shared',
        `Service ${service.metadata.name} also selects ${names}, which ${reached.length === 1 ? 'has' : 'have'} no sidecar: some of its requests are not verified`,
        `inject the sidecar into ${reached.length === 1 ? 'it' : 'them'}, or change the selector of the Service or the labels of the pods; the label sidegate.dev/enforce: "true" on the namespace denies such pods`,
      ),
    ];
  });
}

/** A port name that the pod does not declare resolves to nothing; a headless Service resolves to the pod in any case. */
function isReached({ spec }: Service, pod: Pod): boolean {
  return spec.clusterIP === 'None' || (spec.ports ?? []).some((port) => resolveTarget(pod.spec, port) !== undefined);
}
