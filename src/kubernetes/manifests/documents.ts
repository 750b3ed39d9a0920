/** Parses manifests like kubectl (YAML 1.1 or JSON, several documents) and changes them in place, which keeps comments and order. */
import {
  type CollectionTag,
  type Document,
  isCollection,
  isScalar,
  isSeq,
  Document as NewDocument,
  type Pair,
  type ScalarTag,
  type Tags,
  visit,
} from 'yaml';
import { parseDocuments, type UnreadFile } from '../../config/load/document.ts';
import type { PatchOperation, PatchPath } from '../injector/patch.ts';

/** One document of a file. */
export interface Manifest {
  /** Starts at 1. */
  readonly number: number;
  readonly line: number;
  readonly value: unknown;
  /** Patches the value at `base`. */
  readonly apply: (base: PatchPath, patch: readonly PatchOperation[]) => void;
  /** The document as text. Unchanged documents are returned byte for byte. */
  readonly toText: () => string;
  readonly toValue: () => unknown;
}

/** YAML 1.1 as in Kubernetes: 0644 is octal and yes is true, but y, dates, 12:30, e1 and 0x_ are strings. */
const CUSTOM_TAGS = (tags: Tags): Tags => {
  const kept = tags.filter(
    (tag) => typeof tag === 'string' || (tag.tag !== 'tag:yaml.org,2002:timestamp' && tag.format !== 'TIME'),
  );
  return [LETTER, VERBATIM, ...(kept.map((tag) => (isScalarTag(tag) ? { ...tag, resolve: toNumberOrText(tag) } : tag)) as Tags)];
};
const isScalarTag = (tag: Tags[number]): tag is ScalarTag => typeof tag === 'object' && 'test' in tag;
const toNumberOrText =
  ({ resolve }: ScalarTag): ScalarTag['resolve'] =>
  (text, ...more) => {
    const value = resolve(text, ...more);
    return Number.isNaN(isScalar(value) ? value.value : value) && text.toLowerCase() !== '.nan' ? text : value;
  };
const LETTER: ScalarTag = { tag: 'tag:yaml.org,2002:str', default: true, test: /^[yYnN]$/, resolve: (text) => text };

/** A plain scalar in its original spelling. */
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

/** Returns the documents of a file, or its syntax errors. */
export function parseManifests(file: string, text: string): readonly Manifest[] | UnreadFile {
  const { documents, lineCounter, problems } = parseDocuments(file, text, {
    version: '1.1',
    customTags: CUSTOM_TAGS as (tags: Tags) => (CollectionTag | ScalarTag)[],
  });
  if (problems.length > 0) return { problems };
  let start = 0;
  return documents.map((document, index) => {
    const [, , end] = document.range;
    // An empty document ends before its line break.
    const next = text[end - 1] === '\n' ? end : text.indexOf('\n', end) + 1 || text.length;
    const source = text.slice(start, next);
    start = next;
    return toManifest(document, index + 1, { source, line: lineCounter.linePos(document.contents?.range[0] ?? 0).line });
  });
}

function toManifest(parsed: Document, number: number, place: { readonly source: string; readonly line: number }): Manifest {
  let document = parsed;
  let isChanged = false;
  return {
    number,
    line: place.line,
    value: parsed.toJS({ maxAliasCount: 100 }),
    apply: (base, patch) => {
      // Aliases are expanded, because their anchors must not change. JSON is converted to YAML.
      if (!isChanged && (hasAliases(parsed) || isFlow(parsed.contents))) document = rebuild(parsed);
      isChanged = true;
      for (const operation of patch) change(document, base, operation);
    },
    toText: () => (isChanged ? print(document, place.source) : place.source),
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

function isFlow(node: unknown): boolean {
  return isCollection(node) && node.flow === true;
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

function change(document: Document, base: PatchPath, operation: PatchOperation): void {
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

/** Sets the value in place, which keeps a comment on the same line. */
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

/** Other readers accept fewer plain scalars between brackets than the printer writes: neither `:8480` nor `/a?b`. */
const SAFE_IN_FLOW = /^[\w./-]+$/;
/** Other readers take strings such as 12:30, 2026-01-01 and 0o17 for numbers or dates. */
const AMBIGUOUS = /^[-+]?\d[\d_]*[-:o]/;

/** Whether another reader could misread the string without quotes, although the printer sees no need for them. */
function isMisread(text: string, path: readonly unknown[]): boolean {
  return AMBIGUOUS.test(text) || (!SAFE_IN_FLOW.test(text) && path.some(isFlow));
}

function print(document: Document, source: string): string {
  const printed = document.clone();
  visit(printed, {
    Scalar: (_, node, path) => {
      const { source: original, value } = node;
      if (original === undefined) {
        if (typeof value === 'string' && isMisread(value, path))
          node.type = value.includes('"') ? 'QUOTE_SINGLE' : 'QUOTE_DOUBLE';
      } else if (node.type === 'PLAIN' && node.tag === undefined && (typeof value !== 'string' || value === original))
        node.value = new Verbatim(original);
    },
  });
  const text = printed.toString({
    lineWidth: 0,
    indentSeq: hasIndentedLists(document, source),
    flowCollectionPadding: /\{ \S/.test(source),
  });
  return text.endsWith('\n') ? text : `${text}\n`;
}

/** Whether the author indents lists below their key. */
function hasIndentedLists(document: Document, source: string): boolean {
  let isIndented: boolean | undefined;
  visit(document, {
    Pair: (_, { key, value }: Pair) => {
      if (!isScalar(key) || !isSeq(value) || value.flow === true || !key.range || !value.range) return undefined;
      isIndented = source !== '' && columnOf(source, document, value.range[0]) > columnOf(source, document, key.range[0]);
      return visit.BREAK;
    },
  });
  return isIndented ?? false;
}

function columnOf(source: string, document: Document, offset: number): number {
  const within = offset - ((document as Document.Parsed).range[2] - source.length);
  return within - (source.lastIndexOf('\n', within - 1) + 1);
}
