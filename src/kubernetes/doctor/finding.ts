/** The catalogue of findings: all codes, their severities and meanings. */

/** `error`: requests reach an app unverified, or will, or a pod cannot start; `warning`: protection is weaker than it could be; `note`: for information. */
export type FindingSeverity = 'error' | 'warning' | 'note';

interface FindingKind {
  readonly severity: FindingSeverity;
  readonly meaning: string;
}

/** By code. */
export const FINDINGS = {
  'no-sidecar': {
    severity: 'error',
    meaning:
      'Pods run without the sidecar, although they, their template or other pods of the workload request it, or their namespace requires it.',
  },
  'sidecar-ends': {
    severity: 'error',
    meaning:
      'The sidecar is an init container without `restartPolicy: Always`, or a container in a pod with another `restartPolicy`: it can end before the app.',
  },
  'sidecar-differs': {
    severity: 'error',
    meaning:
      'A container is named `sidegate` but is not the sidecar: its image, command, arguments, environment, mounts, ports, probes, hooks or security context differ from what the injector creates.',
  },
  'processes-shared': {
    severity: 'error',
    meaning:
      'Other containers can access the process of the sidecar, through `shareProcessNamespace`, `hostPID` or an ephemeral container that targets it or has its user or volumes.',
  },
  'service-shared': {
    severity: 'error',
    meaning:
      'A Service selects pods with the sidecar and pods without it, which may be in deletion, or an EndpointSlice adds another address to it: some of its requests are not verified.',
  },
  'host-network': {
    severity: 'error',
    meaning: 'The pod uses the network of its node, where clients can bypass the sidecar.',
  },
  'label-lost': {
    severity: 'error',
    meaning: 'Pods have the sidecar, but the template no longer requests it: the next rollout will not have it.',
  },
  'label-misplaced': {
    severity: 'error',
    meaning: 'The label is on the workload itself instead of its pod template, so it has no effect.',
  },
  'label-value': {
    severity: 'error',
    meaning:
      'The label is neither `"true"` nor `"false"`, so the sidecar is not injected, or not required of all pods of the namespace.',
  },
  'annotation-invalid': {
    severity: 'error',
    meaning: 'Annotations of the pod template are missing, unknown or malformed: new pods are denied.',
  },
  'namespace-left-out': {
    severity: 'error',
    meaning: 'Pods request the sidecar in a namespace that the webhook does not cover.',
  },
  'service-to-app': { severity: 'error', meaning: "A Service targets the app's own port and bypasses the sidecar." },
  'headless-to-app': {
    severity: 'error',
    meaning:
      "A headless Service uses the app's own port: clients that resolve it connect to the pod on that port, regardless of its targetPort.",
  },
  'endpoints-to-app': {
    severity: 'error',
    meaning: "An EndpointSlice targets the app's own port or all ports, apart from the ports of a Service that selects the pod.",
  },
  'external-name-to-app': {
    severity: 'error',
    meaning:
      "A Service of type ExternalName names a pod, or a headless Service of it, and has the app's own port: an Ingress or a client that follows it bypasses the sidecar.",
  },
  'host-port': { severity: 'error', meaning: "A hostPort exposes the app's own port on the node." },
  'service-publishes-unready': {
    severity: 'error',
    meaning:
      'A Service with `publishNotReadyAddresses` sends requests to a pod whose sidecar is not ready: another container may respond on its port.',
  },
  'port-occupied': {
    severity: 'error',
    meaning:
      "The sidecar does not start, because another container of the pod listens on one of the sidecar's ports, and gets its requests.",
  },
  'config-missing': {
    severity: 'error',
    meaning: 'The ConfigMap does not exist, or has no key `gate.yaml`: new pods do not start.',
  },
  'config-broken': { severity: 'error', meaning: 'The config is invalid, so sidegate does not start with it.' },
  'secret-missing': { severity: 'error', meaning: 'A Secret does not exist: new pods do not start.' },
  'secret-not-mounted': {
    severity: 'error',
    meaning: 'The config reads a Secret that the pod does not mount: the routes that use it respond with 503.',
  },
  'queue-not-mounted': {
    severity: 'error',
    meaning:
      'The config has an embedded queue (SQLite) that is not on a writable volume of the sidecar, so the sidecar does not start.',
  },
  'queue-claim-shared': {
    severity: 'error',
    meaning: 'Several replicas have their embedded queue on the same volume claim: only one process can open it.',
  },
  'webhook-missing': {
    severity: 'error',
    meaning: 'Pods request the sidecar, but there is neither a webhook nor a mutating policy that injects it.',
  },
  'webhook-without-ca': { severity: 'error', meaning: 'The webhook has no caBundle, so the API server cannot call it.' },
  'ca-ended': { severity: 'error', meaning: "The CA certificate in the webhook's caBundle has expired." },
  'fails-open': {
    severity: 'error',
    meaning: 'While the injector does not respond, pods are created without the sidecar, and no policy denies them.',
  },
  'config-open': {
    severity: 'error',
    meaning: 'No route of the config rejects anything: each has `allow: anyone` or `mode: observe`.',
  },
  'policy-unbound': { severity: 'error', meaning: 'A policy exists, but no binding makes it deny anything.' },
  'enforce-without-policy': { severity: 'error', meaning: 'A namespace requires the sidecar, but no policy enforces it.' },
  'injector-down': { severity: 'error', meaning: 'No replica of the injector is ready.' },
  'pods-not-known': { severity: 'error', meaning: 'Pods could not be listed, so no workload could be checked.' },
  'bypasses-not-known': {
    severity: 'error',
    meaning: 'Services or EndpointSlices could not be listed, so what bypasses a sidecar could not be found.',
  },
  'no-network-policy': {
    severity: 'warning',
    meaning: "Every pod in the cluster can connect to the app's own port at the pod's address.",
  },
  'network-policy-wide': {
    severity: 'warning',
    meaning:
      "A NetworkPolicy allows everyone to connect to the app's own port, or to another port that the sidecar does not guard.",
  },
  'network-policy-name': {
    severity: 'warning',
    meaning:
      'A NetworkPolicy uses the name of a port of the sidecar instead of its number; some network plug-ins do not resolve names for native sidecars.',
  },
  'network-policy-shuts': { severity: 'warning', meaning: "No NetworkPolicy allows connections to the sidecar's port." },
  'service-to-nothing': {
    severity: 'warning',
    meaning:
      'A Service uses a port name that the pods do not declare, or that this version of Kubernetes does not resolve in native sidecars: it has no endpoints.',
  },
  'sidecar-not-ready': { severity: 'warning', meaning: 'The sidecar is not ready, so its pod gets no traffic.' },
  'port-beside': {
    severity: 'warning',
    meaning:
      'A Service, an EndpointSlice or a hostPort targets a port of the pod that the sidecar does not guard, in any container.',
  },
  'ports-not-known': {
    severity: 'warning',
    meaning:
      "The sidecar's arguments do not contain its port (`--listen`) and the app's port (`--upstream`), so bypasses cannot be detected.",
  },
  'pods-missing': { severity: 'warning', meaning: 'The workload should have pods but has none; a policy may have denied them.' },
  'cpu-limited': {
    severity: 'warning',
    meaning:
      'The sidecar has a CPU limit that neither an annotation nor the injector set, such as the default of a LimitRange: under load, it throttles sidegate.',
  },
  'version-stale': { severity: 'warning', meaning: 'Sidecars have another version than the injector.' },
  'image-stale': {
    severity: 'warning',
    meaning:
      'The image of a sidecar is not one that the chart allows. An allowed repository with another tag or digest, as after an upgrade, leads to this finding only.',
  },
  'settings-stale': {
    severity: 'warning',
    meaning:
      'Sidecars were created with other defaults than the current ones of the injector. Sidecars of the library chart are not compared.',
  },
  'addresses-not-read': {
    severity: 'warning',
    meaning:
      "An EndpointSlice has the app's own port and a host name, or an address that cannot be read, so it may bypass the sidecar.",
  },
  'config-not-taken': { severity: 'warning', meaning: 'A running sidecar uses another config than the one in the ConfigMap.' },
  'config-differs': { severity: 'warning', meaning: 'Replicas use different configs.' },
  'memory-not-shared': {
    severity: 'warning',
    meaning:
      'Several replicas run without Redis: each keeps its own state, so a delivery that one replica handled is new to the others.',
  },
  'queue-not-durable': {
    severity: 'warning',
    meaning: 'The embedded queue is on a volume that is deleted with the pod, together with all events that are not delivered.',
  },
  'queue-not-shared': {
    severity: 'warning',
    meaning:
      'Several replicas have an embedded queue each: the limits of an endpoint apply to each replica, and an endpoint that is created with the API exists in one replica only.',
  },
  'config-opens': {
    severity: 'warning',
    meaning: 'Some routes of the config have `allow: anyone` and forward all requests.',
  },
  'config-observes': {
    severity: 'warning',
    meaning: 'Some routes of the config have `mode: observe` and forward requests that they would otherwise reject.',
  },
  'several-releases': {
    severity: 'error',
    meaning: "Several releases of the chart admit pods: the policies of each deny the other's pods.",
  },
  'ca-ends-soon': { severity: 'warning', meaning: "The CA certificate in the webhook's caBundle expires within two weeks." },
  'policy-missing': { severity: 'warning', meaning: 'No policy denies pods from which another webhook removed the sidecar.' },
  'network-policy-admits': {
    severity: 'note',
    meaning: "A NetworkPolicy allows some clients to bypass the sidecar on the app's own port.",
  },
  'gate-not-proven': {
    severity: 'note',
    meaning:
      'A sidecar responded as sidegate, but another container of its pod could have taken its ports before it: it is a plain container, it restarted, an init container is before it, or the pod has an ephemeral container. Or its config has several [workers](workers.md), and another container could run as their user and share their port: its `runAsUser` is not set or is 0, or `allowPrivilegeEscalation` is not `false`. Or another container could take its traffic or replace it: it is privileged, mounts a `hostPath`, inline `csi` or `flexVolume` volume, or adds a capability such as `NET_ADMIN`, `NET_RAW` or `SYS_PTRACE`. Volumes of the Secrets Store, cert-manager and SPIFFE do not count. Or it has a device of the node: a raw block device, a claim (DRA), or a resource of a device plug-in.',
  },
  'image-not-known': {
    severity: 'note',
    meaning: 'The list of allowed sidecar images could not be read, so the program in them could not be checked.',
  },
  'not-known': { severity: 'note', meaning: 'Something could not be read, so what depends on it was not checked.' },
} as const satisfies Readonly<Record<string, FindingKind>>;

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
  return { code, severity: FINDINGS[code].severity, message, fix };
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
