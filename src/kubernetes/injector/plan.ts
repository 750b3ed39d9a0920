/** Plans a pod's sidecar from the pod's annotations and the injector's defaults. */

import { type App, containersOf } from './app.ts';
import type { SidecarDefaults } from './injector-config.ts';
import { APP_PORT_MODES, type Interception, isAbove, toNanos } from './kubernetes-values.ts';
import { DATA_PORT, DOMAIN } from './names.ts';
import { type Findings, type InjectContext, isAtLeast } from './outcome.ts';
import type { Patch } from './patch.ts';
import { checkQueueVolume } from './queue-volume.ts';
import { has, listAt, objectAt, type Raw, textAt } from './raw.ts';
import type { PodSettings } from './settings.ts';
import { isAllowedImage } from './sidecar-rules.ts';

/** The planned sidecar. */
export interface Plan {
  readonly app: App;
  readonly interception: Interception;
  readonly isNative: boolean;
  /** The sidecar's data port. */
  readonly port: number;
  readonly portName: string;
  readonly adminPort: number;
  /** The port on which the sidecar connects to the app. */
  readonly appPort: number;
  readonly preStopSeconds: number;
  readonly image: string;
  readonly imagePullPolicy: string;
  readonly pullSecrets: readonly string[];
  readonly config: string;
  readonly secrets: readonly string[];
  /** The volume of the queue. */
  readonly queueVolume: string | undefined;
  readonly cpuRequest: string;
  readonly memoryRequest: string;
  readonly cpuLimit: string | undefined;
  readonly memoryLimit: string;
}

/** Native sidecars are enabled by default from this minor version on (KEP-753). */
const NATIVE_SINCE = 29;
/** From this minor version on, Services resolve named ports of native sidecars (kubernetes/kubernetes#128850). */
const NATIVE_NAMED_PORTS_SINCE = 33;
const FIRST_UNPRIVILEGED_PORT = 1024;

/** The input of a plan. */
interface PlanInput {
  readonly pod: Raw;
  readonly settings: PodSettings;
  readonly context: InjectContext;
  readonly findings: Findings;
}

/** A plan in progress: the pod, the patch and the findings. */
export interface Work {
  readonly pod: Raw;
  readonly plan: Plan;
  readonly patch: Patch;
  readonly findings: Findings;
}

/** Plans the sidecar. */
export function toPlan(app: App, input: PlanInput): Plan {
  const { settings, context, findings } = input;
  const { defaults } = context;
  const interception = settings.interception ?? defaults.interception;
  const plan = {
    app,
    interception,
    isNative: decideNative(interception, input),
    port: decidePort(app, interception, input),
    portName: interception.mode === 'rename' ? (app.declared?.name ?? DATA_PORT) : DATA_PORT,
    adminPort: settings.adminPort ?? defaults.adminPort,
    appPort: interception.mode === 'env' ? defaults.movedPort : app.port,
    preStopSeconds: settings.preStop ?? defaults.preStop,
    image: settings.image ?? defaults.image,
    imagePullPolicy: defaults.imagePullPolicy,
    pullSecrets: [...new Set([...(settings.imagePullSecrets ?? []), ...defaults.imagePullSecrets])],
    config: settings.config,
    secrets: settings.secrets ?? [],
    queueVolume: settings.queueVolume,
    ...toResources(settings, defaults),
  };
  checkResources(plan, findings);
  warnOfQos(plan, input);
  checkImage(plan.image, input);
  checkQueueVolume(input);
  warnOfPullSecrets(plan.pullSecrets, input);
  for (const low of [plan.port, plan.adminPort])
    if (low < FIRST_UNPRIVILEGED_PORT)
      findings.warn(
        `the sidecar listens on port ${low}: nodes must allow this for containers without root (ip_unprivileged_port_start)`,
      );
  return plan;
}

/** The admission policy would also deny the pod, but its message could not name the annotation. */
function checkImage(image: string, { context: { defaults }, findings }: PlanInput): void {
  if (isAllowedImage(image, defaults.allowedImages)) return;
  findings.deny(
    'invalid_setting',
    `the sidecar's image ${image} is not allowed (allowed: ${defaults.allowedImages?.join(', ')}): remove the annotation ${DOMAIN}/image, or ask the cluster's administrator to add the repository to admission.allowedImages of the chart`,
  );
}

/** In a cluster, the admission of ServiceAccounts has already added them when the webhook is called. */
function warnOfPullSecrets(added: readonly string[], { pod, context, findings }: PlanInput): void {
  const spec = objectAt(pod, 'spec');
  if (context.isOffline !== true || added.length === 0 || listAt(spec, 'imagePullSecrets').length > 0) return;
  const account = textAt(spec, 'serviceAccountName') ?? 'default';
  findings.warn(
    `the pod had no imagePullSecrets, so it used those of the ServiceAccount ${account}, and with ${added.join(', ')} it no longer does: list those of the ServiceAccount in the pod as well, or add ${added.join(', ')} to the ServiceAccount instead`,
  );
}

function decidePort(app: App, interception: Interception, { settings, context, findings }: PlanInput): number {
  if (!APP_PORT_MODES.includes(interception.mode)) return settings.port ?? context.defaults.port;
  if (settings.port !== undefined && settings.port !== app.port)
    findings.deny(
      'invalid_setting',
      `${DOMAIN}/port is ${settings.port}, but with interception mode ${interception.mode} the sidecar uses the app's port ${app.port}: remove ${DOMAIN}/port`,
    );
  return app.port;
}

