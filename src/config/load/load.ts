/** Loads a config file: parses the YAML, applies the schema and the rules, and returns a frozen Config or all problems at once. */

import { createHash } from 'node:crypto';
import { dirname, resolve } from 'node:path';
import type * as z from 'zod';
import type { Clock } from '../../core/clock.ts';
import { isJsonObject } from '../../core/json-path.ts';
import { error, isError, type LocatedProblem, locate, type Path, type Problem } from '../../core/problem.ts';
import { toRules, validate } from '../rules/validate.ts';
import type { Config } from '../schema/config.ts';
import { toProblems } from '../schema/issues.ts';
import { toJsonSchema } from '../schema/json-schema.ts';
import { provideRetention } from '../schema/retention.ts';
import type { SocketAddress } from '../schema/scalars.ts';
import { ConfigSchema } from '../schema/schema.ts';
import { type FakeSources, withFakeSources } from '../sources/fake-sources.ts';
import { parseYaml, readText, type YamlFile } from './document.ts';

/** A valid config. */
export interface LoadedConfig {
  readonly config: Config;
  /** Warnings only. */
  readonly problems: readonly LocatedProblem[];
  readonly locate: YamlFile['locate'];
  /** A digest of the file's text. */
  readonly hash: string;
}

/** The config, or the problems that prevent loading it. */
type LoadResult = LoadedConfig | Rejected;

/** A config that has errors. */
interface Rejected {
  readonly config: undefined;
  readonly problems: readonly LocatedProblem[];
  /** The valid parts, so that the files they refer to can be checked as well. A gate must not run with them. */
  readonly rest?: Pick<LoadedConfig, 'config' | 'locate'>;
}

/** 128 bits: `sidegate doctor` identifies the running config by the hash, and the author of a config could find two texts with one shorter hash. */
const HASH_LENGTH = 32;

/** Settings from outside the file. */
interface LoadOptions {
  /** Overrides from the command line. */
  readonly overrides?: Overrides | undefined;
  /** The simulator uses these instead of the secrets and users that the file refers to. */
  readonly fakeSources?: FakeSources;
  /** False if nothing will be forwarded, so that routes need no upstream. */
  readonly needsUpstream?: boolean;
  /** Bounds the work for text from an untrusted source: at most this many problems are computed, including warnings. */
  readonly maxProblems?: number;
}

/** Loads and checks `file`; never throws for anything in it. `given`: its text, if it was read already. */
export async function loadConfig(
  file: string,
  clock: Clock,
  options?: LoadOptions,
  given?: string | LocatedProblem,
): Promise<LoadResult> {
  const text = given ?? (await readText(file));
  return typeof text === 'string' ? parseConfig(file, text, clock, options) : { config: undefined, problems: [text] };
}

/** Checks the text of `file`. */
export function parseConfig(file: string, text: string, clock: Clock, options: LoadOptions = {}): LoadResult {
  const { overrides = {}, maxProblems } = options;
  const read = parseYaml(file, text, 'start with routes:', maxProblems);
  if ('problems' in read) return { config: undefined, problems: read.problems };
  const variables = read.findVariables();
  if (variables.length > 0) return { config: undefined, problems: variables.slice(0, maxProblems) };
  const { value, toFlag, flagProblems, problems: ofFlags } = override(read.value, overrides);
  const locate = toLocate(read, toFlag);
  const parsed = ConfigSchema.safeParse(value, { reportInput: true });
  if (!parsed.success) {
    const found = [...toProblems(parsed.error.issues, toJsonSchema(), maxProblems), ...ofFlags];
    const problems = [...flagProblems, ...found.slice(0, maxProblems).map(locate)];
    // For text from an untrusted source, do no more work than is needed to reject it.
    const rest = maxProblems === undefined ? checkRest(value, parsed.error.issues, { file, clock, options }) : undefined;
    if (rest === undefined) return { config: undefined, problems };
    return {
      config: undefined,
      problems: [...problems, ...rest.problems.map(locate)],
      rest: { config: rest.config, locate },
    };
  }
  const { config, problems: missing, toOwnPath } = complete(parsed.data, file, options);
  const found = toDistinct([...ofFlags, ...missing, ...validate(config, clock.now())].map(toOwnPath));
  const problems = [...flagProblems, ...truncate(found, maxProblems).map(locate)];
  if (problems.some(isError))
    return { config: undefined, problems, rest: { config: withoutFaulty(config, toErrorPaths(found)), locate } };
  const hash = createHash('sha256').update(text).digest('hex').slice(0, HASH_LENGTH);
  return { config, problems, locate, hash };
}

