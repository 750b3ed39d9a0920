/** Parses a YAML file, and locates its values in the file. */

import { getHeapStatistics } from 'node:v8';
import {
  type Document,
  type DocumentOptions,
  isCollection,
  isMap,
  isNode,
  isScalar,
  LineCounter,
  type Node,
  type Pair,
  type ParseOptions,
  parseAllDocuments,
  type SchemaOptions,
  visit,
  type YAMLError,
  type YAMLMap,
  YAMLParseError,
} from 'yaml';
import { error, type LocatedProblem, locate, type Path, type Problem } from '../../core/problem.ts';
import { readAnyFile, readStream, UnusableFile } from '../sources/bounded-read.ts';

/** A position in the file, 1-based. */
export interface TextPosition {
  readonly line: number;
  readonly column: number;
}

/** The contents of a file, before a schema is applied. */
export interface YamlFile {
  readonly value: unknown;
  /** The position of a path in the file, or of its nearest parent that exists. */
  readonly toPosition: (path: Path) => TextPosition | undefined;
  readonly findVariables: () => readonly LocatedProblem[];
  readonly locate: (problem: Problem) => LocatedProblem;
}

/** The problems that prevented parsing. */
export interface UnreadFile {
  readonly problems: readonly LocatedProblem[];
}

const MAX_FILE_BYTES = 1_048_576;
/** Parsing and validating takes so much of the heap for each byte: 77 to 106 were measured. */
const HEAP_PER_BYTE = 110;
/** The characters that may begin a value, and what each takes of the heap: up to 500 bytes were measured, for `1,` again and again. */
const SEPARATORS = new Set(',[{:\n');
const HEAP_PER_SEPARATOR = 600;
/** The heap of a process without a config, with garbage. */
const BASE_HEAP_BYTES = 24 * 1_048_576;
const TOO_LITTLE_HEAP = 'the heap of this process has no room for more: raise the memory limit (docs/sizing.md)';
/** The message of a problem with a file that does not exist, for callers that skip such files. */
export const FILE_NOT_FOUND = 'the file does not exist';

/** Parses the YAML in `text`. `start` is the hint for an empty file; at most `maxProblems` are reported. */
export function parseYaml(file: string, text: string, start: string, maxProblems?: number): YamlFile | UnreadFile {
  const { documents, lineCounter, problems } = parseDocuments(file, text, { version: '1.2' });
  const [document] = documents;
  if (document === undefined || document.contents === null) return failed(file, 'the file is empty', start);
  if (problems.length > 0) return { problems: problems.slice(0, maxProblems) };
  if (documents.length > 1)
    return failed(file, 'the file contains several YAML documents', 'put everything into one document, without ---');
  const reserved = findReservedKey(document);
  if (reserved !== undefined) return { problems: [locate(RESERVED_KEY, file, toPosition(reserved, lineCounter))] };
  const value = toValue(document);
  if (value instanceof Error) return { problems: [toAliasProblem(file, value, document, lineCounter)] };
  return {
    value,
    toPosition: (path) => findPosition(document, { path }, lineCounter),
    findVariables: () => findVariables(file, document, lineCounter),
    locate: (problem) => locate(problem, file, findPosition(document, problem, lineCounter)),
  };
}

/** The part of a heap that one config may use: a reload holds two. */
export function toConfigHeap(heapBytes: number): number {
  return Math.max(0, heapBytes - BASE_HEAP_BYTES) / 2;
}

/** The largest file that can be parsed beside a running config. */
export function toMaxFileBytes(heapBytes = getHeapStatistics().heap_size_limit): number {
  return Math.min(MAX_FILE_BYTES, Math.floor(toConfigHeap(heapBytes) / HEAP_PER_BYTE));
}

/** Whether the values of a file can be parsed: a dense one takes more than others of its size. */
function hasHeapFor(text: string): boolean {
  let left = toConfigHeap(getHeapStatistics().heap_size_limit) / HEAP_PER_SEPARATOR;
  for (const char of text) if (SEPARATORS.has(char)) left--;
  return left >= 0;
}

