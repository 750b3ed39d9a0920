/** Finds bypasses to the app's own port: Services, EndpointSlices, host ports. */
import { isIPv6 } from 'node:net';
import { isLoopbackIp, normalizeIp } from '../../core/ip-address.ts';
import { type Facts, itemsOf, keyOf, oncePer } from './facts.ts';
import { type Finding, finding } from './finding.ts';
import {
  type Container,
  type EndpointSlice,
  fits,
  type Ingress,
  type IngressBackend,
  type Pod,
  type Service,
  type ServicePort,
} from './objects.ts';
import { classify, declares, findNamedPort, findSidecar, isProtected, isReady, resolveTarget, type Sidecar } from './sidecar.ts';
import type { Workload } from './workloads.ts';

/** From this minor version on, the endpoints controller resolves named ports of native sidecars. */
const NAMES_FOUND_FROM = 33;
/** The label of an EndpointSlice. */
const SERVICE_NAME = 'kubernetes.io/service-name';

/** The part of the facts that these findings depend on; it can also be derived from manifests alone. */
type ServiceFacts = Pick<Facts, 'version' | 'services' | 'ingresses' | 'endpointSlices'>;

interface Case {
  readonly pod: Pod;
  readonly sidecar: Sidecar;
  readonly service: Service;
  readonly port: ServicePort;
  readonly facts: ServiceFacts;
}

/** The Ingresses that route to a Service, with their hosts. */
const ingressesOf = oncePer(({ metadata: { name, namespace } }: Service, facts: ServiceFacts): readonly string[] => {
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
});

/** All findings about bypasses; several pods can lead to the same finding. */
export function checkServices({ namespace, pods }: Pick<Workload, 'namespace' | 'pods'>, facts: ServiceFacts): Finding[] {
  const here = itemsOf(facts.services).filter(({ metadata }) => metadata.namespace === namespace);
  const checked = new Map<string, readonly Service[]>();
  return pods.filter(isProtected).flatMap((pod) => {
    const sidecar = findSidecar(pod);
    if (sidecar === undefined) return [];
    // Pods of a workload mostly are alike, and for the ports of a Service they then have the same findings.
    const { initContainers = [], containers } = pod.spec;
    const key = JSON.stringify([pod.metadata.labels, initContainers.map(toPorts), containers.map(toPorts)]);
    const known = checked.get(key);
    const selecting = known ?? here.filter(({ spec }) => selects(spec.selector, pod));
    checked.set(key, selecting);
    const own = new Set(selecting);
    const pointing = findPointing(pod, own, facts);
    const toCases = (service: Service): Case[] =>
      (service.spec.ports ?? []).map((port) => ({ pod, sidecar, service, port, facts }));
    return [
      ...(known === undefined ? selecting.flatMap(toCases).flatMap(checkPort) : []),
      ...pointing.flatMap(toCases).flatMap(checkHeadless),
      ...checkUnready(pod, selecting),
      ...checkSlices(pod, own, facts),
      ...checkUnread(pod, facts),
      ...checkExternalNames(pod, [...selecting, ...pointing], facts),
      ...checkHostPorts(pod),
    ];
  });
}

/** The fields on which the findings about the ports of a Service depend. */
function toPorts({ name, args, ports, restartPolicy }: Container): readonly unknown[] {
  return [name, args, ports, restartPolicy];
}

const servicesByName = oncePer(
  (services: ServiceFacts['services'], _: ServiceFacts) =>
    new Map(itemsOf(services).map((service) => [keyOf(service.metadata.namespace ?? '', service.metadata.name), service])),
);

/** The Service whose label a slice has. */
function serviceOf({ metadata: { namespace = '', labels } }: EndpointSlice, facts: ServiceFacts): Service | undefined {
  return servicesByName(facts.services, facts).get(keyOf(namespace, labels?.[SERVICE_NAME] ?? ''));
}

/** The headless Services that do not select the pod, but have a slice with its address: they resolve to the pod. */
function findPointing(pod: Pod, selecting: ReadonlySet<Service>, facts: ServiceFacts): readonly Service[] {
  const { byAddress } = indexSlices(facts.endpointSlices);
  const slices = [...addressesOf(pod)].flatMap((address) => byAddress.get(address) ?? []);
  const found = new Set(slices.flatMap((slice) => serviceOf(slice, facts) ?? []));
  return [...found].filter((service) => service.spec.clusterIP === 'None' && !selecting.has(service));
}

