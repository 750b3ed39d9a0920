/** Checks the config of a gate, and reads from it what other checks need. */
import { type Overrides, parseConfig } from '../../config/load/load.ts';
import { type Config, realmsOf, remembersIds } from '../../config/schema/config.ts';
import { queueFileOf } from '../../config/schema/queue-choice.ts';
import type { Clock } from '../../core/clock.ts';
import { isError, type LocatedProblem } from '../../core/problem.ts';
import { CONFIG_FOLDER, CONFIG_KEY, SECRETS_FOLDER } from '../injector/names.ts';
import { findReferences, toSidecarOverrides } from '../injector/sidecar-config.ts';
import type { GateConfig } from './facts.ts';

/** Anyone with a namespace can fill ConfigMaps, and the checks of 1 MiB take minutes: they compare all routes. This many characters have a thousand. */
const MAX_CONFIG_LENGTH = 131_072;
const MAX_PROBLEMS = 20;
/** Of the different arguments with which a config is checked: anyone who may create pods chooses theirs. */
const MAX_ARGS = 4;

/** Checks the config in a ConfigMap with the gate's config loader and the path of the file in the sidecar; `args`: those of the sidecars that use it, or will, as JSON. */
export function toGateConfig(data: Readonly<Record<string, string>>, clock: Clock, args: ReadonlySet<string>): GateConfig {
  const text = data[CONFIG_KEY];
  if (text === undefined) return { state: 'without-key', keys: Object.keys(data) };
  if (text.length > MAX_CONFIG_LENGTH)
    return { state: 'unknown', reason: `${CONFIG_KEY} has ${text.length} characters; the maximum is ${MAX_CONFIG_LENGTH}` };
  const tried = [...args].slice(0, MAX_ARGS).map((each) => {
    const options = { overrides: toOverrides(each), needsUpstream: false, maxProblems: MAX_PROBLEMS };
    return [each, parseConfig(`${CONFIG_FOLDER}/${CONFIG_KEY}`, text, clock, options)] as const;
  });
  const [loaded] = tried.flatMap(([, result]) => (result.config === undefined ? [] : [result]));
  if (loaded === undefined)
    return { state: 'broken', problems: tried.slice(0, 1).flatMap(([, { problems }]) => toErrors(problems)) };
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
    variables: findReferences(config),
    conflicts: new Map(tried.map(([each, { problems }]) => [each, toErrors(problems)])),
  };
}

function toOverrides(args: string): Overrides {
  return toSidecarOverrides(JSON.parse(args) as string[]) ?? {};
}

/** `file` is the argument if the value comes from one. */
function toErrors(problems: readonly LocatedProblem[]): string[] {
  return problems
    .filter(isError)
    .map(
      ({ file, line, path, message }) =>
        `${line === undefined ? file : `line ${line}`}: ${path === '' ? '' : `${path}: `}${message}`,
    );
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
