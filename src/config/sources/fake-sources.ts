/** Puts a rehearsal's own texts in the place of the secrets and users that a config only refers to. */
import { dirname } from 'node:path';
import { Secret } from '../../core/secret.ts';

/** What stands in, and for what; `files` by absolute path, those in a mounted directory each by its own. */
export interface StandIns {
  readonly env: ReadonlyMap<string, string>;
  readonly files: ReadonlyMap<string, string>;
}

/** Where a place in the config refers to something that is stood in for, this is added to it: no config file can say it. */
interface StoodInFor {
  readonly standIns?: ReadonlyMap<string, Secret>;
}

const DIRECTORY_KEYS = ['secretDir', 'mapDir'] as const;

/** The config's values, with the texts added wherever one of them is referred to. */
export function withStandIns<T>(value: T, standIns: StandIns): T {
  if (Array.isArray(value)) return value.map((item) => withStandIns(item, standIns)) as T;
  if (typeof value !== 'object' || value === null) return value;
  const entries = Object.entries(value).map(([key, inner]) => [key, withStandIns(inner, standIns)]);
  const found = find(value, standIns);
  return Object.fromEntries(found.size === 0 ? entries : [...entries, ['standIns', found]]) as T;
}

/** The names of variables and the paths of files in `standIns` that nothing in the config refers to. */
export function findUnused(value: unknown, { env, files }: StandIns): { readonly env: string[]; readonly files: string[] } {
  const used = new Set<string>();
  const visit = (each: unknown): void => {
    if (typeof each !== 'object' || each === null) return;
    for (const name of (each as StoodInFor).standIns?.keys() ?? []) used.add(name);
    for (const inner of Object.values(each)) visit(inner);
  };
  visit(value);
  return {
    env: [...env.keys()].filter((name) => !used.has(name)),
    files: [...files.keys()].filter((file) => !used.has(file)),
  };
}

/** What stands in for the variable or file that `source` names, or for `file` of the directory that it names. */
export function findStandIn(source: object, file?: string): string | undefined {
  const { standIns } = source as StoodInFor;
  if (standIns === undefined) return undefined;
  const secret = file === undefined ? [...standIns.values()][0] : standIns.get(file);
  return secret?.expose().toString();
}

/** The names of the files that stand in for those of a directory; undefined where none does. */
export function listStandIns(source: object, folder: string): string[] | undefined {
  const { standIns } = source as StoodInFor;
  return standIns === undefined ? undefined : [...standIns.keys()].map((file) => file.slice(folder.length + 1));
}

function find(place: object, { env, files }: StandIns): Map<string, Secret> {
  const reference = place as Readonly<Record<string, unknown>>;
  const found = new Map<string, Secret>();
  const add = (name: string, text: string | undefined): void => {
    if (text !== undefined) found.set(name, new Secret(Buffer.from(text)));
  };
  if (typeof reference['env'] === 'string') add(reference['env'], env.get(reference['env']));
  if (typeof reference['file'] === 'string') add(reference['file'], files.get(reference['file']));
  for (const key of DIRECTORY_KEYS) for (const [file, text] of files) if (dirname(file) === reference[key]) add(file, text);
  return found;
}