/** Reads the text of `file`, or of `input` in its place, or returns why that is not possible. */
export async function readText(file: string, input?: AsyncIterable<Uint8Array | string>): Promise<string | LocatedProblem> {
  const most = toMaxFileBytes();
  try {
    const bytes = await (input === undefined ? readAnyFile(file, most) : readStream(file, input, most));
    const text = new TextDecoder('utf-8', { fatal: true }).decode(bytes);
    if (!hasHeapFor(text)) return locate(error([], 'the file has too many values', TOO_LITTLE_HEAP), file);
    return text;
  } catch (thrown) {
    const problem =
      thrown instanceof UnusableFile
        ? error([], `the file ${thrown.message}`, most < MAX_FILE_BYTES ? TOO_LITTLE_HEAP : thrown.hint)
        : error([], toReadMessage(thrown));
    return locate(problem, file);
  }
}

function toReadMessage(thrown: unknown): string {
  switch ((thrown as NodeJS.ErrnoException).code) {
    case 'ENOENT':
      return FILE_NOT_FOUND;
    case 'EISDIR':
      return 'the path is a directory, not a file';
    case 'EACCES':
      return 'permission denied';
    case 'ERR_ENCODING_INVALID_ENCODED_DATA':
      return 'the file is not UTF-8 text';
    default:
      return `the file cannot be read (${(thrown as NodeJS.ErrnoException).code ?? 'unknown reason'})`;
  }
}

function failed(file: string, message: string, hint: string): UnreadFile {
  return { problems: [locate(error([], message, hint), file)] };
}

/** The parser's message has the text after the *, which may be a secret. */
function toAliasProblem(file: string, { message }: Error, document: Document.Parsed, lineCounter: LineCounter): LocatedProblem {
  if (!message.startsWith('Unresolved alias'))
    return locate(error([], message, 'write the repeated parts out instead of using aliases'), file);
  let found: Node | undefined;
  visit(document, {
    Alias(_, alias) {
      if (alias.resolve(document) !== undefined) return undefined;
      found = alias;
      return visit.BREAK;
    },
  });
  return locate(error([], 'a value cannot start with *', QUOTED), file, found && toPosition(found, lineCounter));
}

/** The document as plain values. Aliases are bounded, so that a few lines cannot expand to gigabytes. */
function toValue(document: Document.Parsed): unknown {
  try {
    return document.toJS({ maxAliasCount: 50 });
  } catch (thrown) {
    return thrown instanceof Error ? thrown : new Error('the file cannot be read as YAML');
  }
}

function findPosition(
  document: Document.Parsed,
  { path, isAboutKey }: Pick<Problem, 'path' | 'isAboutKey'>,
  lineCounter: LineCounter,
): TextPosition | undefined {
  for (let length = path.length; length >= 0; length--) {
    const isExact = length === path.length;
    const node = findNode(document.contents, path.slice(0, length), isExact && isAboutKey === true);
    const position = node && toPosition(node, lineCounter);
    if (position !== undefined) return position;
  }
  return undefined;
}

function toPosition({ range }: Node, lineCounter: LineCounter): TextPosition | undefined {
  if (range === undefined || range === null) return undefined;
  const { line, col } = lineCounter.linePos(range[0]);
  return { line, column: col };
}

const RESERVED_KEY = error([], 'the name __proto__ cannot be used', 'choose another name');

/** Zod drops a member `__proto__` without an error: a header, for example, would not be sent. */
function findReservedKey(document: Document.Parsed): Node | undefined {
  let found: Node | undefined;
  visit(document, {
    Pair: (_, { key }) => {
      if (!isScalar(key) || key.value !== '__proto__') return undefined;
      found = key;
      return visit.BREAK;
    },
  });
  return found;
}

function findNode(from: Node | null, path: Path, wantsKey: boolean): Node | undefined {
  let node: unknown = from;
  for (const [index, step] of path.entries()) {
    if (!isCollection(node)) return undefined;
    const pair = isMap(node) ? findPair(node, String(step)) : undefined;
    if (isMap(node) && index === path.length - 1 && wantsKey) return isNode(pair?.key) ? pair.key : undefined;
    node = isMap(node) ? pair?.value : node.get(Number(step), true);
  }
  return isNode(node) ? node : undefined;
}

/** The pairs of maps by key: a search through a large map for each of its problems would take seconds. */
const PAIRS = new WeakMap<YAMLMap, ReadonlyMap<string, Pair>>();

