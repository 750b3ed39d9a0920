/** Shows the problems of a config with the lines that they are about. */
import { isMap, isScalar, isSeq, Lexer, type Pair } from 'yaml';
import { parseDocuments, readText } from '../config/load/document.ts';
import { isShownValue, toShownKey } from '../config/schema/issues.ts';
import { descend, type JsonSchema, toJsonSchema, toVariants } from '../config/schema/json-schema.ts';
import { formatShownProblem, type LocatedProblem, type Severity } from '../core/problem.ts';
import { toPrintable } from '../core/text.ts';

/** Where the problems are from and go to. */
interface Shown {
  readonly file: string;
  /** Of the config; default: it is read from `file`. */
  readonly text?: string | LocatedProblem | undefined;
  readonly write: (text: string) => void;
  readonly paint?: (severity: Severity) => string;
}

export async function showProblems(problems: readonly LocatedProblem[], { file, text, write, paint }: Shown): Promise<void> {
  if (problems.length === 0) return;
  const read = text ?? (await readText(file));
  const toExcerpt = createExcerpts(typeof read === 'string' ? read : '');
  for (const problem of problems) write(`${formatShownProblem(problem, toExcerpt(problem), paint)}\n`);
}

// The line of a config that a problem is about, without what may be a secret: only keys, and values that the schema knows not to be one.

const MAX_EXCERPT = 120;
/** A longer line has no excerpt: each of its problems would copy it. */
const MAX_LINE = 10_000;
/** In place of each hidden character, so that columns stay as they are. */
const HIDDEN = '\0';
const HIDDEN_RUN = /\0+/g;
const INDICATORS: readonly string[] = ['-', '?', ':', '{', '}', '[', ']', ',', '---', '...', '\ufeff'];
/** The beginning of a text in several lines. */
const BLOCK_HEADER = /^[|>][-+\d]{0,2}$/;
/** The lexer announces that the next token is a scalar. */
const SCALAR = '\u001f';

/** Returns the excerpts of problems with a file of this text: the line, and a mark below the column. */
export function createExcerpts(text: string): (problem: LocatedProblem) => string[] {
  const lines = mask(text).split(/\r?\n/);
  return ({ line, column = 1 }) => {
    const whole = lines[(line ?? 0) - 1];
    if (line === undefined || whole === undefined || whole.length > MAX_LINE) return [];
    const before = toShown(whole.slice(0, column - 1));
    const masked = toShown(whole);
    const from = masked.length <= MAX_EXCERPT ? 0 : Math.max(0, before.length - MAX_EXCERPT / 2);
    const shown = masked.slice(from, from + MAX_EXCERPT);
    return [`  ${line} | ${shown}`, `  ${' '.repeat(String(line).length)} | ${' '.repeat(before.length - from)}^`];
  };
}

function toShown(masked: string): string {
  return toPrintable(masked.replaceAll(HIDDEN_RUN, '…'));
}

interface ExcerptToken {
  readonly source: string;
  readonly offset: number;
  readonly isScalar: boolean;
}

/** Comments, anchors, aliases and tags are hidden as well. */
function mask(text: string): string {
  const tokens = [...toTokens(text)];
  const shown = findShown(text) ?? findKnownKeys(tokens);
  return tokens
    .map(({ source, offset, isScalar: hasText }) => {
      const isShown = hasText ? shown.has(offset) : isIndicator(source);
      return isShown ? source : source.replaceAll(/[^\r\n]/g, HIDDEN);
    })
    .join('');
}

function isIndicator(source: string): boolean {
  return source.trim() === '' || INDICATORS.includes(source) || BLOCK_HEADER.test(source);
}

function* toTokens(text: string): Generator<ExcerptToken> {
  let offset = 0;
  let isNextScalar = false;
  for (const source of new Lexer().lex(text)) {
    // Control characters that are not in the text.
    if (!text.startsWith(source, offset)) {
      isNextScalar = source === SCALAR;
      continue;
    }
    yield { source, offset, isScalar: isNextScalar || /^["']/.test(source) };
    isNextScalar = false;
    offset += source.length;
  }
}

/** The offsets of the scalars that may be shown; undefined if the text cannot be parsed, so that nobody knows their places. */
function findShown(text: string): ReadonlySet<number> | undefined {
  const { documents, problems } = parseDocuments('', text, { version: '1.2' });
  if (documents.length !== 1 || problems.length > 0) return undefined;
  const shown = new Set<number>();
  addShown(documents[0]?.contents, toVariants(toJsonSchema()), shown);
  return shown;
}

function addShown(node: unknown, schemas: readonly JsonSchema[], shown: Set<number>): void {
  if (isScalar(node) && node.range && isShownValue(schemas, node.value)) shown.add(node.range[0]);
  if (isSeq(node)) for (const [index, item] of node.items.entries()) addShown(item, descend(schemas, index), shown);
  if (isMap(node)) for (const pair of node.items) addShownPair(pair, schemas, shown);
}

function addShownPair({ key, value }: Pair, schemas: readonly JsonSchema[], shown: Set<number>): void {
  if (!isScalar(key) || !key.range) return;
  const name = String(key.value);
  const isKnown = schemas.some(({ properties = {} }) => Object.hasOwn(properties, name));
  const hasValue = value !== null && !(isScalar(value) && value.value === null);
  if (toShownKey(name, isKnown, hasValue) === name) shown.add(key.range[0]);
  addShown(value, descend(schemas, name), shown);
}

/** Of a text that cannot be parsed, shows only the words that are keys somewhere in the schema. */
function findKnownKeys(tokens: readonly ExcerptToken[]): ReadonlySet<number> {
  const known = new Set<string>();
  const walk = (schema: unknown): void => {
    if (typeof schema !== 'object' || schema === null) return;
    for (const name of Object.keys((schema as JsonSchema).properties ?? {})) known.add(name);
    for (const inner of Object.values(schema)) walk(inner);
  };
  walk(toJsonSchema());
  const isKey = ({ source, isScalar: hasText }: ExcerptToken, index: number): boolean =>
    hasText && known.has(source) && tokens[index + 1]?.source === ':';
  return new Set(tokens.filter(isKey).map(({ offset }) => offset));
}
