/** Adds warnings to an answer, within what the API server passes on. */
import { objectAt } from '../injector/raw.ts';

/** The API server cuts longer ones where it has many (4096 bytes in all). */
const LONGEST_WARNING = 256;
const MOST_WARNINGS = 12;

/** The AdmissionReview `answer` with them. */
export function addWarnings(answer: object, warnings: readonly string[]): object {
  if (warnings.length === 0) return answer;
  const response = objectAt(answer, 'response');
  const earlier = Array.isArray(response['warnings']) ? response['warnings'] : [];
  const all = [...earlier, ...warnings.map((warning) => shorten(`sidegate: ${warning}`))];
  return { ...answer, response: { ...response, warnings: all.slice(0, MOST_WARNINGS) } };
}

/** One line of bounded length, by code points: half a character would not be UTF-8. */
export function shorten(text: string, longest = LONGEST_WARNING): string {
  // Of the text as it may be, no more than can be kept is taken apart.
  const characters = [...text.slice(0, 2 * (longest + 1)).replace(/[\p{Cc}\p{Cf}]/gu, ' ')];
  return characters.length <= longest ? characters.join('') : `${characters.slice(0, longest - 1).join('')}…`;
}
