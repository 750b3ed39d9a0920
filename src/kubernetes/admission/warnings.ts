/** Adds warnings to a response, within the limits of the API server. */
import { objectAt } from '../injector/raw.ts';

/** The API server truncates longer warnings if there are many (4096 bytes in total). */
const MAX_WARNING_LENGTH = 256;
const MAX_WARNINGS = 12;

/** Adds the warnings to an AdmissionReview. */
export function addWarnings(review: object, warnings: readonly string[]): object {
  if (warnings.length === 0) return review;
  const response = objectAt(review, 'response');
  const earlier = Array.isArray(response['warnings']) ? response['warnings'] : [];
  const all = [...earlier, ...warnings.map((warning) => shorten(`sidegate: ${warning}`))];
  return { ...review, response: { ...response, warnings: all.slice(0, MAX_WARNINGS) } };
}

/** Truncates to one line, by code points, because half a surrogate pair is not valid UTF-8. */
export function shorten(text: string, maxLength = MAX_WARNING_LENGTH): string {
  // Bounds the work: the text is untrusted, and only its start can be kept.
  const characters = [...text.slice(0, 2 * (maxLength + 1)).replace(/[\p{Cc}\p{Cf}]/gu, ' ')];
  return characters.length <= maxLength ? characters.join('') : `${characters.slice(0, maxLength - 1).join('')}…`;
}
