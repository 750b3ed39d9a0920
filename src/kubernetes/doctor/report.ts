/** The report of the doctor, derived from the facts: every workload with its state and findings, and the findings about the cluster. */

import { checkAdmission } from './check-admission.ts';
import { areConfigsKnown, checkConfig } from './check-config.ts';
import { checkInjection, findUnprotected, isRequested } from './check-injection.ts';
import { checkNetwork } from './check-network.ts';
import { checkQueue } from './check-queue.ts';
import { checkServices } from './check-services.ts';
import { checkShared } from './check-shared.ts';
import { checkSidecar, findForged, isConfirmed, isGate } from './check-sidecar.ts';
import { checkStale } from './check-stale.ts';
import { CONTROLLER_KINDS, type Facts, type FoundObjects, itemsOf } from './facts.ts';
import { type Finding, type FindingCode, type FindingSeverity, finding, sortFindings, toRank } from './finding.ts';
import { findSidecar, isConcerned, isOnAppPort, isReady } from './sidecar.ts';
import { findWorkloads, nameOf, type Workload } from './workloads.ts';

/**
 * `unprotected`: pods that should have the sidecar do not have it. `bypassed`: they have it, but something bypasses it. `idle`: the
 * workload has no pods at present. `not-requested`: it does not request the sidecar. `unknown`: `injected` depends on something that could
 * not be determined. `injected`: all pods have the sidecar, but not every gate confirmed that it is the one that responds, or EndpointSlices of other namespaces could not be read. `protected`: each did; which
 * requests it verifies is up to its config, and open routes have their own findings.
 */
export const STATES = ['unprotected', 'bypassed', 'unknown', 'idle', 'injected', 'protected', 'not-requested'] as const;
type State = (typeof STATES)[number];

/** One workload. */
export interface WorkloadReport {
  readonly namespace: string;
  readonly kind: string;
  readonly name: string;
  readonly state: State;
  readonly pods: { readonly total: number; readonly injected: number; readonly protected: number; readonly ready: number };
  /** From the status annotations of its pods; several during a rollout, none if the sidecar was written by hand. */
  readonly interceptions: readonly string[];
  readonly forms: readonly string[];
  readonly versions: readonly string[];
  readonly findings: readonly Finding[];
}

/** The whole diagnosis. */
export interface DoctorReport {
  /** The most severe first. */
  readonly workloads: readonly WorkloadReport[];
  readonly cluster: readonly Finding[];
  readonly states: Readonly<Record<State, number>>;
  readonly findings: Readonly<Record<FindingSeverity, number>>;
}

const BYPASSES: ReadonlySet<FindingCode> = new Set([
  'service-to-app',
  'service-shared',
  'processes-shared',
  'headless-to-app',
  'endpoints-to-app',
  'external-name-to-app',
  'host-port',
  'host-network',
  'port-beside',
  'config-open',
  'port-occupied',
  'service-publishes-unready',
]);
const DOUBTS: ReadonlySet<FindingCode> = new Set([
  'ports-not-known',
  'addresses-not-read',
  'config-not-taken',
  'image-not-known',
]);

/** Diagnoses the cluster; pure. */
export function diagnose(facts: Facts): DoctorReport {
  const found = findWorkloads(facts);
  const workloads = found.map((workload) => toReport(workload, facts)).sort(compare);
  const cluster = sortFindings([...checkAdmission(found, facts), ...checkUnknown(facts)]);
  const all = [...cluster, ...workloads.flatMap(({ findings }) => findings)];
  return {
    workloads,
    cluster,
    states: countBy(
      STATES,
      workloads.map(({ state }) => state),
    ),
    findings: countBy(
      ['error', 'warning', 'note'],
      all.map(({ severity }) => severity),
    ),
  };
}

function toReport(workload: Workload, facts: Facts): WorkloadReport {
  const { namespace, kind, name, pods } = workload;
  const findings = sortFindings([
    ...checkInjection(workload, facts),
    ...checkSidecar(workload, facts),
    ...checkServices(workload, facts),
    ...checkShared(workload, facts),
    ...checkNetwork(workload, facts),
    ...checkConfig(workload, facts),
    ...checkQueue(workload, facts),
    ...checkStale(workload, facts),
  ]);
  const sidecars = pods.flatMap((pod) => findSidecar(pod) ?? []);
  const gates = pods.filter((pod) => isGate(pod, facts));
  return {
    namespace,
    kind,
    name,
    state: toState(workload, facts, findings),
    pods: {
      total: pods.length,
      injected: gates.length,
      protected: gates.filter((pod) => isConfirmed(pod, facts)).length,
      ready: gates.filter((pod) => isReady(pod) === true).length,
    },
    interceptions: distinct(sidecars.flatMap(({ status }) => status?.takeover ?? [])),
    forms: distinct(sidecars.map(({ form }) => form)),
    versions: distinct(sidecars.flatMap(({ status }) => status?.version ?? [])),
    findings,
  };
}