function findPair(map: YAMLMap, key: string): Pair | undefined {
  const pairs =
    PAIRS.get(map) ?? new Map(map.items.flatMap((pair) => (isScalar(pair.key) ? [[String(pair.key.value), pair]] : [])));
  PAIRS.set(map, pairs);
  return pairs.get(key);
}

// Turns the parser's errors into one problem that says what to change: its messages name tokens, and one mistake causes several.

/** The documents of a file, and its syntax errors. */
interface ParsedFile {
  readonly documents: readonly Document.Parsed[];
  readonly lineCounter: LineCounter;
  readonly problems: readonly LocatedProblem[];
}

/** A file that the parser read, with errors. */
interface BrokenFile {
  readonly file: string;
  readonly text: string;
  readonly documents: readonly Document.Parsed[];
  readonly errors: readonly YAMLError[];
  readonly lineCounter: LineCounter;
}

/** Parses the YAML in `text`, and finds its syntax errors and duplicate keys. */
export function parseDocuments(file: string, text: string, options: ParseOptions & DocumentOptions & SchemaOptions): ParsedFile {
  const lineCounter = new LineCounter();
  // The parser compares each key with all keys before it, which would take seconds for some thousand keys.
  // Warnings would show values on standard error.
  const parsed = parseAllDocuments(text, { ...options, lineCounter, prettyErrors: false, uniqueKeys: false, logLevel: 'error' });
  const documents: readonly Document.Parsed[] = Array.isArray(parsed) ? parsed : [];
  const errors = documents.flatMap((document) => [...document.errors, ...findDuplicates(document)]);
  return { documents, lineCounter, problems: toSyntaxProblems({ file, text, documents, errors, lineCounter }) };
}

function findDuplicates(document: Document.Parsed): YAMLError[] {
  const found: YAMLError[] = [];
  const keysOf = new Map<unknown, Set<unknown>>();
  visit(document, {
    Pair(_, { key }, path) {
      const map = path.at(-1);
      if (!isMap(map) || !isScalar(key) || !key.range) return;
      const keys = keysOf.get(map) ?? new Set();
      if (keys.has(key.value)) found.push(new YAMLParseError([key.range[0], key.range[1]], 'DUPLICATE_KEY', ''));
      keysOf.set(map, keys.add(key.value));
    },
  });
  return found;
}

/** A mistake, and its beginning if the parser noticed it elsewhere. */
interface Mistake {
  readonly message: string;
  readonly hint?: string;
  readonly offset?: number | undefined;
}

/** Duplicate keys are independent of each other; of all other errors, only the first is not a consequence. */
function toSyntaxProblems({ errors, ...broken }: BrokenFile): LocatedProblem[] {
  const duplicates = errors.filter(({ code }) => code === 'DUPLICATE_KEY');
  const first = errors.find(({ code }) => code !== 'DUPLICATE_KEY');
  return [...duplicates, ...(first === undefined ? [] : [first])].map((found) => {
    const { message, hint, offset = found.pos[0] } = describe(found, broken);
    const { line, col } = broken.lineCounter.linePos(offset);
    return locate(error([], message, hint), broken.file, { line, column: col });
  });
}

const INDENT: Mistake = {
  message: 'this line is not indented as the keys before it',
  hint: 'indent all keys of an object alike',
};
const UNCLOSED = /end with a ([}\]])$/;
const EXTRA = /^Unexpected flow-(?:map|seq)-end token in YAML (?:stream|document): "([}\]])"$/;
/** The hint for a value that YAML takes for something else. */
const QUOTED = 'put the value in quotation marks';

