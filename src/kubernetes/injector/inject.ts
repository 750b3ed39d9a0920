/** The entry point of the injector: takes a pod as raw JSON, and returns the smallest patch that adds the sidecar. */

import { trimEnd } from '../../core/text.ts';
import { containersOf, findApp, lastingContainersOf, tcpPortsOf, warnOfOtherPorts, warnOfUndeclaredPort } from './app.ts';
import { denyRelayed, handlersOf, rewriteProbes } from './app-probes.ts';
import { APP_PORT_MODES, addQuantities, type InterceptionMode, MAX_NAME_LENGTH } from './kubernetes-values.ts';
import { CONTAINER, DOMAIN, INJECT_LABEL, INJECTED_LABEL, STATUS_ANNOTATION } from './names.ts';
import { findTaken, type IsOfApp, type TakenResource } from './other-containers.ts';
import { type DenyReason, Findings, type InjectContext, type Injection } from './outcome.ts';
import { Patch } from './patch.ts';
import { type Plan, toPlan, type Work } from './plan.ts';
import { has, isRaw, listAt, objectAt, type Raw, textAt } from './raw.ts';
import { readSettings } from './settings.ts';
import { delayStop } from './shutdown.ts';
import { CONTAINER_SHAPE, fill, type SidecarValues, VOLUMES_SHAPE } from './sidecar.ts';
import { findDifferences, findPodFaults, SHARING } from './sidecar-check.ts';
import { isSidecarVolume } from './sidecar-rules.ts';
import { type InjectionStatus, readStatus, toDefaultsHash } from './status.ts';

/** The admission policies have a smaller limit. */
const MAX_CONTAINERS = 128;

/** Injects the sidecar into `pod`. Never throws, for any value. A pod that already has the sidecar is skipped. */
export function injectPod(pod: unknown, context: InjectContext): Injection {
  const findings = new Findings();
  if (!isRaw(pod) || containersOf(pod, 'containers').length === 0)
    return { outcome: 'denied', reason: 'malformed', message: 'not a pod: it has no spec.containers' };
  const label = findLabel(pod);
  if (label !== undefined) return label;
  const oversize = findOversize(pod);
  if (oversize !== undefined) return { outcome: 'denied', reason: 'malformed', message: oversize };
  return findEarlier(pod, context) ?? inject(pod, context, findings) ?? toDenied(findings);
}

function findLabel(pod: Raw): Injection | undefined {
  const value = objectAt(objectAt(pod, 'metadata'), 'labels')[INJECT_LABEL];
  if (value === 'true') return undefined;
  if (value === undefined || value === 'false')
    return { outcome: 'skipped', reason: 'not_labelled', message: `the pod has no label ${INJECT_LABEL}: "true"` };
  const message = `the label ${INJECT_LABEL} is ${JSON.stringify(value)}: write "true" (in quotes), or remove the label`;
  return { outcome: 'denied', reason: 'invalid_setting', message };
}

/** A pod with the label and annotation of an injected pod must contain what the injector creates, or it is denied: anyone can copy them. */
function findEarlier(pod: Raw, { defaults }: InjectContext): Injection | undefined {
  if (readStatus(pod) === undefined) return undefined;
  const differences = findDifferences(pod, defaults);
  if (differences === undefined) return undefined;
  const faults = [...findPodFaults(pod).map(({ text }) => text), ...differences];
  if (faults.length === 0) return { outcome: 'skipped', reason: 'already_injected', message: 'the pod already has the sidecar' };
  // Webhooks that were built for older APIs drop unknown fields; without this one the pod would never finish starting.
  const isLost = faults.length === 1 && differences[0] === 'restartPolicy';
  const message = isLost
    ? 'the injected sidecar has no restartPolicy: Always, probably because another admission webhook removed it: update that webhook'
    : `the pod has a container ${CONTAINER} that is not the one that sidegate injects (${faults.join(', ')}): remove it and let the injector add it, or rename it`;
  return { outcome: 'denied', reason: 'sidecar_damaged', message };
}