function toResources(settings: PodSettings, { resources: { requests, limits } }: SidecarDefaults) {
  return {
    cpuRequest: settings.cpuRequest ?? requests.cpu,
    memoryRequest: settings.memoryRequest ?? requests.memory,
    cpuLimit: settings.cpuLimit ?? limits.cpu,
    memoryLimit: settings.memoryLimit ?? limits.memory,
  };
}

/** The API server would also reject it, but its message would refer to a container that the pod's owner did not write. */
function checkResources(plan: Plan, findings: Findings): void {
  const pairs = [
    ['cpu', plan.cpuRequest, plan.cpuLimit],
    ['memory', plan.memoryRequest, plan.memoryLimit],
  ] as const;
  for (const [kind, request, limit] of pairs)
    if (limit !== undefined && isAbove(request, limit))
      findings.deny(
        'invalid_setting',
        `the sidecar's ${kind} request ${request} is above its limit ${limit}: set ${DOMAIN}/${kind}-request and ${DOMAIN}/${kind}-limit`,
      );
}

/** Without the QoS class Guaranteed, a pod gets no exclusive CPUs, and is evicted earlier. */
function warnOfQos(plan: Plan, { pod, findings }: PlanInput): void {
  const whole = objectAt(objectAt(pod, 'spec'), 'resources');
  const isWhole = Object.keys(whole).length > 0;
  const containers = [...containersOf(pod, 'initContainers'), ...containersOf(pod, 'containers')];
  const before = isWhole ? [whole] : containers.map(({ container }) => objectAt(container, 'resources'));
  const sidecar = {
    requests: { cpu: plan.cpuRequest, memory: plan.memoryRequest },
    // As they are added to those of the whole pod.
    limits: { cpu: plan.cpuLimit ?? (isWhole ? plan.cpuRequest : undefined), memory: plan.memoryLimit },
  };
  if (!before.every(isGuaranteed) || isGuaranteed(sidecar)) return;
  findings.warn(
    `the sidecar changes the QoS class of the pod from Guaranteed to Burstable: set ${DOMAIN}/cpu-request and ${DOMAIN}/cpu-limit to one value, and ${DOMAIN}/memory-request and ${DOMAIN}/memory-limit as well`,
  );
}

/** A request that is not set is that of the limit. */
function isGuaranteed(resources: Raw): boolean {
  const [requests, limits] = [objectAt(resources, 'requests'), objectAt(resources, 'limits')];
  const amountOf = (from: Raw, kind: string): string | bigint => toNanos(String(from[kind])) ?? String(from[kind]);
  return ['cpu', 'memory'].every(
    (kind) => has(limits, kind) && (!has(requests, kind) || amountOf(requests, kind) === amountOf(limits, kind)),
  );
}

function decideNative(interception: Interception, { pod, settings, context, findings }: PlanInput): boolean {
  const { defaults, kube, isJob } = context;
  const { mode } = interception;
  const wanted = settings.sidecar ?? defaults.mode;
  const seesNamedPorts = isAtLeast(kube, NATIVE_NAMED_PORTS_SINCE);
  if (wanted === 'native' && !isAtLeast(kube, NATIVE_SINCE))
    findings.deny(
      'version_too_old',
      `native sidecars require Kubernetes 1.29, but the cluster has ${kube.major}.${kube.minor}: set ${DOMAIN}/sidecar: container`,
    );
  if (wanted === 'native' && mode === 'rename' && !seesNamedPorts)
    findings.deny(
      'version_too_old',
      `interception mode rename with a native sidecar requires Kubernetes 1.33: set ${DOMAIN}/sidecar: container, or another ${DOMAIN}/interception`,
    );
  const since = mode === 'rename' ? NATIVE_NAMED_PORTS_SINCE : NATIVE_SINCE;
  const isNative = wanted === 'native' || (wanted === 'auto' && isAtLeast(kube, since));
  if (!isNative) {
    checkEnd(pod, isJob === true, findings);
    if (APP_PORT_MODES.includes(mode)) denyRace(mode, wanted, findings);
  } else if (mode === 'service' && !seesNamedPorts)
    findings.warn(
      'before Kubernetes 1.33, Services do not resolve the port name sidegate of a native sidecar: write targetPort as a number',
    );
  return isNative;
}

/** An app that ignores its variable could take the port before the sidecar, and would then stay unprotected. */
function denyRace(mode: string, wanted: string, findings: Findings): void {
  const because = `interception mode ${mode} requires a native sidecar, because the app could take the port before a plain container does`;
  if (wanted === 'container')
    findings.deny('invalid_setting', `${because}: set ${DOMAIN}/sidecar: native, or ${DOMAIN}/interception: service or rename`);
  else
    findings.deny(
      'version_too_old',
      `${because}, and native sidecars require Kubernetes 1.29: set ${DOMAIN}/interception: service or rename`,
    );
}

/** A plain container would keep running after the app has finished (istio/istio#11659). */
function checkEnd(pod: Raw, isJob: boolean, findings: Findings): void {
  const owners = listAt(objectAt(pod, 'metadata'), 'ownerReferences');
  const ofJob = isJob || owners.some((owner) => textAt(owner, 'kind') === 'Job');
  const restarts = textAt(objectAt(pod, 'spec'), 'restartPolicy') ?? 'Always';
  if (ofJob)
    findings.deny(
      'job_never_completes',
      `the pod of a Job never completes with a sidecar that is a plain container: use ${DOMAIN}/sidecar: native, which requires Kubernetes 1.29`,
    );
  else if (restarts !== 'Always')
    findings.deny(
      'sidecar_ends',
      `restartPolicy is ${restarts.slice(0, 20)}: a sidecar that is a plain container is not restarted after it ends, and the app is then open on its own port; use ${DOMAIN}/sidecar: native (Kubernetes 1.29), or restartPolicy: Always`,
    );
}
