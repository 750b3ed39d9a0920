/** Finds the sidecar in a pod or template, and reads its port and the app's port from its arguments. */

import { CONTAINER, INJECT_LABEL, INJECTED_LABEL } from '../injector/names.ts';
import { type InjectionStatus, readStatus } from '../injector/status.ts';
import { listNames } from './finding.ts';
import type { Container, ContainerStatus, Pod, PodSpec, PodTemplate, ServicePort } from './objects.ts';

/** A container `sidegate`. */
export interface Sidecar {
  readonly form: 'native' | 'container';
  /** False for an init container that ends, which leaves the app unprotected. */
  readonly stays: boolean;
  readonly container: Container;
  /** The status that the injector recorded; undefined if the sidecar was added by hand. */
  readonly status: InjectionStatus | undefined;
  readonly ports: SidecarPorts;
}

/** Ports in the sidecar's arguments. */
interface SidecarPorts {
  readonly data: number | undefined;
  readonly admin: number | undefined;
  readonly app: number | undefined;
}

/** The sidecar of a pod or of a template. */
export function findSidecar(pod: PodTemplate): Sidecar | undefined {
  const isNamed = ({ name }: Container): boolean => name === CONTAINER;
  const native = pod.spec.initContainers?.find(isNamed);
  const container = native ?? pod.spec.containers.find(isNamed);
  if (container === undefined) return undefined;
  const form = native === undefined ? 'container' : 'native';
  return {
    form,
    stays: form === 'container' || container.restartPolicy === 'Always',
    container,
    status: readStatus(pod),
    ports: readPorts(container.args ?? []),
  };
}

/** Whether the pod has a sidecar that keeps running. */
export function isProtected(pod: PodTemplate): boolean {
  return findSidecar(pod)?.stays === true;
}

/** Whether the app listens on loopback: app and sidecar can use the same port only if one of them is on loopback, and the sidecar is not. */
export function isOnLoopback({ ports }: Sidecar): boolean {
  return ports.app !== undefined && ports.app === ports.data;
}

/** Whether the sidecar uses the port that the app would use by default: an app that was not reconfigured takes that port first. */
export function isOnAppPort(pod: PodTemplate): boolean {
  const sidecar = findSidecar(pod);
  if (sidecar === undefined) return false;
  const { status, ports } = sidecar;
  const declared = pod.spec.containers.filter(({ name }) => name !== CONTAINER).flatMap((each) => each.ports ?? []);
  return (
    status?.takeover === 'same-port' ||
    status?.takeover === 'env' ||
    isOnLoopback(sidecar) ||
    declared.some(({ containerPort }) => containerPort === ports.data)
  );
}

/** Whether its arguments contain its own port and the app's. */
export function arePortsKnown(pod: PodTemplate): boolean {
  const { data, app } = findSidecar(pod)?.ports ?? {};
  return data !== undefined && app !== undefined;
}

/** Whether the sidecar is ready; undefined if the kubelet has not reported it yet. */
export function isReady(pod: Pod): boolean | undefined {
  return findStatus(pod)?.ready;
}

/**
 * Why another container could have run before the sidecar was ready, and so have taken its ports: its responses then prove nothing. Undefined if none
 * could. The kubelet starts all others after a native sidecar, except the init containers before it, which may also last, and ephemeral containers,
 * which run as soon as they are added. If a port is taken, the sidecar ends, and the kubelet's probes of it reach the other container.
 */
export function findRace(pod: Pod): string | undefined {
  if (findSidecar(pod)?.form !== 'native') return 'it is a plain container, and another one can take its ports first';
  const { initContainers = [], ephemeralContainers = [] } = pod.spec;
  const earlier = initContainers.slice(
    0,
    initContainers.findIndex(({ name }) => name === CONTAINER),
  );
  const names = (containers: readonly Container[]): string => listNames(containers.map(({ name }) => name));
  if (earlier.length > 0) return `init containers before it could have taken its ports (${names(earlier)})`;
  if (ephemeralContainers.length > 0)
    return `ephemeral containers could have taken its ports while it started (${names(ephemeralContainers)})`;
  const restarts = findStatus(pod)?.restartCount;
  if (restarts === 0) return undefined;
  return `it restarted ${restarts === undefined ? 'an unknown number of' : restarts} times, and another container could take its ports meanwhile`;
}