function inject(pod: Raw, context: InjectContext, findings: Findings): Injection | undefined {
  checkForm(pod, findings);
  checkPod(pod, context, findings);
  const read = readSettings(pod);
  if ('problems' in read) {
    for (const problem of read.problems) findings.deny('invalid_setting', problem);
    return undefined;
  }
  for (const warning of read.warnings) findings.warn(warning);
  const app = findApp(pod, read.settings);
  if ('problem' in app) {
    findings.deny('app_unclear', app.problem);
    return undefined;
  }
  for (const warning of [warnOfUndeclaredPort(app), warnOfOtherPorts(pod, app)])
    if (warning !== undefined) findings.warn(warning);
  const plan = toPlan(app, { pod, settings: read.settings, context, findings });
  checkOthers(pod, plan, findings);
  const patch = new Patch();
  const work = { pod, plan, patch, findings };
  const appProbes = intercept(work);
  const pause = delayStop(work, context);
  raiseResources(work);
  if (findings.denial !== undefined) return undefined;
  addSidecar(pod, plan, toValues(plan, appProbes, pause), patch);
  mark(pod, plan, context, patch);
  return {
    outcome: 'injected',
    patch: patch.operations,
    warnings: findings.warnings,
    summary: toSummary(plan),
    interception: plan.interception.mode,
  };
}

function toDenied(findings: Findings): Injection {
  const { reason, message } = findings.denial ?? { reason: 'malformed', message: 'the pod cannot be parsed' };
  return { outcome: 'denied', reason, message };
}

function toValues(plan: Plan, appProbes: readonly string[], pause: number): SidecarValues {
  const isOnPodAddresses = plan.interception.mode === 'same-port';
  return {
    image: plan.image,
    imagePullPolicy: plan.imagePullPolicy,
    isNative: plan.isNative,
    isOnPodAddresses,
    isOnAllAddresses: !isOnPodAddresses,
    port: plan.port,
    adminPort: plan.adminPort,
    portName: plan.portName,
    appPort: plan.appPort,
    config: plan.config,
    secrets: plan.secrets.map((secret, index) => ({ secret, number: index + 1 })),
    queueVolume: plan.queueVolume,
    appProbes: appProbes.map((appProbe) => ({ appProbe })),
    cpuRequest: plan.cpuRequest,
    memoryRequest: plan.memoryRequest,
    cpuLimit: plan.cpuLimit,
    memoryLimit: plan.memoryLimit,
    pause,
  };
}

function addSidecar(pod: Raw, plan: Plan, values: SidecarValues, patch: Patch): void {
  const spec = objectAt(pod, 'spec');
  patch.append(['spec', 'volumes'], has(spec, 'volumes'), fill(VOLUMES_SHAPE, values) as unknown[]);
  const known = new Set(listAt(spec, 'imagePullSecrets').map((secret) => textAt(secret, 'name')));
  const missing = plan.pullSecrets.filter((name) => !known.has(name));
  patch.append(
    ['spec', 'imagePullSecrets'],
    has(spec, 'imagePullSecrets'),
    missing.map((name) => ({ name })),
  );
  const container = fill(CONTAINER_SHAPE, values);
  if (plan.isNative) patch.prepend(['spec', 'initContainers'], has(spec, 'initContainers'), container);
  else patch.append(['spec', 'containers'], true, [container]);
}

function mark(pod: Raw, plan: Plan, { version, defaults }: InjectContext, patch: Patch): void {
  const metadata = objectAt(pod, 'metadata');
  const status: InjectionStatus = {
    version,
    takeover: plan.interception.mode,
    sidecar: plan.isNative ? 'native' : 'container',
    hash: toDefaultsHash(defaults),
  };
  patch.set(['metadata', 'labels'], objectAt(metadata, 'labels'), INJECTED_LABEL, 'true');
  patch.set(['metadata', 'annotations'], objectAt(metadata, 'annotations'), STATUS_ANNOTATION, JSON.stringify(status));
}

function toSummary({ app, interception, isNative, port, appPort }: Plan): string {
  const kind = isNative ? 'native sidecar' : 'sidecar container';
  return `${kind} on port ${port} in front of ${app.name} on port ${appPort} (interception mode ${interception.mode})`;
}

