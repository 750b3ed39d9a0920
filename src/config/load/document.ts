/** Reads a YAML file that people write: its text, its values, and where in the file each of them stands. */
import { readFile } from 'node:fs/promises';
import {
  type Document,
  isCollection,
  isMap,
  isNode,
  isScalar,
  LineCounter,
  type Node,
  parseAllDocuments,
  type YAMLError,
} from 'yaml';
import type { Finding } from '../schema/issues.ts';
import type { Problem } from '../schema/problem.ts';

/** A place in the file, 1-based. */
export interface Position {
  readonly line: number;
  readonly column: number;
}

/** What a file says, before any schema has seen it. */
export interface YamlFile {
  readonly value: unknown;
  /** Where a path stands in the file; the nearest parent where it does not. */
  readonly locate: (path: readonly PropertyKey[]) => Position | undefined;
  /** A finding with its place. */
  readonly toProblem: (severity: Problem['severity'], finding: Finding) => Problem;
}

/** Why there is none. */
export interface UnreadFile {
  readonly problems: readonly Problem[];
}

const LARGEST_FILE = 1_048_576;

/** Reads the YAML in `text`; `start` is a hint for who wrote nothing, `mostProblems` what is told at most. */
export function parseYaml(file: string, text: string, start: string, mostProblems?: number): YamlFile | UnreadFile {
  const lineCounter = new LineCounter();
  const documents = parseAllDocuments(text, { lineCounter, prettyErrors: false, uniqueKeys: true, version: '1.2' });
  const document = Array.isArray(documents) ? documents[0] : undefined;
  if (document === undefined || document.contents === null) return failed(file, 'the file is empty', start);
  const errors = (documents as Document.Parsed[]).flatMap((each) => each.errors);
  if (errors.length > 0)
    return { problems: errors.slice(0, mostProblems).map((error) => toSyntaxProblem(file, error, lineCounter)) };
  if (documents.length > 1) return failed(file, 'the file holds several YAML documents', 'put everything into one, without ---');
  const value = toValue(document);
  if (value instanceof Error) return failed(file, value.message, 'write the repeated parts out');
  const locate = (path: readonly PropertyKey[], isAboutKey = false): Position | undefined =>
    findPosition(document, path, isAboutKey, lineCounter);
  return {
    value,
    locate,
    toProblem: (severity, { path, message, hint, isAboutKey }) => ({
      severity,
      file,
      ...locate(path, isAboutKey),
      path: path.join('.'),
      message,
      ...(hint === undefined ? undefined : { hint }),
    }),
  };
}

/** The text of `file`, or why it cannot be had. */
export async function readText(file: string): Promise<string | Problem> {
  try {
    const bytes = await readFile(file);
    if (bytes.length > LARGEST_FILE)
      return toFileProblem(file, `the file has ${bytes.length} bytes; ${LARGEST_FILE} is the most`);
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch (thrown) {
    return toFileProblem(file, toReadMessage(thrown));
  }
}

function toReadMessage(thrown: unknown): string {
  switch ((thrown as NodeJS.ErrnoException).code) {
    case 'ENOENT':
      return 'there is no such file';
    case 'EISDIR':
      return 'this is a directory, not a file';
    case 'EACCES':
      return 'the file may not be read by this user';
    case 'ERR_ENCODING_INVALID_ENCODED_DATA':
      return 'the file is not UTF-8 text';
    default:
      return `the file cannot be read (${(thrown as NodeJS.ErrnoException).code ?? 'unknown reason'})`;
  }
}

function toFileProblem(file: string, message: string, hint?: string): Problem {
  return { severity: 'error', file, path: '', message, ...(hint === undefined ? undefined : { hint }) };
}

function failed(file: string, message: string, hint: string): UnreadFile {
  return { problems: [toFileProblem(file, message, hint)] };
}

function toSyntaxProblem(file: string, error: YAMLError, lineCounter: LineCounter): Problem {
  const { line, col } = lineCounter.linePos(error.pos[0]);
  const hint = error.code === 'TAB_AS_INDENT' ? { hint: 'indent with spaces: YAML has no tabs' } : undefined;
  return { severity: 'error', file, line, column: col, path: '', message: error.message, ...hint };
}

/** The document as plain values; aliases are bounded, so that a few lines cannot blow up to gigabytes. */
function toValue(document: Document.Parsed): unknown {
  try {
    return document.toJS({ maxAliasCount: 50 });
  } catch (thrown) {
    return thrown instanceof Error ? thrown : new Error('the file cannot be read as YAML');
  }
}

function findPosition(
  document: Document.Parsed,
  path: readonly PropertyKey[],
  isAboutKey: boolean,
  lineCounter: LineCounter,
): Position | undefined {
  for (let length = path.length; length >= 0; length--) {
    const isExact = length === path.length;
    const node = findNode(document.contents, path.slice(0, length), isExact && isAboutKey);
    if (node?.range === undefined || node.range === null) continue;
    const { line, col } = lineCounter.linePos(node.range[0]);
    return { line, column: col };
  }
  return undefined;
}

function findNode(from: Node | null, path: readonly PropertyKey[], wantsKey: boolean): Node | undefined {
  let node: unknown = from;
  for (const [index, step] of path.entries()) {
    const isLast = index === path.length - 1;
    if (isMap(node) && isLast && wantsKey) {
      const pair = node.items.find(({ key }) => isScalar(key) && String(key.value) === String(step));
      return isNode(pair?.key) ? pair.key : undefined;
    }
    if (!isCollection(node)) return undefined;
    node = node.get(isMap(node) ? String(step) : Number(step), true);
  }
  return isNode(node) ? node : undefined;
}
