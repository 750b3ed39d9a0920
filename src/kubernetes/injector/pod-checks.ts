/** Pods that cannot be protected, or that hold what the sidecar would need. */
import { type App, lastingContainersOf, tcpPortsOf } from './app.ts';
import type { Findings } from './findings.ts';
import { ADMIN_PORT, CONFIG_VOLUME, CONTAINER, DOMAIN, NO_TOKEN_VOLUME, SECRET_VOLUME } from './names.ts';
import { type Plan, takesAppPort } from './plan.ts';
import { listAt, objectAt, type Raw, textAt } from './raw.ts';
import { SHARING } from './sidecar-check.ts';

/** What no setting can mend. */
export function checkPod(pod: Raw, findings: Findings): void {
  const spec = objectAt(pod, 'spec');
  if (spec['hostNetwork'] === true)
    findings.deny(
      'host_network',
      'the pod uses hostNetwork: the app would be reached on the node past the sidecar; take hostNetwork away',
    );
  for (const key of SHARING)
    if (spec[key] === true)
      findings.deny(
        'shared_processes',
        `the pod has ${key}: true, so other containers could read the secrets of the sidecar in its memory, or end it and take its port; take ${key} away`,
      );
  const system = textAt(objectAt(spec, 'os'), 'name') ?? textAt(objectAt(spec, 'nodeSelector'), 'kubernetes.io/os');
  if (system === 'windows')
    findings.deny('windows', 'the pod is for Windows, and the sidecar runs on Linux only: put a Linux gate before it');
  for (const list of ['containers', 'initContainers', 'ephemeralContainers'])
    if (listAt(spec, list).some((container) => textAt(container, 'name') === CONTAINER))
      findings.deny('name_taken', `the pod has a container named ${CONTAINER} that is not the injected one: name it otherwise`);
  for (const volume of listAt(spec, 'volumes')) {
    const name = textAt(volume, 'name') ?? '';
    if (name === CONFIG_VOLUME || name === NO_TOKEN_VOLUME || name.startsWith(SECRET_VOLUME))
      findings.deny('name_taken', `the pod has a volume named ${name}, which the sidecar needs: name it otherwise`);
  }
}

/** Ports of the sidecar that somebody else in the pod has. */
export function checkPorts(pod: Raw, plan: Plan, findings: Findings): void {
  const { app, takeover, port, adminPort, appPort } = plan;
  const takes = takesAppPort(takeover);
  const isMoved = takeover.mode === 'env';
  if (port === adminPort)
    findings.deny('port_taken', `the sidecar's data port and its admin port are both ${port}: set ${DOMAIN}/admin-port`);
  else if (adminPort === app.port || (isMoved && adminPort === appPort))
    findings.deny('port_taken', `the app listens on ${adminPort}, the sidecar's admin port: set ${DOMAIN}/admin-port to another`);
  if (!takes && port === app.port)
    findings.deny('port_taken', `the app listens on ${port}, the sidecar's data port: set ${DOMAIN}/port to another`);
  if (isMoved && appPort === app.port)
    findings.deny('port_taken', `the app listens on ${appPort} already, where takeover env would move it: use another takeover`);
  const settings = new Map([
    ...(isMoved ? ([[appPort, 'takeover']] as const) : []),
    [port, takes ? 'app-port' : 'port'],
    [adminPort, 'admin-port'],
  ]);
  for (const { number, container, isApp } of portsOf(pod, app)) {
    const setting = settings.get(number);
    if (setting !== undefined && !(isApp && number === app.port))
      findings.deny(
        'port_taken',
        `the container ${container} has port ${number}, which the sidecar needs: change it, or ${DOMAIN}/${setting}`,
      );
  }
}

function portsOf(pod: Raw, app: App) {
  return lastingContainersOf(pod).flatMap(({ container, name, path }) =>
    tcpPortsOf(container).map((declared) => ({ ...declared, container: name, isApp: path.join() === app.path.join() })),
  );
}

/** A Service finds a name in the app's containers before it looks at native sidecars, so it must not stand there. */
export function checkPortNames(pod: Raw, plan: Plan, findings: Findings): void {
  const { app, portName, takeover } = plan;
  for (const { name, index, container, isApp } of portsOf(pod, app)) {
    const isRenamed = takeover.mode === 'rename' && isApp && index === app.declared?.index;
    if (!isRenamed && (name === portName || name === ADMIN_PORT))
      findings.deny(
        'name_taken',
        `the container ${container} has a port named ${name}, which is the sidecar's: name it otherwise`,
      );
  }
}
