/** Manifests as kubectl reads them: YAML 1.1 or JSON, several documents; changed in place, so that comments and order stay. */
import {
  type CollectionTag,
  type Document,
  isCollection,
  isScalar,
  isSeq,
  LineCounter,
  Document as NewDocument,
  type Pair,
  parseAllDocuments,
  type ScalarTag,
  type Tags,
  visit,
} from 'yaml';
import type { PatchOperation, Path } from '../injector/patch.ts';

/** One document of a file. */
export interface Manifest {
  /** From 1 on. */
  readonly number: number;
  readonly line: number;
  readonly value: unknown;
  /** Patches what stands at `base`. */
  readonly apply: (base: Path, patch: readonly PatchOperation[]) => void;
  /** As it is now: what was not touched keeps its very characters. */
  readonly toText: () => string;
  readonly toValue: () => unknown;
}

/** Where a file is no YAML. */
export interface SyntaxTrouble {
  readonly line: number;
  readonly column: number;
  readonly message: string;
}

/** YAML 1.1 as Kubernetes has it: 0644 is octal and yes is true, but y is text, and dates and 12:30 are, too. */
const CUSTOM_TAGS = (tags: Tags): Tags => {
  const kept = tags.filter(
    (tag) => typeof tag === 'string' || (tag.tag !== 'tag:yaml.org,2002:timestamp' && tag.format !== 'TIME'),
  );
  return [LETTER, VERBATIM, ...kept];
};
const LETTER: ScalarTag = { tag: 'tag:yaml.org,2002:str', default: true, test: /^[yYnN]$/, resolve: (text) => text };

/** A number, boolean or null, as it was written. */
class Verbatim {
  readonly source: string;
  constructor(source: string) {
    this.source = source;
  }
}
const VERBATIM: ScalarTag = {
  tag: 'tag:yaml.org,2002:sidegate',
  default: true,
  identify: (value) => value instanceof Verbatim,
  resolve: (text) => text,
  stringify: ({ value }) => (value as Verbatim).source,
};

/** The documents of a file, or why there are none. */
export function parseManifests(text: string): readonly Manifest[] | SyntaxTrouble {
  const lineCounter = new LineCounter();
  const parsed = parseAllDocuments(text, {
    version: '1.1',
    lineCounter,
    prettyErrors: false,
    customTags: CUSTOM_TAGS as (tags: Tags) => (CollectionTag | ScalarTag)[],
  });
  const documents = Array.isArray(parsed) ? parsed : [];
  for (const { errors } of documents) {
    const [error] = errors;
    if (error === undefined) continue;
    const { line, col } = lineCounter.linePos(error.pos[0]);
    return { line, column: col, message: error.message };
  }
  let start = 0;
  return documents.map((document, index) => {
    const source = text.slice(start, document.range[2]);
    start = document.range[2];
    return toManifest(document, index + 1, { source, line: lineCounter.linePos(document.contents?.range[0] ?? 0).line });
  });
}

function toManifest(parsed: Document, number: number, place: { readonly source: string; readonly line: number }): Manifest {
  let document = parsed;
  let isTouched = false;
  return {
    number,
    line: place.line,
    value: parsed.toJS({ maxAliasCount: 100 }),
    apply: (base, patch) => {
      // What an alias stands for stands elsewhere, too: there it must not change. JSON becomes YAML.
      if (!isTouched && (hasAliases(parsed) || isJson(parsed))) document = rebuild(parsed);
      isTouched = true;
      for (const operation of patch) change(document, base, operation);
    },
    toText: () => (isTouched ? print(document, place.source) : place.source),
    toValue: () => document.toJS({ maxAliasCount: 100 }),
  };
}

function hasAliases(document: Document): boolean {
  let found = false;
  visit(document, {
    Alias: () => {
      found = true;
      return visit.BREAK;
    },
  });
  return found;
}

function isJson({ contents }: Document): boolean {
  return isCollection(contents) && contents.flow === true;
}

function rebuild(document: Document): Document {
  const rebuilt = new NewDocument(document.toJS(), {
    version: '1.1',
    customTags: CUSTOM_TAGS as never,
    aliasDuplicateObjects: false,
  });
  rebuilt.commentBefore = document.commentBefore;
  if (document.directives?.docStart === true && rebuilt.directives !== undefined) rebuilt.directives.docStart = true;
  return rebuilt;
}

function change(document: Document, base: Path, operation: PatchOperation): void {
  const path = [...base, ...fromPointer(operation.path)];
  const parent = document.getIn(path.slice(0, -1), true);
  const last = path.at(-1) ?? '';
  if (operation.op === 'remove') document.deleteIn(path);
  else if (isSeq(parent) && operation.op === 'add') {
    const node = document.createNode(operation.value);
    if (last === '-') parent.items.push(node);
    else parent.items.splice(Number(last), 0, node);
  } else if (!setScalar(document.getIn(path, true), operation.value)) document.setIn(path, document.createNode(operation.value));
}

/** In place, so that a comment beside it stays. */
function setScalar(node: unknown, value: unknown): boolean {
  if (!isScalar(node) || typeof value === 'object') return false;
  node.value = value;
  delete node.source;
  delete node.format;
  return true;
}

function fromPointer(pointer: string): string[] {
  return pointer
    .split('/')
    .slice(1)
    .map((step) => step.replaceAll('~1', '/').replaceAll('~0', '~'));
}

function print(document: Document, source: string): string {
  visit(document, {
    Scalar: (_, node) => {
      if (node.source !== undefined && node.type === 'PLAIN' && typeof node.value !== 'string' && node.tag === undefined)
        node.value = new Verbatim(node.source);
    },
  });
  const text = document.toString({
    lineWidth: 0,
    indentSeq: hasIndentedLists(document, source),
    flowCollectionPadding: /\{ \S/.test(source),
  });
  return text.endsWith('\n') ? text : `${text}\n`;
}

/** Lists under a key stand at its own column, or further in: as the author has it. */
function hasIndentedLists(document: Document, source: string): boolean {
  let answer: boolean | undefined;
  visit(document, {
    Pair: (_, { key, value }: Pair) => {
      if (!isScalar(key) || !isSeq(value) || value.flow === true || !key.range || !value.range) return undefined;
      answer = source !== '' && columnOf(source, document, value.range[0]) > columnOf(source, document, key.range[0]);
      return visit.BREAK;
    },
  });
  return answer ?? false;
}

function columnOf(source: string, document: Document, offset: number): number {
  const within = offset - ((document as Document.Parsed).range[2] - source.length);
  return within - (source.lastIndexOf('\n', within - 1) + 1);
}
