/** The catalogue of findings: all codes and their severities. */

/** `error`: requests reach an app unverified, or will, or a pod cannot start; `warning`: protection is weaker than it could be; `note`: for information. */
export type FindingSeverity = 'error' | 'warning' | 'note';

/** By code, in the order of docs/doctor.md, which has their meanings. */
export const FINDINGS = {
  'no-sidecar': 'error',
  'sidecar-ends': 'error',
  'sidecar-differs': 'error',
  'processes-shared': 'error',
  'service-shared': 'error',
  'host-network': 'error',
  'label-lost': 'error',
  'label-misplaced': 'error',
  'label-value': 'error',
  'annotation-invalid': 'error',
  'namespace-left-out': 'error',
  'service-to-app': 'error',
  'headless-to-app': 'error',
  'endpoints-to-app': 'error',
  'external-name-to-app': 'error',
  'host-port': 'error',
  'service-publishes-unready': 'error',
  'port-occupied': 'error',
  'config-missing': 'error',
  'config-broken': 'error',
  'secret-missing': 'error',
  'secret-not-mounted': 'error',
  'queue-not-mounted': 'error',
  'queue-claim-shared': 'error',
  'webhook-missing': 'error',
  'webhook-without-ca': 'error',
  'ca-ended': 'error',
  'fails-open': 'error',
  'config-open': 'error',
  'policy-unbound': 'error',
  'enforce-without-policy': 'error',
  'injector-down': 'error',
  'pods-not-known': 'error',
  'bypasses-not-known': 'error',
  'no-network-policy': 'warning',
  'network-policy-wide': 'warning',
  'network-policy-name': 'warning',
  'network-policy-shuts': 'warning',
  'service-to-nothing': 'warning',
  'sidecar-not-ready': 'warning',
  'port-beside': 'warning',
  'admin-exposed': 'warning',
  'ports-not-known': 'warning',
  'pods-missing': 'warning',
  'cpu-limited': 'warning',
  'version-stale': 'warning',
  'image-stale': 'warning',
  'settings-stale': 'warning',
  'addresses-not-read': 'warning',
  'config-not-taken': 'warning',
  'config-differs': 'warning',
  'memory-not-shared': 'warning',
  'queue-not-durable': 'warning',
  'queue-not-shared': 'warning',
  'config-opens': 'warning',
  'config-observes': 'warning',
  'several-releases': 'error',
  'ca-ends-soon': 'warning',
  'policy-missing': 'warning',
  'network-policy-admits': 'note',
  'gate-not-proven': 'note',
  'image-not-known': 'note',
  'not-known': 'note',
} as const satisfies Readonly<Record<string, FindingSeverity>>;

export type FindingCode = keyof typeof FINDINGS;

/** One finding. */
export interface Finding {
  readonly code: FindingCode;
  readonly severity: FindingSeverity;
  /** A description with the names of the objects. */
  readonly message: string;
  /** How to fix it. */
  readonly fix: string;
}

/** Creates a finding with the severity of its code. */
export function finding(code: FindingCode, message: string, fix: string): Finding {
  return { code, severity: FINDINGS[code], message, fix };
}

const ORDER: readonly FindingSeverity[] = ['error', 'warning', 'note'];

/** 0 is the most severe. */
export function toRank(severity: FindingSeverity | undefined): number {
  return severity === undefined ? ORDER.length : ORDER.indexOf(severity);
}

/** The most severe first, without duplicates. */
export function sortFindings(findings: readonly Finding[]): readonly Finding[] {
  const distinct = new Map(findings.map((each) => [`${each.code}\n${each.message}`, each]));
  return [...distinct.values()].sort((a, b) => toRank(a.severity) - toRank(b.severity));
}

/** `a`, `a and b`, `a, b and 3 more`. */
export function listNames(names: readonly string[], max = 3): string {
  const shown = names.slice(0, max);
  const rest = names.length - shown.length;
  if (rest > 0) return `${shown.join(', ')} and ${rest} more`;
  return shown.length < 2 ? shown.join('') : `${shown.slice(0, -1).join(', ')} and ${shown.at(-1)}`;
}
