/** Finds the sidecar in a pod or template, and by its own command line which port is the app's and which is its own. */
import { CONTAINER, INJECT_LABEL, INJECTED_LABEL } from '../injector/names.ts';
import { type InjectionStatus, readStatus } from '../injector/status.ts';
import type { Container, ContainerStatus, Pod, PodTemplate } from './objects.ts';

/** A container `sidegate`. */
export interface Sidecar {
  readonly form: 'native' | 'container';
  /** False for an init container that ends: nothing stands before the app then. */
  readonly stays: boolean;
  readonly container: Container;
  /** What the injector noted; undefined where people put it there themselves. */
  readonly status: InjectionStatus | undefined;
  readonly ports: SidecarPorts;
}

/** Ports in the sidecar's arguments. */
export interface SidecarPorts {
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

/** Whether every request to this pod's Services can be made to pass a sidecar. */
export function isProtected(pod: PodTemplate): boolean {
  return findSidecar(pod)?.stays === true;
}

/** The app listens where no other pod reaches it: two may share a port only if one of them is on loopback, and that is not the sidecar. */
export function isOnLoopback({ ports }: Sidecar): boolean {
  return ports.app !== undefined && ports.app === ports.data;
}

/** Whether the sidecar stands where the app would: an app that does not know of it takes that port, and the sidecar gets none. */
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

/** Whether its arguments tell what it listens on and where the app is. */
export function arePortsKnown(pod: PodTemplate): boolean {
  const { data, app } = findSidecar(pod)?.ports ?? {};
  return data !== undefined && app !== undefined;
}

/** Whether the sidecar is ready; undefined where the kubelet has not said. */
export function isReady(pod: Pod): boolean | undefined {
  const statuses: readonly ContainerStatus[] = [
    ...(pod.status?.initContainerStatuses ?? []),
    ...(pod.status?.containerStatuses ?? []),
  ];
  return statuses.find(({ name }) => name === CONTAINER)?.ready;
}

/** What the label that asks for the sidecar says. */
export function askOf(pod: { readonly metadata?: PodTemplate['metadata'] }): string | undefined {
  return pod.metadata?.labels?.[INJECT_LABEL];
}

/** Whether the pod asks for the sidecar, or once had it put there. */
export function isConcerned(pod: PodTemplate): boolean {
  return askOf(pod) === 'true' || pod.metadata?.labels?.[INJECTED_LABEL] === 'true' || findSidecar(pod) !== undefined;
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

/** `:8480`, `$(SIDEGATE_POD_IPS):8480`, `http://127.0.0.1:8080/`: what follows the last colon. */
function toPort(text: string | undefined): number | undefined {
  const [, port] = /:([0-9]{1,5})\/*$/.exec(text ?? '') ?? [];
  return port === undefined ? undefined : Number(port);
}
