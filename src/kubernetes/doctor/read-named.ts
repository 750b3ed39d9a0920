/** Reads what pods refer to: ConfigMaps with the gate's config loader, Secrets by name only, and the metrics of running sidecars. */

import { parseConfig } from '../../config/load/load.ts';
import { type Config, realmsOf, remembersIds } from '../../config/schema/config.ts';
import { queueFileOf } from '../../config/schema/queue-choice.ts';
import type { Clock } from '../../core/clock.ts';
import { isError } from '../../core/problem.ts';
import { type KubeClient, METADATA_ONLY_OBJECT } from '../client/client.ts';
import { KubeError } from '../client/error.ts';
import { CONFIG_FOLDER, CONFIG_KEY, SECRETS_FOLDER } from '../injector/names.ts';
import { concernedOf, configNameOf, secretNamesOf } from './check-config.ts';
import { type ByName, type Facts, type GateConfig, itemsOf, keyOf, type Live, type Presence } from './facts.ts';
import type { Pod, PodTemplate } from './objects.ts';
import { findSidecar } from './sidecar.ts';
import { findWorkloads } from './workloads.ts';

const MAX_LINE_LENGTH = 1024;
const CONFIG_INFO = /^[^}\n]*\bhash="([0-9a-f]{1,64})"[^}\n]*\} 1(?:\.0+)?$/;
const BUILD_INFO = /^[^}\n]*\bversion="([0-9a-z.+-]{1,64})"[^}\n]*\} 1(?:\.0+)?$/i;

const CONCURRENCY = 8;
const FORBIDDEN = 403;
const NOT_FOUND = 404;
const LIVE_TIMEOUT_MS = 5_000;
const MAX_EXPOSITION_BYTES = 8_388_608;
/** Anyone with a namespace can fill ConfigMaps, and the checks of 1 MiB take minutes: they compare all routes. This many characters have a thousand. */
const MAX_CONFIG_LENGTH = 131_072;
const MAX_PROBLEMS = 20;

/** Every ConfigMap with the config of a pod's gate. */
export async function readConfigs(client: KubeClient, facts: Facts, clock: Clock): Promise<ByName<GateConfig>> {
  return readEach(
    namesIn(facts, (each) => [configNameOf(each) ?? ''].filter((name) => name !== '')),
    async (namespace, name) => {
      try {
        const { data = {} } = await client.request<{ data?: Record<string, string> }>(
          'GET',
          `/api/v1/namespaces/${namespace}/configmaps/${name}`,
        );
        return toGateConfig(data, clock);
      } catch (thrown) {
        if (!(thrown instanceof KubeError)) throw thrown;
        if (thrown.status === NOT_FOUND) return { state: 'missing' };
        return { state: 'unknown', reason: thrown.status === FORBIDDEN ? 'you may not get it' : thrown.message };
      }
    },
  );
}

/** Whether each Secret that a pod refers to exists. Only its metadata is requested. */
export async function readSecrets(client: KubeClient, facts: Facts): Promise<ByName<Presence>> {
  return readEach(namesIn(facts, secretNamesOf), async (namespace, name) => {
    try {
      await client.request('GET', `/api/v1/namespaces/${namespace}/secrets/${name}`, { accept: METADATA_ONLY_OBJECT });
      return 'there';
    } catch (thrown) {
      if (!(thrown instanceof KubeError)) throw thrown;
      if (thrown.status === NOT_FOUND) return 'missing';
      return { unknown: thrown.status === FORBIDDEN ? 'you may not get it' : thrown.message };
    }
  });
}

/** The config of each running sidecar, read through the API server, so that no port in the cluster has to be reachable. */
export async function readLive(client: KubeClient, facts: Facts): Promise<ByName<Live>> {
  const pods = itemsOf(facts.pods).filter((pod) => pod.status?.phase === 'Running' && findSidecar(pod) !== undefined);
  const byKey = new Map(pods.map((pod) => [keyOf(pod.metadata.namespace ?? '', pod.metadata.name), pod]));
  return readEach([...byKey.keys()], async (namespace, name) => readOneLive(client, byKey.get(keyOf(namespace, name))));
}

async function readOneLive(client: KubeClient, pod: Pod | undefined): Promise<Live> {
  const port = pod === undefined ? undefined : findSidecar(pod)?.ports.admin;
  if (pod === undefined || port === undefined) return { unknown: 'its arguments contain no --admin port' };
  const { namespace, name } = pod.metadata;
  try {
    const path = `/api/v1/namespaces/${namespace}/pods/${name}:${port}/proxy/metrics`;
    const text = await client.text(path, { timeout: LIVE_TIMEOUT_MS, maxBytes: MAX_EXPOSITION_BYTES });
    const hash = readConfigHash(text);
    return hash === undefined
      ? { unknown: `port ${port} serves no sidegate_config_info metric` }
      : { hash, version: readBuildVersion(text) };
  } catch (thrown) {
    if (!(thrown instanceof KubeError)) throw thrown;
    return { unknown: thrown.status === FORBIDDEN ? 'you may not get pods/proxy' : thrown.message };
  }
}