/** A Service without a selector selects nothing; its endpoints are created manually. */
export function selects(selector: Service['spec']['selector'] = {}, { metadata }: Pod): boolean {
  return Object.keys(selector).length > 0 && fits({ matchLabels: selector }, metadata.labels);
}

function checkPort(each: Case): Finding[] {
  const { pod, sidecar, service, port } = each;
  const number = resolveTarget(pod.spec, port);
  const target = (port.protocol ?? 'TCP') === 'TCP' ? classify(pod.spec, number) : 'other';
  if (target === 'app') {
    return [
      finding(
        'service-to-app',
        `${describe(each)} targets port ${number}, the app's own, and bypasses the sidecar`,
        `set its targetPort to ${toTargetPort(each)}`,
      ),
    ];
  }
  if (target === 'beside') return [checkBeside(`${describe(each)} targets`, number)];
  const direct = service.spec.clusterIP === 'None' ? checkHeadless(each) : [];
  if (direct.length > 0) return direct;
  if (target === 'nothing' || isUnfound(each)) return [checkNothing(each)];
  return number !== undefined && number === sidecar.ports.admin && isExposed(each) ? [checkAdmin(describe(each), number)] : [];
}

/** Whether clients that resolve a headless Service connect to a port that the sidecar does not guard. */
function checkHeadless(each: Case): Finding[] {
  const { pod, sidecar, port } = each;
  const direct = (port.protocol ?? 'TCP') === 'TCP' ? classify(pod.spec, port.port) : 'other';
  if (direct === 'app') {
    return [
      finding(
        'headless-to-app',
        `${describe(each)} is headless: clients that resolve it connect to port ${port.port} of the pod, the app's own, regardless of its targetPort`,
        `set its port to ${sidecar.ports.data ?? "the sidecar's port"}, or give it a cluster IP`,
      ),
    ];
  }
  // An undeclared port usually has no listener: the targetPort says which port is meant.
  if (direct === 'beside' && pod.spec.containers.some((container) => declares(container, port.port)))
    return [checkBeside(`${describe(each)} is headless and exposes`, port.port)];
  return [];
}

/** Whether clients outside the cluster reach this port of the Service. */
function isExposed({ service: { metadata, spec }, port, facts }: Case): boolean {
  const isBehind = ({ service }: IngressBackend): boolean =>
    service?.name === metadata.name &&
    (service.port === undefined ||
      service.port.number === port.port ||
      (port.name !== undefined && service.port.name === port.name));
  const backendsOf = ({ spec: { defaultBackend = {}, rules = [] } }: Ingress): IngressBackend[] => [
    defaultBackend,
    ...rules.flatMap(({ http }) => http?.paths.map(({ backend }) => backend) ?? []),
  ];
  return (
    ['NodePort', 'LoadBalancer'].includes(spec.type ?? '') ||
    (spec.externalIPs ?? []).length > 0 ||
    itemsOf(facts.ingresses).some(
      (ingress) => ingress.metadata.namespace === metadata.namespace && backendsOf(ingress).some(isBehind),
    )
  );
}

/** Inside the cluster, monitoring may read it through a Service. */
function checkAdmin(what: string, port: number): Finding {
  return finding(
    'admin-exposed',
    `${what} exposes port ${port}, the admin port of the sidecar, outside the cluster`,
    'remove the port: use kubectl port-forward for the console, and a PodMonitor for metrics',
  );
}

function checkBeside(what: string, port: number | undefined): Finding {
  return finding(
    'port-beside',
    `${what} port ${port} of the pod, which the sidecar does not guard`,
    'check that no request to this port needs verification; otherwise target the sidecar instead, or remove it',
  );
}

/** Before 1.33, names that only a native sidecar declares are not resolved (kubernetes/kubernetes#127958). */
function isUnfound({ facts: { version }, pod, sidecar, port }: Case): boolean {
  if (typeof port.targetPort !== 'string' || version === undefined || sidecar.form !== 'native') return false;
  const inApp = findNamedPort({ containers: pod.spec.containers }, port.targetPort);
  return inApp === undefined && version.major === 1 && version.minor < NAMES_FOUND_FROM;
}

function checkNothing(each: Case): Finding {
  const { facts, port } = each;
  const why = isUnfound(each)
    ? `a name that Kubernetes ${facts.version?.major}.${facts.version?.minor} does not resolve in native sidecars`
    : 'a name that no container of the pod declares';
  return finding(
    'service-to-nothing',
    `${describe(each)} has the targetPort ${port.targetPort}, ${why}: it has no endpoints`,
    `set its targetPort to ${toTargetPort(each)}`,
  );
}

