/** Redirects probes of an app on loopback to the sidecar, because the kubelet connects from outside the pod. */

import * as z from 'zod';
import { parseJson } from '../../core/json-path.ts';
import { type App, lastingContainersOf, type PlacedContainer, tcpPortsOf } from './app.ts';
import { hasForm, PORT_NUMBER } from './kubernetes-values.ts';
import { DOMAIN } from './names.ts';
import type { Findings } from './outcome.ts';
import type { Patch, PatchPath } from './patch.ts';
import type { Work } from './plan.ts';
import { has, isRaw, listAt, objectAt, type Raw, textAt } from './raw.ts';

/** Path prefix on the sidecar's admin port for probes of the pod's containers. */
export const APP_HEALTH = '/app-health';
/** JSON escapes them, and the admission policies compare it as text. */
const CONTROL = /\p{Cc}/u;

/** Of the path, the host and the headers of one probe, and of all probes of a pod: the patch repeats each character up to 18 times. */
const MAX_PROBE_LENGTH = 4_096;
const MAX_PROBES_LENGTH = 32_768;

type ProbeHeaders = readonly { readonly name: string; readonly value: string }[];

/** Where Istio redirects probes and hooks of a container, and the variable of its proxy with the original of each such path. */
const MESH_PATH = /^\/app-(?:health|lifecycle)\/[^/?]+\/[a-z]+$/;
const MESH_VARIABLE = 'ISTIO_KUBE_APP_PROBERS';

/** Denies probes and hooks of the app that the proxy of a mesh relays to the port that the app had before: now the sidecar has it. */
export function denyRelayed({ pod, plan: { app, interception }, findings }: Work): void {
  const own = new Set([app.port, ...tcpPortsOf(app.container).map(({ number }) => number)]);
  for (const { kind, request, port } of handlersOf(app)) {
    const path = textAt(request, 'path') ?? '';
    if ((port !== undefined && own.has(port)) || !MESH_PATH.test(path)) continue;
    const place = `a mesh rewrote the ${kind} of the container ${app.name}`;
    const relayed = findRelayedPort(pod, app, path);
    if (relayed === app.port || (relayed === undefined && own.size === 1))
      findings.deny(
        'probe_unreachable',
        `${place}, and its proxy would send it to the sidecar: with Istio, set sidecar.istio.io/rewriteAppHTTPProbers: "false" on the pod, or use interception mode service or rename`,
      );
    else if (relayed === undefined || interception.mode === 'same-port')
      findings.warn(`${place}: its port (${relayed ?? `which must not be ${app.port}`}) must stay open on the pod's address`);
  }
}

/** The port of a probe or hook before Istio redirected it to that path. */
function findRelayedPort(pod: Raw, app: App, path: string): number | undefined {
  const variables = lastingContainersOf(pod).flatMap(({ container }) => listAt(container, 'env'));
  const value = textAt(
    variables.find((variable) => textAt(variable, 'name') === MESH_VARIABLE),
    'value',
  );
  const original = objectAt(parseJson(value ?? '', z.unknown()), path);
  return resolvePort(
    app.container,
    ACTIONS.map((action) => objectAt(original, action)['port']).find((port) => port !== undefined),
  );
}

/** Redirects probes to the sidecar, and denies hooks. Returns the `--app-probe` values, ordered by kind. */
export function rewriteProbes(work: Work): readonly string[] {
  const { pod, plan, patch } = work;
  // The app may have moved to loopback with all its ports; a port that still listens on all addresses is reachable on loopback, too.
  const handlers = lastingContainersOf(pod)
    .flatMap(handlersOf)
    .filter(({ container, port }) => container.path.join() === plan.app.path.join() || port === plan.app.port);
  const ofKinds = (places: readonly (readonly [Handler['kind'], unknown])[]): Handler[] =>
    places.flatMap(([kind]) => handlers.filter((handler) => handler.kind === kind));
  for (const hook of ofKinds(HOOK_PLACES)) checkHook(hook, work);
  const probes = ofKinds(PROBE_PLACES);
  if (hasLong(probes, work)) return [];
  return probes.flatMap((handler) => {
    const { container } = handler;
    const target = toTarget(handler, work);
    if (target === undefined) return [];
    redirect(handler, target, plan.adminPort, patch);
    return [
      toAppProbe(`${container.name}/${handler.kind}`, target, handler.action === 'httpGet' ? readHeaders(handler.request) : []),
    ];
  });
}

/** Denies probes that are too long to be copied into the arguments and the paths of the sidecar. */
function hasLong(probes: readonly Handler[], { findings }: Work): boolean {
  const sized = probes.map((probe) => ({ probe, length: toLength(probe.request) }));
  const long = sized.filter(({ length }) => length > MAX_PROBE_LENGTH);
  for (const { probe, length } of long)
    findings.deny(
      'probe_unreachable',
      `the container ${probe.container.name} (${probe.kind}) has a path and headers of ${length} characters; the maximum is ${MAX_PROBE_LENGTH}: use a shorter path and fewer headers`,
    );
  const total = sized.reduce((sum, { length }) => sum + length, 0);
  if (long.length === 0 && total > MAX_PROBES_LENGTH)
    findings.deny(
      'probe_unreachable',
      `the probes of the pod have paths and headers of ${total} characters in total; the maximum is ${MAX_PROBES_LENGTH}: use shorter paths and fewer headers`,
    );
  return total > MAX_PROBES_LENGTH || long.length > 0;
}

