/** What the kubelet asks of containers by network: probes and lifecycle hooks, with where they stand. */
import { type Placed, tcpPortsOf } from './app.ts';
import type { Path } from './patch.ts';
import { has, isRaw, objectAt, type Raw, textAt } from './raw.ts';

/** A probe, by the last step of the path under which the sidecar asks in the kubelet's stead. */
type ProbeKind = 'livez' | 'readyz' | 'startupz';
/** A hook, by what Kubernetes calls it: nobody but the kubelet may set one off. */
type HookKind = 'postStart' | 'preStop';
/** How it asks. */
export type Action = 'httpGet' | 'tcpSocket' | 'grpc';

/** One probe or hook. */
export interface Handler {
  readonly kind: ProbeKind | HookKind;
  readonly action: Action;
  /** Of the probe or hook. */
  readonly path: Path;
  /** What stands under the action's name. */
  readonly request: Raw;
  readonly container: Placed;
  /** Undefined where it is a name that the container does not declare. */
  readonly port: number | undefined;
  /** As it is written. */
  readonly writtenPort: unknown;
}

/** Where each probe stands in a container. */
export const PROBE_PLACES: readonly (readonly [ProbeKind, readonly string[]])[] = [
  ['livez', ['livenessProbe']],
  ['readyz', ['readinessProbe']],
  ['startupz', ['startupProbe']],
];
/** And each hook. */
export const HOOK_PLACES: readonly (readonly [HookKind, readonly string[]])[] = [
  ['postStart', ['lifecycle', 'postStart']],
  ['preStop', ['lifecycle', 'preStop']],
];
const ACTIONS: readonly Action[] = ['httpGet', 'tcpSocket', 'grpc'];

/** Those of a container that reach the pod by network; one with a host of its own is not about the pod. */
export function handlersOf(container: Placed): Handler[] {
  return [...PROBE_PLACES, ...HOOK_PLACES].flatMap(([kind, steps]) => {
    const handler = steps.reduce<Raw>((from, step) => objectAt(from, step), container.container);
    // More than one is refused by the API server.
    const action = ACTIONS.find((known) => isRaw(handler[known]));
    if (action === undefined) return [];
    const request = objectAt(handler, action);
    if (has(request, 'host') && textAt(request, 'host') !== '') return [];
    const writtenPort = request['port'];
    const port = resolvePort(container.container, writtenPort);
    return [{ kind, action, path: [...container.path, ...steps], request, container, port, writtenPort }];
  });
}

/** As the kubelet does: a name among the container's own ports, or a number, even one that is text. */
function resolvePort(container: Raw, written: unknown): number | undefined {
  if (typeof written === 'number') return written;
  if (typeof written !== 'string') return undefined;
  const named = tcpPortsOf(container).find(({ name }) => name === written)?.number;
  return named ?? (/^[0-9]{1,5}$/.test(written) ? Number(written) : undefined);
}
