/** Replaces values in JSON text, by their paths. All other bytes stay as they are: no number loses digits. */
import type { JsonPattern, JsonPatternStep } from './json-path.ts';
import { type JsonSpan, listElements, listMembers, toWholeSpan } from './json-scan.ts';

/** The text without the values. */
interface Redacted {
  readonly text: Buffer;
  /** How many values were replaced. */
  readonly count: number;
}

const REPLACEMENT = Buffer.from('"[redacted]"');
const QUOTE = 0x22;

/**
 * Replaces every value that a pattern selects. A string in place of the object or array that a pattern expects is replaced as a whole,
 * because it may contain the value (JSON in JSON). `text`: one JSON text that strict-json.ts accepts. Returns undefined if the result
 * would have more than `maxBytes`: replacements can be longer than what they replace.
 */
export function redactJson(text: Buffer, patterns: readonly JsonPattern[], maxBytes: number): Redacted | undefined {
  const found: JsonSpan[] = [];
  collect(text, toWholeSpan(text), { patterns, depth: 0, found });
  const removed = found.reduce((sum, { from, to }) => sum + to - from, 0);
  const length = text.length - removed + found.length * REPLACEMENT.length;
  if (length > maxBytes) return undefined;
  const redacted = Buffer.allocUnsafeSlow(length);
  let copied = 0;
  let at = 0;
  for (const { from, to } of found) {
    at += text.copy(redacted, at, copied, from);
    at += REPLACEMENT.copy(redacted, at);
    copied = to;
  }
  text.copy(redacted, at, copied);
  return { text: redacted, count: found.length };
}

interface RedactionSearch {
  /** Those that select the value at hand, or a part of it. */
  readonly patterns: readonly JsonPattern[];
  /** How many steps of them led here. */
  readonly depth: number;
  readonly found: JsonSpan[];
}

/** No deeper than the longest pattern. */
function collect(text: Buffer, span: JsonSpan, search: RedactionSearch): void {
  const { patterns, depth, found } = search;
  if (patterns.some(({ steps }) => steps.length === depth) || text[span.from] === QUOTE) {
    found.push(span);
    return;
  }
  for (const { name, value } of listMembers(text, span)) descend(text, value, name, search);
  let index = 0;
  for (const element of listElements(text, span)) descend(text, element, index++, search);
}

function descend(text: Buffer, span: JsonSpan, key: string | number, { patterns, depth, found }: RedactionSearch): void {
  const selecting = patterns.filter(({ steps }) => isSelecting(steps[depth], key));
  if (selecting.length > 0) collect(text, span, { patterns: selecting, depth: depth + 1, found });
}

/** `[0]` and `.0` are the same: some senders write a list with gaps as an object whose members are its indexes. */
function isSelecting(step: JsonPatternStep | undefined, key: string | number): boolean {
  return step === null || step === key || (typeof step !== typeof key && String(step) === String(key));
}
