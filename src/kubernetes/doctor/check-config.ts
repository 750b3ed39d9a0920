/** Checks the config of pods: whether it exists, whether it is valid, and whether the running sidecars use it. */

import { injectPod } from '../injector/inject.ts';
import { type SidecarDefaults, toSidecarDefaults } from '../injector/injector-config.ts';
import { hasForm, OBJECT_NAME, OBJECT_NAMES, toNames } from '../injector/kubernetes-values.ts';
import { CONFIG_VOLUME, DOMAIN, SECRET_VOLUME } from '../injector/names.ts';
import { readSettings, SETTINGS } from '../injector/settings.ts';
import { explainReferences, findArgs } from '../injector/sidecar-config.ts';
import { readStatus } from '../injector/status.ts';
import { type Current, type Facts, type GateConfig, keyOf } from './facts.ts';
import { type Finding, finding, listNames } from './finding.ts';
import type { PodTemplate } from './objects.ts';
import { findSidecar, injectLabelOf, isConcerned, isProtected } from './sidecar.ts';
import { restartOf, type Workload } from './workloads.ts';

const CHECK =
  'sidegate check --config gate.yaml, with --listen, --admin and --upstream as in the arguments of the sidecar, and an address of the pod in place of $(SIDEGATE_POD_IPS)';

/** The ConfigMap that a pod or template mounts, or requests in its annotation. */
export function configNameOf({ metadata, spec }: PodTemplate): string | undefined {
  const volume = spec.volumes?.find(({ name }) => name === CONFIG_VOLUME);
  const asked = metadata?.annotations?.[`${DOMAIN}/config`] ?? '';
  return volume?.configMap?.name ?? (hasForm(OBJECT_NAME, asked) ? asked : undefined);
}

const DEFAULTS = toSidecarDefaults('sidegate');
/** Newer than all that the injector denies; the arguments do not depend on it. */
const KUBE = { major: 1, minor: 99 };

/** The arguments of its sidecar, as JSON. If it has none yet, those that the injector would give it. */
export function argsOf(each: PodTemplate, { defaults = DEFAULTS }: Current): string {
  const { args = [] } = findSidecar(each)?.container ?? { args: toNewArgs(each, defaults) };
  return JSON.stringify(args);
}

/** A volume of the queue may come from a volumeClaimTemplate, which is not in the template. */
function toNewArgs(each: PodTemplate, defaults: SidecarDefaults): readonly unknown[] {
  const claims = [each.metadata?.annotations?.[`${DOMAIN}/${SETTINGS.queueVolume.name}`] ?? ''];
  const template = { kind: 'StatefulSet', claims };
  const injection = injectPod(each, { defaults, version: '', kube: KUBE, namespace: '', template });
  if (injection.outcome === 'injected') return findArgs(injection);
  return ['run', '--listen', `:${defaults.port}`, '--admin', `:${defaults.adminPort}`];
}

/** The Secrets that a pod or template mounts, or requests in its annotation. */
export function secretNamesOf({ metadata, spec }: PodTemplate): readonly string[] {
  const mounted = (spec.volumes ?? []).filter(({ name }) => name.startsWith(SECRET_VOLUME));
  const asked = metadata?.annotations?.[`${DOMAIN}/secrets`] ?? '';
  const names = hasForm(OBJECT_NAMES, asked) ? toNames(asked) : [];
  return [...new Set([...mounted.flatMap(({ secret }) => secret?.secretName ?? []), ...names])];
}

/** Why the injector denies pods with these annotations. It does not read those of a pod that already has the sidecar. */
function settingProblemsOf(each: PodTemplate): readonly string[] {
  if (injectLabelOf(each) !== 'true' || readStatus(each) !== undefined) return [];
  const read = readSettings({ ...each });
  return 'problems' in read ? read.problems : [];
}

/** The workload's pods and template, if they have or request the sidecar. */
export function concernedOf({ template, pods }: Workload): readonly PodTemplate[] {
  return [...pods, ...(template === undefined ? [] : [template])].filter(isConcerned);
}

/** Those with a sidecar, and the template, whose pods get one. Without a template, new pods are like the present ones. */
export function startingOf(workload: Workload): readonly PodTemplate[] {
  const { template } = workload;
  return concernedOf(workload).filter((each) => [undefined, each].includes(template) || findSidecar(each) !== undefined);
}

/** All findings about the config. */
export function checkConfig(workload: Workload, facts: Facts): Finding[] {
  const concerned = concernedOf(workload);
  const names = new Set(concerned.flatMap((each) => configNameOf(each) ?? []));
  const secrets = new Set(concerned.flatMap(secretNamesOf));
  return [
    ...checkSettings(workload),
    ...[...names].flatMap((name) => checkOne(name, workload, facts)),
    ...[...secrets].flatMap((name) => checkSecret(name, workload, facts)),
    ...checkNameless(workload),
    ...checkLive(workload, facts),
  ];
}