/** Denies pods that the API server would also reject as malformed. */
function checkForm(pod: Raw, findings: Findings): void {
  const spec = objectAt(pod, 'spec');
  const metadata = objectAt(pod, 'metadata');
  const malformed = [
    ...findMalformed('spec', spec, {
      lists: ['containers', 'initContainers', 'ephemeralContainers', 'volumes', 'imagePullSecrets'],
      maps: [],
    }),
    ...findMalformed('metadata', metadata, { lists: [], maps: ['labels', 'annotations'] }),
    ...lastingContainersOf(pod).flatMap(({ container, path }) =>
      findMalformed(path.join('.'), container, { lists: ['env', 'ports'], maps: ['lifecycle'] }),
    ),
  ];
  for (const problem of malformed) findings.deny('malformed', `not a valid pod: ${problem}`);
}

/**
 * Why a pod is not read at all. The API server checks names only after the webhooks: a patch and messages that repeat long ones, once for each
 * port, mount or probe, would exceed the memory of the injector.
 */
function findOversize(pod: Raw): string | undefined {
  const spec = objectAt(pod, 'spec');
  const containers = [...containersOf(pod, 'initContainers'), ...containersOf(pod, 'containers')];
  if (containers.length > MAX_CONTAINERS)
    return `the pod has ${containers.length} containers; the maximum is ${MAX_CONTAINERS}: remove some`;
  const lists = [
    ...['initContainers', 'containers', 'ephemeralContainers', 'volumes'].map((list) => listAt(spec, list)),
    ...containers.flatMap(({ container }) => ['ports', 'volumeMounts', 'volumeDevices'].map((list) => listAt(container, list))),
  ];
  const isLong = (item: unknown): boolean => (textAt(item, 'name') ?? '').length > MAX_NAME_LENGTH;
  if (!lists.some((list) => list.some(isLong))) return undefined;
  return `not a valid pod: the name of a container, port, volume or mount has more than ${MAX_NAME_LENGTH} characters: shorten it`;
}

interface Expected {
  readonly lists: readonly string[];
  readonly maps: readonly string[];
}

function findMalformed(place: string, from: Raw, { lists, maps }: Expected): string[] {
  const wrongLists = lists.filter((key) => has(from, key) && !Array.isArray(from[key]));
  const wrongMaps = maps.filter((key) => has(from, key) && !isRaw(from[key]));
  return [
    ...wrongLists.map((key) => `${place}.${key} is not a list`),
    ...wrongMaps.map((key) => `${place}.${key} is not an object`),
  ];
}

// Changes the app's containers so that the sidecar intercepts its requests, by mode.

const MAX_PORT_NAME_LENGTH = 15;
const DASH = new Set('-');
const LOOPBACK = '127.0.0.1';

const MODES: Readonly<Record<InterceptionMode, (work: Work) => readonly string[]>> = {
  service: warnOfHostPort,
  rename: renamePort,
  'same-port': moveToLoopback,
  env: moveToPort,
};

/** Changes the app's containers, and returns the sidecar's `--app-probe` values. */
function intercept(work: Work): readonly string[] {
  const { mode } = work.plan.interception;
  if (APP_PORT_MODES.includes(mode)) denyRelayed(work);
  return MODES[mode](work);
}

function warnOfHostPort({ plan: { app }, findings }: Work): readonly string[] {
  const hostPort = app.declared?.hostPort;
  if (hostPort !== undefined && hostPort !== 0)
    findings.warn(`hostPort ${hostPort} bypasses the sidecar: remove it, or use interception mode same-port or env`);
  return [];
}

function renamePort(work: Work): readonly string[] {
  const { plan, patch, findings } = work;
  const { declared, name, path, container } = plan.app;
  if (declared?.name === undefined) {
    findings.deny(
      'app_unclear',
      `interception mode rename requires a named port: name port ${plan.app.port} of the container ${name} like the targetPort of the Service`,
    );
    return [];
  }
  warnOfHostPort(work);
  for (const other of tcpPortsOf(container))
    if (other.number === declared.number && other.index !== declared.index && other.name !== undefined)
      findings.warn(
        `port ${other.number} of the container ${name} also has the name ${other.name}, which still refers to the app: a Service that targets it bypasses the sidecar`,
      );
  const renamed = toFreeName(declared.name, container);
  patch.set([...path, 'ports', declared.index], listAt(container, 'ports')[declared.index], 'name', renamed);
  for (const handler of handlersOf(plan.app))
    if (handler.writtenPort === declared.name) patch.set([...handler.path, handler.action], handler.request, 'port', renamed);
  return [];
}

