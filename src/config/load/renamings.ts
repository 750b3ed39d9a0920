/** Accepts the old names of renamed keys and values, with a deprecation warning. */
import { error, type Path, type Rating, warning } from '../rules/rating.ts';
import type { Finding } from '../schema/issues.ts';
import type { YamlFile } from './document.ts';

/** The objects that a renaming applies to: keys from the top level down; `*` stands for every item of a list. */
type Pattern = readonly string[];

/** A key or a value with a new name. */
export type Renaming =
  | { readonly kind: 'key'; readonly at: Pattern; readonly old: string; readonly name: string }
  | { readonly kind: 'value'; readonly at: Pattern; readonly key: string; readonly old: string; readonly name: string };

/** A file that has only current names; positions and problems still refer to the names in the file. */
export interface CurrentFile extends YamlFile {
  /** A warning for each old name, and an error if a key has both. */
  readonly ratings: readonly Rating[];
}

type PlainObject = Readonly<Record<string, unknown>>;

/** Replaces all old names in the file's values. */
export function applyRenamings(file: YamlFile, renamings: readonly Renaming[]): CurrentFile {
  const ratings: Rating[] = [];
  const moved: { readonly from: Path; readonly to: Path }[] = [];
  const rename = (object: PlainObject, path: Path, renaming: Renaming): PlainObject => {
    const { old, name } = renaming;
    if (renaming.kind === 'value') {
      if (object[renaming.key] !== old) return object;
      ratings.push(toDeprecation([...path, renaming.key], old, name));
      return { ...object, [renaming.key]: name };
    }
    if (!Object.hasOwn(object, old)) return object;
    const { [old]: value, ...others } = object;
    const at = [...path, old];
    if (Object.hasOwn(object, name)) {
      ratings.push({
        ...error(at, `"${old}" is the old name of "${name}", which is set as well`, 'remove it'),
        isAboutKey: true,
      });
      return others;
    }
    ratings.push({ ...toDeprecation(at, old, name), isAboutKey: true });
    moved.push({ from: at, to: [...path, name] });
    return { ...others, [name]: value };
  };
  let { value } = file;
  for (const renaming of renamings) value = rewrite(value, renaming.at, [], (object, path) => rename(object, path, renaming));
  const toWritten = (path: Path): Path => {
    const move = moved.find(({ to }) => to.every((step, index) => String(path[index]) === String(step)));
    return move === undefined ? path : [...move.from, ...path.slice(move.to.length)];
  };
  return {
    value,
    ratings,
    locate: (path) => file.locate(toWritten(path)),
    toProblem: (severity, finding: Finding) => file.toProblem(severity, { ...finding, path: toWritten(finding.path) }),
  };
}

function toDeprecation(path: Path, old: string, name: string): Rating {
  return warning(path, `"${old}" is deprecated: it was renamed to "${name}"`, `write ${name}`);
}

function rewrite(
  value: unknown,
  [step, ...rest]: Pattern,
  path: Path,
  rename: (object: PlainObject, path: Path) => PlainObject,
): unknown {
  if (step === '*')
    return Array.isArray(value) ? value.map((item, index) => rewrite(item, rest, [...path, index], rename)) : value;
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return value;
  const object = value as PlainObject;
  if (step === undefined) return rename(object, path);
  return Object.hasOwn(object, step) ? { ...object, [step]: rewrite(object[step], rest, [...path, step], rename) } : object;
}