/** The names that pods and templates refer to, with their namespaces. */
function namesIn(facts: Facts, namesOf: (each: PodTemplate) => readonly string[]): readonly string[] {
  const keys = findWorkloads(facts).flatMap((workload) =>
    concernedOf(workload).flatMap((each) => namesOf(each).map((name) => keyOf(workload.namespace, name))),
  );
  return [...new Set(keys)];
}

async function readEach<T>(keys: readonly string[], read: (namespace: string, name: string) => Promise<T>): Promise<ByName<T>> {
  const found = new Map<string, T>();
  const waiting = [...keys];
  const work = async (): Promise<void> => {
    for (let key = waiting.shift(); key !== undefined; key = waiting.shift()) {
      const [namespace = '', name = ''] = key.split('/');
      found.set(key, await read(namespace, name));
    }
  };
  await Promise.all(Array.from({ length: CONCURRENCY }, work));
  return found;
}

/** Uses the gate's config loader, with the path of the file in the sidecar. */
function toGateConfig(data: Readonly<Record<string, string>>, clock: Clock): GateConfig {
  const text = data[CONFIG_KEY];
  if (text === undefined) return { state: 'without-key', keys: Object.keys(data) };
  if (text.length > MAX_CONFIG_LENGTH)
    return { state: 'unknown', reason: `${CONFIG_KEY} has ${text.length} characters; the maximum is ${MAX_CONFIG_LENGTH}` };
  // The upstream is in the sidecar's arguments.
  const options = { needsUpstream: false, maxProblems: MAX_PROBLEMS };
  const loaded = parseConfig(`${CONFIG_FOLDER}/${CONFIG_KEY}`, text, clock, options);
  if (loaded.config === undefined) {
    const errors = loaded.problems.filter(isError);
    return {
      state: 'broken',
      problems: errors.map(({ line, path, message }) => `line ${line ?? 1}: ${path === '' ? '' : `${path}: `}${message}`),
    };
  }
  const { config, hash } = loaded;
  return {
    state: 'valid',
    hash,
    workers: config.workers,
    routes: config.routes.length,
    open: config.routes.filter(({ allow }) => allow === 'anyone').map(({ name }) => name),
    observing: config.routes.filter(({ mode }) => mode === 'observe').map(({ name }) => name),
    isShared: config.store.redis !== undefined,
    remembered: toRemembered(config),
    secrets: toSecrets(config),
    queueFile: queueFileOf(config),
  };
}

/** The state that is in memory without Redis. */
function toRemembered(config: Config): string[] {
  const { routes } = config;
  return [
    ...(routes.some(remembersIds) ? ['handled IDs'] : []),
    ...(routes.some(({ webhook }) => webhook?.order !== undefined) ? ['the newest version of each resource'] : []),
    ...(realmsOf(config).some(({ realm }) => realm.limit !== 'off') ? ['failed login attempts'] : []),
  ];
}

/** The Secrets whose directories the config reads. */
function toSecrets(config: Config): string[] {
  const folder = `${SECRETS_FOLDER}/`;
  const files = toTexts(config).filter((text) => text.startsWith(folder));
  return [...new Set(files.flatMap((file) => file.slice(folder.length).split('/')[0] || []))];
}

function toTexts(value: unknown): string[] {
  if (typeof value === 'string') return [value];
  return typeof value === 'object' && value !== null ? Object.values(value).flatMap(toTexts) : [];
}

/** The hash of the config in use, from the metrics of a sidecar: the text is untrusted, as the owner of the pod can serve anything. */
export function readConfigHash(text: string): string | undefined {
  return readLabel(text, 'sidegate_config_info{', CONFIG_INFO);
}

/** The version of the running program. */
export function readBuildVersion(text: string): string | undefined {
  return readLabel(text, 'sidegate_build_info{', BUILD_INFO);
}

/** Undefined if no line contains it. Takes linear time. */
function readLabel(text: string, name: string, info: RegExp): string | undefined {
  for (let start = 0; start < text.length; ) {
    const found = text.indexOf('\n', start);
    const end = found === -1 ? text.length : found;
    if (end - start <= MAX_LINE_LENGTH && text.startsWith(name, start)) {
      const [, label] = info.exec(text.slice(start + name.length, end)) ?? [];
      if (label !== undefined) return label;
    }
    start = end + 1;
  }
  return undefined;
}
