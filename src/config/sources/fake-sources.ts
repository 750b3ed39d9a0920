/** Replaces the secrets and users that a config refers to with texts from the simulator's fixtures. */
import { dirname } from 'node:path';
import { Secret } from '../../core/secret.ts';

/** The fake contents: `env` by name, `files` by absolute path, also those of a mounted directory. */
export interface FakeSources {
  readonly env: ReadonlyMap<string, string>;
  readonly files: ReadonlyMap<string, string>;
}

/** Added to each reference in the config whose source is faked. No config file can contain it. */
interface FakedSource {
  readonly fakeSources?: ReadonlyMap<string, Secret>;
}

const DIRECTORY_KEYS = ['secretDir', 'mapDir'] as const;

/** The config's values, with the fake text added to each reference. */
export function withFakeSources<T>(value: T, fakeSources: FakeSources): T {
  if (Array.isArray(value)) return value.map((item) => withFakeSources(item, fakeSources)) as T;
  if (typeof value !== 'object' || value === null) return value;
  const entries = Object.entries(value).map(([key, inner]) => [key, withFakeSources(inner, fakeSources)]);
  const found = find(value, fakeSources);
  return Object.fromEntries(found.size === 0 ? entries : [...entries, ['fakeSources', found]]) as T;
}

/** The fake variables and files that nothing in the config refers to. */
export function findUnused(value: unknown, { env, files }: FakeSources): { readonly env: string[]; readonly files: string[] } {
  const used = new Set<string>();
  const visit = (each: unknown): void => {
    if (typeof each !== 'object' || each === null) return;
    for (const name of (each as FakedSource).fakeSources?.keys() ?? []) used.add(name);
    for (const inner of Object.values(each)) visit(inner);
  };
  visit(value);
  return {
    env: [...env.keys()].filter((name) => !used.has(name)),
    files: [...files.keys()].filter((file) => !used.has(file)),
  };
}

/** The fake content of the variable or file that `source` names, or of `file` in the directory that it names. */
export function findFake(source: object, file?: string): string | undefined {
  const { fakeSources } = source as FakedSource;
  if (fakeSources === undefined) return undefined;
  const secret = file === undefined ? [...fakeSources.values()][0] : fakeSources.get(file);
  return secret?.expose().toString();
}

/** The names of the fake files in a directory; undefined if it has none. */
export function listFakes(source: object, folder: string): string[] | undefined {
  const { fakeSources } = source as FakedSource;
  return fakeSources === undefined ? undefined : [...fakeSources.keys()].map((file) => file.slice(folder.length + 1));
}

function find(value: object, { env, files }: FakeSources): Map<string, Secret> {
  const reference = value as Readonly<Record<string, unknown>>;
  const found = new Map<string, Secret>();
  const add = (name: string, text: string | undefined): void => {
    if (text !== undefined) found.set(name, new Secret(Buffer.from(text)));
  };
  if (typeof reference['env'] === 'string') add(reference['env'], env.get(reference['env']));
  if (typeof reference['file'] === 'string') add(reference['file'], files.get(reference['file']));
  for (const key of DIRECTORY_KEYS) for (const [file, text] of files) if (dirname(file) === reference[key]) add(file, text);
  return found;
}
