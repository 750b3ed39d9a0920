/** Finds Services that also lead to pods without a sidecar that is ready, or to other addresses, so that some of their requests are not verified. */

import { addressesOf, checkUnready, parseAddress, selects, slicesOf, targetsOf } from './check-services.ts';
import { isGate } from './check-sidecar.ts';
import { type Facts, itemsOf } from './facts.ts';
import { type Finding, finding, listNames } from './finding.ts';
import type { EndpointSlice, Pod, Service } from './objects.ts';
import { classify, resolveTarget } from './ports.ts';
import { mayServe, type Workload } from './workloads.ts';

/**
 * All findings about shared Services. Pods of the workload itself have separate findings, apart from those that are being deleted. These and static
 * pods get requests like others, from a Service with publishNotReadyAddresses or if no other pod is ready.
 */
export function checkShared({ namespace, pods }: Workload, facts: Facts): Finding[] {
  const gates = pods.filter((pod) => isGate(pod, facts));
  if (gates.length === 0) return [];
  const addresses = new Set(gates.flatMap((pod) => [...addressesOf(pod)]));
  const leading = itemsOf(facts.services).filter(
    (service) =>
      service.metadata.namespace === namespace &&
      (gates.some((pod) => selects(service.spec.selector, pod)) ||
        placesOf(service, facts).some(({ address }) => addresses.has(address))),
  );
  if (leading.length === 0) return [];
  const own = new Set(pods);
  const others = itemsOf(facts.pods).filter((pod) => pod.metadata.namespace === namespace && !own.has(pod) && mayServe(pod));
  return leading.flatMap((service) => {
    const selected = others.filter((pod) => selects(service.spec.selector, pod));
    const reached = selected.filter((pod) => isReached(service, pod) && !isGate(pod, facts));
    // A plain container can end long before the app of a pod that is being deleted, and the app can then take its port.
    const unready = selected.filter((pod) => isGate(pod, facts)).flatMap((pod) => checkUnready(pod, [service]));
    const known = new Set([...pods, ...reached].flatMap((pod) => [...addressesOf(pod)]));
    const elsewhere = placesOf(service, facts).filter(({ address }) => !known.has(address));
    const isGuarded = elsewhere.length === 0 ? () => true : toGuard(others, portsBeside(service, gates), facts);
    return [
      ...unready,
      ...toSelected(service, reached),
      ...toElsewhere(
        service,
        elsewhere.filter((place) => !isGuarded(place)),
      ),
    ];
  });
}

function toSelected({ metadata: { name } }: Service, reached: readonly Pod[]): Finding[] {
  if (reached.length === 0) return [];
  const names = listNames(reached.map(({ metadata }) => metadata.name));
  return [
    finding(
      'service-shared',
      `Service ${name} also selects ${names}, which ${reached.length === 1 ? 'has' : 'have'} no sidecar: some of its requests are not verified`,
      `inject the sidecar into ${reached.length === 1 ? 'it' : 'them'}, or change the selector of the Service or the labels of the pods; the label sidegate.dev/enforce: "true" on the namespace denies such pods`,
    ),
  ];
}

function toElsewhere({ metadata: { name } }: Service, places: readonly SharedAddress[]): Finding[] {
  return [...Map.groupBy(places, ({ slice }) => slice)].map(([slice, sent]) => {
    const addresses = new Set(sent.map(({ address }) => address));
    return finding(
      'service-shared',
      `EndpointSlice ${slice.metadata.name} sends requests of Service ${name} to ${listNames([...addresses])}, where no sidecar verifies them`,
      'find out what created the EndpointSlice, and delete it or its label kubernetes.io/service-name',
    );
  });
}

/** A port name that the pod does not declare resolves to nothing; a headless Service resolves to the pod in any case. */
function isReached({ spec }: Service, pod: Pod): boolean {
  return spec.clusterIP === 'None' || (spec.ports ?? []).some((port) => resolveTarget(pod.spec, port) !== undefined);
}

/** Where a Service leads: an address, in its canonical form, or the name of a host. */
interface SharedAddress {
  readonly address: string;
  readonly slice: EndpointSlice;
}

/** All that may get requests: if no address is ready, kube-proxy uses those that are serving. */
function placesOf(service: Service, facts: Facts): SharedAddress[] {
  return slicesOf(service, facts).flatMap((slice) =>
    (slice.endpoints ?? [])
      .filter(({ conditions: { ready, serving } = {} }) => {
        return ready !== false || serving === true || service.spec.publishNotReadyAddresses === true;
      })
      .flatMap(({ addresses = [] }) => addresses.map((address) => ({ address: parseAddress(address) ?? address, slice }))),
  );
}

/** The ports of a Service for which the gates have a finding already. */
function portsBeside({ spec: { ports = [] } }: Service, gates: readonly Pod[]): ReadonlySet<number | undefined> {
  return new Set(
    gates.flatMap(({ spec }) =>
      ports.map((port) => resolveTarget(spec, port)).filter((port) => classify(spec, port) === 'beside'),
    ),
  );
}

/** Returns whether the sidecar of another workload gets the requests. */
function toGuard(pods: readonly Pod[], beside: ReadonlySet<number | undefined>, facts: Facts): (place: SharedAddress) => boolean {
  const byAddress = new Map(
    pods
      .filter(({ spec }) => spec.hostNetwork !== true)
      .flatMap((pod) => [...addressesOf(pod)].map((address) => [address, pod] as const)),
  );
  return ({ address, slice }) => {
    const pod = byAddress.get(address);
    if (pod === undefined || !isGate(pod, facts)) return false;
    return targetsOf(slice).every((port) => {
      const target = port === undefined ? 'app' : classify(pod.spec, port);
      return target === 'sidecar' || (target === 'beside' && beside.has(port));
    });
  };
}
