/** Finds containers that take something of the sidecar: its port names, ports, user or volumes, or the first place among the init containers. */
import { containersOf, lastingContainersOf, type Placed, tcpPortsOf } from './app.ts';
import { CONTAINER, DATA_PORT } from './names.ts';
import { listAt, numberAt, objectAt, type Raw, textAt } from './raw.ts';
import { USER } from './sidecar.ts';
import { isSidecarVolume, RESERVED_PORT_NAMES, type SidecarRules } from './sidecar-rules.ts';
import type { ReadSidecar } from './sidecar-values.ts';

/** All containers except the sidecar. Ephemeral ones come later, and need another right. */
export function otherContainersOf(pod: Raw): Placed[] {
  const all = [...containersOf(pod, 'initContainers'), ...containersOf(pod, 'containers')];
  return all.filter(({ name }) => name !== CONTAINER);
}

/** Whether the container has the sidecar's user, for itself or from the pod: the kernel lets processes of one user share a port. */
export function hasSidecarUser(pod: Raw, container: Raw): boolean {
  const ofPod = numberAt(objectAt(objectAt(pod, 'spec'), 'securityContext'), 'runAsUser');
  return (numberAt(objectAt(container, 'securityContext'), 'runAsUser') ?? ofPod) === USER;
}

/** Lists ports, users and volumes of the sidecar in other containers, and init containers that start before it and are not allowed to. */
export function findIntrusions(pod: Raw, { values, mode }: ReadSidecar, rules: SidecarRules): string[] {
  const others = otherContainersOf(pod);
  const { portName, port, adminPort, queueVolume } = values;
  const names = new Set([...RESERVED_PORT_NAMES, portName]);
  const lasting = lastingContainersOf(pod).filter(({ name }) => name !== CONTAINER);
  const withPort = (wanted: number): Placed[] =>
    lasting.filter(({ container }) => tcpPortsOf(container).some(({ number }) => number === wanted));
  const takers = withPort(port);
  // In these modes, the app itself declares the data port.
  const isTaken = takers.length > (mode === 'same-port' || mode === 'env' ? 1 : 0);
  const having = (what: string, isHit: (container: Raw) => boolean): string[] =>
    others.filter(({ container }) => isHit(container)).map(({ name }) => `${what} ${name}`);
  const isOwn = (mount: unknown): boolean => {
    const volume = textAt(mount, 'name') ?? '';
    return isSidecarVolume(volume) || volume === queueVolume;
  };
  return [
    ...(values.isNative ? findEarlier(pod, rules) : []),
    ...having('a port name of', (container) => listAt(container, 'ports').some((each) => names.has(textAt(each, 'name') ?? ''))),
    ...having(`runAsUser ${USER} of`, (container) => hasSidecarUser(pod, container)),
    ...having('a volume of the sidecar in', (container) =>
      ['volumeMounts', 'volumeDevices'].some((field) => listAt(container, field).some(isOwn)),
    ),
    ...withPort(adminPort).map(({ name }) => `port ${adminPort} of ${name}`),
    ...(isTaken ? takers.map(({ name }) => `port ${port} of ${name}`) : []),
  ];
}

/** A container that starts before the sidecar could answer on its port, and a Service with publishNotReadyAddresses would send requests there. */
function findEarlier(pod: Raw, { allowedInitContainers = [] }: SidecarRules): string[] {
  const init = containersOf(pod, 'initContainers');
  const earlier = init.slice(
    0,
    init.findIndex(({ name }) => name === CONTAINER),
  );
  return earlier.filter(({ name }) => !allowedInitContainers.includes(name)).map(({ name }) => `${name} before ${DATA_PORT}`);
}
