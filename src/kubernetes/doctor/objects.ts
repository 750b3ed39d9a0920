/** The fields of Kubernetes objects that the doctor uses, as the API server sends them; and the selectors of labels among them. */

/** Metadata of an object. */
interface Metadata {
  readonly name: string;
  readonly namespace?: string;
  readonly uid?: string;
  readonly labels?: Readonly<Record<string, string>>;
  readonly annotations?: Readonly<Record<string, string>>;
  readonly ownerReferences?: readonly ObjectOwner[];
  readonly creationTimestamp?: string;
  readonly deletionTimestamp?: string;
}

/** The owner of an object. */
export interface ObjectOwner {
  readonly kind: string;
  readonly name: string;
  readonly uid: string;
  readonly controller?: boolean;
}

/** Anything with a name. */
export interface Named {
  readonly metadata: Metadata;
}

/** A port that a container declares. */
interface ContainerPort {
  readonly name?: string;
  readonly containerPort: number;
  readonly protocol?: string;
  readonly hostPort?: number;
  readonly hostIP?: string;
}

/** A container of either list. */
export interface Container {
  readonly name: string;
  readonly image?: string;
  readonly args?: readonly string[];
  readonly command?: readonly string[];
  readonly env?: readonly { readonly name: string }[];
  readonly envFrom?: readonly object[];
  readonly restartPolicy?: string;
  readonly ports?: readonly ContainerPort[];
  readonly volumeMounts?: readonly VolumeMount[];
  readonly volumeDevices?: readonly { readonly name: string }[];
  readonly resources?: {
    readonly limits?: Readonly<Record<string, string>>;
    readonly claims?: readonly { readonly name: string }[];
  };
  readonly securityContext?: {
    readonly runAsUser?: number;
    readonly allowPrivilegeEscalation?: boolean;
    readonly privileged?: boolean;
    readonly capabilities?: { readonly add?: readonly string[] };
  };
}

interface VolumeMount {
  readonly name: string;
  readonly mountPath: string;
  readonly readOnly?: boolean;
}

/** A volume, with the kinds that the doctor distinguishes. */
export interface Volume {
  readonly name: string;
  readonly configMap?: { readonly name?: string; readonly optional?: boolean };
  readonly secret?: { readonly secretName?: string; readonly optional?: boolean };
  readonly emptyDir?: object;
  readonly hostPath?: { readonly path?: string };
  /** Inline, so the pod itself chooses the driver and its options. */
  readonly csi?: { readonly driver: string };
  readonly flexVolume?: { readonly driver: string };
  readonly ephemeral?: object;
  readonly persistentVolumeClaim?: { readonly claimName?: string };
}

export interface PodSpec {
  readonly containers: readonly Container[];
  readonly initContainers?: readonly Container[];
  readonly ephemeralContainers?: readonly Container[];
  readonly securityContext?: { readonly runAsUser?: number };
  readonly volumes?: readonly Volume[];
  readonly hostNetwork?: boolean;
}

/** A pod, or a template of pods. */
export interface PodTemplate {
  readonly metadata?: Partial<Metadata>;
  readonly spec: PodSpec;
}

interface ContainerState {
  readonly waiting?: { readonly reason?: string };
  /** The end of its log, if it failed. */
  readonly terminated?: { readonly message?: string; readonly reason?: string };
}

export interface ContainerStatus {
  readonly name: string;
  readonly ready?: boolean;
  readonly restartCount?: number;
  readonly state?: ContainerState;
  readonly lastState?: ContainerState;
}

export interface Pod extends Named {
  readonly spec: PodSpec;
  readonly status?: {
    readonly phase?: string;
    readonly podIP?: string;
    /** One of each family; podIP is the first. */
    readonly podIPs?: readonly { readonly ip?: string }[];
    readonly containerStatuses?: readonly ContainerStatus[];
    readonly initContainerStatuses?: readonly ContainerStatus[];
  };
}

/** Deployment, ReplicaSet, StatefulSet, DaemonSet, Job; in a CronJob the template is in `jobTemplate`. */
export interface Controller extends Named {
  readonly spec: {
    readonly replicas?: number;
    readonly suspend?: boolean;
    readonly paused?: boolean;
    readonly parallelism?: number;
    readonly completions?: number;
    readonly template?: PodTemplate;
    readonly jobTemplate?: { readonly spec: { readonly template: PodTemplate } };
  };
  readonly status?: {
    /** Of a DaemonSet. */
    readonly desiredNumberScheduled?: number;
    /** Numbers of pods of a Job. */
    readonly active?: number;
    readonly failed?: number;
    readonly succeeded?: number;
    readonly conditions?: readonly { readonly type: string; readonly status: string; readonly message?: string }[];
  };
}

