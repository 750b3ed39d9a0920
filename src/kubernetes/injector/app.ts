/** Finds the app in a pod: which container it is in, and on which port it listens. */
import { DEFAULT_CONTAINER_ANNOTATION, DOMAIN } from './names.ts';
import type { Path } from './patch.ts';
import { isRaw, listAt, numberAt, objectAt, type Raw, textAt } from './raw.ts';
import type { PodSettings } from './settings.ts';

const HIGHEST_PORT = 65_535;

/** A container, and where it stands. */
export interface Placed {
  readonly container: Raw;
  readonly name: string;
  readonly path: Path;
}

/** A TCP port that a container declares. */
export interface DeclaredPort {
  readonly number: number;
  readonly name: string | undefined;
  /** In the container's list. */
  readonly index: number;
  readonly hostPort: number | undefined;
}

/** The app. */
export interface App extends Placed {
  readonly port: number;
  /** Absent where the container does not declare it. */
  readonly declared: DeclaredPort | undefined;
}

/** The containers in one of the pod's lists. */
export function containersOf(pod: Raw, list: 'containers' | 'initContainers'): Placed[] {
  return listAt(objectAt(pod, 'spec'), list).flatMap((container, index) =>
    isRaw(container) ? [{ container, name: textAt(container, 'name') ?? '', path: ['spec', list, index] }] : [],
  );
}

/** Containers that run beside the app: all but the init containers that end. */
export function lastingContainersOf(pod: Raw): Placed[] {
  const sidecars = containersOf(pod, 'initContainers').filter(({ container }) => isRestarting(container));
  return [...sidecars, ...containersOf(pod, 'containers')];
}

/** A native sidecar. */
export function isRestarting(container: Raw): boolean {
  return textAt(container, 'restartPolicy') === 'Always';
}

/** The TCP ports that it declares. */
export function tcpPortsOf(container: Raw): DeclaredPort[] {
  return listAt(container, 'ports').flatMap((port, index) => {
    const number = numberAt(port, 'containerPort');
    if (number === undefined || number < 1 || number > HIGHEST_PORT) return [];
    if ((textAt(port, 'protocol') ?? 'TCP') !== 'TCP') return [];
    return [{ number, name: textAt(port, 'name'), index, hostPort: numberAt(port, 'hostPort') }];
  });
}

/** The app, or a sentence that says why it is unclear which it is. */
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
    return { problem: `${place} declares no TCP port named ${appPort}, as ${DOMAIN}/app-port has it${tell(ports)}` };
  if (declared === undefined)
    return { problem: `${place} declares no TCP port: say on which the app listens by the annotation ${DOMAIN}/app-port` };
  return { problem: `${place} declares several TCP ports${tell(ports)}: say which is the app's by ${DOMAIN}/app-port` };
}

/** A warning, where the container declares ports, and the one that the annotation names is none of them. */
export function warnOfUndeclaredPort({ container, name, port, declared }: App): string | undefined {
  const ports = tcpPortsOf(container);
  if (declared !== undefined || ports.length === 0) return undefined;
  return `${DOMAIN}/app-port is ${port}, which the container ${name} does not declare${tell(ports)}: if nothing listens there, no request reaches the app`;
}

/** A warning, where other containers declare ports: which container is the app's is the author's word, and a Service may lead to any. */
export function warnOfOtherPorts(pod: Raw, app: App): string | undefined {
  const others = lastingContainersOf(pod).filter(({ path }) => path.join() !== app.path.join());
  const ports = others.flatMap(({ name, container }) => tcpPortsOf(container).map(({ number }) => `${number} of ${name}`));
  if (ports.length === 0) return undefined;
  return `other containers declare ports that the sidecar does not guard (${ports.slice(0, 4).join(', ')}): a Service that leads there bypasses it`;
}

function findContainer(pod: Raw, { appContainer, appPort }: PodSettings): Placed | { readonly problem: string } {
  const containers = containersOf(pod, 'containers');
  const names = containers.map(({ name }) => name).join(', ');
  if (appContainer !== undefined) {
    const named = containers.find(({ name }) => name === appContainer);
    return named ?? { problem: `${DOMAIN}/app-container is ${appContainer}, but the pod has the containers ${names}` };
  }
  const annotations = objectAt(objectAt(pod, 'metadata'), 'annotations');
  const usual = textAt(annotations, DEFAULT_CONTAINER_ANNOTATION);
  const candidates = [
    containers,
    containers.filter(({ name }) => name === usual),
    containers.filter(({ container }) => tcpPortsOf(container).some(({ name }) => name === appPort && name !== undefined)),
    containers.filter(({ container }) => tcpPortsOf(container).length > 0),
  ];
  const only = candidates.find(({ length }) => length === 1)?.[0];
  return (
    only ?? { problem: `the pod has the containers ${names}: say which is the app by the annotation ${DOMAIN}/app-container` }
  );
}

function tell(ports: readonly DeclaredPort[]): string {
  if (ports.length === 0) return '';
  return ` (it has ${ports.map(({ number, name }) => (name === undefined ? number : `${name}: ${number}`)).join(', ')})`;
}
