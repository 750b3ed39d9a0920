/** Everything that the doctor can find: THE list of codes, how grave each is, and what it means. */

/** `error`: something reaches an app unverified, or will, or a pod cannot start; `warning`: it is weaker than it could be; `note`: worth knowing. */
export type FindingSeverity = 'error' | 'warning' | 'note';

interface Row {
  readonly severity: FindingSeverity;
  readonly meaning: string;
}

/** By code. */
export const FINDINGS = {
  'no-sidecar': {
    severity: 'error',
    meaning:
      'Pods run without the sidecar, though they, their template or others of the workload ask for it, or their namespace demands it.',
  },
  'sidecar-ends': {
    severity: 'error',
    meaning:
      'The sidecar is an init container without `restartPolicy: Always`, or a container of a pod with another `restartPolicy`: it ends before the app does.',
  },
  'sidecar-differs': {
    severity: 'error',
    meaning:
      'A container has the name `sidegate` and is not the sidecar: its image, command, arguments, environment, mounts, ports, probes, hooks or security context are not those that the injector makes.',
  },
  'processes-shared': {
    severity: 'error',
    meaning:
      'Other containers reach the process of the sidecar, by `shareProcessNamespace`, `hostPID` or an ephemeral container that targets it.',
  },
  'service-shared': {
    severity: 'error',
    meaning: 'A Service leads to pods with the sidecar and to pods without: a share of its requests is not verified.',
  },
  'host-network': {
    severity: 'error',
    meaning: 'The pod is on the network of its node, where the app is reached past the sidecar.',
  },
  'label-lost': {
    severity: 'error',
    meaning: 'Pods have the sidecar, but the template no longer asks for it: the next rollout has none.',
  },
  'label-misplaced': {
    severity: 'error',
    meaning: 'The label is on the workload itself and not on its pod template, where it would count.',
  },
  'label-value': { severity: 'error', meaning: 'The label is neither `"true"` nor `"false"`, so nobody puts the sidecar there.' },
  'namespace-left-out': {
    severity: 'error',
    meaning: 'Pods ask for the sidecar in a namespace that the webhook is not asked about.',
  },
  'service-to-app': { severity: 'error', meaning: "A Service leads to the app's own port, past the sidecar." },
  'headless-to-app': {
    severity: 'error',
    meaning:
      "A headless Service names the app's own port: whoever resolves it connects to the pod there, whatever its targetPort says.",
  },
  'endpoints-to-app': { severity: 'error', meaning: "An EndpointSlice that somebody wrote leads to the app's own port." },
  'host-port': { severity: 'error', meaning: "A hostPort leads from the node to the app's own port." },
  'config-missing': {
    severity: 'error',
    meaning: 'The ConfigMap is not there, or has no key `gate.yaml`: new pods do not start.',
  },
  'config-broken': { severity: 'error', meaning: 'The gate would not start with this config.' },
  'secret-missing': { severity: 'error', meaning: 'A Secret is not there: new pods do not start.' },
  'secret-not-mounted': {
    severity: 'error',
    meaning: 'The config reads a Secret that the pod does not mount: its routes answer 503.',
  },
  'webhook-missing': {
    severity: 'error',
    meaning: 'Pods ask for the sidecar, but no webhook and no mutating policy would put it there.',
  },
  'webhook-without-ca': { severity: 'error', meaning: 'The webhook has no caBundle, so the API server cannot call it.' },
  'ca-ended': { severity: 'error', meaning: "The authority in the webhook's caBundle has ended." },
  'fails-open': {
    severity: 'error',
    meaning: 'While the injector does not answer, pods are made without the sidecar, and no policy denies them.',
  },
  'config-open': {
    severity: 'error',
    meaning: 'No route of the config refuses anything: each has `allow: anyone` or `mode: observe`.',
  },
  'policy-unbound': { severity: 'error', meaning: 'A policy is there, but no binding makes it deny anything.' },
  'enforce-without-policy': { severity: 'error', meaning: 'A namespace demands the sidecar, and no policy enforces it.' },
  'injector-down': { severity: 'error', meaning: 'No replica of the injector is ready.' },
  'pods-not-known': { severity: 'error', meaning: 'Pods could not be listed, so nothing can be said of any workload.' },
  'no-network-policy': {
    severity: 'warning',
    meaning: "Every pod in the cluster can reach the app's own port by the pod's address.",
  },
  'network-policy-wide': {
    severity: 'warning',
    meaning: "A NetworkPolicy admits everybody to the app's own port, or to another one that no sidecar guards.",
  },
  'network-policy-name': {
    severity: 'warning',
    meaning:
      'A NetworkPolicy names a port of the sidecar instead of its number, which some networks do not resolve for native sidecars.',
  },
  'network-policy-shuts': { severity: 'warning', meaning: "No NetworkPolicy admits anybody to the sidecar's port." },
  'service-to-nothing': {
    severity: 'warning',
    meaning:
      'A Service names a port that pods do not have, or that this version of Kubernetes does not find in native sidecars: it has no endpoints.',
  },
  'sidecar-not-ready': { severity: 'warning', meaning: 'The sidecar is not ready, so its pod gets no traffic.' },
  'port-beside': {
    severity: 'warning',
    meaning:
      'A Service, an EndpointSlice or a hostPort leads to a port of the pod that no sidecar guards, whichever container has it.',
  },
  'ports-not-known': {
    severity: 'warning',
    meaning:
      "The sidecar's arguments do not tell with `--listen` and `--upstream` which port is its own and which the app's, so nobody knows what leads past it.",
  },
  'pods-missing': { severity: 'warning', meaning: 'There should be pods, and there are none; a policy may have denied them.' },
  'version-stale': { severity: 'warning', meaning: 'Sidecars are of another version than the injector.' },
  'image-stale': {
    severity: 'warning',
    meaning:
      'The image of a sidecar is none that the chart allows. If it is of an allowed repository with another tag or digest, as after an upgrade, that is all that is wrong with it.',
  },
  'settings-stale': {
    severity: 'warning',
    meaning:
      "Sidecars were made with other defaults than the injector's present ones. Those of the library chart have their own.",
  },
  'config-not-taken': { severity: 'warning', meaning: 'A running sidecar serves another config than the ConfigMap holds.' },
  'config-differs': { severity: 'warning', meaning: 'Replicas serve different configs.' },
  'memory-not-shared': {
    severity: 'warning',
    meaning:
      'Several replicas without Redis: each remembers for itself, so a delivery that was sent before is new to the others.',
  },
  'config-observes': {
    severity: 'warning',
    meaning: 'Some routes of the config let through what they would refuse, with `mode: observe`.',
  },
  'ca-ends-soon': { severity: 'warning', meaning: "The authority in the webhook's caBundle ends within two weeks." },
  'policy-missing': { severity: 'warning', meaning: 'No policy denies pods whose sidecar another webhook took away again.' },
  'network-policy-admits': { severity: 'note', meaning: "A NetworkPolicy admits some to the app's own port, past the sidecar." },
  'image-not-known': {
    severity: 'note',
    meaning: 'Nothing that could be read says which images sidecars may have, so nobody knows which program runs in them.',
  },
  'not-known': { severity: 'note', meaning: 'Something could not be read, so what depends on it was not judged.' },
} as const satisfies Readonly<Record<string, Row>>;

