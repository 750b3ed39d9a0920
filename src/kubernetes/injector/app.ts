/** Finds the app in a pod: its container and its port. */
import { DEFAULT_CONTAINER_ANNOTATION, DOMAIN } from './names.ts';
import type { PatchPath } from './patch.ts';
import { isRaw, listAt, numberAt, objectAt, type Raw, textAt } from './raw.ts';
import type { PodSettings } from './settings.ts';

const MAX_PORT = 65_535;

/** A container, and its path in the pod. */
export interface PlacedContainer {
  readonly container: Raw;
  readonly name: string;
  readonly path: PatchPath;
}

/** A TCP port that a container declares. */
export interface DeclaredPort {
  readonly number: number;
  readonly name: string | undefined;
  /** Index in the container's list. */
  readonly index: number;
  readonly hostPort: number | undefined;
}

/** The app. */
export interface App extends PlacedContainer {
  readonly port: number;
  /** Undefined if the container does not declare the port. */
  readonly declared: DeclaredPort | undefined;
}

/** The containers in one of the pod's lists. */
export function containersOf(pod: Raw, list: 'containers' | 'initContainers'): PlacedContainer[] {
  return listAt(objectAt(pod, 'spec'), list).flatMap((container, index) =>
    isRaw(container) ? [{ container, name: textAt(container, 'name') ?? '', path: ['spec', list, index] }] : [],
  );
}

/** Containers that run next to the app: all except init containers that end. */
export function lastingContainersOf(pod: Raw): PlacedContainer[] {
  const sidecars = containersOf(pod, 'initContainers').filter(({ container }) => isRestarting(container));
  return [...sidecars, ...containersOf(pod, 'containers')];
}

/** Whether the container is a native sidecar. */
function isRestarting(container: Raw): boolean {
  return textAt(container, 'restartPolicy') === 'Always';
}

/** The TCP ports that a container declares. */
export function tcpPortsOf(container: Raw): DeclaredPort[] {
  return listAt(container, 'ports').flatMap((port, index) => {
    const number = numberAt(port, 'containerPort');
    if (number === undefined || number < 1 || number > MAX_PORT) return [];
    if ((textAt(port, 'protocol') ?? 'TCP') !== 'TCP') return [];
    return [{ number, name: textAt(port, 'name'), index, hostPort: numberAt(port, 'hostPort') }];
  });
}

/** The app, or why it cannot be determined. */
export function findApp(pod: Raw, settings: PodSettings): App | { readonly problem: string } {
  const placed = findContainer(pod, settings);
  if ('problem' in placed) return placed;
  const ports = tcpPortsOf(placed.container);
  const { appPort } = settings;
  if (typeof appPort === 'number') return { ...placed, port: appPort, declared: ports.find(({ number }) => number === appPort) };
  const named = appPort === undefined ? ports : ports.filter(({ name }) => name === appPort);
  const [declared, another] = named;
  if (declared !== undefined && another === undefined) return { ...placed, port: declared.number, declared };
  const place = `the container ${placed.name}`;
  if (appPort !== undefined)
    return {
      problem: `${place} declares no TCP port named ${appPort}, which is the value of ${DOMAIN}/app-port${formatPorts(ports)}`,
    };
  if (declared === undefined)
    return { problem: `${place} declares no TCP port: set the app's port in the annotation ${DOMAIN}/app-port` };
  return {
    problem: `${place} declares several TCP ports${formatPorts(ports)}: set the app's port in the annotation ${DOMAIN}/app-port`,
  };
}

/** A warning if the container declares ports, but not the one in the annotation. */
export function warnOfUndeclaredPort({ container, name, port, declared }: App): string | undefined {
  const ports = tcpPortsOf(container);
  if (declared !== undefined || ports.length === 0) return undefined;
  return `${DOMAIN}/app-port is ${port}, which the container ${name} does not declare${formatPorts(ports)}: if the app does not listen there, no request reaches it`;
}

/** A warning if other containers declare ports: the pod's author chooses which container is the app, and a Service can target any of them. */
export function warnOfOtherPorts(pod: Raw, app: App): string | undefined {
  const others = lastingContainersOf(pod).filter(({ path }) => path.join() !== app.path.join());
  const ports = others.flatMap(({ name, container }) => tcpPortsOf(container).map(({ number }) => `${number} of ${name}`));
  if (ports.length === 0) return undefined;
  return `other containers declare ports that the sidecar does not guard (${ports.slice(0, 4).join(', ')}): a Service that targets them bypasses it`;
}

function findContainer(pod: Raw, { appContainer, appPort }: PodSettings): PlacedContainer | { readonly problem: string } {
  const containers = containersOf(pod, 'containers');
  const names = containers.map(({ name }) => name).join(', ');
  if (appContainer !== undefined) {
    const named = containers.find(({ name }) => name === appContainer);
    return named ?? { problem: `${DOMAIN}/app-container is ${appContainer}, but the pod has the containers ${names}` };
  }
  const annotations = objectAt(objectAt(pod, 'metadata'), 'annotations');
  const main = textAt(annotations, DEFAULT_CONTAINER_ANNOTATION);
  const candidates = [
    containers,
    containers.filter(({ name }) => name === main),
    containers.filter(({ container }) => tcpPortsOf(container).some(({ name }) => name === appPort && name !== undefined)),
    containers.filter(({ container }) => tcpPortsOf(container).length > 0),
  ];
  const only = candidates.find(({ length }) => length === 1)?.[0];
  return (
    only ?? { problem: `the pod has the containers ${names}: set the app's container in the annotation ${DOMAIN}/app-container` }
  );
}

function formatPorts(ports: readonly DeclaredPort[]): string {
  if (ports.length === 0) return '';
  return ` (it has ${ports.map(({ number, name }) => (name === undefined ? number : `${name}: ${number}`)).join(', ')})`;
}
