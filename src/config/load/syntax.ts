/** Turns the parser's errors into one problem that says what to change: its messages name tokens, and one mistake causes several. */
import {
  type Document,
  type DocumentOptions,
  isMap,
  isScalar,
  LineCounter,
  type ParseOptions,
  parseAllDocuments,
  type SchemaOptions,
  visit,
  type YAMLError,
  YAMLParseError,
} from 'yaml';
import { error, type LocatedProblem, locate } from '../../core/problem.ts';

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
export const QUOTED = 'put the value in quotation marks';

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
export function findVariables(file: string, document: Document.Parsed, lineCounter: LineCounter): LocatedProblem[] {
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