function toState(workload: Workload, facts: Facts, findings: readonly Finding[]): State {
  const { pods } = workload;
  if (findUnprotected(workload, facts).length > 0 || findForged(workload, facts).length > 0) return 'unprotected';
  if (findings.some(({ code }) => BYPASSES.has(code))) return 'bypassed';
  if (!isRequested(workload)) return 'not-requested';
  if ('unknown' in facts.pods) return 'unknown';
  if (pods.length === 0) return 'idle';
  if (isDoubtful(workload, facts, findings)) return 'unknown';
  if (!pods.every((pod) => isGate(pod, facts))) return 'unprotected';
  const isAllRead = !('unread' in facts.endpointSlices);
  return isAllRead && pods.every((pod) => isConfirmed(pod, facts)) ? 'protected' : 'injected';
}

/** Whether something is unknown that is required to say that the sidecar gets all requests. */
function isDoubtful(workload: Workload, facts: Facts, findings: readonly Finding[]): boolean {
  const { services, endpointSlices } = facts;
  return (
    'unknown' in services ||
    'unknown' in endpointSlices ||
    findings.some(({ code }) => DOUBTS.has(code)) ||
    !areConfigsKnown(workload, facts) ||
    // While the sidecar is not ready, the app may be listening on the port that Services target.
    workload.pods.some((pod) => isOnAppPort(pod) && isReady(pod) !== true)
  );
}

/** By the most severe finding, then by state, then by name. */
function compare(a: WorkloadReport, b: WorkloadReport): number {
  return (
    toRank(a.findings[0]?.severity) - toRank(b.findings[0]?.severity) ||
    STATES.indexOf(a.state) - STATES.indexOf(b.state) ||
    `${a.namespace}/${nameOf(a)}`.localeCompare(`${b.namespace}/${nameOf(b)}`, 'en')
  );
}

/** Findings about checks that were not possible because a list is unknown. */
function checkUnknown(facts: Facts): Finding[] {
  const { services, endpointSlices, ingresses, networkPolicies, webhooks, policies, bindings, namespaces, injectors, current } =
    facts;
  const lists: readonly (readonly [FoundObjects<unknown>, string])[] = [
    [namespaces, 'which namespaces require the sidecar'],
    ...CONTROLLER_KINDS.map(
      (kind) => [facts.controllers[kind], `whether new pods of each ${kind} will have the sidecar`] as const,
    ),
    [ingresses, 'which Ingresses route to such Services'],
    [networkPolicies, "which pods can connect to the app's port"],
    [webhooks, 'whether the webhook is configured'],
    [facts.mutatingPolicies, 'whether a policy injects the sidecar'],
    [facts.mutatingBindings, 'whether that policy is bound'],
    [policies, 'whether policies deny pods without the sidecar'],
    [bindings, 'whether policies are bound'],
    [injectors, 'whether the injector is ready'],
  ];
  const bypasses: typeof lists = [
    [services, 'which Services bypass the sidecar'],
    [endpointSlices, 'which EndpointSlices bypass the sidecar'],
  ];
  const unknown = [...bypasses, ...lists].flatMap((entry) => {
    const [list, what] = entry;
    const why = 'unknown' in list ? list.unknown : list.unread;
    if (why === undefined) return [];
    const code = 'unknown' in list && bypasses.includes(entry) ? 'bypasses-not-known' : 'not-known';
    return [finding(code, `cannot determine ${what}: ${why}`, 'run sidegate doctor with an account that has this permission')];
  });
  const stale =
    current.unknown === undefined
      ? []
      : [finding('not-known', `cannot determine which sidecars are stale: ${current.unknown}`, 'pass --config injector.yaml')];
  const pods =
    'unknown' in facts.pods
      ? [
          finding(
            'pods-not-known',
            `cannot determine which pods are protected: ${facts.pods.unknown}`,
            'pass a namespace in which you may list pods (-n), or run sidegate doctor with an account that has this permission',
          ),
        ]
      : [];
  return [...pods, ...unknown, ...(itemsOf(facts.pods).some(isConcerned) ? stale : [])];
}

function distinct(words: readonly string[]): readonly string[] {
  return [...new Set(words)].sort();
}

function countBy<T extends string>(names: readonly T[], given: readonly T[]): Record<T, number> {
  return Object.fromEntries(names.map((name) => [name, given.filter((each) => each === name).length])) as Record<T, number>;
}

// Writes the report: for people one table, most severe first, with the findings under each row; for tools JSON.

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
    ...(report.states.injected === 0 ? [] : ['injected: no gate confirmed that it responds with its config, as with --live.']),
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
