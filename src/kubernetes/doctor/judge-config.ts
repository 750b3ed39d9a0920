/** What pods are configured by: whether it is there, whether the gate takes it, and whether what runs is what is written. */
import { CONFIG_VOLUME, DOMAIN, SECRET_VOLUME } from '../injector/names.ts';
import { type Facts, type GateConfig, keyOf } from './facts.ts';
import { type Finding, finding, listNames } from './finding.ts';
import type { PodTemplate } from './objects.ts';
import { isConcerned, isProtected } from './sidecar.ts';
import { restartOf, type Workload } from './workloads.ts';

/** The ConfigMap of a pod's or template's gate: what it mounts, or asks to have mounted. */
export function configNameOf({ metadata, spec }: PodTemplate): string | undefined {
  const volume = spec.volumes?.find(({ name }) => name === CONFIG_VOLUME);
  return volume?.configMap?.name ?? metadata?.annotations?.[`${DOMAIN}/config`];
}

/** Its Secrets. */
export function secretNamesOf({ metadata, spec }: PodTemplate): readonly string[] {
  const mounted = (spec.volumes ?? []).filter(({ name }) => name.startsWith(SECRET_VOLUME));
  const asked = (metadata?.annotations?.[`${DOMAIN}/secrets`] ?? '').split(',').map((name) => name.trim());
  return [...new Set([...mounted.flatMap(({ secret }) => secret?.secretName ?? []), ...asked.filter((name) => name !== '')])];
}

/** Its pods and its template, as far as they have to do with the gate. */
export function concernedOf({ template, pods }: Workload): readonly PodTemplate[] {
  return [...pods, ...(template === undefined ? [] : [template])].filter(isConcerned);
}

/** All findings of the kind. */
export function judgeConfig(workload: Workload, facts: Facts): Finding[] {
  const concerned = concernedOf(workload);
  const names = new Set(concerned.flatMap((each) => configNameOf(each) ?? []));
  const secrets = new Set(concerned.flatMap(secretNamesOf));
  return [
    ...[...names].flatMap((name) => judgeOne(name, workload, facts)),
    ...[...secrets].flatMap((name) => judgeSecret(name, workload, facts)),
    ...judgeNameless(workload),
    ...judgeLive(workload, facts),
  ];
}

function judgeNameless({ pods }: Workload): Finding[] {
  const nameless = pods.filter((pod) => isProtected(pod) && configNameOf(pod) === undefined);
  if (nameless.length === 0) return [];
  const message = `which config the sidecar of ${listNames(nameless.map(({ metadata }) => metadata.name))} has: there is no volume ${CONFIG_VOLUME} of a ConfigMap`;
  return [finding('not-known', message, `name the volume with its ConfigMap ${CONFIG_VOLUME}`)];
}

/** Whether it is known what each of the pods' gates asks for. */
export function areConfigsKnown({ namespace, pods }: Workload, facts: Facts): boolean {
  return pods.every((pod) => facts.configs.get(keyOf(namespace, configNameOf(pod) ?? ''))?.state === 'sound');
}

function judgeOne(name: string, workload: Workload, facts: Facts): Finding[] {
  const { namespace } = workload;
  const config = facts.configs.get(keyOf(namespace, name));
  switch (config?.state) {
    case 'missing':
      return [
        finding(
          'config-missing',
          `there is no ConfigMap ${name}, so new pods do not start`,
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
          `the gate does not take the ConfigMap ${name}: ${listNames(config.problems)}`,
          'sidegate check --config gate.yaml',
        ),
      ];
    case 'unknown':
      return [
        finding('not-known', `the ConfigMap ${name} was not judged: ${config.reason}`, 'have somebody look who may get it'),
      ];
    case 'sound':
      return [...judgeRoutes(name, config), ...judgeMounts(name, config, workload), ...judgeMemory(name, config, workload)];
    default:
      return [];
  }
}

type Sound = Extract<GateConfig, { readonly state: 'sound' }>;

