/** Probes and lifecycle hooks that the kubelet runs over the network, with their paths in the pod. */
import { type PlacedContainer, tcpPortsOf } from './app.ts';
import { hasForm, PORT_NUMBER } from './kubernetes-values.ts';
import type { PatchPath } from './patch.ts';
import { has, isRaw, objectAt, type Raw, textAt } from './raw.ts';

/** A probe, named by the last segment of its URL path on the sidecar. */
type ProbeKind = 'livez' | 'readyz' | 'startupz';
/** A lifecycle hook, by its name in Kubernetes; only the kubelet may trigger it. */
type HookKind = 'postStart' | 'preStop';
/** The type of request. */
type HandlerAction = 'httpGet' | 'tcpSocket' | 'grpc';

/** One probe or hook. */
export interface Handler {
  readonly kind: ProbeKind | HookKind;
  readonly action: HandlerAction;
  /** Path of the probe or hook in the pod. */
  readonly path: PatchPath;
  /** The object under the action's name. */
  readonly request: Raw;
  readonly container: PlacedContainer;
  /** Undefined if it is a name that the container does not declare. */
  readonly port: number | undefined;
  /** The port as written in the pod. */
  readonly writtenPort: unknown;
}

/** The path of each probe in a container. */
export const PROBE_PLACES: readonly (readonly [ProbeKind, readonly string[]])[] = [
  ['livez', ['livenessProbe']],
  ['readyz', ['readinessProbe']],
  ['startupz', ['startupProbe']],
];
/** The path of each hook. */
export const HOOK_PLACES: readonly (readonly [HookKind, readonly string[]])[] = [
  ['postStart', ['lifecycle', 'postStart']],
  ['preStop', ['lifecycle', 'preStop']],
];
const ACTIONS: readonly HandlerAction[] = ['httpGet', 'tcpSocket', 'grpc'];

/** The container's probes and hooks that connect to the pod; one with an explicit host does not. */
export function handlersOf(container: PlacedContainer): Handler[] {
  return [...PROBE_PLACES, ...HOOK_PLACES].flatMap(([kind, steps]) => {
    const handler = steps.reduce<Raw>((from, step) => objectAt(from, step), container.container);
    // The API server rejects more than one action.
    const action = ACTIONS.find((known) => isRaw(handler[known]));
    if (action === undefined) return [];
    const request = objectAt(handler, action);
    if (has(request, 'host') && textAt(request, 'host') !== '') return [];
    const writtenPort = request['port'];
    const port = resolvePort(container.container, writtenPort);
    return [{ kind, action, path: [...container.path, ...steps], request, container, port, writtenPort }];
  });
}

/** Like the kubelet: a name among the container's ports, or a number, which may be a string. */
function resolvePort(container: Raw, written: unknown): number | undefined {
  const named = tcpPortsOf(container).find(({ name }) => typeof written === 'string' && name === written)?.number;
  return named ?? (hasForm(PORT_NUMBER, String(written)) ? Number(written) : undefined);
}