/** Completes the schema's output with upstreams, default retentions and absolute paths. */
function complete(data: z.output<typeof ConfigSchema>, file: string, { fakeSources, needsUpstream }: LoadOptions) {
  const provided = provideUpstreams(data, needsUpstream ?? fakeSources === undefined);
  const { problems, toOwnPath } = provided;
  const routes = provideRetention(provided.routes, data.store.redis !== undefined);
  const resolved = resolveFiles({ ...data, routes }, dirname(resolve(file)));
  const config: Config = freeze(fakeSources === undefined ? resolved : withFakeSources(resolved, fakeSources));
  return { config, problems, toOwnPath };
}

/** Runs the rules on the parts that the schema accepts. A rule that reads a rejected part reports nothing. */
function checkRest(
  value: unknown,
  issues: readonly z.core.$ZodIssue[],
  {
    file,
    clock,
    options,
  }: {
    readonly file: string;
    readonly clock: Clock;
    readonly options: LoadOptions;
  },
) {
  for (const depth of REMOVAL_DEPTHS) {
    const remainder = removeRejected(value, issues, depth);
    const parsed = remainder === undefined ? undefined : ConfigSchema.safeParse(remainder.value);
    if (remainder === undefined || parsed?.success !== true) continue;
    const { config, problems: missing, toOwnPath } = complete(parsed.data, file, options);
    let hasReadRemoved = false;
    const watched = watchRemoved(config, remainder.removed, () => {
      hasReadRemoved = true;
    });
    const found = toRules(watched, clock.now()).flatMap((rule) => {
      hasReadRemoved = false;
      return runRule(rule, () => hasReadRemoved);
    });
    const isKept = ({ path }: Problem): boolean => !isRemoved(path, remainder.removed);
    const problems = toDistinct([...missing, ...found].map(toOwnPath).filter(isKept));
    return { config: withoutFaulty(config, toErrorPaths(problems)), problems };
  }
  return undefined;
}

/** A rule may throw where a part is missing that the schema requires. */
function runRule(rule: () => Iterable<Problem>, hasReadRemoved: () => boolean): readonly Problem[] {
  try {
    const problems = [...rule()];
    return hasReadRemoved() ? [] : problems;
  } catch (thrown) {
    if (hasReadRemoved()) return [];
    throw thrown;
  }
}

function toErrorPaths(problems: readonly Problem[]): Path[] {
  return problems.filter(isError).map(({ path }) => path);
}

/** A problem with a value from a flag is reported for the flag, not for the file. */
function toLocate(read: YamlFile, toFlag: Overridden['toFlag']): YamlFile['locate'] {
  return (problem) => {
    const flag = toFlag(problem.path);
    return flag === undefined ? read.locate(problem) : locate(problem, flag);
  };
}

/** Removes duplicates: a top-level setting that applies to all routes is reported once. */
function toDistinct(problems: readonly Problem[]): Problem[] {
  return [...new Map(problems.map((problem) => [JSON.stringify(problem), problem])).values()];
}

/** Truncates the list; errors first, so that no error is dropped before a warning. */
function truncate(problems: readonly Problem[], max: number | undefined): readonly Problem[] {
  if (max === undefined || problems.length <= max) return problems;
  return [...problems].sort((a, b) => Number(isError(b)) - Number(isError(a))).slice(0, max);
}

const FILE_KEYS = new Set([
  'file',
  'urlFile',
  'passwordFile',
  'caFile',
  'certFile',
  'keyFile',
  'clientCaFile',
  'clientCrlFile',
  'secretDir',
  'mapDir',
]);

/** Resolves relative paths against the directory of the config file. */
function resolveFiles<T>(value: T, base: string): T {
  if (Array.isArray(value)) return value.map((item) => resolveFiles(item, base)) as T;
  if (typeof value !== 'object' || value === null) return value;
  const entries = Object.entries(value).map(([key, inner]) => {
    return [key, FILE_KEYS.has(key) && typeof inner === 'string' ? resolve(base, inner) : resolveFiles(inner, base)];
  });
  return Object.fromEntries(entries) as T;
}

