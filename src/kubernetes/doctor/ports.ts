/** Resolves a Service's port in a pod, as the endpoints controller does. */
import type { Container, PodSpec, ServicePort } from './objects.ts';
import { findSidecar } from './sidecar.ts';

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
