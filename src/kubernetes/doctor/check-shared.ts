/** Finds Services that also lead to pods without a sidecar that is ready, or to other addresses, so that some of their requests are not verified. */

import { addressesOf, checkUnready, parseAddress, selects, slicesOf, targetsOf } from './check-services.ts';
import { isGate } from './check-sidecar.ts';
import { type Facts, itemsOf, keyOf, oncePer } from './facts.ts';
import { type Finding, finding, listNames } from './finding.ts';
import type { EndpointSlice, Pod, Service } from './objects.ts';
import { classify, resolveTarget } from './sidecar.ts';
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
  const own = new Set(pods);
  return leading.flatMap((service) => {
    const { open, ...selected } = targetsBeside(service, facts);
    const reached = selected.reached.filter((pod) => !own.has(pod));
    // A plain container can end long before the app of a pod that is being deleted, and the app can then take its port.
    const unready = selected.unready.filter((pod) => !own.has(pod)).flatMap((pod) => checkUnready(pod, [service]));
    const elsewhere = open.length === 0 ? [] : findElsewhere(open, [...pods, ...reached], portsBeside(service, gates));
    return [...unready, ...toSelected(service, reached), ...toElsewhere(service, elsewhere)];
  });
}

/** The open addresses that belong to none of the pods that have findings, unless all their ports are beside a gate. */
function findElsewhere(
  open: readonly OpenAddress[],
  pods: readonly Pod[],
  beside: ReadonlySet<number | undefined>,
): OpenAddress[] {
  const known = new Set(pods.flatMap((pod) => [...addressesOf(pod)]));
  return open.filter(({ address, ports }) => !known.has(address) && (ports === 'any' || ports.some((port) => !beside.has(port))));
}

/** Pods and addresses that get requests of a Service beside gates that are ready. */
interface Targets {
  readonly reached: readonly Pod[];
  readonly unready: readonly Pod[];
  readonly open: readonly OpenAddress[];
}

/** An address of which not all ports are those of a sidecar. */
interface OpenAddress extends SharedAddress {
  /** Those beside the sidecar of a gate; `any`: others, too. */
  readonly ports: readonly number[] | 'any';
}

const targetsBeside = oncePer((service: Service, facts: Facts): Targets => {
  const { namespace = '' } = service.metadata;
  const pods = podsIn(facts.pods, facts).get(namespace) ?? [];
  const selected = pods.filter((pod) => selects(service.spec.selector, pod));
  const byAddress = podsByAddress(facts.pods, facts);
  return {
    reached: selected.filter((pod) => !isGate(pod, facts) && isReached(service, pod)),
    unready: selected.filter((pod) => isGate(pod, facts) && checkUnready(pod, [service]).length > 0),
    open: placesOf(service, facts).flatMap((place) => {
      const pod = byAddress.get(keyOf(namespace, place.address));
      const ports = pod === undefined || !isGate(pod, facts) ? 'any' : findOpenPorts(pod, place.slice);
      return ports.length === 0 ? [] : [{ ...place, ports }];
    }),
  };
});

/** The workload that shares the Service may have a finding for the ports beside its own sidecar. */
function findOpenPorts(pod: Pod, slice: EndpointSlice): OpenAddress['ports'] {
  const beside: number[] = [];
  for (const port of targetsOf(slice)) {
    const target = port === undefined ? 'app' : classify(pod.spec, port);
    if (port !== undefined && target === 'beside') beside.push(port);
    else if (target !== 'sidecar') return 'any';
  }
  return beside;
}

const podsIn = oncePer((pods: Facts['pods'], _: Facts) =>
  Map.groupBy(itemsOf(pods).filter(mayServe), ({ metadata }) => metadata.namespace ?? ''),
);

/** By `namespace/address`, without those that have the address of their node. */
const podsByAddress = oncePer(
  (pods: Facts['pods'], facts: Facts) =>
    new Map(
      [...podsIn(pods, facts)].flatMap(([namespace, served]) =>
        served
          .filter(({ spec }) => spec.hostNetwork !== true)
          .flatMap((pod) => [...addressesOf(pod)].map((address) => [keyOf(namespace, address), pod] as const)),
      ),
    ),
);

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
const placesOf = oncePer((service: Service, facts: Facts): readonly SharedAddress[] =>
  slicesOf(service, facts).flatMap((slice) =>
    (slice.endpoints ?? [])
      .filter(({ conditions: { ready, serving } = {} }) => {
        return ready !== false || serving === true || service.spec.publishNotReadyAddresses === true;
      })
      .flatMap(({ addresses = [] }) => addresses.map((address) => ({ address: parseAddress(address) ?? address, slice }))),
  ),
);

/** The ports of a Service for which the gates have a finding already. */
function portsBeside({ spec: { ports = [] } }: Service, gates: readonly Pod[]): ReadonlySet<number | undefined> {
  return new Set(
    gates.flatMap(({ spec }) =>
      ports.map((port) => resolveTarget(spec, port)).filter((port) => classify(spec, port) === 'beside'),
    ),
  );
}
