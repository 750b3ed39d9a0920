/** The report: for people one table, most severe first, with the findings under each row; for tools JSON. */
import type { DoctorReport, State, WorkloadReport } from './diagnose.ts';
import type { Finding, FindingSeverity } from './finding.ts';
import { nameOf } from './workloads.ts';

/** The scope of the report. */
interface Subject {
  readonly context: string;
  /** Undefined: all namespaces. */
  readonly namespace: string | undefined;
}

/** Codes of ECMA-48: red, yellow, faint, cyan, green. */
const COLORS: Readonly<Record<State | FindingSeverity, number>> = {
  unprotected: 31,
  bypassed: 31,
  error: 31,
  unknown: 33,
  warning: 33,
  idle: 2,
  note: 2,
  'not-requested': 2,
  injected: 36,
  protected: 32,
};
const HEADS = ['STATE', 'NAMESPACE', 'WORKLOAD', 'PODS', 'INTERCEPTION', 'SIDECAR'];

/** Lines of text; `isColored` only for terminals. */
export function toText(report: DoctorReport, { context, namespace }: Subject, isColored: boolean): string {
  const paint = (word: State | FindingSeverity, text: string): string =>
    isColored ? `\u001b[${COLORS[word]}m${text}\u001b[0m` : text;
  const subject = toPlain(`${context}, ${namespace === undefined ? 'all namespaces' : `namespace ${namespace}`}`);
  const shown = report.workloads.filter(({ state, findings }) => state !== 'not-requested' || findings.length > 0);
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
    ...(report.states.injected === 0 ? [] : ['injected: add --live to let each gate confirm that it responds with its config.']),
    '',
  ].join('\n');
}

function toCells({ state, namespace, kind, name, pods, interceptions, forms, versions }: WorkloadReport): string[] {
  const sidecar = [...forms, ...versions].join(' ');
  return [
    state,
    namespace,
    nameOf({ kind, name }),
    `${pods.injected}/${pods.total}`,
    interceptions.join(' ') || '-',
    sidecar || '-',
  ].map(toPlain);
}

function toLines({ severity, code, message, fix }: Finding, paint: (word: FindingSeverity, text: string) => string): string[] {
  return [`  ${paint(severity, severity.padEnd(7))}  ${code}: ${toPlain(message)}`, `           → ${toPlain(fix)}`];
}

/** Text from objects is untrusted: it must neither control the terminal nor change the order of the text. */
function toPlain(text: string): string {
  return text.replace(/[\t\r\n]+/g, ' ').replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, '');
}

/** The numbers of states and findings, in one line. */
function toSummary({ states, findings }: DoctorReport): string {
  const { 'not-requested': notRequested, ...requested } = states;
  const words = (Object.entries(requested) as [State, number][])
    .filter(([, number]) => number > 0)
    .map(([state, number]) => `${number} ${state}`);
  const others = notRequested === 0 ? '' : `; ${notRequested} ${notRequested === 1 ? 'does' : 'do'} not request the sidecar`;
  const workloads = words.length === 0 ? 'no workload requests the sidecar' : words.join(', ');
  const counts = [count(findings.error, 'error'), count(findings.warning, 'warning'), count(findings.note, 'note')];
  return `${workloads}${words.length === 0 ? '' : others}. ${counts.join(', ')}.`;
}

function count(number: number, noun: string): string {
  return `${number} ${noun}${number === 1 ? '' : 's'}`;
}

/** Fields may be added; the meaning of a field never changes within one format. */
const FORMAT = 2;

/** JSON, indented, with a trailing newline. */
export function toJson({ workloads, cluster, states, findings }: DoctorReport, { context, namespace }: Subject): string {
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
