/** Puts the schema's findings into words that say what is wrong, where, and how to mend it. */
import type * as z from 'zod';
import { findNearest } from './did-you-mean.ts';
import { findExample, type JsonSchema, toKnownKeys } from './json-schema.ts';

type Issue = z.core.$ZodIssue;

/** A finding, with the path it is about. */
export interface Finding {
  readonly path: readonly PropertyKey[];
  readonly message: string;
  readonly hint?: string;
  /** The finding is about the key itself, not about its value. */
  readonly isAboutKey?: true;
}

/** All findings of a failed parse, or the first `most`. */
export function toFindings(issues: readonly Issue[], schema: JsonSchema, most?: number): Finding[] {
  const placed = issues.slice(0, most).flatMap((issue) => flatten(issue, []));
  const findings = placed.slice(0, most).flatMap(({ issue, path }) => describe(toShort(issue, most), path, schema));
  return findings.slice(0, most);
}

/** One issue tells of all keys that are unknown in a place. */
function toShort(issue: Issue, most: number | undefined): Issue {
  return most !== undefined && issue.code === 'unrecognized_keys' ? { ...issue, keys: issue.keys.slice(0, most) } : issue;
}

interface Placed {
  readonly issue: Issue;
  readonly path: readonly PropertyKey[];
}

/** Of the forms a value may have, only the one that was meant is worth telling about. */
function flatten(issue: Issue, base: readonly PropertyKey[]): Placed[] {
  const path = [...base, ...issue.path];
  if (issue.code !== 'invalid_union') return [{ issue, path }];
  const meant = issue.errors
    .filter(
      (branch) =>
        !branch.some((inner) => inner.path.length === 0 && (inner.code === 'invalid_type' || inner.code === 'invalid_value')),
    )
    .sort((a, b) => a.length - b.length)[0];
  return meant === undefined ? [{ issue, path }] : meant.flatMap((inner) => flatten(inner, path));
}

function describe(issue: Issue, path: readonly PropertyKey[], schema: JsonSchema): Finding[] {
  switch (issue.code) {
    case 'unrecognized_keys':
      return issue.keys.map((name) => describeUnknownKey(name, path, schema));
    case 'invalid_value':
      return [describeValue(issue.values.map(String), issue.input, path)];
    case 'invalid_key':
      return [{ path, message: issue.issues[0]?.message ?? issue.message, isAboutKey: true }];
    case 'invalid_type':
      return [describeType(issue, path, schema)];
    default:
      return [{ path, message: issue.message }];
  }
}

function describeUnknownKey(name: string, path: readonly PropertyKey[], schema: JsonSchema): Finding {
  const known = toKnownKeys(schema, path);
  const nearest = findNearest(name, known);
  const hint = nearest === undefined ? `known here: ${[...new Set(known)].join(', ')}` : `did you mean "${nearest}"?`;
  return { path: [...path, name], message: `unknown key "${name}"`, hint, isAboutKey: true };
}

/** A suggestion comes before the list, which may be longer than the screen. */
function describeValue(values: readonly string[], input: unknown, path: readonly PropertyKey[]): Finding {
  const list = values.join(', ');
  if (input === undefined) return { path, message: `missing; it is one of: ${list}` };
  const nearest = findNearest(String(input), values);
  if (nearest === undefined) return { path, message: `"${String(input)}" is not one of: ${list}` };
  return { path, message: `unknown value "${String(input)}". Did you mean "${nearest}"?`, hint: `known here: ${list}` };
}

function describeType(issue: z.core.$ZodIssueInvalidType, path: readonly PropertyKey[], schema: JsonSchema): Finding {
  const isDefaultText = issue.message.startsWith('Invalid input');
  const expected = isDefaultText ? `expected ${toWord(issue.expected)}` : issue.message;
  const isMissing = issue.input === undefined;
  const message = isMissing ? `missing: ${expected}` : `${expected}, not ${toWord(toTypeName(issue.input))}`;
  const example = issue.expected === 'object' || issue.expected === 'array' ? findExample(schema, path) : undefined;
  return example === undefined ? { path, message } : { path, message, hint: `for example ${String(path.at(-1))}: ${example}` };
}

function toTypeName(value: unknown): string {
  if (value === null) return 'nothing';
  return Array.isArray(value) ? 'array' : typeof value;
}

function toWord(type: string): string {
  const words: Readonly<Record<string, string>> = {
    object: 'a mapping',
    array: 'a list',
    string: 'text',
    number: 'a number',
    int: 'a whole number',
    boolean: 'true or false',
  };
  return words[type] ?? type;
}