/** Such a Service also sends requests to pods that are not ready. */
export function checkUnready(pod: Pod, services: readonly Service[]): Finding[] {
  const publishing = services.filter(({ spec }) => spec.publishNotReadyAddresses === true);
  if (isReady(pod) !== false) return [];
  return publishing.map(({ metadata: { name } }) =>
    finding(
      'service-publishes-unready',
      `Service ${name} has publishNotReadyAddresses and selects ${pod.metadata.name}, whose sidecar is not ready: what listens on its port now gets the requests, unverified`,
      'remove publishNotReadyAddresses, and find out why the sidecar is not ready',
    ),
  );
}

/**
 * The name if it leads to the sidecar, and the cluster resolves it, because then a pod without the sidecar gets no requests; otherwise the number. An app that
 * declares the same name gets the requests.
 */
function toTargetPort({ facts: { version }, sidecar, pod }: Case): string {
  const { container, ports, form } = sidecar;
  const name = container.ports?.find(({ containerPort }) => containerPort === ports.data)?.name;
  const isFound = form === 'container' || version === undefined || version.major > 1 || version.minor >= NAMES_FOUND_FROM;
  const isOwn = name !== undefined && findNamedPort(pod.spec, name) === ports.data;
  return (isFound && isOwn ? name : undefined) ?? String(ports.data ?? "the sidecar's port");
}

/** `Service web (NodePort 30080, Ingress shop.example), port 80`. */
function describe({ pod, service, port, facts }: Case): string {
  const { type = 'ClusterIP', clusterIP } = service.spec;
  const nodePort = port.nodePort === undefined ? undefined : `nodePort ${port.nodePort}`;
  const kind = clusterIP === 'None' ? 'headless' : type === 'ClusterIP' ? undefined : type;
  const facets = [kind, nodePort, ...ingressesOf(service, facts)].filter((facet) => facet !== undefined);
  return `Service ${nameOf(service, pod)}${facets.length === 0 ? '' : ` (${facets.join(', ')})`}, port ${port.port},`;
}

/** EndpointSlices by what the doctor looks for. */
interface SliceIndex {
  readonly byAddress: ReadonlyMap<string, readonly EndpointSlice[]>;
  /** By `namespace/name` of the Service. */
  readonly byService: ReadonlyMap<string, readonly EndpointSlice[]>;
  /** With an address that cannot be read, which may be that of any pod. */
  readonly unread: readonly EndpointSlice[];
}

/** Derived from lists that can be long. */
const indexes = new WeakMap<ServiceFacts['endpointSlices'], SliceIndex>();

/** IPv6 has many spellings of one address, and the author of a slice may use any of them. */
function indexSlices(slices: ServiceFacts['endpointSlices']): SliceIndex {
  const known = indexes.get(slices);
  if (known !== undefined) return known;
  const [byAddress, byService] = [new Map<string, EndpointSlice[]>(), new Map<string, EndpointSlice[]>()];
  const unread: EndpointSlice[] = [];
  for (const slice of itemsOf(slices)) {
    const { labels, namespace = '' } = slice.metadata;
    add(byService, keyOf(namespace, labels?.[SERVICE_NAME] ?? ''), slice);
    const addresses = (slice.endpoints ?? []).flatMap((endpoint) => endpoint.addresses ?? []);
    const read = addresses.map(parseAddress);
    if (read.includes(undefined)) unread.push(slice);
    for (const address of new Set(read)) if (address !== undefined) add(byAddress, address, slice);
  }
  const index = { byAddress, byService, unread };
  indexes.set(slices, index);
  return index;
}

/** Lists can be long, and any tenant may lengthen them: no list is copied for each of its items. */
function add<T>(index: Map<string, T[]>, key: string, value: T): void {
  const known = index.get(key);
  if (known === undefined) index.set(key, [value]);
  else known.push(value);
}

/** API servers accept leading zeros in an IPv4 address, as decimal digits (KEP-4858). Undefined for anything else. */
export function parseAddress(text: string): string | undefined {
  const withoutZeros = text.split('.').map((part) => (/^\d+$/.test(part) ? String(Number(part)) : part));
  return normalizeIp(text) ?? normalizeIp(withoutZeros.join('.'));
}

