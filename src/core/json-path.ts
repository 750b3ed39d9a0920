/** Values of JSON, and paths into them such as `$.data.items[0].id`: parsed when the config is loaded, applied to each value. */

/** Whether a value of JSON is an object, and neither null nor an array. */
export function isJsonObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** The value of a text that is JSON of this schema; undefined for any other text. */
export function parseJson<T>(text: string, schema: { safeParse(value: unknown): { readonly data?: T } }): T | undefined {
  try {
    return schema.safeParse(JSON.parse(text)).data;
  } catch {
    return undefined;
  }
}

/** A parsed path. */
export interface JsonPath {
  /** As written in the config. */
  readonly text: string;
  /** Member names and array indexes, from the root down. */
  readonly steps: readonly (string | number)[];
}

/** One step of a pattern: a member name, an array index, or null for every member or element. */
export type JsonPatternStep = string | number | null;

/** A path that can select several values, such as `$.customers[*].email`. */
export interface JsonPattern {
  /** As written in the config. */
  readonly text: string;
  readonly steps: readonly JsonPatternStep[];
}

/** Why a text is not a path. */
export interface JsonPathProblem {
  readonly problem: string;
}

const MAX_PATH_LENGTH = 256;
const MAX_STEPS = 32;
/** `.name`, `[0]` or `["any name"]`, matched at `lastIndex`. */
const STEP = /\.([^.[\]"'\s]+)|\[(0|[1-9]\d{0,8})\]|\["((?:[^"\\]|\\.)*)"\]/y;
const EXAMPLE = 'write for example $.data.id, $.items[0].id or $["odd name"]';

/** `[*]`, or `.*` before the next step; a member with this name is written `["*"]`. */
const ANY_STEP = /\[\*\]|\.\*(?=[.[]|$)/y;
const PATTERN_EXAMPLE = 'write for example $.card.number, $.customers[*].email or $["odd name"]';

/** Parses a path, or returns what is wrong with the text. */
export function parseJsonPath(text: string): JsonPath | JsonPathProblem {
  const steps = parseSteps(text, (at) => readStep(text, at), EXAMPLE);
  return 'problem' in steps ? steps : { text, steps };
}

/** Parses a path in which `[*]` and `.*` stand for every member or element. */
export function parseJsonPattern(text: string): JsonPattern | JsonPathProblem {
  const steps = parseSteps<JsonPatternStep>(text, (at) => readAnyStep(text, at) ?? readStep(text, at), PATTERN_EXAMPLE);
  return 'problem' in steps ? steps : { text, steps };
}

interface ReadStep<Step> {
  readonly step: Step;
  readonly end: number;
}

function parseSteps<Step>(
  text: string,
  read: (at: number) => ReadStep<Step> | undefined,
  example: string,
): Step[] | JsonPathProblem {
  if (text.length > MAX_PATH_LENGTH) return { problem: `the path is longer than ${MAX_PATH_LENGTH} characters` };
  const quoted = JSON.stringify(text);
  if (!text.startsWith('$')) return { problem: `${quoted} is not a path: a path begins with $; ${example}` };
  const steps: Step[] = [];
  for (let at = 1; at < text.length; ) {
    const found = read(at);
    if (found === undefined)
      return { problem: `${quoted} is not a path: cannot parse ${JSON.stringify(text.slice(at))}; ${example}` };
    steps.push(found.step);
    at = found.end;
  }
  if (steps.length === 0) return { problem: `${quoted} selects the whole value, not a part of it; ${example}` };
  return steps.length > MAX_STEPS ? { problem: `the path has more than ${MAX_STEPS} steps` } : steps;
}

function readAnyStep(text: string, at: number): ReadStep<null> | undefined {
  ANY_STEP.lastIndex = at;
  return ANY_STEP.test(text) ? { step: null, end: ANY_STEP.lastIndex } : undefined;
}

function readStep(text: string, at: number): ReadStep<string | number> | undefined {
  STEP.lastIndex = at;
  const match = STEP.exec(text);
  const step = match === null ? undefined : toStep(match);
  return step === undefined ? undefined : { step, end: STEP.lastIndex };
}

/** Reads the value at the path; undefined if there is none. Finds only members of the JSON itself, never inherited ones. */
export function readJsonPath(path: JsonPath, value: unknown): unknown {
  let found = value;
  for (const step of path.steps) {
    if (typeof found !== 'object' || found === null) return undefined;
    // A number is an array index, and a name is an object member: `length` is neither.
    if (Array.isArray(found) !== (typeof step === 'number') || !Object.hasOwn(found, step)) return undefined;
    found = (found as Readonly<Record<string | number, unknown>>)[step];
  }
  return found;
}

function toStep([, name, index, quotedName]: RegExpExecArray): string | number | undefined {
  if (name !== undefined) return name;
  if (index !== undefined) return Number(index);
  try {
    return JSON.parse(`"${quotedName}"`) as string;
  } catch {
    // An invalid JSON escape, or a control character.
    return undefined;
  }
}

/** A path with one `[*]`: the value at `item` in each element of the array at `list`. */
interface JsonListPath {
  readonly list: JsonPath;
  readonly item: JsonPath;
}

const EACH = '[*]';
/** The whole value, if that is the array. */
const ROOT: JsonPath = { text: '$', steps: [] };

/** Parses a path with a `[*]`; undefined if it has none, or is not a path. */
export function parseJsonListPath(text: string): JsonListPath | undefined {
  const at = text.indexOf(EACH);
  if (at === -1) return undefined;
  const before = text.slice(0, at);
  const list = before === ROOT.text ? ROOT : parseJsonPath(before);
  const item = parseJsonPath(`$${text.slice(at + EACH.length)}`);
  return 'problem' in list || 'problem' in item ? undefined : { list, item };
}

/** Reads the value at `item` of each element, in order; undefined if the array is missing or empty. */
export function readJsonList({ list, item }: JsonListPath, value: unknown): readonly unknown[] | undefined {
  const items = readJsonPath(list, value);
  return Array.isArray(items) && items.length > 0 ? items.map((one) => readJsonPath(item, one)) : undefined;
}
