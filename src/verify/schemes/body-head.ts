/** Completes a head with what the body contains: signatures, a signed ID and timestamp, signed fields. */
import type { SignedHead } from '../../core/event.ts';
import { Refusal, refuse } from '../../core/refusal.ts';
import { BodyContent, BodyProblem, compileBodyPlace, isBodyPlace, type ReadBodyValue, toPlaceTitle } from './body-values.ts';
import { coversBody, isFieldPiece, isRead, listSignedPlaces, readsBody } from './coverage.ts';
import type { BodyPlace, SchemeDescription, SignatureDescription, SortedFormPiece } from './description.ts';
import { compileFieldText, type FieldReader } from './field-head.ts';
import { compileId, compileSignatures, compileTimeText, MAX_SIGNATURE_ENTRIES, malformed, toEntries } from './head.ts';
import { compilePieceRules } from './layout.ts';
import type { HeadOptions } from './scheme.ts';
import { type FormField, findField, foldName, isAlike } from './strict-form.ts';

/** Returns the complete head, or the refusal `missing_signature` or `malformed_signature`. */
type ReadBody = (head: SignedHead, body: Buffer, options: HeadOptions) => SignedHead | Refusal;

/** Changes one property of a head, or returns the refusal. */
type HeadStep = (head: HeadDraft, content: BodyContent, options: HeadOptions) => Refusal | undefined;

/** A head while it is completed. */
type HeadDraft = { -readonly [Name in keyof SignedHead]: SignedHead[Name] };

/** Compiles the function; undefined if the scheme needs nothing in the body before it is verified. */
export function compileBodyHead(description: SchemeDescription): ReadBody | undefined {
  if (!readsBody(description)) return undefined;
  const isPartial = !coversBody(description);
  const steps = [
    compileFormCheck(description),
    compileBodySignatures(description.signature, isPartial),
    compileBodyId(description, isPartial),
    compileBodyTime(description, isPartial),
    compileBodyFields(description, isPartial),
  ].filter((step) => step !== undefined);
  return (head, body, options) => {
    const content = new BodyContent(body);
    const draft: HeadDraft = { ...head };
    for (const step of steps) {
      const refusal = step(draft, content, options);
      if (refusal !== undefined) return refusal;
    }
    return draft;
  };
}

/** The place of a signature in the body; undefined if it is elsewhere. */
export function toSignaturePlace({ json, form, path }: SignatureDescription): BodyPlace | undefined {
  if (json !== undefined) return { json };
  return form === undefined ? undefined : { form, ...(path !== undefined && { path }) };
}

/** With `onlySignedFields`, an attacker could otherwise add fields that the app reads. */
function compileFormCheck(description: SchemeDescription): HeadStep | undefined {
  const { signature, onlySignedFields } = description;
  if (onlySignedFields === undefined) return undefined;
  const places: object[] = [...listSignedPlaces(description), (signature && toSignaturePlace(signature)) ?? {}];
  const names = places.flatMap((place) => ('form' in place ? [foldName(String(place.form))] : []));
  return (_, content) => {
    const fields = content.form();
    if (fields instanceof BodyProblem) return malformed(fields.text);
    const isOther = fields.some((field) => !names.some((known) => isAlike(field, known)));
    return isOther ? malformed('the form has a field that is not signed') : undefined;
  };
}

function compileBodySignatures(signature: SignatureDescription | undefined, isPartial: boolean): HeadStep | undefined {
  const place = signature && toSignaturePlace(signature);
  if (place === undefined) return undefined;
  const read = compileBodyPlace(place, isPartial);
  const parse = compileSignatures(signature);
  return (head, content) => {
    const text = toBodyText(read(content), place);
    if (text instanceof Refusal) return text;
    const entries = toEntries(text, signature?.list);
    const signatures = entries === undefined ? malformed(`more than ${MAX_SIGNATURE_ENTRIES} signatures`) : parse(entries);
    if (signatures instanceof Refusal) return signatures;
    head.signatures = signatures;
    return undefined;
  };
}

/** A required text in the body. */
function toBodyText(value: unknown, place: BodyPlace): string | Refusal {
  if (value instanceof BodyProblem) return malformed(value.text);
  if (value === undefined || value === null || value === '')
    return refuse('missing_signature', 'missing_signature', `${toPlaceTitle(place)} is missing`);
  if (typeof value === 'string' || Number.isSafeInteger(value)) return String(value);
  return malformed(`${toPlaceTitle(place)} is not text`);
}