function freeze<T>(value: T): T {
  if (typeof value === 'object' && value !== null) for (const inner of Object.values(value)) freeze(inner);
  return Object.freeze(value);
}

interface WithUpstreams<R> {
  readonly upstream?: SocketAddress | undefined;
  readonly routes: readonly R[];
}

/** The routes with their upstreams. */
interface ResolvedUpstreams<R> {
  readonly routes: (R & { readonly upstream: SocketAddress })[];
  /** Errors for routes without an upstream. */
  readonly problems: readonly Problem[];
  /** Moves a problem with an inherited upstream to the top-level key. */
  readonly toOwnPath: (problem: Problem) => Problem;
}

/** A placeholder address that no rule objects to. */
const NOWHERE: SocketAddress = { host: '', port: -1 };
const TOP: Path = ['upstream'];

/** `isNeeded` is false if nothing will be forwarded; a route without an upstream is then not an error. */
function provideUpstreams<R extends { readonly upstream?: SocketAddress | undefined }>(
  { upstream: top, routes }: WithUpstreams<R>,
  isNeeded: boolean,
): ResolvedUpstreams<R> {
  const provided = routes.map((route) => ({ ...route, upstream: route.upstream ?? top ?? NOWHERE }));
  const missing =
    top !== undefined || !isNeeded ? [] : routes.flatMap((route, index) => (route.upstream === undefined ? [index] : []));
  const hint = 'set it here, or set a top-level upstream for all routes, or pass --upstream http://127.0.0.1:3000';
  return {
    routes: provided,
    problems: missing.map((index) => error(['routes', index, 'upstream'], 'missing: the address of the app', hint)),
    toOwnPath(problem) {
      const [section, index, key] = problem.path;
      const isOfRoute = section === 'routes' && key === 'upstream' && typeof index === 'number';
      return isOfRoute && top !== undefined && routes[index]?.upstream === undefined ? { ...problem, path: TOP } : problem;
    },
  };
}

// Removes the invalid parts of a config, so that the remainder can still be checked.

/** The file's values, without the parts that the schema rejects. */
interface Remainder {
  readonly value: unknown;
  /** Paths of the values that were removed, or replaced by placeholders. */
  readonly removed: readonly Path[];
}

type Mutable = Record<PropertyKey, unknown>;

/** Depths of the paths to remove: a setting within a section, or the whole section if the setting is required. */
const REMOVAL_DEPTHS = [2, 1] as const;

/** Removes the setting (`depth` 2) or section (1) of each issue; undefined if nothing would be left to check. */
function removeRejected(value: unknown, issues: readonly { readonly path: Path }[], depth: number): Remainder | undefined {
  if (typeof value !== 'object' || value === null) return undefined;
  const paths = issues.map(({ path }) => path.slice(0, path[0] === 'routes' ? depth + 1 : depth));
  const copy = structuredClone(value) as Mutable;
  const routes = copy['routes'];
  if (!Array.isArray(routes) || paths.some((path) => path.length === 0 || (path[0] === 'routes' && path.length === 1)))
    return undefined;
  for (const path of paths) {
    const [section, index, key] = path;
    if (section !== 'routes' || typeof index !== 'number') removeAt(copy, path);
    else routes[index] = withoutKey(routes[index], index, key);
  }
  return { value: copy, removed: paths };
}

/** Whether a path is in a removed part. The upstream of a route can be inherited from the top level. */
function isRemoved(path: Path, removed: readonly Path[]): boolean {
  const isOfUpstream = path.at(-1) === 'upstream';
  return removed.some((start) => start.every((step, index) => path[index] === step) || (isOfUpstream && start[0] === 'upstream'));
}

function removeAt(from: Mutable, [section, key]: Path): void {
  const inner = from[section as string];
  if (key === undefined || typeof inner !== 'object' || inner === null) delete from[section as string];
  else delete (inner as Mutable)[key];
}

