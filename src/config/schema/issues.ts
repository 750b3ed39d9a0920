/** Turns Zod's issues into problems that say what is wrong, where, and how to fix it. */

import type * as z from 'zod';
import { error, type Path, type Problem } from '../../core/problem.ts';
import { findNearest } from './did-you-mean.ts';
import { descend, findExample, type JsonSchema, toKnownKeys, toVariants } from './json-schema.ts';
import { ENV_NAME } from './scalars.ts';

type Issue = z.core.$ZodIssue;

/** All problems of a failed parse, or the first `max`. */
export function toProblems(issues: readonly Issue[], schema: JsonSchema, max?: number): Problem[] {
  const located = issues.slice(0, max).flatMap((issue) => flatten(issue, []));
  const problems = located
    .slice(0, max)
    .flatMap(({ issue, path }) => describe(truncateKeys(issue, max), path, schema).map((found) => hide(found, issue, schema)));
  return withoutConsequences(problems).slice(0, max);
}

/** The messages of the schema quote what is written, which may be a secret where no value belongs. */
function hide(problem: Problem, issue: Issue, schema: JsonSchema): Problem {
  const { path, message, hint } = problem;
  const { input } = issue;
  const isHidden = typeof input === 'string' && !isShownAt(schema, path, input);
  const toShown = (text: string): string => (isHidden ? hideInput(text, input) : text);
  const name = path.at(-1);
  return {
    ...problem,
    message: toShown(message),
    hint: hint && toShown(hint),
    ...(typeof name === 'string' && { shownPath: [...path.slice(0, -1), showKey(name, issue, path, schema)].join('.') }),
  };
}

function showKey(name: string, { code, input }: Issue, path: Path, schema: JsonSchema): string {
  const value = code === 'unrecognized_keys' ? (input as Readonly<Record<string, unknown>> | undefined)?.[name] : input;
  const hasValue = code !== 'invalid_key' && value !== null && value !== undefined;
  return toShownKey(name, toKnownKeys(schema, path.slice(0, -1)).includes(name), hasValue);
}

/** In `{ env:NAME }`, the key `env` is not missing. */
function withoutConsequences(problems: readonly Problem[]): Problem[] {
  const toText = (path: Path): string => path.map(String).join('.');
  const joined = new Set(problems.filter(({ isAboutKey }) => isAboutKey).map(({ path }) => toText(path).replace(/:[^:]*$/, '')));
  return problems.filter(({ path, isAboutKey }) => isAboutKey || !joined.has(toText(path)));
}

/** One issue lists all unknown keys of an object, so it is bounded separately. */
function truncateKeys(issue: Issue, max: number | undefined): Issue {
  return max !== undefined && issue.code === 'unrecognized_keys' ? { ...issue, keys: issue.keys.slice(0, max) } : issue;
}

interface LocatedIssue {
  readonly issue: Issue;
  readonly path: Path;
}

