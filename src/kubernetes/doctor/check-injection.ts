/** Checks whether a workload's pods have the sidecar, and whether new ones will. */
import { DENIED_ANNOTATION, ENFORCE_LABEL, INJECT_LABEL } from '../injector/names.ts';
import { type Facts, itemsOf } from './facts.ts';
import { type Finding, finding, listNames } from './finding.ts';
import { fits, type Pod } from './objects.ts';
import {
  arePortsKnown,
  findSidecar,
  injectLabelOf,
  isConcerned,
  isOnAppPort,
  isProtected,
  isReady,
  lastMessageOf,
  reasonOf,
} from './sidecar.ts';
import { nameOf, restartOf, type Workload } from './workloads.ts';

/** The name of the webhook in its configuration. */
export const WEBHOOK = 'inject.sidegate.dev';
const POLICY_DELAY_MS = 5_000;

/** Whether the namespace requires the sidecar in all pods. */
function isEnforced(namespace: string, facts: Facts): boolean {
  const found = itemsOf(facts.namespaces).find(({ metadata }) => metadata.name === namespace);
  return found?.metadata.labels?.[ENFORCE_LABEL] === 'true';
}

/** Whether a pod or the template requests the sidecar. One is enough, because Services send requests to all pods of a workload. */
export function isRequested({ pods, template }: Workload): boolean {
  return [...pods, ...(template === undefined ? [] : [template])].some(isConcerned);
}

/** Pods that should have the sidecar but have none, or one that ends. */
export function findUnprotected(workload: Workload, facts: Facts): readonly Pod[] {
  if (!isEnforced(workload.namespace, facts) && !isRequested(workload)) return [];
  return workload.pods.filter((pod) => !isProtected(pod));
}

/** How a quota rejects a container without a limit; the sidecar has no CPU limit by default. */
const QUOTA = /must specify limits\.(cpu|memory)\b/;
/** How the gate reports that it cannot listen (cli/run.ts). */
const OCCUPIED = ' is in use by another process';
const MAX_ADDRESS_LENGTH = 64;
const MAX_DENIAL_LENGTH = 400;

/** All findings about injection. */
export function checkInjection(workload: Workload, facts: Facts): Finding[] {
  return [
    ...checkUnprotected(workload, facts),
    ...checkTemplate(workload),
    ...checkLabels(workload),
    ...checkNamespace(workload, facts),
    ...checkPods(workload),
    ...checkMissing(workload, facts),
  ];
}

function checkUnprotected(workload: Workload, facts: Facts): Finding[] {
  const unprotected = findUnprotected(workload, facts);
  const ending = unprotected.filter((pod) => findSidecar(pod) !== undefined);
  const without = unprotected.filter((pod) => findSidecar(pod) === undefined);
  const found: Finding[] = [];
  if (ending.length > 0) {
    found.push(
      finding(
        'sidecar-ends',
        `${describe(ending, workload)} an init container sidegate without restartPolicy: Always, which ends before the app starts`,
        `another webhook may have removed the field: update that webhook, or set the annotation sidegate.dev/sidecar: container; then ${restartOf(workload)}`,
      ),
    );
  }
  if (without.length > 0) {
    const denial = findDenial(without);
    found.push(
      finding(
        'no-sidecar',
        `${describe(without, workload)} no sidecar, ${toReason(workload, without)}${toAge(without, facts)}${denial === undefined ? '' : `: ${denial}`}`,
        toFix(workload, without, facts, denial),
      ),
    );
  }
  return found;
}

function toReason(workload: Workload, without: readonly Pod[]): string {
  const { template } = workload;
  if (without.some((pod) => injectLabelOf(pod) === 'true')) return `although the label ${INJECT_LABEL} requests it`;
  if (template !== undefined && isConcerned(template)) return `although the template of ${nameOf(workload)} has or requests it`;
  if (isRequested(workload)) return `although other pods of ${nameOf(workload)} have or request it`;
  return `in a namespace that is labeled ${ENFORCE_LABEL}`;
}

/** The API server applies a new policy after about a second. */
function toAge(without: readonly Pod[], { policies }: Facts): string {
  const since = itemsOf(policies)
    .filter(({ metadata }) => metadata.name.endsWith('-protected'))
    .map(({ metadata }) => Date.parse(metadata.creationTimestamp ?? '') + POLICY_DELAY_MS);
  const isOlder = ({ metadata }: Pod): boolean => since.some((at) => Date.parse(metadata.creationTimestamp ?? '') <= at);
  return without.every(isOlder) ? '; created before the policies of the chart took effect' : '';
}

