/** Applies overrides from the command line to the config file's values, before they are validated. */
import { isJsonObject } from '../../core/json-path.ts';
import { error, type LocatedProblem, locate, type Path, type Problem } from '../../core/problem.ts';

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
export interface Overridden {
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