/** What lets through whatever comes. */
function judgeRoutes(name: string, { routes, open, observing }: Sound): Finding[] {
  if (routes > 0 && new Set([...open, ...observing]).size === routes) {
    const message = `no route of the ConfigMap ${name} refuses anything (${listNames([...new Set([...open, ...observing])])})`;
    return [finding('config-open', message, 'have routes verify what comes, and take allow: anyone and mode: observe away')];
  }
  if (observing.length === 0) return [];
  const message = `${listNames(observing)} of the ConfigMap ${name} ${observing.length === 1 ? 'lets' : 'let'} through what should be refused`;
  return [finding('config-observes', message, 'take mode: observe away once the log shows no wrong refusals')];
}

function judgeMounts(name: string, { secrets }: Sound, workload: Workload): Finding[] {
  const readers = concernedOf(workload).filter((each) => configNameOf(each) === name);
  const missing = secrets.filter((secret) => readers.some((each) => !secretNamesOf(each).includes(secret)));
  if (missing.length === 0) return [];
  const [verb, noun] = missing.length === 1 ? ['is', 'Secret'] : ['are', 'Secrets'];
  return [
    finding(
      'secret-not-mounted',
      `the ConfigMap ${name} reads the ${noun} ${listNames(missing)}, which ${verb} not mounted: its routes answer 503`,
      `add to the annotation ${DOMAIN}/secrets in the pod template: ${missing.join(', ')}`,
    ),
  ];
}

function judgeMemory(name: string, { isShared, remembered }: Sound, { pods, wanted = 0 }: Workload): Finding[] {
  const replicas = Math.max(pods.length, wanted);
  if (isShared || remembered.length === 0 || replicas < 2) return [];
  return [
    finding(
      'memory-not-shared',
      `${replicas} replicas without Redis: each remembers ${listNames(remembered)} for itself, so what one has seen is new to the others`,
      `set store.redis in the ConfigMap ${name}`,
    ),
  ];
}

function judgeSecret(name: string, { namespace }: Workload, facts: Facts): Finding[] {
  const presence = facts.secrets.get(keyOf(namespace, name));
  if (presence === 'missing') {
    return [
      finding(
        'secret-missing',
        `there is no Secret ${name}, so new pods do not start`,
        `create it in the namespace ${namespace}, or take it out of ${DOMAIN}/secrets`,
      ),
    ];
  }
  if (presence === undefined || presence === 'there') return [];
  return [finding('not-known', `whether the Secret ${name} is there: ${presence.unknown}`, 'have somebody look who may get it')];
}

/** A kubelet takes up to two minutes to bring a changed ConfigMap to its pods. */
function judgeLive(workload: Workload, facts: Facts): Finding[] {
  const { namespace, pods } = workload;
  const found: Finding[] = [];
  const serving = new Map<string, string[]>();
  for (const pod of pods) {
    const live = facts.live.get(keyOf(namespace, pod.metadata.name));
    if (live === undefined) continue;
    if ('unknown' in live) {
      found.push(
        finding('not-known', `what ${pod.metadata.name} serves: ${live.unknown}`, 'have somebody look who may get pods/proxy'),
      );
      continue;
    }
    serving.set(live.hash, [...(serving.get(live.hash) ?? []), pod.metadata.name]);
    const config = facts.configs.get(keyOf(namespace, configNameOf(pod) ?? ''));
    if (config !== undefined && 'hash' in config && config.hash !== live.hash) {
      found.push(
        finding(
          'config-not-taken',
          `${pod.metadata.name} serves the config ${live.hash}, and the ConfigMap ${configNameOf(pod)} holds ${config.hash}`,
          `wait two minutes; if it stays, its log says why: kubectl -n ${namespace} logs ${pod.metadata.name} -c sidegate`,
        ),
      );
    }
  }
  if (serving.size > 1) {
    const groups = [...serving].map(([hash, names]) => `${hash} by ${listNames(names)}`);
    found.push(
      finding(
        'config-differs',
        `replicas serve different configs: ${listNames(groups)}`,
        `wait two minutes, then ${restartOf(workload)}`,
      ),
    );
  }
  return found;
}
