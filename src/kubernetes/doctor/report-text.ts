/** The report as people read it: one table, the worst first, what is wrong under each row. */
import type { Report, State, WorkloadReport } from './diagnose.ts';
import type { Finding, FindingSeverity } from './finding.ts';
import { nameOf } from './workloads.ts';

/** What the report is about. */
export interface Subject {
  readonly context: string;
  /** Undefined: all of them. */
  readonly namespace: string | undefined;
}

/** Of ECMA-48: red, yellow, faint, green. */
const COLOURS: Readonly<Record<State | FindingSeverity, number>> = {
  unprotected: 31,
  bypassed: 31,
  error: 31,
  unknown: 33,
  warning: 33,
  idle: 2,
  note: 2,
  unasked: 2,
  protected: 32,
};
const HEADS = ['STATE', 'NAMESPACE', 'WORKLOAD', 'PODS', 'TAKEOVER', 'SIDECAR'];

/** Lines of text; `isColoured` only for terminals. */
export function toText(report: Report, { context, namespace }: Subject, isColoured: boolean): string {
  const paint = (word: State | FindingSeverity, text: string): string =>
    isColoured ? `\u001b[${COLOURS[word]}m${text}\u001b[0m` : text;
  const subject = toPlain(`${context}, ${namespace === undefined ? 'all namespaces' : `namespace ${namespace}`}`);
  const shown = report.workloads.filter(({ state, findings }) => state !== 'unasked' || findings.length > 0);
  const rows = shown.map(toCells);
  const widths = HEADS.map((head, column) => Math.max(head.length, ...rows.map((cells) => cells[column]?.length ?? 0)));
  const line = (cells: readonly string[]): string =>
    cells
      .map((cell, column) => cell.padEnd(widths[column] ?? 0))
      .join('  ')
      .trimEnd();
  const table = shown.flatMap((workload, index) => {
    const text = line(rows[index] ?? []);
    const { state } = workload;
    return [`${paint(state, state)}${text.slice(state.length)}`, ...workload.findings.flatMap((each) => toLines(each, paint))];
  });
  return [
    subject,
    '',
    ...(report.cluster.length === 0 ? [] : ['cluster', ...report.cluster.flatMap((each) => toLines(each, paint)), '']),
    ...(shown.length === 0 ? [] : [line(HEADS), ...table, '']),
    toSummary(report),
    '',
  ].join('\n');
}

function toCells({ state, namespace, kind, name, pods, takeovers, forms, versions }: WorkloadReport): string[] {
  const sidecar = [...forms, ...versions].join(' ');
  return [
    state,
    namespace,
    nameOf({ kind, name }),
    `${pods.protected}/${pods.total}`,
    takeovers.join(' ') || '-',
    sidecar || '-',
  ].map(toPlain);
}

function toLines({ severity, code, message, mend }: Finding, paint: (word: FindingSeverity, text: string) => string): string[] {
  return [`  ${paint(severity, severity.padEnd(7))}  ${code}: ${toPlain(message)}`, `           → ${toPlain(mend)}`];
}

/** What objects say comes from whoever made them, and must neither steer the terminal nor reorder what stands in it. */
function toPlain(text: string): string {
  return text.replace(/[\t\r\n]+/g, ' ').replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, '');
}

/** How many of which, in one line. */
function toSummary({ states, findings }: Report): string {
  const { unasked, ...asked } = states;
  const words = (Object.entries(asked) as [State, number][])
    .filter(([, number]) => number > 0)
    .map(([state, number]) => `${number} ${state}`);
  const others = unasked === 0 ? '' : `; ${unasked} ${unasked === 1 ? 'does' : 'do'} not ask for the sidecar`;
  const workloads = words.length === 0 ? 'no workload asks for the sidecar' : words.join(', ');
  const troubles = [count(findings.error, 'error'), count(findings.warning, 'warning'), count(findings.note, 'note')];
  return `${workloads}${words.length === 0 ? '' : others}. ${troubles.join(', ')}.`;
}

function count(number: number, noun: string): string {
  return `${number} ${noun}${number === 1 ? '' : 's'}`;
}
