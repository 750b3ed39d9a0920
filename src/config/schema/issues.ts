/** Turns Zod's issues into findings that say what is wrong, where, and how to fix it. */
import type * as z from 'zod';
import { findNearest } from './did-you-mean.ts';
import { findExample, type JsonSchema, toKnownKeys } from './json-schema.ts';
import { hideInput, isShownAt, toShownKey } from './shown.ts';

type Issue = z.core.$ZodIssue;

/** A finding, with the config path that it concerns. */
export interface SchemaFinding {
  readonly path: readonly PropertyKey[];
  /** Default: `path`, with dots. */
  readonly shownPath?: string;
  readonly message: string;
  readonly hint?: string;
  /** The finding concerns the key itself, not its value. */
  readonly isAboutKey?: true;
}

/** All findings of a failed parse, or the first `max`. */
export function toFindings(issues: readonly Issue[], schema: JsonSchema, max?: number): SchemaFinding[] {
  const located = issues.slice(0, max).flatMap((issue) => flatten(issue, []));
  const findings = located
    .slice(0, max)
    .flatMap(({ issue, path }) => describe(truncateKeys(issue, max), path, schema).map((found) => hide(found, issue, schema)));
  return withoutConsequences(findings).slice(0, max);
}

/** The messages of the schema quote what is written, which may be a secret where no value belongs. */
function hide(finding: SchemaFinding, issue: Issue, schema: JsonSchema): SchemaFinding {
  const { path, message, hint } = finding;
  const { input } = issue;
  const isHidden = typeof input === 'string' && !isShownAt(schema, path, input);
  const toShown = (text: string): string => (isHidden ? hideInput(text, input) : text);
  const name = path.at(-1);
  return {
    ...finding,
    message: toShown(message),
    ...(hint !== undefined && { hint: toShown(hint) }),
    ...(typeof name === 'string' && { shownPath: [...path.slice(0, -1), showKey(name, issue, path, schema)].join('.') }),
  };
}

function showKey(name: string, { code, input }: Issue, path: readonly PropertyKey[], schema: JsonSchema): string {
  const value = code === 'unrecognized_keys' ? (input as Readonly<Record<string, unknown>> | undefined)?.[name] : input;
  const hasValue = code !== 'invalid_key' && value !== null && value !== undefined;
  return toShownKey(name, toKnownKeys(schema, path.slice(0, -1)).includes(name), hasValue);
}

/** In `{ env:NAME }`, the key `env` is not missing. */
function withoutConsequences(findings: readonly SchemaFinding[]): SchemaFinding[] {
  const toText = (path: readonly PropertyKey[]): string => path.map(String).join('.');
  const joined = new Set(findings.filter(({ isAboutKey }) => isAboutKey).map(({ path }) => toText(path).replace(/:[^:]*$/, '')));
  return findings.filter(({ path, isAboutKey }) => isAboutKey || !joined.has(toText(path)));
}

/** One issue lists all unknown keys of an object, so it is bounded separately. */
function truncateKeys(issue: Issue, max: number | undefined): Issue {
  return max !== undefined && issue.code === 'unrecognized_keys' ? { ...issue, keys: issue.keys.slice(0, max) } : issue;
}

interface LocatedIssue {
  readonly issue: Issue;
  readonly path: readonly PropertyKey[];
}

/** Of a union's branches, reports only the one that the value is closest to. */
function flatten(issue: Issue, base: readonly PropertyKey[]): LocatedIssue[] {
  const path = [...base, ...issue.path];
  if (issue.code !== 'invalid_union') return [{ issue, path }];
  const closest = issue.errors
    .filter(
      (branch) =>
        !branch.some((inner) => inner.path.length === 0 && (inner.code === 'invalid_type' || inner.code === 'invalid_value')),
    )
    .sort((a, b) => a.length - b.length)[0];
  return closest === undefined ? [{ issue, path }] : closest.flatMap((inner) => flatten(inner, path));
}

function describe(issue: Issue, path: readonly PropertyKey[], schema: JsonSchema): SchemaFinding[] {
  switch (issue.code) {
    case 'unrecognized_keys':
      return issue.keys.map((name) => describeUnknownKey(name, issue, path, schema));
    case 'invalid_value':
      return [isDefault(issue) ? describeValue(issue.values.map(String), issue.input, path) : { path, message: issue.message }];
    case 'invalid_key':
      return [{ path, message: issue.issues[0]?.message ?? issue.message, isAboutKey: true }];
    case 'invalid_type':
      return [describeType(issue, path, schema)];
    case 'too_small':
      return [{ path, message: describeBound(issue, issue.minimum, ['at least', 'more than']) }];
    case 'too_big':
      return [{ path, message: describeBound(issue, issue.maximum, ['at most', 'less than']) }];
    default:
      return [{ path, message: issue.message }];
  }
}

