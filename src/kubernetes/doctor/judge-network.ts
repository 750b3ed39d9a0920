/** Who else in the cluster may connect to the app's port: what NetworkPolicies admit. */
import type { Facts } from './facts.ts';
import { type Finding, finding, listNames } from './finding.ts';
import type { NetworkPolicy, Pod, PolicyPeer, PolicyPort, PolicyRule } from './objects.ts';
import { findNamedPort } from './ports.ts';
import { fits, isEverything } from './selector.ts';
import { findSidecar, isOnLoopback, isProtected, type Sidecar } from './sidecar.ts';
import type { Workload } from './workloads.ts';

interface Subject {
  readonly pod: Pod;
  readonly sidecar: Sidecar;
  readonly app: number;
  readonly data: number | undefined;
}

/** All findings of the kind; the same one of several pods comes several times. */
export function judgeNetwork({ namespace, pods }: Workload, facts: Facts): Finding[] {
  if ('unknown' in facts.networkPolicies) return [];
  const here = facts.networkPolicies.items.filter(({ metadata }) => metadata.namespace === namespace);
  return pods.filter(isProtected).flatMap((pod) => {
    const sidecar = findSidecar(pod);
    if (sidecar?.ports.app === undefined) return [];
    const policies = here.filter(({ spec }) => isForIngress(spec) && fits(spec.podSelector, pod.metadata.labels));
    return judgePod({ pod, sidecar, app: sidecar.ports.app, data: sidecar.ports.data }, policies);
  });
}

/** Ingress where nothing is said (networking.k8s.io/v1 NetworkPolicySpec.policyTypes). */
function isForIngress({ policyTypes = ['Ingress'] }: NetworkPolicy['spec']): boolean {
  return policyTypes.includes('Ingress');
}

function judgePod(subject: Subject, policies: readonly NetworkPolicy[]): Finding[] {
  const { sidecar, app, data } = subject;
  const mend = `admit only ${listNames([data, sidecar.ports.admin].flatMap((port) => port ?? []).map(String))}, by number, in a NetworkPolicy`;
  if (policies.length === 0) {
    if (isOnLoopback(sidecar)) return [];
    const message = `no NetworkPolicy selects these pods, so every pod in the cluster reaches the app at port ${app} unless it listens on loopback`;
    return [finding('no-network-policy', message, mend)];
  }
  return [
    ...(isOnLoopback(sidecar) ? [] : policies.flatMap((policy) => judgeAppPort(policy, subject, mend))),
    ...policies.flatMap((policy) => judgeOtherPorts(policy, subject)),
    ...policies.flatMap((policy) => judgeNames(policy, subject)),
    ...judgeShut(policies, subject),
  ];
}

function judgeAppPort({ metadata, spec }: NetworkPolicy, { pod, app }: Subject, mend: string): Finding[] {
  const admitting = (spec.ingress ?? []).filter((rule) => admitsPort(rule, app, pod));
  if (admitting.some(isFromAnywhere)) {
    return [
      finding('network-policy-wide', `NetworkPolicy ${metadata.name} admits everybody to port ${app}, the app's own`, mend),
    ];
  }
  if (admitting.length === 0) return [];
  return [
    finding(
      'network-policy-admits',
      `NetworkPolicy ${metadata.name} admits some to port ${app}, the app's own, past the sidecar`,
      `see that it means to; otherwise ${mend}`,
    ),
  ];
}

/** Which container is the app's is the word of an annotation: a port of another one that everybody reaches may be the app's as well. */
function judgeOtherPorts({ metadata, spec }: NetworkPolicy, { pod, app, data, sidecar }: Subject): Finding[] {
  const own = [app, data, sidecar.ports.admin];
  const others = pod.spec.containers.flatMap(({ name, ports = [] }) =>
    ports
      .filter(({ containerPort, protocol = 'TCP' }) => protocol === 'TCP' && !own.includes(containerPort))
      .map(({ containerPort }) => ({ name, containerPort })),
  );
  return others.flatMap(({ name, containerPort }) => {
    const isWide = (spec.ingress ?? []).some((rule) => admitsPort(rule, containerPort, pod) && isFromAnywhere(rule));
    if (!isWide) return [];
    const message = `NetworkPolicy ${metadata.name} admits everybody to port ${containerPort} of the container ${name}, which no sidecar guards`;
    return [finding('network-policy-wide', message, 'admit only those who need it, by from')];
  });
}

/** Named ports of native sidecars are not found by every network (projectcalico/calico#8881). */
function judgeNames({ metadata, spec }: NetworkPolicy, { sidecar }: Subject): Finding[] {
  if (sidecar.form !== 'native') return [];
  const own = new Map((sidecar.container.ports ?? []).map(({ name, containerPort }) => [name, containerPort]));
  const named = (spec.ingress ?? []).flatMap(({ ports = [] }) =>
    ports.flatMap(({ port }) => (typeof port === 'string' ? port : [])),
  );
  return [...new Set(named)].flatMap((name) => {
    const number = own.get(name);
    if (number === undefined) return [];
    return [
      finding(
        'network-policy-name',
        `NetworkPolicy ${metadata.name} names the sidecar's port ${name}`,
        `write ${number} instead`,
      ),
    ];
  });
}

function judgeShut(policies: readonly NetworkPolicy[], { pod, data }: Subject): Finding[] {
  if (data === undefined) return [];
  const isOpen = policies.some(({ spec }) => (spec.ingress ?? []).some((rule) => admitsPort(rule, data, pod)));
  if (isOpen) return [];
  const names = listNames(policies.map(({ metadata }) => metadata.name));
  const [verb, noun] = policies.length === 1 ? ['admits', 'NetworkPolicy'] : ['admit', 'NetworkPolicies'];
  return [
    finding(
      'network-policy-shuts',
      `${noun} ${names} ${verb} nobody to port ${data}, the sidecar's`,
      `admit whoever calls to ${data}`,
    ),
  ];
}

/** No ports are all ports. */
function admitsPort({ ports = [] }: PolicyRule, port: number, { spec }: Pod): boolean {
  return ports.length === 0 || ports.some((each) => isPort(each, port, spec));
}

function isPort({ port, endPort, protocol = 'TCP' }: PolicyPort, wanted: number, spec: Pod['spec']): boolean {
  if (protocol !== 'TCP') return false;
  if (port === undefined) return true;
  const from = typeof port === 'string' ? findNamedPort(spec, port) : port;
  return from !== undefined && wanted >= from && wanted <= (endPort ?? from);
}

/** No peers are all peers. */
function isFromAnywhere({ from = [] }: PolicyRule): boolean {
  return from.length === 0 || from.some(isAnywhere);
}

/** All pods of all namespaces, or all addresses of a family. */
function isAnywhere({ podSelector, namespaceSelector, ipBlock }: PolicyPeer): boolean {
  if (ipBlock !== undefined) return /\/0$/.test(ipBlock.cidr) && (ipBlock.except ?? []).length === 0;
  return (
    namespaceSelector !== undefined && isEverything(namespaceSelector) && (podSelector === undefined || isEverything(podSelector))
  );
}