/** The end of the log of a sidecar that failed. */
export function lastMessageOf(pod: Pod): string {
  const { state, lastState } = findStatus(pod) ?? {};
  return `${state?.terminated?.message ?? ''}${lastState?.terminated?.message ?? ''}`;
}

/** Why the kubelet does not run it; undefined if its log says why. */
export function reasonOf(pod: Pod): string | undefined {
  const { state, lastState } = findStatus(pod) ?? {};
  const waiting = state?.waiting?.reason;
  if ((state?.terminated ?? lastState?.terminated)?.reason === 'OOMKilled') return 'OOMKilled';
  return waiting === 'CrashLoopBackOff' ? undefined : waiting;
}

function findStatus({ status }: Pod): ContainerStatus | undefined {
  const statuses = [...(status?.initContainerStatuses ?? []), ...(status?.containerStatuses ?? [])];
  return statuses.find(({ name }) => name === CONTAINER);
}

/** The value of the label that requests the sidecar. */
export function injectLabelOf(pod: { readonly metadata?: PodTemplate['metadata'] }): string | undefined {
  return pod.metadata?.labels?.[INJECT_LABEL];
}

/** Whether the pod requests the sidecar, has it, or had it injected. */
export function isConcerned(pod: PodTemplate): boolean {
  return injectLabelOf(pod) === 'true' || pod.metadata?.labels?.[INJECTED_LABEL] === 'true' || findSidecar(pod) !== undefined;
}

function readPorts(args: readonly string[]): SidecarPorts {
  return {
    data: toPort(optionOf(args, '--listen')),
    admin: toPort(optionOf(args, '--admin')),
    app: toPort(optionOf(args, '--upstream')),
  };
}

/** `--name value` and `--name=value`. */
function optionOf(args: readonly string[], name: string): string | undefined {
  const index = args.indexOf(name);
  return index === -1 ? args.find((arg) => arg.startsWith(`${name}=`))?.slice(name.length + 1) : args[index + 1];
}

/** `:8480`, `$(SIDEGATE_POD_IPS):8480`, `http://127.0.0.1:8080/`: the text after the last colon. */
function toPort(text: string | undefined): number | undefined {
  const [, port] = /:([0-9]{1,5})\/*$/.exec(text ?? '') ?? [];
  return port === undefined ? undefined : Number(port);
}

// Resolves a Service's port in a pod, as the endpoints controller does.

/**
 * The process that listens on a port. `beside`: another port of the pod; it does not matter which container declares it, because only annotations
 * say which container is the app. `nothing`: the pod declares no port of that name.
 */
type PortTarget = 'app' | 'beside' | 'sidecar' | 'other' | 'nothing';

/** Resolves a port name: app containers first, then native sidecars, like findPort of the endpoints controller. */
export function findNamedPort(spec: PodSpec, name: string, protocol = 'TCP'): number | undefined {
  const sidecars = (spec.initContainers ?? []).filter(({ restartPolicy }) => restartPolicy === 'Always');
  for (const { ports = [] } of [...spec.containers, ...sidecars]) {
    const found = ports.find((port) => port.name === name && (port.protocol ?? 'TCP') === protocol);
    if (found !== undefined) return found.containerPort;
  }
  return undefined;
}

/** The port of the pod that a Service's port targets. */
export function resolveTarget(spec: PodSpec, { port, targetPort, protocol = 'TCP' }: ServicePort): number | undefined {
  if (protocol !== 'TCP') return undefined;
  if (typeof targetPort === 'string') return findNamedPort(spec, targetPort, protocol);
  return targetPort ?? port;
}

/** Returns which process listens on this port of the pod. */
export function classify(spec: PodSpec, port: number | undefined): PortTarget {
  if (port === undefined) return 'nothing';
  const sidecar = findSidecar({ spec });
  if (sidecar === undefined) return 'other';
  const { data, admin, app } = sidecar.ports;
  if (port === data || port === admin) return 'sidecar';
  if (app === undefined || data === undefined) return 'other';
  if (port === app) return 'app';
  if (declares(sidecar.container, port)) return 'sidecar';
  return 'beside';
}

/** Whether a container declares a TCP port. */
export function declares({ ports = [] }: Container, port: number): boolean {
  return ports.some(({ containerPort, protocol = 'TCP' }) => containerPort === port && protocol === 'TCP');
}