function describe({ code, message, pos: [at] }: YAMLError, { text, documents }: Omit<BrokenFile, 'errors'>): Mistake {
  const closer = UNCLOSED.exec(message)?.[1];
  if (closer !== undefined) {
    const opener = closer === '}' ? '{' : '[';
    return {
      message: `this ${opener} is never closed`,
      hint: `write ${closer} after its last value`,
      offset: findOpen(documents, at),
    };
  }
  const extra = code === 'UNEXPECTED_TOKEN' ? EXTRA.exec(message)?.[1] : undefined;
  if (extra !== undefined) return { message: `this ${extra} closes nothing`, hint: 'remove it' };
  switch (code) {
    case 'DUPLICATE_KEY':
      return {
        message: 'this key is already in use in the same object',
        hint: 'merge the values under one key, or remove one of them',
      };
    case 'TAB_AS_INDENT':
      return { message, hint: 'indent with spaces: YAML does not allow tabs' };
    case 'MISSING_CHAR':
      if (message.startsWith('Missing closing'))
        return { message: 'this quotation mark is never closed', offset: findQuote(documents, at) };
      return { ...INDENT, offset: skipSpaces(text, at) };
    case 'BAD_INDENT':
      return { ...INDENT, offset: skipSpaces(text, at) };
    case 'MULTILINE_IMPLICIT_KEY':
      return { message: 'this line has no colon after its key', hint: 'write key: value, with a space after the colon' };
    case 'BLOCK_AS_IMPLICIT_KEY':
      return describeSecondKey(text, at);
    case 'BAD_SCALAR_START':
      return { message: `a value cannot start with ${text[at]}`, hint: QUOTED };
    case 'RESOURCE_EXHAUSTION':
      return { message: 'values are nested too deeply here', hint: 'close brackets that were left open' };
    case 'BAD_DQ_ESCAPE':
      return { message: 'this escape sequence is not valid', hint: 'write \\\\ for a backslash, or use single quotation marks' };
    case 'TAG_RESOLVE_FAILED':
      return { message: 'a value cannot start with !', hint: QUOTED };
    case 'BAD_DIRECTIVE':
      return { message: 'a line cannot start with %', hint: QUOTED };
    // After the colon, the message quotes the text.
    case 'UNEXPECTED_TOKEN':
      return toVariable(text.slice(at - 1), 0) ?? { message: message.replace(/: .*/s, '') };
    default:
      return { message };
  }
}

/** A second colon in the line, or a next line that is indented as if it belonged to the value. */
function describeSecondKey(text: string, at: number): Mistake {
  const end = text.indexOf('\n', at);
  const line = text.slice(at, end === -1 ? undefined : end);
  if (/:(?:\s|$)/.test(line)) return { message: 'this value has a colon and a space in it', hint: QUOTED };
  return { ...INDENT, offset: skipSpaces(text, end + 1) };
}

function skipSpaces(text: string, from: number): number {
  return from + Math.max(0, text.slice(from).search(/\S/));
}

/** The offset of the last collection in brackets that begins before `end`. */
function findOpen(documents: readonly Document.Parsed[], end: number): number | undefined {
  let found: number | undefined;
  for (const document of documents)
    visit(document, {
      Collection(_, { flow, range }) {
        if (flow === true && range && range[0] < end && range[1] >= end - 1) found = range[0];
      },
    });
  return found;
}

function findQuote(documents: readonly Document.Parsed[], end: number): number | undefined {
  let found: number | undefined;
  for (const document of documents)
    visit(document, {
      Node(_, node) {
        if (isScalar(node) && node.type?.startsWith('QUOTE') && node.range && node.range[0] < end) found = node.range[0];
      },
    });
  return found;
}

/** Names of environment variables: shells and Compose replace them, and users expect it here. */
const VARIABLE = /\$\{([A-Za-z_]\w*)/;
/** Another name may be a part of a secret. */
const USUAL_NAME = /^[A-Z][A-Z0-9_]*$/;

/** The mistake of a variable in `text`, which begins at `index` if that is given. */
function toVariable(text: string, index?: number): Mistake | undefined {
  const found = VARIABLE.exec(text);
  if (found === null || (index !== undefined && found.index !== index)) return undefined;
  const name = USUAL_NAME.test(found[1] as string) ? found[1] : 'NAME';
  return {
    message: `variables such as \${${name}} are not replaced in the config`,
    hint: `write the value itself; a secret is { env: ${name} }, and the options --listen, --admin and --upstream replace addresses`,
  };
}

/** Values with a variable, which would otherwise be used as they are written. */
function findVariables(file: string, document: Document.Parsed, lineCounter: LineCounter): LocatedProblem[] {
  const problems: LocatedProblem[] = [];
  visit(document, {
    Scalar(key, { value, range }) {
      const found = key !== 'key' && typeof value === 'string' ? toVariable(value) : undefined;
      if (found === undefined || !range) return;
      const { line, col } = lineCounter.linePos(range[0]);
      problems.push(locate(error([], found.message, found.hint), file, { line, column: col }));
    },
  });
  return problems;
}