export type FindingCode = keyof typeof FINDINGS;

/** One thing found. */
export interface Finding {
  readonly code: FindingCode;
  readonly severity: FindingSeverity;
  /** What is so, with the names of objects. */
  readonly message: string;
  /** What to do about it. */
  readonly mend: string;
}

/** A finding of a code, as grave as its code. */
export function finding(code: FindingCode, message: string, mend: string): Finding {
  return { code, severity: FINDINGS[code].severity, message, mend };
}

const ORDER: readonly FindingSeverity[] = ['error', 'warning', 'note'];

/** 0 is the gravest. */
export function toRank(severity: FindingSeverity | undefined): number {
  return severity === undefined ? ORDER.length : ORDER.indexOf(severity);
}

/** The gravest first, each once. */
export function sortFindings(findings: readonly Finding[]): readonly Finding[] {
  const distinct = new Map(findings.map((each) => [`${each.code}\n${each.message}`, each]));
  return [...distinct.values()].sort((a, b) => toRank(a.severity) - toRank(b.severity));
}

/** `a`, `a and b`, `a, b and 3 more`. */
export function listNames(names: readonly string[], most = 3): string {
  const shown = names.slice(0, most);
  const rest = names.length - shown.length;
  if (rest > 0) return `${shown.join(', ')} and ${rest} more`;
  return shown.length < 2 ? shown.join('') : `${shown.slice(0, -1).join(', ')} and ${shown.at(-1)}`;
}
