/** Checks the config of pods: whether it exists, whether it is valid, and whether the running sidecars use it. */
import { hasForm, OBJECT_NAME, OBJECT_NAMES, toNames } from '../injector/kubernetes-values.ts';
import { CONFIG_VOLUME, DOMAIN, SECRET_VOLUME } from '../injector/names.ts';
import { readSettings } from '../injector/settings.ts';
import { readStatus } from '../injector/status.ts';
import { type Facts, type GateConfig, keyOf } from './facts.ts';
import { type Finding, finding, listNames } from './finding.ts';
import type { PodTemplate } from './objects.ts';
import { injectLabelOf, isConcerned, isProtected } from './sidecar.ts';
import { restartOf, type Workload } from './workloads.ts';

/** The ConfigMap that a pod or template mounts, or requests in its annotation. */
export function configNameOf({ metadata, spec }: PodTemplate): string | undefined {
  const volume = spec.volumes?.find(({ name }) => name === CONFIG_VOLUME);
  const asked = metadata?.annotations?.[`${DOMAIN}/config`] ?? '';
  return volume?.configMap?.name ?? (hasForm(OBJECT_NAME, asked) ? asked : undefined);
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
      return [
        finding(
          'config-broken',
          `the config in the ConfigMap ${name} is invalid: ${listNames(config.problems)}`,
          'sidegate check --config gate.yaml',
        ),
      ];
    case 'unknown':
      return [
        finding(
          'not-known',
          `the ConfigMap ${name} was not checked: ${config.reason}`,
          'run sidegate doctor with an account that may get it, and sidegate check on a config that is too long',
        ),
      ];
    case 'valid':
      return [...checkRoutes(name, config), ...checkMounts(name, config, workload), ...checkMemory(name, config, workload)];
    default:
      return [];
  }
}

type ValidConfig = Extract<GateConfig, { readonly state: 'valid' }>;

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
      `the ConfigMap ${name} reads the ${noun} ${listNames(missing)}, which ${verb} not mounted: the routes that use it respond with 503`,
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
