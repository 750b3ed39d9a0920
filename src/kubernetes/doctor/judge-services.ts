/** Ways to the app's own port that somebody has laid: Services, EndpointSlices, host ports. */
import { isIPv6 } from 'node:net';
import { normalizeIp } from '../../core/ip-address.ts';
import { type Facts, itemsOf } from './facts.ts';
import { type Finding, finding } from './finding.ts';
import type { Pod, Service, ServicePort } from './objects.ts';
import { classify, declares, findNamedPort, resolveTarget } from './ports.ts';
import { fits } from './selector.ts';
import { findSidecar, isProtected, type Sidecar } from './sidecar.ts';
import type { Workload } from './workloads.ts';

/** From this minor version on, the endpoints controller finds named ports of native sidecars. */
const NAMES_FOUND_FROM = 33;

/** The part of the facts that these findings are made of; manifests alone have it, too. */
export type ServiceFacts = Pick<Facts, 'version' | 'services' | 'ingresses' | 'ownEndpointSlices'>;

interface Case {
  readonly pod: Pod;
  readonly sidecar: Sidecar;
  readonly service: Service;
  readonly port: ServicePort;
  readonly facts: ServiceFacts;
}

/** All findings of the kind; the same one of several pods comes several times. */
export function judgeServices({ namespace, pods }: Pick<Workload, 'namespace' | 'pods'>, facts: ServiceFacts): Finding[] {
  const here = itemsOf(facts.services).filter(({ metadata }) => metadata.namespace === namespace);
  return pods.filter(isProtected).flatMap((pod) => {
    const sidecar = findSidecar(pod);
    if (sidecar === undefined) return [];
    const selecting = here.filter(({ spec }) => selects(spec.selector, pod));
    const cases = selecting.flatMap((service) =>
      (service.spec.ports ?? []).map((port) => ({ pod, sidecar, service, port, facts })),
    );
    return [...cases.flatMap(judgePort), ...judgeSlices(pod, facts), ...judgeHostPorts(pod)];
  });
}

/** A Service without a selector selects nothing; its endpoints are written by somebody. */
export function selects(selector: Service['spec']['selector'] = {}, { metadata }: Pod): boolean {
  return Object.keys(selector).length > 0 && fits({ matchLabels: selector }, metadata.labels);
}

function judgePort(each: Case): Finding[] {
  const { pod, sidecar, service, port } = each;
  const number = resolveTarget(pod.spec, port);
  const target = (port.protocol ?? 'TCP') === 'TCP' ? classify(pod.spec, number) : 'other';
  if (target === 'app') {
    return [
      finding(
        'service-to-app',
        `${tell(each)} leads to port ${number}, the app's own, past the sidecar`,
        `set its targetPort to ${toTargetPort(each)}`,
      ),
    ];
  }
  if (target === 'beside') return [judgeBeside(`${tell(each)} leads`, number)];
  const direct = service.spec.clusterIP === 'None' ? classify(pod.spec, port.port) : 'other';
  if (direct === 'app') {
    return [
      finding(
        'headless-to-app',
        `${tell(each)} is headless: who resolves it connects to port ${port.port} of the pod, the app's own, whatever its targetPort says`,
        `set its port to ${sidecar.ports.data ?? 'the one of the sidecar'}, or give it a cluster IP`,
      ),
    ];
  }
  // A port that nobody declares is as a rule nobody's here, as the targetPort says where the pod is meant to be asked.
  if (direct === 'beside' && pod.spec.containers.some((container) => declares(container, port.port)))
    return [judgeBeside(`${tell(each)} is headless and leads`, port.port)];
  return target === 'nothing' || isUnfound(each) ? [judgeNothing(each)] : [];
}

function judgeBeside(what: string, port: number | undefined): Finding {
  return finding(
    'port-beside',
    `${what} to port ${port} of the pod, which no sidecar guards`,
    'see that nothing is asked there that the sidecar should verify; otherwise have it lead to the sidecar, or take it away',
  );
}

/** Before 1.33, a name that only a native sidecar declares is no port (kubernetes/kubernetes#127958). */
function isUnfound({ facts: { version }, pod, sidecar, port }: Case): boolean {
  if (typeof port.targetPort !== 'string' || version === undefined || sidecar.form !== 'native') return false;
  const inApp = findNamedPort({ containers: pod.spec.containers }, port.targetPort);
  return inApp === undefined && version.major === 1 && version.minor < NAMES_FOUND_FROM;
}

