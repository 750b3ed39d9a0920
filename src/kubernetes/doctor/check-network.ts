/** Checks which other pods in the cluster can connect to the app's port: what NetworkPolicies allow. */
import type { Facts } from './facts.ts';
import { type Finding, finding, listNames } from './finding.ts';
import {
  fits,
  isEverything,
  type NetworkPolicy,
  type Pod,
  type PolicyPeer,
  type PolicyPort,
  type PolicyRule,
} from './objects.ts';
import { findNamedPort, findSidecar, isOnLoopback, isProtected, type Sidecar } from './sidecar.ts';
import type { Workload } from './workloads.ts';

interface CheckedPod {
  readonly pod: Pod;
  readonly sidecar: Sidecar;
  readonly app: number;
  readonly data: number | undefined;
}

/** All findings about NetworkPolicies; several pods can lead to the same finding. */
export function checkNetwork({ namespace, pods }: Workload, facts: Facts): Finding[] {
  if ('unknown' in facts.networkPolicies) return [];
  const here = facts.networkPolicies.items.filter(({ metadata }) => metadata.namespace === namespace);
  return pods.filter(isProtected).flatMap((pod) => {
    const sidecar = findSidecar(pod);
    if (sidecar?.ports.app === undefined) return [];
    const policies = here.filter(({ spec }) => isForIngress(spec) && fits(spec.podSelector, pod.metadata.labels));
    return checkPod({ pod, sidecar, app: sidecar.ports.app, data: sidecar.ports.data }, policies);
  });
}

/** Ingress is the default (networking.k8s.io/v1 NetworkPolicySpec.policyTypes). */
function isForIngress({ policyTypes = ['Ingress'] }: NetworkPolicy['spec']): boolean {
  return policyTypes.includes('Ingress');
}

function checkPod(subject: CheckedPod, policies: readonly NetworkPolicy[]): Finding[] {
  const { sidecar, app, data } = subject;
  const fix = `allow only ${listNames([data, sidecar.ports.admin].flatMap((port) => port ?? []).map(String))}, by number, in a NetworkPolicy`;
  if (policies.length === 0) {
    if (isOnLoopback(sidecar)) return [];
    const message = `no NetworkPolicy selects these pods, so every pod in the cluster can connect to the app on port ${app}, unless the app listens on loopback`;
    return [finding('no-network-policy', message, fix)];
  }
  return [
    ...(isOnLoopback(sidecar) ? [] : policies.flatMap((policy) => checkAppPort(policy, subject, fix))),
    ...policies.flatMap((policy) => checkOtherPorts(policy, subject)),
    ...policies.flatMap((policy) => checkNames(policy, subject)),
    ...checkShut(policies, subject),
  ];
}

function checkAppPort({ metadata, spec }: NetworkPolicy, { pod, app }: CheckedPod, fix: string): Finding[] {
  const admitting = (spec.ingress ?? []).filter((rule) => admitsPort(rule, app, pod));
  if (isFromAnywhere(admitting)) {
    return [
      finding(
        'network-policy-wide',
        `NetworkPolicy ${metadata.name} allows everyone to connect to port ${app}, the app's own`,
        fix,
      ),
    ];
  }
  if (admitting.length === 0) return [];
  return [
    finding(
      'network-policy-admits',
      `NetworkPolicy ${metadata.name} allows some clients to bypass the sidecar on port ${app}, the app's own`,
      `check that this is intended; otherwise ${fix}`,
    ),
  ];
}

/** Only an annotation says which container is the app, so a port of another container that everyone can reach may also be the app's. */
function checkOtherPorts({ metadata, spec }: NetworkPolicy, { pod, app, data, sidecar }: CheckedPod): Finding[] {
  const own = [app, data, sidecar.ports.admin];
  const others = pod.spec.containers.flatMap(({ name, ports = [] }) =>
    ports
      .filter(({ containerPort, protocol = 'TCP' }) => protocol === 'TCP' && !own.includes(containerPort))
      .map(({ containerPort }) => ({ name, containerPort })),
  );
  return others.flatMap(({ name, containerPort }) => {
    const isWide = isFromAnywhere((spec.ingress ?? []).filter((rule) => admitsPort(rule, containerPort, pod)));
    if (!isWide) return [];
    const message = `NetworkPolicy ${metadata.name} allows everyone to connect to port ${containerPort} of the container ${name}, which the sidecar does not guard`;
    return [finding('network-policy-wide', message, 'allow only the clients that need it, with from')];
  });
}

