/** Parses the heads of schemes that sign single headers and parameters, or have signatures in several headers or in the query. */

import type { SignedHead } from '../../core/event.ts';
import type { HeaderFields } from '../../core/head.ts';
import { Refusal, refuse } from '../../core/refusal.ts';
import { BodyProblem, toPlaceTitle } from './body-values.ts';
import { coversQuery, isFieldPiece, isRead, readsQuery } from './coverage.ts';
import type { FieldPiece, FieldType, IdSource, Place, SchemeDescription, SignatureDescription } from './description.ts';
import {
  compileEntryTime,
  compileFieldCheck,
  compileId,
  compileKindReader,
  compileSignatures,
  compileTimeText,
  MAX_SIGNATURE_ENTRIES,
  malformed,
  NO_TIME,
  type ReadHead,
  type Time,
  toEntries,
  toParts,
} from './head.ts';
import { compileHeaderList } from './header-list.ts';
import { compilePieceRules } from './layout.ts';
import type { HeadOptions } from './scheme.ts';
import { AMBIGUOUS, type FormField, findField, foldName, isAlike, parseStrictQuery } from './strict-form.ts';

/** The parts of a head. */
interface HeadParts {
  readonly headers: HeaderFields;
  /** Empty if the scheme reads none. */
  readonly parameters: readonly FormField[];
  /** The entries of all signatures; undefined if they are in the body. */
  readonly entries: readonly string[] | undefined;
  /** The parts of the only signature; empty if the scheme does not split it. */
  readonly parts: readonly string[];
}

/** Reads a text in the head; undefined if it is missing. */
type ReadText = (head: HeadParts) => string | undefined;

function toMissing(): Refusal {
  return refuse('missing_signature', 'missing_signature');
}

/** Compiles the parser. Values in the body stay undefined (body-head.ts). */
export function compileFieldHead(description: SchemeDescription): ReadHead {
  const readParts = compileParts(description);
  const readId = compileIdText(description);
  const readTime = compileTime(description);
  const readSignatures = compileSignatures(description.signature);
  const readFields = compileHeadFields(description);
  const addKind = compileKindReader(description);
  return (headers, options, query = '') => {
    const parts = readParts(headers, options, query);
    if (parts instanceof Refusal) return parts;
    const { entries } = parts;
    const id = readId(parts, options);
    if (id instanceof Refusal) return id;
    const time = readTime(parts);
    if (time instanceof Refusal) return time;
    const signatures = entries === undefined ? [] : readSignatures(entries);
    if (signatures instanceof Refusal) return signatures;
    const fields = readFields(parts);
    if (fields instanceof Refusal) return fields;
    const head: SignedHead = { id, ...time, signatures, ...(fields.length > 0 && { fields }) };
    return addKind === undefined ? head : addKind(head, headers);
  };
}

function compileParts(
  description: SchemeDescription,
): (headers: HeaderFields, options: HeadOptions, query: string) => HeadParts | Refusal {
  const findRepeated = compileFieldCheck(description);
  const readParameters = compileParameters(description);
  const readEntries = compileEntries(description.signature);
  const form = description.signature?.parts;
  return (headers, options, query) => {
    const repeated = findRepeated(headers);
    if (repeated !== undefined) return repeated;
    const parameters = readParameters(query, options);
    if (parameters instanceof Refusal) return parameters;
    const entries = readEntries(headers, parameters);
    if (entries instanceof Refusal) return entries;
    const parts = form === undefined ? undefined : toParts(entries?.[0] ?? '', form);
    return { headers, parameters, entries, parts: parts ?? [] };
  };
}

/** The parameters of the query; empty if the scheme reads none. */
function compileParameters(
  description: SchemeDescription,
): (query: string, options: HeadOptions) => readonly FormField[] | Refusal {
  if (!readsQuery(description)) return () => [];
  const names = listParameters(description);
  const folded = names.map(foldName);
  const isCovered = coversQuery(description);
  return (query, { allowQuery = false }) => {
    const parsed = parseStrictQuery(query);
    if (parsed.kind === 'problem') return malformed(`the query is ambiguous: ${parsed.problem}`);
    const { fields } = parsed;
    const ambiguous = names.find((name) => findField(fields, name) === 'ambiguous');
    if (ambiguous !== undefined) return malformed(`the query parameter ${ambiguous} ${AMBIGUOUS}`);
    // The signature does not cover other parameters, so an attacker could add them.
    const isKnown = (field: FormField): boolean => folded.some((known) => isAlike(field, known));
    if (!isCovered && !allowQuery && !fields.every(isKnown)) return refuse('malformed_request', 'query_not_signed');
    return fields;
  };
}

function listParameters({ signature, signed, timestamp, id }: SchemeDescription): string[] {
  const places: object[] = [...signed.filter(isFieldPiece), timestamp?.from ?? {}, id ?? {}];
  const found = places.flatMap((place) => ('query' in place ? [String(place.query)] : []));
  return [...(signature?.query === undefined ? [] : [signature.query]), ...found];
}

/** The entries of all signatures in the head; undefined if they are in the body. */
function compileEntries(
  signature: SignatureDescription | undefined,
): (headers: HeaderFields, parameters: readonly FormField[]) => readonly string[] | undefined | Refusal {
  if (signature === undefined) return () => undefined;
  const { header, moreHeaders = [], query, list } = signature;
  if (query === undefined && header === '') return () => undefined;
  const names = query === undefined ? [header, ...moreHeaders].map((name) => name.toLowerCase()) : [];
  return (headers, parameters) => {
    const values = query === undefined ? names.map((name) => headers.get(name)) : [toText(parameters, query)];
    const present = values.filter((value) => value !== undefined && value !== '');
    if (present.length === 0) return toMissing();
    const entries: string[] = [];
    for (const value of present) {
      const found = toEntries(value, list);
      if (found === undefined || entries.length + found.length > MAX_SIGNATURE_ENTRIES)
        return malformed(`more than ${MAX_SIGNATURE_ENTRIES} signatures`);
      entries.push(...found);
    }
    return entries;
  };
}