/** A route keeps its index, a name and a match, because other problems refer to it by index. */
function withoutKey(route: unknown, index: number, key: PropertyKey | undefined): Mutable {
  const placeholder = { name: `removed-${index}`, match: { path: `/removed/${index}` } };
  if (key === undefined || typeof route !== 'object' || route === null) return { ...placeholder, allow: 'anyone' };
  const { [key]: _, ...rest } = route as Mutable;
  return key === 'name' || key === 'match' ? { ...rest, [key]: placeholder[key] } : rest;
}

/** A copy of the config that calls `onRead` when a removed value is read: what a rule finds from such a value may be wrong. */
function watchRemoved(config: Config, removed: readonly Path[], onRead: () => void): Config {
  const watched = { ...config, routes: config.routes.map((route) => ({ ...route })) } as unknown as Mutable;
  for (const path of removed) {
    const isOfRoute = path[0] === 'routes';
    const parent = (isOfRoute ? (watched['routes'] as Mutable[])[path[1] as number] : watched) as Mutable;
    const [key, setting] = isOfRoute ? path.slice(2) : path;
    if (key === undefined) for (const each of Object.keys(parent)) watchKey(parent, each, onRead);
    else if (setting === undefined) watchKey(parent, key, onRead);
    else {
      const section = { ...(parent[key] as Mutable | undefined) };
      watchKey(section, setting, onRead);
      Object.defineProperty(parent, key, { value: section, enumerable: true, configurable: true });
    }
  }
  return watched as unknown as Config;
}

function watchKey(of: Mutable, key: PropertyKey, onRead: () => void): void {
  const value = of[key];
  Object.defineProperty(of, key, {
    enumerable: true,
    configurable: true,
    get() {
      onRead();
      return value;
    },
  });
}

/** Removes the sections that rules found errors in, so that the files of the other sections can be read. */
function withoutFaulty(config: Config, errors: readonly Path[]): Config {
  const isFaulty = (...start: Path): boolean => errors.some((path) => start.every((step, index) => path[index] === step));
  const routes = config.routes.map((route, index) => ({
    ...route,
    webhook: isFaulty('routes', index, 'webhook') ? undefined : route.webhook,
    basic: isFaulty('routes', index, 'basic') ? undefined : route.basic,
  }));
  return {
    ...config,
    routes,
    store: isFaulty('store') ? { ...config.store, redis: undefined } : config.store,
    listen: isFaulty('listen', 'tls') ? { ...config.listen, tls: undefined } : config.listen,
    proxy: isFaulty('proxy') ? undefined : config.proxy,
    authz: isFaulty('authz') ? undefined : config.authz,
    identity: isFaulty('identity') ? undefined : config.identity,
    tracing: isFaulty('tracing') ? undefined : config.tracing,
  };
}

// Applies overrides from the command line to the config file's values, before they are validated.

/** The flags of `sidegate run` and `sidegate check`. */
export interface Overrides {
  /** Replaces `listen.address`. */
  readonly listen?: string | undefined;
  /** Replaces `admin.address`. */
  readonly admin?: string | undefined;
  /** Replaces the top-level `upstream`. */
  readonly upstream?: string | undefined;
  /** Added to `admin.appProbes`; each replaces the probe of the same container and kind. */
  readonly appProbes?: readonly string[] | undefined;
  /** Replaces `shutdown.grace`: on a terminal, no load balancer has to notice the end. */
  readonly grace?: string | undefined;
  /** `sidegate deliver`: only the provider runs, and only with the role `deliver`. */
  readonly isDeliverOnly?: boolean | undefined;
}

/** The values, and the flag that each overridden value comes from. */
interface Overridden {
  readonly value: unknown;
  /** The flag that the value at a config path comes from; undefined if it comes from the file. */
  readonly toFlag: (path: Path) => string | undefined;
  /** About the flags themselves. */
  readonly flagProblems: readonly LocatedProblem[];
  /** About values of the file. */
  readonly problems: readonly Problem[];
}

type PlainObject = Readonly<Record<string, unknown>>;

/** `app/livez=…` */
const APP_PROBE = /^([^/=]*)\/([^/=]*)=(.+)$/s;
const PROBE_FLAG = '--app-probe';
/** Sections that a process that only delivers does not have. */
const RECEIVING_SECTIONS: readonly string[] = ['routes', 'proxy', 'authz', 'store', 'upstream', 'workers'];

