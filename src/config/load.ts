/** Reads a config file: YAML with positions, through the schema and the cross-field rules, to a frozen Config or to all problems at once. */
import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';
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
import type { Clock } from '../core/clock.ts';
import type { Config } from './config.ts';
import { type Finding, toFindings } from './issues.ts';
import { toJsonSchema } from './json-schema.ts';
import type { Problem } from './problem.ts';
import { ConfigSchema } from './schema.ts';
import { validate } from './validate.ts';

/** A place in the file, 1-based. */
export interface Position {
  readonly line: number;
  readonly column: number;
}

/** A config that is sound. */
export interface LoadedConfig {
  readonly config: Config;
  /** Warnings only. */
  readonly problems: readonly Problem[];
  /** Where a dotted path stands in the file; the nearest parent where it does not. */
  readonly locate: (path: string) => Position | undefined;
  /** Changes whenever the file's text does. */
  readonly hash: string;
}

/** Either the config, or why there is none. */
export type LoadResult = LoadedConfig | { readonly config: undefined; readonly problems: readonly Problem[] };

const LARGEST_FILE = 1_048_576;
const HASH_LENGTH = 16;

/** Loads and checks `file`; never throws for anything in it. */
export async function loadConfig(file: string, clock: Clock): Promise<LoadResult> {
  const text = await readText(file);
  return typeof text === 'string' ? parseConfig(file, text, clock) : { config: undefined, problems: [text] };
}

/** Checks the text of `file`. */
export function parseConfig(file: string, text: string, clock: Clock): LoadResult {
  const lineCounter = new LineCounter();
  const documents = parseAllDocuments(text, { lineCounter, prettyErrors: false, uniqueKeys: true, version: '1.2' });
  const document = Array.isArray(documents) ? documents[0] : undefined;
  if (document === undefined || document.contents === null) return failed(file, 'the file is empty', 'start with routes:');
  const errors = (documents as Document.Parsed[]).flatMap((each) => each.errors);
  if (errors.length > 0) return { config: undefined, problems: errors.map((error) => toSyntaxProblem(file, error, lineCounter)) };
  if (documents.length > 1) return failed(file, 'the file holds several YAML documents', 'put everything into one, without ---');
  const locate = (path: readonly PropertyKey[], isAboutKey = false): Position | undefined =>
    findPosition(document, path, isAboutKey, lineCounter);
  const toProblem = (severity: Problem['severity'], { path, message, hint, isAboutKey }: Finding): Problem => {
    return {
      severity,
      file,
      ...locate(path, isAboutKey),
      path: path.join('.'),
      message,
      ...(hint === undefined ? undefined : { hint }),
    };
  };
  const value = toValue(document);
  if (value instanceof Error) return failed(file, value.message, 'write the repeated parts out');
  const parsed = ConfigSchema.safeParse(value, { reportInput: true });
  if (!parsed.success) {
    const findings = toFindings(parsed.error.issues, toJsonSchema());
    return { config: undefined, problems: findings.map((finding) => toProblem('error', finding)) };
  }
  const config = freeze(resolveFiles(parsed.data, dirname(resolve(file)))) as Config;
  const problems = validate(config, clock.now()).map(({ severity, ...finding }) => toProblem(severity, finding));
  if (problems.some(({ severity }) => severity === 'error')) return { config: undefined, problems };
  const hash = createHash('sha256').update(text).digest('hex').slice(0, HASH_LENGTH);
  return { config, problems, locate: (path) => locate(path.split('.')), hash };
}

async function readText(file: string): Promise<string | Problem> {
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

function failed(file: string, message: string, hint: string): LoadResult {
  return { config: undefined, problems: [toFileProblem(file, message, hint)] };
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

const FILE_KEYS = new Set([
  'file',
  'urlFile',
  'passwordFile',
  'caFile',
  'certFile',
  'keyFile',
  'clientCaFile',
  'secretDir',
  'mapDir',
]);

/** Relative paths count from the config file, wherever the gate was started. */
function resolveFiles<T>(value: T, base: string): T {
  if (Array.isArray(value)) return value.map((item) => resolveFiles(item, base)) as T;
  if (typeof value !== 'object' || value === null) return value;
  const entries = Object.entries(value).map(([key, inner]) => {
    return [key, FILE_KEYS.has(key) && typeof inner === 'string' ? resolve(base, inner) : resolveFiles(inner, base)];
  });
  return Object.fromEntries(entries) as T;
}

function freeze<T>(value: T): T {
  if (typeof value === 'object' && value !== null) for (const inner of Object.values(value)) freeze(inner);
  return Object.freeze(value);
}