/** Why the API server's own policy did not inject it. */
function findDenial(without: readonly Pod[]): string | undefined {
  return without.flatMap(({ metadata }) => metadata.annotations?.[DENIED_ANNOTATION] ?? [])[0]?.slice(0, MAX_DENIAL_LENGTH);
}

function toFix(workload: Workload, without: readonly Pod[], facts: Facts, denial: string | undefined): string {
  const { template } = workload;
  const asks =
    template === undefined ? without.every((pod) => injectLabelOf(pod) === 'true') : injectLabelOf(template) === 'true';
  if (template !== undefined && isProtected(template)) return restartOf(workload);
  if (asks && workload.failure !== undefined) return 'let new pods be created: see pods-missing';
  if (asks && denial !== undefined) return `change the pod template as the message says, then ${restartOf(workload)}`;
  const [policy] = itemsOf(facts.mutatingPolicies);
  const injecting =
    policy === undefined
      ? 'the injector is ready'
      : `the policy ${policy.metadata.name} has a binding for the namespace ${workload.namespace}`;
  if (asks) return `make sure that ${injecting}, then ${restartOf(workload)}`;
  return `set the label ${INJECT_LABEL}: "true" and the annotation sidegate.dev/config in the pod template`;
}

/** `2 of 3 pods have (web-a, web-b)`. */
function describe(some: readonly Pod[], { pods }: Workload): string {
  const names = listNames(some.map(({ metadata }) => metadata.name));
  return `${some.length} of ${pods.length} ${pods.length === 1 ? 'pod' : 'pods'} (${names}) ${some.length === 1 ? 'has' : 'have'}`;
}

function checkTemplate(workload: Workload): Finding[] {
  const { template, pods } = workload;
  if (template === undefined || injectLabelOf(template) === 'true' || isProtected(template)) return [];
  if (!pods.some(isProtected)) return [];
  return [
    finding(
      'label-lost',
      `pods have the sidecar, but the template of ${nameOf(workload)} ${injectLabelOf(template) === undefined ? 'has no' : 'has another value of the'} label ${INJECT_LABEL}: new pods will not have it`,
      `set the label ${INJECT_LABEL}: "true" in spec.template.metadata.labels`,
    ),
  ];
}

function checkLabels(workload: Workload): Finding[] {
  const { template, metadata, pods } = workload;
  const values = new Set([template, ...pods].flatMap((each) => (each === undefined ? [] : (injectLabelOf(each) ?? []))));
  const found = [...values]
    .filter((value) => value !== 'true' && value !== 'false')
    .map((value) =>
      finding(
        'label-value',
        `the label ${INJECT_LABEL} is "${value}", which has no effect`,
        'write "true", in lower case and in quotes',
      ),
    );
  const isMisplaced =
    metadata?.labels?.[INJECT_LABEL] === 'true' && template !== undefined && injectLabelOf(template) === undefined;
  if (isMisplaced && !isProtected(template)) {
    found.push(
      finding(
        'label-misplaced',
        `the label ${INJECT_LABEL} is in metadata.labels of ${nameOf(workload)}, where it has no effect`,
        'move it to spec.template.metadata.labels, and the annotations to spec.template.metadata.annotations',
      ),
    );
  }
  return found;
}

/** The webhook's namespaceSelector determines for which namespaces it is called. */
function checkNamespace({ namespace, template, pods }: Workload, facts: Facts): Finding[] {
  const asks = [template, ...pods].some((each) => each !== undefined && injectLabelOf(each) === 'true');
  const labels = itemsOf(facts.namespaces).find(({ metadata }) => metadata.name === namespace)?.metadata.labels;
  if (!asks || labels === undefined || itemsOf(facts.mutatingPolicies).length > 0) return [];
  const webhooks = itemsOf(facts.webhooks)
    .flatMap((each) => each.webhooks ?? [])
    .filter(({ name }) => name === WEBHOOK);
  if (webhooks.length === 0 || webhooks.some(({ namespaceSelector = {} }) => fits(namespaceSelector, labels))) return [];
  return [
    finding(
      'namespace-left-out',
      `pods request the sidecar, but the webhook's namespaceSelector excludes the namespace ${namespace}`,
      `deploy in another namespace, or change the chart's admission.namespaceSelector and excludedNamespaces`,
    ),
  ];
}