export interface ServicePort {
  readonly name?: string;
  readonly port: number;
  readonly targetPort?: number | string;
  readonly protocol?: string;
  readonly nodePort?: number;
}

export interface Service extends Named {
  readonly spec: {
    readonly type?: string;
    readonly externalName?: string;
    readonly clusterIP?: string;
    readonly externalIPs?: readonly string[];
    readonly publishNotReadyAddresses?: boolean;
    readonly selector?: Readonly<Record<string, string>>;
    readonly ports?: readonly ServicePort[];
  };
}

export interface EndpointSlice extends Named {
  readonly addressType?: string;
  readonly endpoints?:
    | readonly {
        readonly addresses?: readonly string[];
        readonly conditions?: { readonly ready?: boolean | null; readonly serving?: boolean | null };
      }[]
    | null;
  readonly ports?: readonly { readonly port?: number | null; readonly protocol?: string | null }[] | null;
}

export interface Ingress extends Named {
  readonly spec: {
    readonly defaultBackend?: IngressBackend;
    readonly rules?: readonly {
      readonly host?: string;
      readonly http?: { readonly paths: readonly { readonly backend: IngressBackend }[] };
    }[];
  };
}

export interface IngressBackend {
  readonly service?: { readonly name: string; readonly port?: { readonly number?: number; readonly name?: string } };
}

interface Selector {
  readonly matchLabels?: Readonly<Record<string, string>>;
  readonly matchExpressions?: readonly { readonly key: string; readonly operator: string; readonly values?: readonly string[] }[];
}

export interface PolicyPeer {
  readonly podSelector?: Selector;
  readonly namespaceSelector?: Selector;
  readonly ipBlock?: { readonly cidr: string; readonly except?: readonly string[] };
}

export interface PolicyPort {
  readonly port?: number | string;
  readonly endPort?: number;
  readonly protocol?: string;
}

export interface PolicyRule {
  readonly from?: readonly PolicyPeer[];
  readonly ports?: readonly PolicyPort[];
}

export interface NetworkPolicy extends Named {
  readonly spec: {
    readonly podSelector: Selector;
    readonly policyTypes?: readonly string[];
    readonly ingress?: readonly PolicyRule[];
  };
}

export interface WebhookConfiguration extends Named {
  readonly webhooks?: readonly {
    readonly name: string;
    readonly failurePolicy?: string;
    readonly namespaceSelector?: Selector;
    readonly clientConfig: {
      readonly caBundle?: string;
      readonly service?: { readonly namespace: string; readonly name: string };
    };
  }[];
}

export interface PolicyBinding extends Named {
  readonly spec: {
    readonly policyName: string;
    readonly validationActions?: readonly string[];
    readonly matchResources?: {
      readonly namespaceSelector?: Selector;
      readonly objectSelector?: Selector;
      readonly resourceRules?: readonly object[];
      readonly excludeResourceRules?: readonly object[];
    };
  };
}

// Matches labels against a selector, by the rules of apimachinery.

type ObjectLabels = Readonly<Record<string, string>>;

/** An empty selector matches everything. */
export function fits(selector: Selector, labels: ObjectLabels = {}): boolean {
  const { matchLabels = {}, matchExpressions = [] } = selector;
  return (
    Object.entries(matchLabels).every(([key, value]) => find(labels, key) === value) &&
    matchExpressions.every((expression) => fitsExpression(expression, labels))
  );
}

/** Whether the selector matches everything. */
export function isEverything({ matchLabels = {}, matchExpressions = [] }: Selector): boolean {
  return Object.keys(matchLabels).length === 0 && matchExpressions.length === 0;
}

/** A selector may name `constructor`, which each object has. */
function find(labels: ObjectLabels, key: string): string | undefined {
  return Object.hasOwn(labels, key) ? labels[key] : undefined;
}

function fitsExpression(
  { key, operator, values = [] }: NonNullable<Selector['matchExpressions']>[number],
  labels: ObjectLabels,
): boolean {
  const value = find(labels, key);
  switch (operator) {
    case 'In':
      return value !== undefined && values.includes(value);
    case 'NotIn':
      return value === undefined || !values.includes(value);
    case 'Exists':
      return value !== undefined;
    case 'DoesNotExist':
      return value === undefined;
    default:
      // An operator of a later version: a superfluous finding is better than a missing one.
      return true;
  }
}
