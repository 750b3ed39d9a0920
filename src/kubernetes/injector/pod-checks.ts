/** Denies pods that cannot be protected, or that already use names or ports of the sidecar. */

import { APP_PORT_MODES } from './kubernetes-values.ts';
import { CONTAINER, DOMAIN } from './names.ts';
import { findTaken, type IsOfApp, type TakenResource } from './other-containers.ts';
import type { DenyReason, Findings, InjectContext } from './outcome.ts';
import type { Plan } from './plan.ts';
import { has, listAt, objectAt, type Raw, textAt } from './raw.ts';
import { SHARING } from './sidecar-check.ts';
import { isSidecarVolume } from './sidecar-rules.ts';

const OS_LABEL = 'kubernetes.io/os';
/** The API group of Knative Services, and the prefix of their labels. */
export const KNATIVE = 'serving.knative.dev/';
/** Why a pod of Knative is denied. */
export const KNATIVE_MESSAGE =
  'the pod belongs to a Knative Service, which rejects the fields of the sidecar in its template, and whose queue-proxy sends requests to the app directly: run a gate as a separate Deployment in front of the Knative Service';

/** Checks for problems that no setting can fix. */
export function checkPod(pod: Raw, context: InjectContext, findings: Findings): void {
  const spec = objectAt(pod, 'spec');
  if (spec['hostNetwork'] === true)
    findings.deny(
      'host_network',
      'the pod uses hostNetwork: clients could bypass the sidecar on the network of the node; remove hostNetwork',
    );
  for (const key of SHARING)
    if (spec[key] === true)
      findings.deny(
        'shared_processes',
        `the pod has ${key}: true, so other containers could read the secrets in the sidecar's memory, or end it and use its port; remove ${key}`,
      );
  if (isForWindows(spec))
    findings.deny('windows', 'the pod is for Windows, but the sidecar runs only on Linux: run a gate on Linux in front of it');
  if (isOfKnative(pod, context)) findings.deny('knative', KNATIVE_MESSAGE);
  for (const list of ['containers', 'initContainers', 'ephemeralContainers'])
    if (listAt(spec, list).some((container) => textAt(container, 'name') === CONTAINER))
      findings.deny('name_taken', `the pod has a container named ${CONTAINER} that is not the injected one: rename it`);
  for (const volume of listAt(spec, 'volumes')) {
    const name = textAt(volume, 'name') ?? '';
    if (isSidecarVolume(name))
      findings.deny('name_taken', `the pod has a volume named ${name}, which is reserved for the sidecar: rename it`);
  }
}

/** Whether a field of the pod or of a container makes sense only on Windows. */
function isForWindows(spec: Raw): boolean {
  const system = textAt(objectAt(spec, 'os'), 'name') ?? textAt(objectAt(spec, 'nodeSelector'), OS_LABEL);
  if (system !== undefined) return system === 'windows';
  const { requiredDuringSchedulingIgnoredDuringExecution: required } = objectAt(objectAt(spec, 'affinity'), 'nodeAffinity');
  const terms = listAt(required, 'nodeSelectorTerms');
  const isWindowsTerm = (term: unknown): boolean =>
    listAt(term, 'matchExpressions').some(
      (each) =>
        textAt(each, 'key') === OS_LABEL && textAt(each, 'operator') === 'In' && listAt(each, 'values').join() === 'windows',
    );
  return (
    [spec, ...listAt(spec, 'containers')].some((each) => has(objectAt(each, 'securityContext'), 'windowsOptions')) ||
    (terms.length > 0 && terms.every(isWindowsTerm))
  );
}

/** Knative copies its labels to the pods of a Revision; a template has an owner of its API group instead. */
function isOfKnative(pod: Raw, { template }: InjectContext): boolean {
  const labels = Object.keys(objectAt(objectAt(pod, 'metadata'), 'labels'));
  return template?.apiVersion?.startsWith(KNATIVE) === true || labels.some((name) => name.startsWith(KNATIVE));
}

/** Checks for ports of the sidecar that are equal, and for anything of the sidecar that other containers of the pod have. */
export function checkOthers(pod: Raw, plan: Plan, findings: Findings): void {
  const { app, interception, port, adminPort, appPort, portName, queueVolume } = plan;
  const takes = APP_PORT_MODES.includes(interception.mode);
  const isMoved = interception.mode === 'env';
  if (port === adminPort)
    findings.deny('port_taken', `the sidecar's data port and its admin port are both ${port}: set ${DOMAIN}/admin-port`);
  else if (adminPort === app.port || (isMoved && adminPort === appPort))
    findings.deny('port_taken', `the app listens on ${adminPort}, the sidecar's admin port: set ${DOMAIN}/admin-port to another`);
  if (!takes && port === app.port)
    findings.deny('port_taken', `the app listens on ${port}, the sidecar's data port: set ${DOMAIN}/port to another`);
  if (isMoved && appPort === app.port)
    findings.deny(
      'port_taken',
      `the app already listens on ${appPort}, the port that interception mode env would move it to: use another interception mode`,
    );
  const settings = new Map([
    ...(isMoved ? ([[appPort, 'interception']] as const) : []),
    [port, takes ? 'app-port' : 'port'],
    [adminPort, 'admin-port'],
  ]);
  const isApp: IsOfApp = ({ path }, { number, index }) =>
    path.join() === app.path.join() && (interception.mode === 'rename' ? index === app.declared?.index : number === app.port);
  for (const taken of findTaken(pod, { portName, ports: [...settings.keys()], queueVolume }, isApp))
    findings.deny(...toDenial(taken, settings.get(Number(taken.what)), queueVolume));
}

function toDenial(
  { kind, container, what }: TakenResource,
  setting: string | undefined,
  queueVolume: string | undefined,
): [DenyReason, string] {
  switch (kind) {
    case 'port':
      return [
        'port_taken',
        `the container ${container} uses port ${what}, which the sidecar needs: change it, or ${DOMAIN}/${setting}; if it is an init container, remove the port`,
      ];
    // A Service resolves port names in the app's containers before native sidecars, so the sidecar's names must not be there, by any protocol.
    case 'port name':
      return ['name_taken', `the container ${container} has a port named ${what}, which is reserved for the sidecar: rename it`];
    case 'user':
      return [
        'port_taken',
        `the container ${container} runs as user ${what}, which is the user of the sidecar: with workers, it could take a share of the sidecar's connections; set securityContext.runAsUser to another`,
      ];
    case 'volume':
      return isSidecarVolume(what)
        ? [
            'name_taken',
            `the container ${container} mounts ${what}, a volume that is reserved for the sidecar: use a separate volume`,
          ]
        : [
            'invalid_setting',
            `the container ${container} mounts the volume ${what}${what === queueVolume ? ' of' : ', which has the claim of'} ${DOMAIN}/queue-volume, so it could change queued events and read secrets of endpoints: use a separate volume`,
          ];
  }
}