/** Of a union's branches, reports only the one that the value is closest to. */
function flatten(issue: Issue, base: Path): LocatedIssue[] {
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

function describe(issue: Issue, path: Path, schema: JsonSchema): Problem[] {
  switch (issue.code) {
    case 'unrecognized_keys':
      return issue.keys.map((name) => describeUnknownKey(name, issue, path, schema));
    case 'invalid_value':
      return [isDefault(issue) ? describeValue(issue.values.map(String), issue.input, path) : error(path, issue.message)];
    case 'invalid_key':
      return [{ ...error(path, issue.issues[0]?.message ?? issue.message), isAboutKey: true }];
    case 'invalid_type':
      return [describeType(issue, path, schema)];
    case 'too_small':
      return [error(path, describeBound(issue, issue.minimum, ['at least', 'more than']))];
    case 'too_big':
      return [error(path, describeBound(issue, issue.maximum, ['at most', 'less than']))];
    default:
      return [error(path, issue.message)];
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
function findMissingSpace(text: string, path: Path, schema: JsonSchema): string | undefined {
  const colon = text.indexOf(':');
  const [key, value] = [text.slice(0, colon), text.slice(colon + 1)];
  if (colon === -1 || !toKnownKeys(schema, path).includes(key)) return undefined;
  return `write a space after the colon: ${key}: ${isShownAt(schema, [...path, key], value) ? value : '…'}`;
}

/** Keys of other tools, by which users mean one of ours: that key, and what to write. */
const OTHER_NAMES: Readonly<Record<string, readonly [key: string, hint: string]>> = {
  preset: ['scheme', 'did you mean "scheme"?'],
  secretKeyRef: ['env', 'set a variable of the container from the Secret, and write { env: NAME }'],
  htpasswd: ['users', 'for example users: [ { file: /etc/sidegate/users } ]'],
  usersFile: ['users', 'for example users: [ { file: /etc/sidegate/users } ]'],
};

function describeUnknownKey(name: string, issue: Issue, path: Path, schema: JsonSchema): Problem {
  const at = [...path, name];
  const message = `unknown key "${showKey(name, issue, at, schema)}"`;
  const missing = findMissingSpace(name, path, schema);
  if (missing !== undefined) return { ...error(at, message, missing), isAboutKey: true };
  const known = toKnownKeys(schema, path);
  // Of a union, of which another key chose another variant.
  if (known.includes(name)) {
    const others = Object.keys(Object(issue.input)).filter((key) => key !== name && known.includes(key));
    return { ...error(at, `"${name}" cannot be set beside ${others.join(', ')}`, 'remove one of them'), isAboutKey: true };
  }
  const meant = OTHER_NAMES[name];
  if (meant !== undefined && known.includes(meant[0])) return { ...error(at, message, meant[1]), isAboutKey: true };
  const nearest = findNearest(name, known);
  const near = nearest === undefined ? `allowed keys: ${[...new Set(known)].join(', ')}` : `did you mean "${nearest}"?`;
  const hint = name === 'secret' && known.includes('keys') ? KEYS_HINT : near;
  return { ...error(at, message, hint), isAboutKey: true };
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
function describeValue(values: readonly string[], input: unknown, path: Path): Problem {
  const list = toValueList(values);
  if (input === undefined) return error(path, `missing: expected one of: ${list}`);
  if (typeof input === 'object') return error(path, `expected one of: ${list}`);
  const nearest = findNearest(String(input), values);
  if (nearest === undefined)
    return error(path, `"${String(input)}" is not one of: ${list}`, path.at(-1) === 'scheme' ? SCHEME_HINT : undefined);
  return error(path, `unknown value "${String(input)}". Did you mean "${nearest}"?`, `allowed values: ${list}`);
}

function describeType(issue: z.core.$ZodIssueInvalidType, path: Path, schema: JsonSchema): Problem {
  const expected = isDefault(issue) ? `expected ${toWord(issue.expected)}` : issue.message;
  const isMissing = issue.input === undefined;
  const message = isMissing ? `missing: ${expected}` : `${expected}, not ${toWord(toTypeName(issue.input))}`;
  const missing = typeof issue.input === 'string' ? findMissingSpace(issue.input, path, schema) : undefined;
  if (missing !== undefined) return error(path, message, missing);
  if (path.length === 1 && path[0] === 'listen' && /^\d+$/.test(String(issue.input)))
    return error(path, message, `for example listen: { address: 0.0.0.0:${String(issue.input)} }`);
  const example = issue.expected === 'object' || issue.expected === 'array' ? findExample(schema, path) : undefined;
  return error(path, message, example && `for example ${String(path.at(-1))}: ${example}`);
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

// Decides which parts of a config its problems may show: someone may have written a secret into it, and the output may end in a log.

const SCALARS: readonly unknown[] = ['string', 'number', 'integer', 'boolean'];
const MIN_KEY_LENGTH = 20;
const MIN_HIDDEN_LENGTH = 4;

/**
 * A key as it may be shown. An unknown key may be a secret in braces if it has no value, and may end with one after a colon
 * without a space.
 */
export function toShownKey(key: string, isKnown: boolean, hasValue: boolean): string {
  if (isKnown) return key;
  const colon = key.indexOf(':');
  if (colon !== -1) return `${key.slice(0, colon)}:…`;
  return hasValue ? key : '…';
}

/** Whether a scalar may be shown at a place with these schemas: only if one of them is of such a scalar that is never a secret. */
export function isShownValue(schemas: readonly JsonSchema[], value: unknown): boolean {
  return schemas.some((schema) => {
    if (schema.writeOnly === true) return false;
    if (schema['const'] !== undefined) return schema['const'] === value;
    return typeof value === 'string'
      ? schema['type'] === 'string' && isShownText(value, schema)
      : SCALARS.includes(schema['type']);
  });
}

/** Whether a scalar may be shown at this path of the config. */
function isShownAt(schema: JsonSchema, path: readonly PropertyKey[], value: unknown): boolean {
  return isShownValue(path.reduce(descend, toVariants(schema)), value);
}

/** URLs with a password or a token, and what looks like a key. In place of the name of a variable, users write its value. */
function isShownText(text: string, schema: JsonSchema): boolean {
  if (schema['pattern'] === ENV_NAME.source && !ENV_NAME.test(text)) return false;
  return !/[@?]/.test(text) && !text.split(/[\s,"']+/).some(looksLikeKey);
}

/** Standard Webhooks secrets, and keys in base64 or hexadecimal. */
function looksLikeKey(word: string): boolean {
  if (/^wh(?:sec|sk)_/.test(word)) return true;
  return word.length >= MIN_KEY_LENGTH && /\d/.test(word) && /[a-z]/i.test(word) && !/[.:]|^\//.test(word);
}

/** Removes `input`, and quoted parts of it, from a text about it. A short one may be a part of any word. */
function hideInput(text: string, input: string): string {
  if (input === '') return text;
  return (input.length < MIN_HIDDEN_LENGTH ? text : text.replaceAll(input, '…')).replaceAll(
    /"([^"]+)"/g,
    (quoted, part: string) => (input.includes(part) || part.includes('@') ? '"…"' : quoted),
  );
}
