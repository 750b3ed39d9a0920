/**
 * Parses untrusted JSON so that every parser reads the same value from it (RFC 7493, I-JSON): UTF-8 without a byte order mark, no repeated
 * member names, no unpaired surrogates. Its size in memory is bounded before it is parsed.
 */
import { isUtf8 } from 'node:buffer';
import {
  countMembers,
  type JsonBounds,
  type JsonSpan,
  listElements,
  listMembers,
  parseJsonText,
  toWholeSpan,
} from './json-scan.ts';

/** The value, or what is wrong with the text. */
type StrictJson = { readonly kind: 'value'; readonly value: unknown } | { readonly kind: 'problem'; readonly problem: string };

const MAX_SHOWN_NAME = 64;
const UNSHOWN = /[\p{C}\p{Zl}\p{Zp}]/gu;
/** In longer texts the repeated name is not searched for: each level is scanned again. */
const MAX_SEARCHED_BYTES = 16_384;
/** The escape of a surrogate: only escapes can be unpaired in UTF-8. */
const SURROGATE_ESCAPES = ['\\ud', '\\uD'] as const;

/** Parses one JSON text. `numbers`: whether one that becomes infinite, such as 1e400, is a problem. */
export function parseStrictJson(text: Buffer, bounds: JsonBounds, numbers: 'any' | 'finite' = 'any'): StrictJson {
  if (!isUtf8(text)) return toProblem('it is not UTF-8');
  const members = countMembers(text, bounds);
  if (typeof members === 'string') return toProblem(members);
  let value: unknown;
  try {
    value = parseJsonText(text);
  } catch {
    return toProblem('it is not valid JSON');
  }
  const found: JsonScan = { members: 0, isWellFormed: true, isFinite: true };
  inspect(
    value,
    found,
    SURROGATE_ESCAPES.some((prefix) => text.includes(prefix)),
  );
  if (found.members !== members) return toProblem(`${toRepeatedTitle(text)} is repeated in an object`);
  if (numbers === 'finite' && !found.isFinite) return toProblem('a number is out of range');
  return found.isWellFormed ? { kind: 'value', value } : toProblem('a string contains an unpaired surrogate');
}

interface JsonScan {
  members: number;
  isWellFormed: boolean;
  isFinite: boolean;
}

/** The depth is bounded. */
function inspect(value: unknown, found: JsonScan, checksStrings: boolean): void {
  if (typeof value === 'string') {
    if (checksStrings && !value.isWellFormed()) found.isWellFormed = false;
  } else if (typeof value === 'number') {
    if (!Number.isFinite(value)) found.isFinite = false;
  } else if (Array.isArray(value)) {
    for (const item of value) inspect(item, found, checksStrings);
  } else if (typeof value === 'object' && value !== null) inspectMembers(value, found, checksStrings);
}

function inspectMembers(object: object, found: JsonScan, checksStrings: boolean): void {
  for (const name of Object.keys(object)) {
    found.members++;
    if (checksStrings && !name.isWellFormed()) found.isWellFormed = false;
    inspect((object as Readonly<Record<string, unknown>>)[name], found, checksStrings);
  }
}

function toRepeatedTitle(text: Buffer): string {
  return text.length > MAX_SEARCHED_BYTES ? 'a member' : `the member ${quote(findRepeated(text, toWholeSpan(text)))}`;
}

/** Finds a member name that an object has twice; only for an error message. */
function findRepeated(text: Buffer, span: JsonSpan): string | undefined {
  const names = new Set<string>();
  for (const { name, value } of listMembers(text, span)) {
    if (names.has(name)) return name;
    names.add(name);
    const inner = findRepeated(text, value);
    if (inner !== undefined) return inner;
  }
  for (const element of listElements(text, span)) {
    const inner = findRepeated(text, element);
    if (inner !== undefined) return inner;
  }
  return undefined;
}

/** Escapes controls and formats that JSON does not: terminals obey some of them (U+009B), and others reverse the text. */
function quote(name = ''): string {
  return JSON.stringify(name.slice(0, MAX_SHOWN_NAME)).replace(UNSHOWN, (found) => `\\u{${found.codePointAt(0)?.toString(16)}}`);
}

function toProblem(problem: string): StrictJson {
  return { kind: 'problem', problem };
}