/** Some network plug-ins do not resolve named ports of native sidecars (projectcalico/calico#8881). */
function checkNames({ metadata, spec }: NetworkPolicy, { sidecar }: CheckedPod): Finding[] {
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
        `NetworkPolicy ${metadata.name} refers to the sidecar's port by its name ${name}`,
        `write ${number} instead`,
      ),
    ];
  });
}

function checkShut(policies: readonly NetworkPolicy[], { pod, data }: CheckedPod): Finding[] {
  if (data === undefined) return [];
  const isOpen = policies.some(({ spec }) => (spec.ingress ?? []).some((rule) => admitsPort(rule, data, pod)));
  if (isOpen) return [];
  const names = listNames(policies.map(({ metadata }) => metadata.name));
  const [verb, noun] = policies.length === 1 ? ['does', 'NetworkPolicy'] : ['do', 'NetworkPolicies'];
  return [
    finding(
      'network-policy-shuts',
      `${noun} ${names} ${verb} not allow any connection to port ${data}, the sidecar's`,
      `allow the clients to connect to port ${data}`,
    ),
  ];
}

/** A rule without ports applies to all ports. */
function admitsPort({ ports = [] }: PolicyRule, port: number, { spec }: Pod): boolean {
  return ports.length === 0 || ports.some((each) => isPort(each, port, spec));
}

function isPort({ port, endPort, protocol = 'TCP' }: PolicyPort, wanted: number, spec: Pod['spec']): boolean {
  if (protocol !== 'TCP') return false;
  if (port === undefined) return true;
  const from = typeof port === 'string' ? findNamedPort(spec, port) : port;
  return from !== undefined && wanted >= from && wanted <= (endPort ?? from);
}

/** A rule without peers applies to all peers. */
function isFromAnywhere(rules: readonly PolicyRule[]): boolean {
  const peers = rules.flatMap(({ from = [] }) => from);
  if (rules.some(({ from = [] }) => from.length === 0) || peers.some(isEveryPod)) return true;
  const blocks = peers.flatMap(({ ipBlock }) => ipBlock ?? []);
  return [false, true].some((isIpv6) => isMost(blocks.filter(({ cidr }) => cidr.includes(':') === isIpv6)));
}

/** Whether the peer matches all pods of all namespaces. */
function isEveryPod({ podSelector, namespaceSelector }: PolicyPeer): boolean {
  const { matchLabels = {}, matchExpressions = [] } = namespaceSelector ?? {};
  const isOfAll = matchExpressions.every(({ key, operator }) => operator === 'Exists' && key === NAMESPACE_NAME);
  const isEveryNamespace = namespaceSelector !== undefined && isOfAll && Object.keys(matchLabels).length === 0;
  return isEveryNamespace && (podSelector === undefined || isEverything(podSelector));
}

/** The API server sets this label of each namespace. */
const NAMESPACE_NAME = 'kubernetes.io/metadata.name';
/** As a part of all addresses: pods of a cluster have more, so a block without them excludes something. */
const FEW = 2 ** -16;

/** Whether blocks of one family contain all addresses, or all but few. */
function isMost(blocks: readonly NonNullable<PolicyPeer['ipBlock']>[]): boolean {
  const sizeOf = (cidr: string): number => 2 ** -Number(cidr.split('/')[1]);
  const toSum = (sizes: readonly number[]): number => sizes.reduce((sum, size) => sum + size, 0);
  const sizes = blocks.map(({ cidr, except = [] }) => Math.max(0, sizeOf(cidr) - toSum([...new Set(except)].map(sizeOf))));
  return toSum(sizes) > 1 - FEW;
}
