/** The report as tools read it; fields are added and never change their meaning while `format` stays. */
import type { Report } from './diagnose.ts';
import type { Subject } from './report-text.ts';

const FORMAT = 1;

/** Indented, with a line end. */
export function toJson({ workloads, cluster, states, findings }: Report, { context, namespace }: Subject): string {
  const value = { format: FORMAT, context, namespace: namespace ?? null, states, findings, cluster, workloads };
  return `${JSON.stringify(value, undefined, 2)}\n`;
}