/** New pods are those of the template; if it cannot be read, they are like the present ones. */
function checkSettings({ template, pods }: Workload): Finding[] {
  const problems = [...new Set((template === undefined ? pods : [template]).flatMap(settingProblemsOf))];
  if (problems.length === 0) return [];
  const fix = 'correct the annotations of the pod template, and check its manifest: sidegate inject -f MANIFEST';
  return [finding('annotation-invalid', `new pods are denied: ${listNames(problems)}`, fix)];
}

function checkNameless({ pods }: Workload): Finding[] {
  const nameless = pods.filter((pod) => isProtected(pod) && configNameOf(pod) === undefined);
  if (nameless.length === 0) return [];
  const message = `cannot determine which config the sidecar of ${listNames(nameless.map(({ metadata }) => metadata.name))} uses: there is no volume ${CONFIG_VOLUME} of a ConfigMap`;
  return [finding('not-known', message, `name the volume of its ConfigMap ${CONFIG_VOLUME}`)];
}

/** Whether the config of every pod could be read and is valid. */
export function areConfigsKnown({ namespace, pods }: Workload, facts: Facts): boolean {
  return pods.every((pod) => facts.configs.get(keyOf(namespace, configNameOf(pod) ?? ''))?.state === 'valid');
}

function checkOne(name: string, workload: Workload, facts: Facts): Finding[] {
  const { namespace } = workload;
  const config = facts.configs.get(keyOf(namespace, name));
  switch (config?.state) {
    case 'missing':
      return [
        finding(
          'config-missing',
          `the ConfigMap ${name} does not exist, so new pods do not start`,
          `kubectl -n ${namespace} create configmap ${name} --from-file=gate.yaml`,
        ),
      ];
    case 'without-key':
      return [
        finding(
          'config-missing',
          `the ConfigMap ${name} has no key gate.yaml${config.keys.length === 0 ? '' : `; it has ${listNames(config.keys)}`}`,
          'put the config under the key gate.yaml',
        ),
      ];
    case 'broken':
      return [finding('config-broken', `the config in the ConfigMap ${name} is invalid: ${listNames(config.problems)}`, CHECK)];
    case 'unknown':
      return [
        finding(
          'not-known',
          `the ConfigMap ${name} was not checked: ${config.reason}`,
          'run sidegate doctor with an account that may get it, and sidegate check on a config that is too long',
        ),
      ];
    case 'valid':
      return [
        ...checkStart(name, config, workload, facts),
        ...checkRoutes(name, config),
        ...checkMounts(name, config, workload),
        ...checkMemory(name, config, workload),
      ];
    default:
      return [];
  }
}

type ValidConfig = Extract<GateConfig, { readonly state: 'valid' }>;

/** Finds what is wrong only in a pod: sidecars have arguments, and no variables of their users. */
function checkStart(name: string, { variables = [], conflicts }: ValidConfig, workload: Workload, { current }: Facts): Finding[] {
  const users = startingOf(workload).filter((each) => configNameOf(each) === name);
  const problems = [...new Set(users.flatMap((each) => conflicts?.get(argsOf(each, current)) ?? []))];
  // Only sidecars show which variables other webhooks add.
  const present = users.filter((each) => findSidecar(each) !== undefined);
  const possible = variables.filter(({ variable }) => present.length > 0 || !current.rules?.allowedEnv.includes(variable));
  const asked = present.length > 0 ? present : users;
  const lacking = possible.filter(({ variable }) => asked.some((each) => !hasVariable(each, variable)));
  const explained = explainReferences(lacking);
  const what = `the sidecar does not start with the config in the ConfigMap ${name}`;
  const found: Finding[] = [];
  if (problems.length > 0) found.push(finding('config-broken', `${what}: ${listNames(problems)}`, CHECK));
  if (explained !== undefined) found.push(finding('config-broken', `${what}: ${explained.message}`, explained.fix));
  return found;
}

function hasVariable(each: PodTemplate, variable: string): boolean {
  const { env = [], envFrom = [] } = findSidecar(each)?.container ?? {};
  return envFrom.length > 0 || env.some(({ name }) => name === variable);
}

/** Finds configs and routes that do not reject anything. */
function checkRoutes(name: string, { routes, open, observing }: ValidConfig): Finding[] {
  if (routes > 0 && new Set([...open, ...observing]).size === routes) {
    const message = `no route in the ConfigMap ${name} rejects anything (${listNames([...new Set([...open, ...observing])])})`;
    return [finding('config-open', message, 'configure checks on the routes, and remove allow: anyone and mode: observe')];
  }
  return [...checkOpen(name, open), ...checkObserving(name, observing)];
}

