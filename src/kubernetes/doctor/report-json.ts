/** The report for tools. Fields may be added; the meaning of a field never changes within one `format`. */
import type { Report } from './diagnose.ts';
import type { Subject } from './report-text.ts';

const FORMAT = 2;

/** Indented, with a trailing newline. */
export function toJson({ workloads, cluster, states, findings }: Report, { context, namespace }: Subject): string {
  const value = { format: FORMAT, context, namespace: namespace ?? null, states, findings, cluster, workloads };
  // JSON.stringify does not escape control and format characters beyond ASCII, which terminals interpret.
  const text = JSON.stringify(value, undefined, 2).replace(/[\u007f-\u009f\p{Cf}]/gu, toEscape);
  return `${text}\n`;
}

/** Escapes each UTF-16 unit (RFC 8259 §7). */
function toEscape(character: string): string {
  return character
    .split('')
    .map((unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`)
    .join('');
}
