/** Paths into JSON values, in the small form that configs need: `$.data.items[0].id`. */

/** A parsed path. */
export interface JsonPath {
  readonly text: string;
  readonly steps: readonly (string | number)[];
}

const FORM = /^\$(?:\.[A-Za-z_][A-Za-z0-9_-]*|\[(?:0|[1-9][0-9]{0,4})\]|\["[^"\\]{1,128}"\]){1,16}$/;
const STEP = /\.([A-Za-z_][A-Za-z0-9_-]*)|\[(\d+)\]|\["([^"\\]+)"\]/g;

/** Reads a path, or says what is wrong with it. */
export function parseJsonPath(text: string): JsonPath | { readonly problem: string } {
  if (!FORM.test(text))
    return { problem: `"${text}" is no path; write for example $.data.id, $.items[0].id or $["odd name"].id` };
  const steps = [...text.matchAll(STEP)].map(([, name, index, quoted]) =>
    index === undefined ? (name ?? quoted ?? '') : Number(index),
  );
  return { text, steps };
}

/** What stands at `path` in `value`; undefined where nothing does. Never looks at what objects inherit. */
export function readJsonPath(path: JsonPath, value: unknown): unknown {
  let at = value;
  for (const step of path.steps) {
    if (typeof at !== 'object' || at === null || Array.isArray(at) !== (typeof step === 'number') || !Object.hasOwn(at, step))
      return undefined;
    at = (at as Record<string | number, unknown>)[step];
  }
  return at;
}

/** A path with one `[*]`: what stands at `item` in each item of the list at `list`. */
export interface JsonListPath {
  readonly list: JsonPath;
  readonly item: JsonPath;
}

const EACH = '[*]';

/** Reads a path with a `[*]`; undefined where it has none, or is no path. */
export function parseJsonListPath(text: string): JsonListPath | undefined {
  const at = text.indexOf(EACH);
  if (at === -1) return undefined;
  const list = parseJsonPath(text.slice(0, at));
  const item = parseJsonPath(`$${text.slice(at + EACH.length)}`);
  return 'problem' in list || 'problem' in item ? undefined : { list, item };
}

/** What stands there in each item, in order; undefined where there is no list, or an empty one. */
export function readJsonList({ list, item }: JsonListPath, value: unknown): readonly unknown[] | undefined {
  const items = readJsonPath(list, value);
  return Array.isArray(items) && items.length > 0 ? items.map((one) => readJsonPath(item, one)) : undefined;
}