function checkOpen(name: string, open: readonly string[]): Finding[] {
  if (open.length === 0) return [];
  const [noun, verb] = open.length === 1 ? ['route', 'forwards'] : ['routes', 'forward'];
  const message = `${noun} ${listNames(open)} in the ConfigMap ${name} ${verb} all requests without a check (allow: anyone)`;
  return [
    finding('config-opens', message, 'check that no request of these routes needs verification; otherwise configure checks'),
  ];
}

function checkObserving(name: string, observing: readonly string[]): Finding[] {
  if (observing.length === 0) return [];
  const message = `${observing.length === 1 ? 'route' : 'routes'} ${listNames(observing)} in the ConfigMap ${name} ${observing.length === 1 ? 'forwards' : 'forward'} requests that should be rejected`;
  return [finding('config-observes', message, 'remove mode: observe once the log shows that no valid request would be rejected')];
}

function checkMounts(name: string, { secrets }: ValidConfig, workload: Workload): Finding[] {
  const readers = concernedOf(workload).filter((each) => configNameOf(each) === name && settingProblemsOf(each).length === 0);
  const missing = secrets.filter((secret) => readers.some((each) => !secretNamesOf(each).includes(secret)));
  if (missing.length === 0) return [];
  const [verb, noun] = missing.length === 1 ? ['is', 'Secret'] : ['are', 'Secrets'];
  return [
    finding(
      'secret-not-mounted',
      `the ConfigMap ${name} reads the ${noun} ${listNames(missing)}, which ${verb} not mounted: new pods do not start, and in running ones the routes that use it respond with 503`,
      `add to the annotation ${DOMAIN}/secrets in the pod template: ${missing.join(', ')}`,
    ),
  ];
}

function checkMemory(name: string, { isShared, remembered }: ValidConfig, { pods, wanted = 0 }: Workload): Finding[] {
  const replicas = Math.max(pods.length, wanted);
  if (isShared || remembered.length === 0 || replicas < 2) return [];
  return [
    finding(
      'memory-not-shared',
      `${replicas} replicas without Redis: each keeps ${listNames(remembered)} for itself, so what one replica has seen is new to the others`,
      `set store.redis in the ConfigMap ${name}`,
    ),
  ];
}

function checkSecret(name: string, { namespace }: Workload, facts: Facts): Finding[] {
  const presence = facts.secrets.get(keyOf(namespace, name));
  if (presence === 'missing') {
    return [
      finding(
        'secret-missing',
        `the Secret ${name} does not exist, so new pods do not start`,
        `create it in the namespace ${namespace}, or remove it from ${DOMAIN}/secrets`,
      ),
    ];
  }
  if (presence === undefined || presence === 'there') return [];
  return [
    finding(
      'not-known',
      `cannot determine whether the Secret ${name} exists: ${presence.unknown}`,
      'run sidegate doctor with an account that may get it',
    ),
  ];
}

/** A kubelet needs two minutes at most to update a changed ConfigMap in its pods. */
function checkLive(workload: Workload, facts: Facts): Finding[] {
  const { namespace, pods } = workload;
  const found: Finding[] = [];
  const serving = new Map<string, string[]>();
  for (const pod of pods) {
    const live = facts.live.get(keyOf(namespace, pod.metadata.name));
    if (live === undefined) continue;
    if ('unknown' in live) {
      found.push(
        finding(
          'not-known',
          `cannot determine which config ${pod.metadata.name} uses: ${live.unknown}`,
          'run sidegate doctor with an account that may get pods/proxy',
        ),
      );
      continue;
    }
    serving.set(live.hash, [...(serving.get(live.hash) ?? []), pod.metadata.name]);
    const config = facts.configs.get(keyOf(namespace, configNameOf(pod) ?? ''));
    if (config !== undefined && 'hash' in config && config.hash !== live.hash) {
      found.push(
        finding(
          'config-not-taken',
          `${pod.metadata.name} uses the config ${live.hash}, but the ConfigMap ${configNameOf(pod)} contains ${config.hash}`,
          `wait two minutes; if it persists, check the log for the reason: kubectl -n ${namespace} logs ${pod.metadata.name} -c sidegate`,
        ),
      );
    }
  }
  if (serving.size > 1) {
    const groups = [...serving].map(([hash, names]) => `${hash} by ${listNames(names)}`);
    found.push(
      finding(
        'config-differs',
        `replicas use different configs: ${listNames(groups)}`,
        `wait two minutes, then ${restartOf(workload)}`,
      ),
    );
  }
  return found;
}
