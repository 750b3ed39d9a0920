/** Where a Service's port leads in a pod, as the endpoints controller finds it. */
import type { Container, PodSpec, ServicePort } from './objects.ts';
import { findSidecar } from './sidecar.ts';

/**
 * Whose port it is; `beside`: another one of the pod. Which container declares it proves nothing: annotations say which of them is the app.
 * `nothing` where the pod declares no port of that name.
 */
export type Target = 'app' | 'beside' | 'sidecar' | 'other' | 'nothing';

/** The number a name stands for: app containers first, then native sidecars, as findPort of the endpoints controller does. */
export function findNamedPort(spec: PodSpec, name: string, protocol = 'TCP'): number | undefined {
  const sidecars = (spec.initContainers ?? []).filter(({ restartPolicy }) => restartPolicy === 'Always');
  for (const { ports = [] } of [...spec.containers, ...sidecars]) {
    const found = ports.find((port) => port.name === name && (port.protocol ?? 'TCP') === protocol);
    if (found !== undefined) return found.containerPort;
  }
  return undefined;
}

/** The number in the pod that a Service's port leads to. */
export function resolveTarget(spec: PodSpec, { port, targetPort, protocol = 'TCP' }: ServicePort): number | undefined {
  if (protocol !== 'TCP') return undefined;
  if (typeof targetPort === 'string') return findNamedPort(spec, targetPort, protocol);
  return targetPort ?? port;
}

/** Whose port of the pod this is. */
export function classify(spec: PodSpec, port: number | undefined): Target {
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

/** Whether a container declares a port of TCP. */
export function declares({ ports = [] }: Container, port: number): boolean {
  return ports.some(({ containerPort, protocol = 'TCP' }) => containerPort === port && protocol === 'TCP');
}