const COUNTED: Readonly<Record<string, readonly [one: string, many: string]>> = {
  array: [' entry', ' entries'],
  string: [' character', ' characters'],
};

/** Zod writes `expected array to have >=1 items`. */
function describeBound(
  issue: z.core.$ZodIssueTooSmall | z.core.$ZodIssueTooBig,
  limit: number | bigint,
  [orEqual, strictly]: readonly [string, string],
): string {
  if (!isDefault(issue)) return issue.message;
  const { origin, inclusive } = issue;
  const [one, many] = COUNTED[origin] ?? ['', ''];
  return `expected ${inclusive === false ? strictly : orEqual} ${limit}${Number(limit) === 1 ? one : many}`;
}

/** Whether the message is Zod's, and not one of the schema. */
function isDefault({ message }: Issue): boolean {
  return message.startsWith('Invalid ') || message.startsWith('Too ');
}

/** Routes have several keys while one is rotated. */
const KEYS_HINT = 'for example keys: [ { name: current, secret: { env: MY_SECRET } } ]';

/** `path:/x` is one word in YAML; of a key that is known, it is a mistake. */
function findMissingSpace(text: string, path: readonly PropertyKey[], schema: JsonSchema): string | undefined {
  const colon = text.indexOf(':');
  const [key, value] = [text.slice(0, colon), text.slice(colon + 1)];
  if (colon === -1 || !toKnownKeys(schema, path).includes(key)) return undefined;
  return `write a space after the colon: ${key}: ${isShownAt(schema, [...path, key], value) ? value : '…'}`;
}

function describeUnknownKey(name: string, issue: Issue, path: readonly PropertyKey[], schema: JsonSchema): SchemaFinding {
  const at = [...path, name];
  const message = `unknown key "${showKey(name, issue, at, schema)}"`;
  const missing = findMissingSpace(name, path, schema);
  if (missing !== undefined) return { path: at, message, hint: missing, isAboutKey: true };
  const known = toKnownKeys(schema, path);
  const nearest = findNearest(name, known);
  const near = nearest === undefined ? `allowed keys: ${[...new Set(known)].join(', ')}` : `did you mean "${nearest}"?`;
  const hint = name === 'secret' && known.includes('keys') ? KEYS_HINT : near;
  return { path: at, message, hint, isAboutKey: true };
}

const SCHEME_HINT =
  '`sidegate scheme` lists the presets; for a sender without one use "scheme: custom" (docs/how-to/custom-sender.md)';
/** A longer list of values hides what is wrong. */
const MAX_LISTED = 40;
const FIRST_LISTED = 10;

function toValueList(values: readonly string[]): string {
  if (values.length <= MAX_LISTED) return values.join(', ');
  return `${values.slice(0, FIRST_LISTED).join(', ')} and ${values.length - FIRST_LISTED} others`;
}

/** The suggestion comes before the list, because the list can be longer than a screen. */
function describeValue(values: readonly string[], input: unknown, path: readonly PropertyKey[]): SchemaFinding {
  const list = toValueList(values);
  if (input === undefined) return { path, message: `missing: expected one of: ${list}` };
  if (typeof input === 'object') return { path, message: `expected one of: ${list}` };
  const nearest = findNearest(String(input), values);
  if (nearest === undefined) {
    const hint = path.at(-1) === 'scheme' ? { hint: SCHEME_HINT } : undefined;
    return { path, message: `"${String(input)}" is not one of: ${list}`, ...hint };
  }
  return { path, message: `unknown value "${String(input)}". Did you mean "${nearest}"?`, hint: `allowed values: ${list}` };
}

function describeType(issue: z.core.$ZodIssueInvalidType, path: readonly PropertyKey[], schema: JsonSchema): SchemaFinding {
  const expected = isDefault(issue) ? `expected ${toWord(issue.expected)}` : issue.message;
  const isMissing = issue.input === undefined;
  const message = isMissing ? `missing: ${expected}` : `${expected}, not ${toWord(toTypeName(issue.input))}`;
  const missing = typeof issue.input === 'string' ? findMissingSpace(issue.input, path, schema) : undefined;
  if (missing !== undefined) return { path, message, hint: missing };
  const example = issue.expected === 'object' || issue.expected === 'array' ? findExample(schema, path) : undefined;
  return example === undefined ? { path, message } : { path, message, hint: `for example ${String(path.at(-1))}: ${example}` };
}

function toTypeName(value: unknown): string {
  if (value === null) return 'null';
  return Array.isArray(value) ? 'array' : typeof value;
}

function toWord(type: string): string {
  const words: Readonly<Record<string, string>> = {
    object: 'an object',
    array: 'a list',
    string: 'a string',
    number: 'a number',
    int: 'an integer',
    boolean: 'true or false',
  };
  return words[type] ?? type;
}
