/** The report as tools read it; fields are added and never change their meaning while `format` stays. */
import type { Report } from './diagnose.ts';
import type { Subject } from './report-text.ts';

const FORMAT = 1;

/** Indented, with a line end. */
export function toJson({ workloads, cluster, states, findings }: Report, { context, namespace }: Subject): string {
  const value = { format: FORMAT, context, namespace: namespace ?? null, states, findings, cluster, workloads };
  // JSON.stringify leaves those as they are that terminals obey beyond ASCII.
  const text = JSON.stringify(value, undefined, 2).replace(/[\u007f-\u009f\p{Cf}]/gu, toEscape);
  return `${text}\n`;
}

/** By UTF-16 units, as JSON has it (RFC 8259 §7). */
function toEscape(character: string): string {
  return character
    .split('')
    .map((unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`)
    .join('');
}
