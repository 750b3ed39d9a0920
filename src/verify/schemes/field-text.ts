/** Converts a signed value to the text that is signed, and rejects values that another message could have as the same text. */
import type { Refusal } from '../../core/refusal.ts';
import { BodyProblem, toPlaceTitle } from './body-values.ts';
import type { FieldPiece, FieldType, SchemeDescription } from './description.ts';
import { malformed } from './signature-entries.ts';

/** Returns the signed text, or the refusal. Text is latin1. */
export type FieldReader = (value: unknown) => string | Refusal;

const TYPES: Readonly<Record<FieldType, { readonly title: string; readonly format: (value: unknown) => string | undefined }>> = {
  string: { title: 'text', format: (value) => (typeof value === 'string' ? value : undefined) },
  // Above 2^53 JavaScript parses different numbers as equal.
  integer: { title: 'an integer', format: (value) => (Number.isSafeInteger(value) ? String(value) : undefined) },
  boolean: { title: 'true or false', format: (value) => (typeof value === 'boolean' ? String(value) : undefined) },
};

/** Compiles the conversion of one field; `findProblem` is the rule that keeps its boundaries unambiguous (layout.ts). */
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