/** `http` → `http-app`, within the maximum length of a port name (RFC 6335 §5.1). */
function toFreeName(name: string, container: Raw): string {
  const taken = new Set(listAt(container, 'ports').map((port) => textAt(port, 'name')));
  for (let number = 1; ; number++) {
    const ending = number === 1 ? '-app' : `-app${number}`;
    const free = trimEnd(name.slice(0, MAX_PORT_NAME_LENGTH - ending.length), DASH) + ending;
    if (!taken.has(free)) return free;
  }
}

function moveToLoopback(work: Work): readonly string[] {
  const { variable } = work.plan.interception;
  if (variable !== undefined) setVariable(work, variable, LOOPBACK);
  return rewriteProbes(work);
}

function moveToPort(work: Work): readonly string[] {
  const { pod, plan, patch } = work;
  setVariable(work, plan.interception.variable ?? 'PORT', String(plan.appPort));
  for (const container of lastingContainersOf(pod))
    for (const handler of handlersOf(container))
      if (handler.port === plan.app.port) patch.set([...handler.path, handler.action], handler.request, 'port', plan.appPort);
  return [];
}

/** If a variable is set twice, the last value counts. A new one comes first, so that others can refer to it: `$(PORT)`. */
function setVariable({ plan: { app }, patch, findings }: Work, name: string, value: string): void {
  const env = listAt(app.container, 'env');
  const index = env.findLastIndex((entry) => textAt(entry, 'name') === name);
  const found = env[index];
  const path = [...app.path, 'env'];
  if (index === -1) patch.prepend(path, has(app.container, 'env'), { name, value });
  else if (has(found, 'valueFrom'))
    findings.deny(
      'invalid_setting',
      `the variable ${name} of the container ${app.name} uses valueFrom, but ${DOMAIN}/interception has to set it: remove the variable from the container`,
    );
  else if (textAt(found, 'value') !== value) patch.set([...path, index], found, 'value', value);
}

// Adds the sidecar's resources to those of the pod, if it has some for all of its containers together.

/** Adds the sidecar's requests and limits to those that the pod sets for all of its containers; the others stay unset. */
function raiseResources({ pod, plan, patch, findings }: Work): void {
  const resources = objectAt(objectAt(pod, 'spec'), 'resources');
  const added = [
    ['requests', 'cpu', plan.cpuRequest],
    ['requests', 'memory', plan.memoryRequest],
    // Without a CPU limit, the sidecar still needs room for its request.
    ['limits', 'cpu', plan.cpuLimit ?? plan.cpuRequest],
    ['limits', 'memory', plan.memoryLimit],
  ] as const;
  for (const [list, kind, own] of added) {
    const current: Raw = objectAt(resources, list);
    if (!has(current, kind)) continue;
    const sum = addQuantities(String(current[kind]), own, kind);
    if (sum === undefined) findings.deny('malformed', `not a valid pod: spec.resources.${list}.${kind} is not a quantity`);
    else patch.set(['spec', 'resources', list], current, kind, sum);
  }
}

// Denies pods that cannot be protected, or that already use names or ports of the sidecar.

const OS_LABEL = 'kubernetes.io/os';
/** The API group of Knative Services, and the prefix of their labels. */
export const KNATIVE = 'serving.knative.dev/';
/** Why a pod of Knative is denied. */
export const KNATIVE_MESSAGE =
  'the pod belongs to a Knative Service, which rejects the fields of the sidecar in its template, and whose queue-proxy sends requests to the app directly: run a gate as a separate Deployment in front of the Knative Service';

/** Checks for problems that no setting can fix. */
function checkPod(pod: Raw, context: InjectContext, findings: Findings): void {
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
function checkOthers(pod: Raw, plan: Plan, findings: Findings): void {
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