/** Applies the overrides. A file that is not an object stays unchanged; the schema reports it. */
export function override(value: unknown, overrides: Overrides): Overridden {
  const flags = new Map<string, string>();
  const flagProblems: LocatedProblem[] = [];
  let next = value;
  const put = (path: readonly string[], text: string | undefined, flag: string): void => {
    if (text === undefined) return;
    next = withValue(next, path, text);
    flags.set(path.join('.'), flag);
  };
  if (overrides.isDeliverOnly === true) {
    next = withoutKeys(next, RECEIVING_SECTIONS);
    next = withValue(next, ['provider', 'roles'], ['deliver']);
    flags.set('provider.roles', 'sidegate deliver');
  }
  put(['listen', 'address'], overrides.listen, '--listen');
  put(['admin', 'address'], overrides.admin, '--admin');
  put(['upstream'], overrides.upstream, '--upstream');
  put(['shutdown', 'grace'], overrides.grace, '--log-format text');
  const probes = (overrides.appProbes ?? []).map(readAppProbe);
  const valid = probes.filter((probe): probe is PlainObject => !('problem' in probe));
  for (const probe of probes) if ('problem' in probe) flagProblems.push(locate(error([], String(probe['problem'])), PROBE_FLAG));
  if (valid.length > 0) {
    next = withValue(next, ['admin', 'appProbes'], valid);
    for (const [index, probe] of valid.entries())
      flags.set(`admin.appProbes.${index}`, `${PROBE_FLAG} ${probe['container']}/${probe['kind']}`);
  }
  return { value: next, toFlag: (path) => findFlag(flags, path), flagProblems, problems: checkProbes(value, overrides) };
}

/**
 * The policies of a cluster compare the probes in a sidecar's arguments with those of its pod. A probe in the config would be a request to the app
 * that they do not see, and that everyone who reaches the admin port can cause.
 */
function checkProbes(value: unknown, { upstream, appProbes = [] }: Overrides): Problem[] {
  if (toProbes(value) === undefined || (upstream === undefined && appProbes.length === 0)) return [];
  const flag = upstream === undefined ? PROBE_FLAG : '--upstream';
  return [
    error(
      ['admin', 'appProbes'],
      `the probes of a sidecar, which has ${flag}, come from its arguments only`,
      `remove this key; in a pod, the injector passes the probes of its containers as ${PROBE_FLAG}; elsewhere, pass each one so`,
    ),
  ];
}

function findFlag(flags: ReadonlyMap<string, string>, path: Path): string | undefined {
  for (let length = path.length; length > 0; length--) {
    const flag = flags.get(path.slice(0, length).join('.'));
    if (flag !== undefined) return flag;
  }
  return undefined;
}

function withoutKeys(value: unknown, keys: readonly string[]): unknown {
  if (!isJsonObject(value)) return value;
  return Object.fromEntries(Object.entries(value).filter(([key]) => !keys.includes(key)));
}

function withValue(value: unknown, [key, ...rest]: readonly string[], given: unknown): unknown {
  if (key === undefined) return given;
  if (value !== undefined && !isJsonObject(value)) return value;
  return { ...value, [key]: withValue(value?.[key], rest, given) };
}

/** Errors never contain the value, because a header of a probe could contain a password. */
function readAppProbe(text: string): PlainObject {
  const match = APP_PROBE.exec(text);
  if (match === null)
    return {
      problem: `"${text.replace(/[^A-Za-z0-9/-].*$/s, '…')}" is not an app probe; write CONTAINER/KIND=URL, for example app/livez=http://127.0.0.1:3000/healthz`,
    };
  const [, container = '', kind = '', given = ''] = match;
  if (!given.startsWith('{')) return { container, kind, url: given };
  try {
    return { ...(JSON.parse(given) as PlainObject), container, kind };
  } catch {
    return {
      problem: `the text after ${container}/${kind}= is not JSON; write {"url":"…","headers":[{"name":"…","value":"…"}]}`,
    };
  }
}

function toProbes(value: unknown): unknown {
  const admin = isJsonObject(value) ? value['admin'] : undefined;
  return isJsonObject(admin) ? admin['appProbes'] : undefined;
}
