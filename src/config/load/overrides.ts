/** What the command line says in the place of the config file: put into the file's values before anything judges them. */
import type { Problem } from '../schema/problem.ts';

/** As the flags of `sidegate run` and `sidegate check` were given. */
export interface Overrides {
  /** In the place of `listen.address`. */
  readonly listen?: string | undefined;
  /** In the place of `admin.address`. */
  readonly admin?: string | undefined;
  /** In the place of the `upstream` that stands at the top. */
  readonly upstream?: string | undefined;
  /** Beside `admin.appProbes`, each in the place of the one of the same container and kind. */
  readonly appProbes?: readonly string[] | undefined;
}

/** The values, and which flag each place comes from. */
export interface Overridden {
  readonly value: unknown;
  /** The flag that a config path comes from; undefined where the file says it. */
  readonly toFlag: (path: readonly PropertyKey[]) => string | undefined;
  readonly problems: readonly Problem[];
}

type Mapping = Readonly<Record<string, unknown>>;

/** `app/livez=…` */
const APP_PROBE = /^([^/=]*)\/([^/=]*)=(.+)$/s;
const PROBE_FLAG = '--app-probe';

/** Puts them in; a file that is no mapping stays as it is, for the schema to say so. */
export function override(value: unknown, overrides: Overrides): Overridden {
  const flags = new Map<string, string>();
  const problems: Problem[] = [];
  let next = value;
  const put = (path: readonly string[], given: string | undefined, flag: string): void => {
    if (given === undefined) return;
    next = withValue(next, path, given);
    flags.set(path.join('.'), flag);
  };
  put(['listen', 'address'], overrides.listen, '--listen');
  put(['admin', 'address'], overrides.admin, '--admin');
  put(['upstream'], overrides.upstream, '--upstream');
  const probes = (overrides.appProbes ?? []).map(readAppProbe);
  const sound = probes.filter((probe): probe is Mapping => !('problem' in probe));
  for (const probe of probes)
    if ('problem' in probe) problems.push({ severity: 'error', file: PROBE_FLAG, path: '', message: String(probe['problem']) });
  if (sound.length > 0) {
    const kept = toList(next).filter((each) => !sound.some((probe) => isSameProbe(probe, each)));
    next = withValue(next, ['admin', 'appProbes'], [...kept, ...sound]);
    for (const [index, probe] of sound.entries())
      flags.set(`admin.appProbes.${kept.length + index}`, `${PROBE_FLAG} ${probe['container']}/${probe['kind']}`);
  }
  return { value: next, toFlag: (path) => findFlag(flags, path), problems };
}

function findFlag(flags: ReadonlyMap<string, string>, path: readonly PropertyKey[]): string | undefined {
  for (let length = path.length; length > 0; length--) {
    const flag = flags.get(path.slice(0, length).join('.'));
    if (flag !== undefined) return flag;
  }
  return undefined;
}

function withValue(value: unknown, [key, ...rest]: readonly string[], given: unknown): unknown {
  if (key === undefined) return given;
  if (value !== undefined && !isMapping(value)) return value;
  return { ...value, [key]: withValue(value?.[key], rest, given) };
}

/** The value is never shown: a header of a probe may hold a password. */
function readAppProbe(text: string): Mapping {
  const match = APP_PROBE.exec(text);
  if (match === null)
    return {
      problem: `"${text.replace(/[^A-Za-z0-9/-].*$/s, '…')}" is no app probe; write CONTAINER/KIND=URL, for example app/livez=http://127.0.0.1:3000/healthz`,
    };
  const [, container = '', kind = '', given = ''] = match;
  if (!given.startsWith('{')) return { container, kind, url: given };
  try {
    return { ...(JSON.parse(given) as Mapping), container, kind };
  } catch {
    return { problem: `what follows ${container}/${kind}= is no JSON; write {"url":"…","headers":[{"name":"…","value":"…"}]}` };
  }
}

function toList(value: unknown): readonly unknown[] {
  const admin = isMapping(value) ? value['admin'] : undefined;
  const list = isMapping(admin) ? admin['appProbes'] : undefined;
  return Array.isArray(list) ? list : [];
}

function isSameProbe(probe: Mapping, other: unknown): boolean {
  return isMapping(other) && other['container'] === probe['container'] && other['kind'] === probe['kind'];
}

function isMapping(value: unknown): value is Mapping {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