function toText(parameters: readonly FormField[], name: string): string | undefined {
  const found = findField(parameters, name);
  return found === 'ambiguous' ? undefined : found?.value;
}

/** Compiles the reader of a place in the head; undefined for one in the body. */
function compilePlace(place: Place | IdSource): ReadText | undefined {
  if ('header' in place) {
    const name = place.header.toLowerCase();
    const part = 'part' in place ? place.part : undefined;
    if (part === undefined) return ({ headers }) => headers.get(name);
    return ({ headers }) => headers.get(name)?.split(part.separator)[part.index];
  }
  if ('query' in place) return ({ parameters }) => toText(parameters, place.query);
  if ('signaturePart' in place) return ({ parts }) => parts[place.signaturePart];
  return undefined;
}

function compileIdText(description: SchemeDescription): (head: HeadParts, options: HeadOptions) => string | undefined | Refusal {
  const { id } = description;
  const read = id === undefined ? undefined : compilePlace(id);
  if (read === undefined) return () => undefined;
  const check = compileId(description, compilePieceRules(description));
  return (head, options) => check(read(head), options);
}

function compileTime(description: SchemeDescription): (head: HeadParts) => Time | Refusal {
  const { timestamp } = description;
  if (timestamp === undefined) return () => NO_TIME;
  const parse = compileTimeText(timestamp, compilePieceRules(description));
  const { from } = timestamp;
  if ('entry' in from) {
    const readEntry = compileEntryTime(from, parse);
    return ({ entries = [] }) => readEntry(entries);
  }
  const read = compilePlace(from);
  if (read === undefined) return () => NO_TIME;
  return (head) => {
    const text = read(head);
    return text === undefined || text === '' ? toMissing() : parse(text);
  };
}

/** Reads the signed fields; undefined for those in the body. */
function compileHeadFields(description: SchemeDescription): (head: HeadParts) => readonly (string | undefined)[] | Refusal {
  const rules = [...compilePieceRules(description).fields];
  const readers = description.signed.filter(isRead).map((piece): HeadFieldReader => {
    if ('headersIn' in piece) return compileHeaderList(piece, description);
    if ('sortedForm' in piece) return () => undefined;
    const toFieldText = compileFieldText(piece, description, rules.shift() ?? (() => undefined));
    return compileHeadField(compilePlace(piece), toFieldText);
  });
  return (head) => {
    const fields: (string | undefined)[] = [];
    for (const read of readers) {
      const text = read(head);
      if (text instanceof Refusal) return text;
      fields.push(text);
    }
    return fields;
  };
}

type HeadFieldReader = (head: HeadParts) => string | undefined | Refusal;

function compileHeadField(read: ReadText | undefined, toFieldText: FieldReader): HeadFieldReader {
  if (read === undefined) return () => undefined;
  return (head) => toFieldText(read(head));
}

/** Returns the signed text, or the refusal. Text is latin1. */
export type FieldReader = (value: unknown) => string | Refusal;

const TYPES: Readonly<Record<FieldType, { readonly title: string; readonly format: (value: unknown) => string | undefined }>> = {
  string: { title: 'text', format: (value) => (typeof value === 'string' ? value : undefined) },
  // Above 2^53 JavaScript parses different numbers as equal.
  integer: { title: 'an integer', format: (value) => (Number.isSafeInteger(value) ? String(value) : undefined) },
  boolean: { title: 'true or false', format: (value) => (typeof value === 'boolean' ? String(value) : undefined) },
};

/**
 * Compiles the conversion of one field to the text that is signed. It rejects values that another message could have as the same text:
 * `findProblem` is the rule that keeps the field's boundaries unambiguous (layout.ts).
 */
export function compileFieldText(
  piece: FieldPiece,
  { separator }: Pick<SchemeDescription, 'separator'>,
  findProblem: (value: string) => string | undefined,
): FieldReader {
  const { type = 'string', optional } = piece;
  const title = toFieldTitle(piece);
  const { title: form, format } = TYPES[type];
  const escapeText = piece.escape === undefined ? undefined : compileEscape(separator);
  return (value) => {
    if (value instanceof BodyProblem) return malformed(value.text);
    const isMissing = value === undefined || value === null;
    if (isMissing && optional === undefined) return malformed(`${title} is missing`);
    const text = isMissing ? '' : format(value);
    if (text === undefined) return malformed(`${title} is not ${form}`);
    if (findProblem(text) !== undefined) return malformed(`${title} contains a separator of the signed parts`);
    return escapeText === undefined ? text : escapeText(text);
  };
}

function toFieldTitle(piece: FieldPiece): string {
  if ('header' in piece) return `the header ${piece.header}`;
  if ('query' in piece) return `the query parameter ${piece.query}`;
  return 'signaturePart' in piece ? `part ${piece.signaturePart} of the signature` : toPlaceTitle(piece);
}

function compileEscape(separator: string): (text: string) => string {
  const [first = '\\'] = separator;
  return (text) =>
    [...text].map((character) => (character === '\\' || character === first ? `\\${character}` : character)).join('');
}
