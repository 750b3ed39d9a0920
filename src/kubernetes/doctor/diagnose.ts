/** Derives the report from the facts: every workload with its state and findings, and the findings about the cluster. */

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
export type State = (typeof STATES)[number];

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
    states: count(
      STATES,
      workloads.map(({ state }) => state),
    ),
    findings: count(
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

function count<T extends string>(names: readonly T[], given: readonly T[]): Record<T, number> {
  return Object.fromEntries(names.map((name) => [name, given.filter((each) => each === name).length])) as Record<T, number>;
}
