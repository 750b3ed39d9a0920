/** Finds what other containers of a pod have of its sidecar: port names, ports, its user or its volumes; or the first place. */
import { containersOf, type DeclaredPort, type PlacedContainer, tcpPortsOf } from './app.ts';
import { CONTAINER, DATA_PORT } from './names.ts';
import { volumesOfQueue } from './queue-volume.ts';
import { listAt, numberAt, objectAt, type Raw, textAt } from './raw.ts';
import { USER } from './sidecar.ts';
import { isSidecarVolume, RESERVED_PORT_NAMES, type SidecarRules } from './sidecar-rules.ts';

/** Names and ports that only the sidecar of a pod may have. */
interface Owned {
  /** In addition to the reserved name. */
  readonly portName: string;
  /** TCP ports. */
  readonly ports: readonly number[];
  readonly queueVolume: string | undefined;
}

/** Something of the sidecar that another container has. */
export interface TakenResource {
  readonly kind: 'port' | 'port name' | 'user' | 'volume';
  readonly container: string;
  /** The number of the port or user, or the name. */
  readonly what: string;
}

/** Whether a container may declare a port of the sidecar, because the port is that of the app. */
export type IsOfApp = (container: PlacedContainer, port: Pick<DeclaredPort, 'number' | 'index'>) => boolean;

/** All containers except the sidecar. Ephemeral ones come later, and need another right. */
function otherContainersOf(pod: Raw): PlacedContainer[] {
  const all = [...containersOf(pod, 'initContainers'), ...containersOf(pod, 'containers')];
  return all.filter(({ name }) => name !== CONTAINER);
}

/**
 * Everything of the sidecar that other containers have, including init containers that end: a Service with publishNotReadyAddresses would send
 * requests to them. Whether they listen on undeclared ports cannot be known.
 */
export function findTaken(pod: Raw, { portName, ports, queueVolume }: Owned, isOfApp: IsOfApp): TakenResource[] {
  const queueVolumes = new Set(queueVolume === undefined ? [] : volumesOfQueue(pod, queueVolume));
  const isOwnVolume = (name: string): boolean => isSidecarVolume(name) || queueVolumes.has(name);
  return otherContainersOf(pod).flatMap((placed) => {
    const { name: container, container: from } = placed;
    const names = listAt(from, 'ports').flatMap((port, index) => {
      const name = textAt(port, 'name') ?? '';
      const isRenamed = name === portName && isOfApp(placed, { number: numberAt(port, 'containerPort') ?? 0, index });
      return RESERVED_PORT_NAMES.includes(name) || (name === portName && !isRenamed) ? [name] : [];
    });
    const numbers = tcpPortsOf(from).flatMap((port) =>
      ports.includes(port.number) && !isOfApp(placed, port) ? [String(port.number)] : [],
    );
    const mounts = [...listAt(from, 'volumeMounts'), ...listAt(from, 'volumeDevices')];
    const volumes = mounts.map((mount) => textAt(mount, 'name') ?? '').filter(isOwnVolume);
    const toTaken = (kind: TakenResource['kind'], found: readonly string[]): TakenResource[] =>
      [...new Set(found)].map((what) => ({ kind, container, what }));
    return [
      ...toTaken('port name', names),
      ...toTaken('port', numbers),
      ...toTaken('user', hasSidecarUser(pod, from) ? [String(USER)] : []),
      ...toTaken('volume', volumes),
    ];
  });
}

/** Whether the container has the sidecar's user, for itself or from the pod: the kernel lets processes of one user share a port. */
export function hasSidecarUser(pod: Raw, container: unknown): boolean {
  const ofPod = numberAt(objectAt(objectAt(pod, 'spec'), 'securityContext'), 'runAsUser');
  return (numberAt(objectAt(container, 'securityContext'), 'runAsUser') ?? ofPod) === USER;
}

/** A container that starts before the sidecar could answer on its port, and a Service with publishNotReadyAddresses would send requests there. */
export function findEarlier(pod: Raw, { allowedInitContainers = [] }: SidecarRules): string[] {
  const init = containersOf(pod, 'initContainers');
  const earlier = init.slice(
    0,
    init.findIndex(({ name }) => name === CONTAINER),
  );
  return earlier.filter(({ name }) => !allowedInitContainers.includes(name)).map(({ name }) => `${name} before ${DATA_PORT}`);
}