function compileBodyId(description: SchemeDescription, isPartial: boolean): HeadStep | undefined {
  const { id, signed } = description;
  if (id === undefined || !signed.includes('id') || !isBodyPlace(id)) return undefined;
  const read = compileBodyPlace(id, isPartial);
  const check = compileId(description, compilePieceRules(description));
  return (head, content, options) => {
    const text = toBodyText(read(content), id);
    const checked = text instanceof Refusal ? text : check(text, options);
    if (checked instanceof Refusal) return checked;
    head.id = checked;
    return undefined;
  };
}

function compileBodyTime(description: SchemeDescription, isPartial: boolean): HeadStep | undefined {
  const { timestamp, signed } = description;
  if (timestamp === undefined || !signed.includes('timestamp')) return undefined;
  const { from } = timestamp;
  if (!isBodyPlace(from)) return undefined;
  const read = compileBodyPlace(from, isPartial);
  const parse = compileTimeText(timestamp, compilePieceRules(description));
  return (head, content) => {
    const text = toBodyText(read(content), from);
    const time = text instanceof Refusal ? text : parse(text);
    if (time instanceof Refusal) return time;
    head.timestamp = time.timestamp;
    head.timestampText = time.timestampText;
    return undefined;
  };
}

/** Completes `SignedHead.fields` with those in the body. */
function compileBodyFields(description: SchemeDescription, isPartial: boolean): HeadStep | undefined {
  const readers = listFieldReaders(description, isPartial);
  if (readers.length === 0) return undefined;
  return (head, content) => {
    const fields = [...(head.fields ?? [])];
    for (const [at, read] of readers) {
      const text = read(content);
      if (text instanceof Refusal) return text;
      fields[at] = text;
    }
    head.fields = fields;
    return undefined;
  };
}

type FieldInBody = readonly [at: number, read: (content: BodyContent) => string | Refusal];

/** The readers of the fields in the body, each with its position among all fields. */
function listFieldReaders(description: SchemeDescription, isPartial: boolean): FieldInBody[] {
  const rules = [...compilePieceRules(description).fields];
  return description.signed.filter(isRead).flatMap((piece, at): FieldInBody[] => {
    if ('sortedForm' in piece) return [[at, compileSortedForm(piece, description.signature)]];
    if (!isFieldPiece(piece)) return [];
    const toText = compileFieldText(piece, description, rules.shift() ?? (() => undefined));
    return isBodyPlace(piece) ? [[at, join(compileBodyPlace(piece, isPartial), toText)]] : [];
  });
}

function join(read: ReadBodyValue, toText: FieldReader): (content: BodyContent) => string | Refusal {
  return (content) => toText(read(content));
}

const NAME_SEPARATORS = /[=&]/;
/** After a value that contains this, the rest of it could be further fields. */
const FURTHER_FIELD = /&[^&]*=/;

/** Returns the signed text in latin1, or the refusal. */
type ReadSortedForm = (content: BodyContent) => string | Refusal;

/**
 * Compiles the reader of the fields of a form as Alipay signs them. The sender escapes nothing, so `a=1&b=2` could be two fields or one. Each part between two `&` that contains `=`
 * begins a field if no name contains either, and no value contains `=` after `&`; then the text has one interpretation.
 */
export function compileSortedForm(
  { sortedForm: unsigned }: SortedFormPiece,
  signature: SignatureDescription | undefined,
): ReadSortedForm {
  const fixed = Object.entries(unsigned);
  const omitted = new Set([...Object.keys(unsigned), ...(signature?.form === undefined ? [] : [signature.form])]);
  return (content) => {
    const fields = content.form();
    if (fields instanceof BodyProblem) return malformed(fields.text);
    const problem = findProblem(fields, fixed);
    if (problem !== undefined) return malformed(problem);
    const signed = fields.filter(({ name }) => !omitted.has(name));
    signed.sort((a, b) => (a.name < b.name ? -1 : 1));
    return signed.map(({ name, value }) => `${name}=${value}`).join('&');
  };
}

function findProblem(fields: readonly FormField[], fixed: readonly (readonly [string, string])[]): string | undefined {
  // The content of files is not among the fields.
  if (fields.some(({ span }) => span === undefined)) return 'the form is multipart';
  if (new Set(fields.map(({ name }) => name)).size < fields.length) return 'a form field is repeated';
  if (fields.some(({ name }) => NAME_SEPARATORS.test(name))) return 'the name of a form field contains = or &';
  if (fields.some(({ value }) => FURTHER_FIELD.test(value))) return 'a form field contains & and = after it';
  for (const [name, value] of fixed) {
    const found = findField(fields, name);
    if (found === 'ambiguous' || found?.value !== value) return `the form field ${name}, which is not signed, is not ${value}`;
  }
  return undefined;
}