function checkUnready({ namespace, pods }: Workload): Finding[] {
  const unready = pods.filter((pod) => isProtected(pod) && isReady(pod) === false);
  const first = unready.find((pod) => reasonOf(pod) !== undefined) ?? unready[0];
  if (first === undefined) return [];
  const reason = reasonOf(first);
  const found = [
    finding(
      'sidecar-not-ready',
      `the sidecar of ${listNames(unready.map(({ metadata }) => metadata.name))} is not ready${reason === undefined ? '' : ` (${reason})`}${unready.some(isOnAppPort) ? "; it should listen on the app's own port, where the app itself may be listening now, open to everyone" : ''}`,
      toReadyFix(reason, `kubectl -n ${namespace}`, first.metadata.name),
    ),
  ];
  const occupied = unready.flatMap((pod) => {
    const text = lastMessageOf(pod);
    const end = text.indexOf(OCCUPIED);
    const address = text
      .slice(Math.max(0, end - MAX_ADDRESS_LENGTH), end)
      .split(/\s/)
      .at(-1);
    return end === -1 ? [] : [`${pod.metadata.name} (${address})`];
  });
  if (occupied.length > 0) {
    found.push(
      finding(
        'port-occupied',
        `another container of the pod listens on a port of the sidecar, which therefore does not start: ${listNames(occupied)}`,
        'find the container that listens on that port, such as an init container before the sidecar, and change its port, or the annotations sidegate.dev/port and sidegate.dev/admin-port',
      ),
    );
  }
  return found;
}

/** A container that never ran has no log, and that of one without memory ends before the cause. */
function toReadyFix(reason: string | undefined, kubectl: string, pod: string): string {
  if (reason === 'OOMKilled') return 'raise its memory with the annotation sidegate.dev/memory-limit in the pod template';
  return reason === undefined ? `${kubectl} logs ${pod} -c sidegate` : `${kubectl} describe pod ${pod}`;
}

function checkPods(workload: Workload): Finding[] {
  const { pods } = workload;
  const found = checkUnready(workload);
  const unread = pods.filter((pod) => isProtected(pod) && !arePortsKnown(pod));
  if (unread.length > 0) {
    found.push(
      finding(
        'ports-not-known',
        `the arguments of the container sidegate of ${listNames(unread.map(({ metadata }) => metadata.name))} do not contain both --listen and --upstream with a port`,
        'pass both as arguments, not in the config or through a variable: --listen :8480 --upstream http://127.0.0.1:8080',
      ),
    );
  }
  const hosted = pods.filter((pod) => pod.spec.hostNetwork === true && findSidecar(pod) !== undefined);
  if (hosted.length > 0) {
    found.push(
      finding(
        'host-network',
        `${listNames(hosted.map(({ metadata }) => metadata.name))} ${hosted.length === 1 ? 'uses' : 'use'} the network of the node`,
        'remove hostNetwork: on the network of the node, clients can bypass the sidecar',
      ),
    );
  }
  return found;
}

function checkMissing({ pods, wanted = 0, template, failure, ...rest }: Workload, facts: Facts): Finding[] {
  if ('unknown' in facts.pods || wanted === 0 || template === undefined) return [];
  if (!isConcerned(template) && !isEnforced(rest.namespace, facts)) return [];
  // During a rollout, the old pods run on.
  if (pods.length > 0 && failure === undefined) return [];
  const count = `${wanted} ${wanted === 1 ? 'pod' : 'pods'}`;
  const [, resource] = QUOTA.exec(failure ?? '') ?? [];
  return [
    finding(
      'pods-missing',
      `${nameOf(rest)} ${pods.length > 0 ? 'cannot create new pods' : `should have ${count} but has none`}${failure === undefined ? '' : `: ${failure}`}`,
      resource === undefined
        ? `kubectl -n ${rest.namespace} get events`
        : `set the annotation sidegate.dev/${resource}-limit in the pod template, or sidecar.resources.limits.${resource} in the values of the chart`,
    ),
  ];
}