/** The slices that have the label of a Service: kube-proxy sends its requests to all of their addresses. */
export function slicesOf({ metadata: { name, namespace = '' } }: Service, facts: ServiceFacts): readonly EndpointSlice[] {
  return indexSlices(facts.endpointSlices).byService.get(keyOf(namespace, name)) ?? [];
}

/** The TCP ports of a slice; undefined: all. A port without a number means all, and some clients read a slice without ports so. */
export function targetsOf({ ports }: EndpointSlice): readonly (number | undefined)[] {
  const given = ports ?? [];
  if (given.length === 0) return [undefined];
  return given.filter(({ protocol }) => (protocol ?? 'TCP') === 'TCP').map(({ port }) => port ?? undefined);
}

/** The addresses of a pod in their canonical form. */
export function addressesOf({ status = {} }: Pod): ReadonlySet<string> {
  const { podIP = '', podIPs = [] } = status;
  return new Set([podIP, ...podIPs.map(({ ip = '' }) => ip)].flatMap((ip) => parseAddress(ip) ?? []));
}

/** Labels and owners of slices prove nothing, because anyone who may create slices can copy them. So all are checked. */
function checkSlices(pod: Pod, selecting: ReadonlySet<Service>, facts: ServiceFacts): Finding[] {
  const { byAddress } = indexSlices(facts.endpointSlices);
  const found = [...addressesOf(pod)].flatMap((address) => (byAddress.get(address) ?? []).map((slice) => ({ address, slice })));
  return found.flatMap(({ address, slice }) => {
    const named = serviceOf(slice, facts);
    const service = named !== undefined && selecting.has(named) ? named : undefined;
    // The Service itself has a finding for them.
    const known = (service?.spec.ports ?? []).map((port) => resolveTarget(pod.spec, port));
    // A headless Service without ports, such as that of a StatefulSet, has such a slice.
    if ((slice.ports ?? []).length === 0 && service !== undefined && known.length === 0) return [];
    const targets = targetsOf(slice).filter((port) => port === undefined || !known.includes(port));
    return targets.flatMap((port) => checkTarget(pod, { address, slice, port }));
  });
}

interface SliceTarget {
  readonly address: string;
  readonly slice: EndpointSlice;
  readonly port: number | undefined;
}

function checkTarget(pod: Pod, { address, slice, port }: SliceTarget): Finding[] {
  const { ports } = slice;
  const name = nameOf(slice, pod);
  const target = port === undefined ? 'app' : classify(pod.spec, port);
  const place = isIPv6(address) ? `[${address}]:${port}` : `${address}:${port}`;
  if (target === 'beside') return [checkBeside(`EndpointSlice ${name} targets ${place},`, port)];
  if (target !== 'app') return [];
  const all =
    (ports ?? []).length === 0 ? `${address} without a port, which some clients read as all ports` : `all ports of ${address}`;
  const what = port === undefined ? `${all}, also those that the sidecar does not guard` : `${place}, the app's own port,`;
  return [
    finding(
      'endpoints-to-app',
      `EndpointSlice ${name} targets ${what} and bypasses the sidecar`,
      `set its port to ${findSidecar(pod)?.ports.data ?? "the sidecar's port"}, or use a Service that selects the pods`,
    ),
  ];
}

/** `e`, or `other/e` in another namespace than that of the pod. */
function nameOf({ metadata: { name, namespace } }: EndpointSlice | Service, { metadata }: Pod): string {
  return namespace === undefined || namespace === metadata.namespace ? name : `${namespace}/${name}`;
}

/** Host names are resolved by some clients. Those of other namespaces usually name hosts outside of the cluster. */
function checkUnread(pod: Pod, facts: ServiceFacts): Finding[] {
  const { namespace } = pod.metadata;
  const possible = indexSlices(facts.endpointSlices).unread.filter(
    (slice) => slice.addressType !== 'FQDN' || (slice.metadata.namespace ?? namespace) === namespace,
  );
  return possible
    .filter((slice) => targetsOf(slice).some((port) => port === undefined || classify(pod.spec, port) === 'app'))
    .map((slice) =>
      finding(
        'addresses-not-read',
        `EndpointSlice ${nameOf(slice, pod)} has the app's own port, or all ports, and ${slice.addressType === 'FQDN' ? 'a host name' : 'an address that cannot be read'}: it may be that of ${pod.metadata.name}`,
        'remove the slice, or write its addresses as IP addresses',
      ),
    );
}

