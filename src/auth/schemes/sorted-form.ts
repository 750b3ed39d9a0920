/** The fields of a form as Alipay signs them: sorted by name, each as `name=value`, with `&` between them. */
import type { Refusal } from '../../core/refusal.ts';
import { type BodyContent, BodyProblem } from './body-values.ts';
import type { SignatureDescription, SortedFormPiece } from './description.ts';
import { malformed } from './signature-entries.ts';
import { type FormField, findField } from './strict-form.ts';

const NAME_SEPARATORS = /[=&]/;
/** After a value that contains this, the rest of it could be further fields. */
const FURTHER_FIELD = /&[^&]*=/;

/** Returns the signed text in latin1, or the refusal. */
type ReadSortedForm = (content: BodyContent) => string | Refusal;

/**
 * Compiles the reader. The sender escapes nothing, so `a=1&b=2` could be two fields or one. Each part between two `&` that contains `=`
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
    if (found === 'repeated' || found?.value !== value) return `the form field ${name}, which is not signed, is not ${value}`;
  }
  return undefined;
}
