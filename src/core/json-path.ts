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
