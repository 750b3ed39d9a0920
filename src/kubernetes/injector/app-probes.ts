/** Has the sidecar ask an app on the loopback what the kubelet would ask it, as the kubelet comes from outside. */
import { lastingContainersOf } from './app.ts';
import type { Findings } from './findings.ts';
import { type Handler, HOOK_PLACES, handlersOf, PROBE_PLACES } from './handlers.ts';
import type { Patch } from './patch.ts';
import type { Work } from './plan.ts';
import { has, listAt, textAt } from './raw.ts';

/** Where the sidecar's admin port answers for containers of the pod. */
export const APP_HEALTH = '/app-health';

/** Points probes to the sidecar, and denies hooks; the result are its `--app-probe` values, kind by kind. */
export function rewriteProbes(work: Work): readonly string[] {
  const { pod, plan, patch } = work;
  // The app may have gone to the loopback with all its ports, and one that stays everywhere is on the loopback, too.
  const handlers = lastingContainersOf(pod)
    .flatMap(handlersOf)
    .filter(({ container, port }) => container.path.join() === plan.app.path.join() || port === plan.app.port);
  const ofKinds = (places: readonly (readonly [Handler['kind'], unknown])[]): Handler[] =>
    places.flatMap(([kind]) => handlers.filter((handler) => handler.kind === kind));
  for (const hook of ofKinds(HOOK_PLACES)) judgeHook(hook, work);
  return ofKinds(PROBE_PLACES).flatMap((handler) => {
    const { container } = handler;
    const target = toTarget(handler, work);
    if (target === undefined) return [];
    redirect(handler, plan.adminPort, patch);
    return [`${container.name}/${handler.kind}=${escapeArgument(target)}`];
  });
}

/** Asked by the sidecar, it could be set off by whoever reaches the admin port, and with the header fields of the pod's author. */
function judgeHook({ container, kind, port }: Handler, { plan, findings }: Work): void {
  const place = `the container ${container.name} (${kind})`;
  if (port === undefined) denyUndeclared(place, findings);
  else if (port === plan.app.port)
    findings.deny(
      'probe_unreachable',
      `${place} is asked on ${port}, which takeover same-port moves to the loopback, where the kubelet does not come: use exec or sleep, or another takeover`,
    );
  else findings.warn(`${place} is asked on ${port}: that port must stay open on the pod's own address`);
}

function denyUndeclared(place: string, findings: Findings): void {
  findings.deny('probe_unreachable', `${place} is asked on a port that it does not declare: write the port's number`);
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
        `${place} is asked by gRPC on ${port}, which takeover same-port moves to the loopback: use an httpGet or exec probe, or another takeover`,
      );
    else findings.warn(`${place} is asked by gRPC on ${port}: that port must stay open on the pod's own address`);
    return undefined;
  }
  if (action === 'tcpSocket') return `tcp://127.0.0.1:${port}`;
  const isTls = textAt(request, 'scheme')?.toUpperCase() === 'HTTPS';
  if (isTls && port === plan.app.port) {
    findings.deny(
      'probe_unreachable',
      `${place} is asked by HTTPS on ${port}, and the sidecar reaches the app by http: let the app speak http, or use another takeover`,
    );
    return undefined;
  }
  const path = textAt(request, 'path') ?? '/';
  const url = `${isTls ? 'https' : 'http'}://127.0.0.1:${port}${path.startsWith('/') ? '' : '/'}${path.toWellFormed().replace(/[^\x21-\x7e]/gu, encodeURIComponent)}`;
  const headers = listAt(request, 'httpHeaders').flatMap((field) => {
    const name = textAt(field, 'name');
    return name === undefined ? [] : [{ name, value: textAt(field, 'value') ?? '' }];
  });
  return headers.length === 0 ? url : JSON.stringify({ url, headers });
}

/** The kubelet puts variables into arguments, and makes one `$` of each two, wherever they stand. */
function escapeArgument(text: string): string {
  return text.replaceAll('$', '$$$$');
}

function redirect({ action, path, request, container, kind }: Handler, adminPort: number, patch: Patch): void {
  const answered = `${APP_HEALTH}/${container.name}/${kind}`;
  if (action === 'tcpSocket') {
    patch.remove([...path, action]);
    patch.set(path, {}, 'httpGet', { path: answered, port: adminPort });
    return;
  }
  const at = [...path, action];
  patch.set(at, request, 'path', answered);
  patch.set(at, request, 'port', adminPort);
  if (has(request, 'scheme') && textAt(request, 'scheme') !== 'HTTP') patch.set(at, request, 'scheme', 'HTTP');
}