function judgeNothing(each: Case): Finding {
  const { facts, port } = each;
  const why = isUnfound(each)
    ? `a name that Kubernetes ${facts.version?.major}.${facts.version?.minor} does not find in native sidecars`
    : 'a name that no container of the pod declares';
  return finding(
    'service-to-nothing',
    `${tell(each)} has the targetPort ${port.targetPort}, ${why}: it has no endpoints`,
    `set its targetPort to ${toTargetPort(each)}`,
  );
}

/** By name where the cluster finds it, as then a pod without the sidecar gets nothing; else by number. */
function toTargetPort({ facts: { version }, sidecar }: Case): string {
  const { container, ports, form } = sidecar;
  const name = container.ports?.find(({ containerPort }) => containerPort === ports.data)?.name;
  const isFound = form === 'container' || version === undefined || version.major > 1 || version.minor >= NAMES_FOUND_FROM;
  return (isFound ? name : undefined) ?? String(ports.data ?? "the sidecar's port");
}

/** `Service web (NodePort 30080, Ingress shop.example), port 80`. */
function tell({ service, port, facts }: Case): string {
  const { type = 'ClusterIP', clusterIP } = service.spec;
  const nodePort = port.nodePort === undefined ? undefined : `nodePort ${port.nodePort}`;
  const kind = clusterIP === 'None' ? 'headless' : type === 'ClusterIP' ? undefined : type;
  const facets = [kind, nodePort, ...ingressesOf(service, facts)].filter((facet) => facet !== undefined);
  return `Service ${service.metadata.name}${facets.length === 0 ? '' : ` (${facets.join(', ')})`}, port ${port.port},`;
}

function ingressesOf({ metadata: { name, namespace } }: Service, facts: ServiceFacts): string[] {
  const isBehind = (backend: { readonly service?: { readonly name: string } } | undefined): boolean =>
    backend?.service?.name === name;
  return itemsOf(facts.ingresses)
    .filter(({ metadata }) => metadata.namespace === namespace)
    .flatMap(({ metadata, spec }) => {
      const hosts = (spec.rules ?? [])
        .filter(({ http }) => http?.paths.some(({ backend }) => isBehind(backend)))
        .map(({ host }) => host ?? '*');
      if (hosts.length === 0 && !isBehind(spec.defaultBackend)) return [];
      return [`behind Ingress ${metadata.name}${hosts.length === 0 ? '' : ` for ${[...new Set(hosts)].join(', ')}`}`];
    });
}

function judgeSlices(pod: Pod, facts: ServiceFacts): Finding[] {
  const { podIP = '', podIPs = [] } = pod.status ?? {};
  // IPv6 has many spellings of one address, and whoever writes a slice may use any of them.
  const own = new Set([podIP, ...podIPs.map(({ ip = '' }) => ip)].flatMap((ip) => normalizeIp(ip) ?? []));
  return itemsOf(facts.ownEndpointSlices).flatMap(({ metadata, endpoints, ports }) => {
    const address = (endpoints ?? [])
      .flatMap(({ addresses }) => addresses ?? [])
      .find((each) => own.has(normalizeIp(each) ?? ''));
    if (address === undefined) return [];
    return (ports ?? []).flatMap(({ port, protocol = 'TCP' }) => {
      const target = protocol === 'TCP' ? classify(pod.spec, port) : 'other';
      const place = isIPv6(address) ? `[${address}]:${port}` : `${address}:${port}`;
      if (target === 'beside') return [judgeBeside(`EndpointSlice ${metadata.name} leads to ${place}, and so`, port)];
      if (target !== 'app') return [];
      return [
        finding(
          'endpoints-to-app',
          `EndpointSlice ${metadata.name} leads to ${place}, the app's own port, past the sidecar`,
          `set its port to ${findSidecar(pod)?.ports.data ?? "the sidecar's"}, or have a Service select the pods`,
        ),
      ];
    });
  });
}

function judgeHostPorts(pod: Pod): Finding[] {
  return pod.spec.containers.flatMap(({ name, ports = [] }) =>
    ports.flatMap(({ hostPort = 0, containerPort, protocol = 'TCP' }) => {
      const target = hostPort === 0 || protocol !== 'TCP' ? 'other' : classify(pod.spec, containerPort);
      if (target === 'beside') return [judgeBeside(`hostPort ${hostPort} of the container ${name} leads`, containerPort)];
      if (target !== 'app') return [];
      return [
        finding(
          'host-port',
          `hostPort ${hostPort} of the container ${name} leads to port ${containerPort}, the app's own, past the sidecar`,
          'take the hostPort away, or use the takeover same-port or env',
        ),
      ];
    }),
  );
}