/** `hl.shop.svc.cluster.local`, or a host of it, such as `web-0.hl.shop.svc`. */
const SERVICE_HOST = /^(?:[^.]+\.)?([^.]+)\.([^.]+)\.svc(?:\.|$)/;
/** `10-1-0-1.shop.pod.cluster.local` */
const POD_HOST = /^([^.]+)\.[^.]+\.pod(?:\.|$)/;
const MAX_ALIASES = 8;

/** Services of type ExternalName by each address, and by the `namespace/name` of each Service, to which they lead. */
type AliasIndex = ReadonlyMap<string, readonly Service[]>;
const aliasIndexes = new WeakMap<ServiceFacts['services'], AliasIndex>();

function indexAliases(services: ServiceFacts['services']): AliasIndex {
  const known = aliasIndexes.get(services);
  if (known !== undefined) return known;
  const aliases = itemsOf(services).filter(({ spec }) => spec.type === 'ExternalName');
  const byName = new Map(aliases.map((alias) => [keyOf(alias.metadata.namespace ?? '', alias.metadata.name), alias]));
  const index = new Map<string, Service[]>();
  for (const alias of aliases) for (const place of findPlaces(alias, byName)) add(index, place, alias);
  aliasIndexes.set(services, index);
  return index;
}

function findPlaces(alias: Service, byName: ReadonlyMap<string, Service>): ReadonlySet<string> {
  const places = new Set<string>();
  let next: Service | undefined = alias;
  for (let hops = 0; next !== undefined && hops <= MAX_ALIASES; hops++) {
    const host: string = (next.spec.externalName ?? '').toLowerCase().replace(/\.$/, '');
    const digits = POD_HOST.exec(host)?.[1] ?? '';
    for (const text of [host, digits.replaceAll('-', '.'), digits.replaceAll('-', ':')]) places.add(parseAddress(text) ?? '');
    const [, name = '', namespace = ''] = SERVICE_HOST.exec(host) ?? [];
    const service = keyOf(namespace, name);
    places.add(service);
    next = byName.get(service);
  }
  return places;
}

/** A Service with a cluster IP has findings for its own ports; a name that leads to the pod itself can have any port. */
function checkExternalNames(pod: Pod, selecting: readonly Service[], facts: ServiceFacts): Finding[] {
  const index = indexAliases(facts.services);
  const headless = selecting.filter(({ spec }) => spec.clusterIP === 'None');
  const places = [...addressesOf(pod), ...headless.map(({ metadata }) => keyOf(metadata.namespace ?? '', metadata.name))];
  return [...new Set(places.flatMap((place) => index.get(place) ?? []))].flatMap(({ metadata, spec }) => {
    const numbers = (spec.ports ?? []).flatMap(({ port, targetPort }) =>
      typeof targetPort === 'number' ? [port, targetPort] : [port],
    );
    const port = numbers.find((each) => classify(pod.spec, each) === 'app');
    if (port === undefined) return [];
    return [
      finding(
        'external-name-to-app',
        `Service ${metadata.namespace}/${metadata.name} (ExternalName ${spec.externalName}) leads to port ${port} of the pod, the app's own, and bypasses the sidecar`,
        'name a Service with a cluster IP that targets the sidecar, or remove this port',
      ),
    ];
  });
}

function checkHostPorts({ spec }: Pod): Finding[] {
  const lasting = [...(spec.initContainers ?? []).filter(({ restartPolicy }) => restartPolicy === 'Always'), ...spec.containers];
  const admin = findSidecar({ spec })?.ports.admin;
  return lasting.flatMap(({ name, ports = [] }) =>
    ports.flatMap(({ hostIP = '', hostPort = 0, containerPort, protocol = 'TCP' }) => {
      const target = hostPort === 0 || protocol !== 'TCP' ? 'other' : classify(spec, containerPort);
      if (containerPort === admin && target === 'sidecar' && !isLoopbackIp(hostIP))
        return [checkAdmin(`hostPort ${hostPort} of the container ${name}`, containerPort)];
      if (target === 'beside') return [checkBeside(`hostPort ${hostPort} of the container ${name} exposes`, containerPort)];
      if (target !== 'app') return [];
      return [
        finding(
          'host-port',
          `hostPort ${hostPort} of the container ${name} exposes port ${containerPort}, the app's own, and bypasses the sidecar`,
          'remove the hostPort, or use the interception mode same-port or env',
        ),
      ];
    }),
  );
}