function toLength(request: Raw): number {
  const texts = ['path', 'host', 'scheme'].map((key) => textAt(request, key) ?? '');
  // As in the JSON of an argument.
  const headers = readHeaders(request).map((header) => JSON.stringify(header));
  return [...texts, ...headers].reduce((sum, { length }) => sum + length, 0);
}

/** Hooks are not redirected: anyone who can reach the admin port could trigger them, with the headers in the pod's spec. */
function checkHook({ container, kind, port }: Handler, { plan, findings }: Work): void {
  const place = `the container ${container.name} (${kind})`;
  if (port === undefined) denyUndeclared(place, findings);
  else if (port === plan.app.port)
    findings.deny(
      'probe_unreachable',
      `${place} uses port ${port}, which interception mode same-port moves to loopback, where the kubelet cannot connect: use exec or sleep, or another interception mode`,
    );
  else findings.warn(`${place} uses port ${port}: that port must stay open on the pod's address`);
}

function denyUndeclared(place: string, findings: Findings): void {
  findings.deny('probe_unreachable', `${place} uses the name of a port that it does not declare: write the port's number`);
}

function toTarget(handler: Handler, { plan, findings }: Work): string | undefined {
  const { action, request, port, container, kind } = handler;
  const place = `the container ${container.name} (${kind})`;
  if (port === undefined) {
    denyUndeclared(place, findings);
    return undefined;
  }
  if (action === 'grpc') {
    if (port === plan.app.port)
      findings.deny(
        'probe_unreachable',
        `${place} uses gRPC on port ${port}, which interception mode same-port moves to loopback: use an httpGet or exec probe, or another interception mode`,
      );
    else findings.warn(`${place} uses gRPC on port ${port}: that port must stay open on the pod's address`);
    return undefined;
  }
  // From inside of the pod, anyone who reaches the admin port could stop the sidecar by a probe of `/prestop`.
  if (port === plan.adminPort) {
    findings.deny(
      'probe_unreachable',
      `${place} uses port ${port}, which is the admin port of the sidecar: use a port of the app, or set ${DOMAIN}/admin-port to another`,
    );
    return undefined;
  }
  if (action === 'tcpSocket') return `tcp://127.0.0.1:${port}`;
  const isTls = textAt(request, 'scheme')?.toUpperCase() === 'HTTPS';
  if (isTls && port === plan.app.port) {
    findings.deny(
      'probe_unreachable',
      `${place} uses HTTPS on port ${port}, but the sidecar connects to the app over HTTP: serve HTTP in the app, or use another interception mode`,
    );
    return undefined;
  }
  const path = textAt(request, 'path') ?? '/';
  const url = `${isTls ? 'https' : 'http'}://127.0.0.1:${port}${path.startsWith('/') ? '' : '/'}${path.toWellFormed().replace(/[^\x21-\x7e]/gu, encodeURIComponent)}`;
  if (readHeaders(request).some(({ value }) => CONTROL.test(value))) {
    findings.deny('probe_unreachable', `${place} has a header with a control character: remove it`);
    return undefined;
  }
  return url;
}

/** Whether the URL of a probe has that port. */
export function isProbeOf(port: number, url: string): boolean {
  return url.split('/', 3)[2] === `127.0.0.1:${port}`;
}

/** The headers of a probe. */
export function readHeaders(request: Raw): ProbeHeaders {
  return listAt(request, 'httpHeaders').flatMap((field) => {
    const name = textAt(field, 'name');
    return name === undefined ? [] : [{ name, value: textAt(field, 'value') ?? '' }];
  });
}

/** The value of `--app-probe`, for a probe `CONTAINER/KIND`. */
export function toAppProbe(probe: string, url: string, headers: ProbeHeaders): string {
  return `${probe}=${escapeArgument(headers.length === 0 ? url : JSON.stringify({ url, headers }))}`;
}

/** The kubelet expands variables in arguments, and replaces every `$$` with `$`. */
function escapeArgument(text: string): string {
  return text.replaceAll('$', '$$$$');
}

/** The sidecar ignores the target after `?`. The check compares it with the arguments: the sidecar requests only what a probe of the pod names. */
function redirect({ action, path, request, container, kind }: Handler, target: string, adminPort: number, patch: Patch): void {
  const healthPath = `${APP_HEALTH}/${container.name}/${kind}?${target}`;
  if (action === 'tcpSocket') {
    patch.remove([...path, action]);
    patch.set(path, {}, 'httpGet', { path: healthPath, port: adminPort });
    return;
  }
  const at = [...path, action];
  patch.set(at, request, 'path', healthPath);
  patch.set(at, request, 'port', adminPort);
  if (has(request, 'scheme') && textAt(request, 'scheme') !== 'HTTP') patch.set(at, request, 'scheme', 'HTTP');
}

// Probes and lifecycle hooks that the kubelet runs over the network, with their paths in the pod.

/** A probe, named by the last segment of its URL path on the sidecar. */
type ProbeKind = 'livez' | 'readyz' | 'startupz';
/** A lifecycle hook, by its name in Kubernetes; only the kubelet may trigger it. */
type HookKind = 'postStart' | 'preStop';
/** The type of request. */
type HandlerAction = 'httpGet' | 'tcpSocket' | 'grpc';

/** One probe or hook. */
interface Handler {
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
