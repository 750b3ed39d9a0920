/** Pods without the sidecar behind a Service that also selects pods with it: a share of its requests reaches them unverified. */
import { type Facts, itemsOf } from './facts.ts';
import { type Finding, finding, listNames } from './finding.ts';
import { selects } from './judge-services.ts';
import { isGate } from './judge-sidecar.ts';
import type { Pod, Service } from './objects.ts';
import { resolveTarget } from './ports.ts';
import { isLiving, type Workload } from './workloads.ts';

/** All findings of the kind. Pods of the workload itself are judged as its own. */
export function judgeShared({ namespace, pods }: Workload, facts: Facts): Finding[] {
  const gates = pods.filter((pod) => isGate(pod, facts));
  if (gates.length === 0) return [];
  const selecting = itemsOf(facts.services).filter(
    (service) => service.metadata.namespace === namespace && gates.some((pod) => selects(service.spec.selector, pod)),
  );
  const own = new Set(pods);
  return selecting.flatMap((service) => {
    const others = itemsOf(facts.pods).filter(
      (pod) => pod.metadata.namespace === namespace && !own.has(pod) && selects(service.spec.selector, pod) && isLiving(pod),
    );
    const reached = others.filter((pod) => isReached(service, pod) && !isGate(pod, facts));
    if (reached.length === 0) return [];
    const names = listNames(reached.map(({ metadata }) => metadata.name));
    return [
      finding(
        'service-shared',
        `Service ${service.metadata.name} also leads to ${names}, which ${reached.length === 1 ? 'has' : 'have'} no sidecar: a share of its requests is not verified`,
        `give ${reached.length === 1 ? 'it' : 'them'} the sidecar, or change the selector of the Service or the labels of the pods; the label sidegate.dev/enforce: "true" of the namespace denies such pods`,
      ),
    ];
  });
}

/** A port by a name that the pod does not declare leads nowhere in it; a headless Service names the pod in any case. */
function isReached({ spec }: Service, pod: Pod): boolean {
  return spec.clusterIP === 'None' || (spec.ports ?? []).some((port) => resolveTarget(pod.spec, port) !== undefined);
}
