/** Parses a YAML file, and locates its values in the file. */
import { getHeapStatistics } from 'node:v8';
import {
  type Document,
  isCollection,
  isMap,
  isNode,
  isScalar,
  type LineCounter,
  type Node,
  type Pair,
  visit,
  type YAMLMap,
} from 'yaml';
import { error, type LocatedProblem, locate, type Path, type Problem } from '../../core/problem.ts';
import { readAnyFile, readStream, UnusableFile } from '../sources/bounded-read.ts';
import { findVariables, parseDocuments, QUOTED } from './syntax.ts';

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

/** Reads the text of `file`, or of `input` in its place, or returns why that is not possible. */
export async function readText(file: string, input?: AsyncIterable<Uint8Array | string>): Promise<string | LocatedProblem> {
  const most = toMaxFileBytes();
  try {
    const bytes = await (input === undefined ? readAnyFile(file, most) : readStream(file, input, most));
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
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
