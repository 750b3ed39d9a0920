/** Values of the injector: the Deployment that serves the webhook, its Service and its certificate. */
import { z } from 'zod';
import {
  containerSecurityContext,
  freeForm,
  freeList,
  objectName,
  podSecurityContext,
  port,
  replicaCount,
  textMap,
} from './values-forms.ts';

const service = z.strictObject({
  type: z
    .enum(['ClusterIP', 'NodePort', 'LoadBalancer'])
    .default('ClusterIP')
    .describe('Type of the Service. `ClusterIP` is enough for the API server.'),
  port: port().default(443).describe('Port of the Service, which the webhook configuration refers to.'),
  annotations: textMap().default({}).describe('Annotations of the Service.'),
  ipFamilyPolicy: z
    .enum(['', 'SingleStack', 'PreferDualStack', 'RequireDualStack'])
    .default('')
    .describe("IP families of the Service. Empty: the cluster's default."),
});

const clientAuth = z.strictObject({
  mode: z
    .enum(['none', 'optional', 'require'])
    .default('none')
    .describe(
      'Client certificate check for the API server, which must be configured to send a certificate. `require`: clients without a valid certificate are rejected. `optional`: other clients get a response within `injector.perClient`, but cause no Event. `none`: for clusters whose API server you cannot configure.',
    ),
  caSecret: objectName().default('').describe('Secret with the CA of that certificate under the key `ca.crt`.'),
  caConfigMap: objectName()
    .default('')
    .describe(
      "ConfigMap with that CA under the key `ca.crt`, instead of a Secret: `kube-root-ca.crt` if the cluster's CA signs the certificate.",
    ),
  allowedNames: z
    .array(z.string().min(1))
    .default([])
    .describe("Allowed common names (CN) of the API server's client certificate."),
});

const count = (most: number): z.ZodNumber => z.number().int().min(1).max(most);

const perClient = z.strictObject({
  maxConnections: count(1_024).default(512).describe('Maximum number of connections, of 1,024 in total.'),
  connectionsPerSecond: count(10_000).default(200).describe('Maximum new connections per second.'),
  requestsPerSecond: count(100_000).default(500).describe('Maximum requests per second.'),
  maxUploads: count(1_024).default(64).describe('Maximum number of requests whose body has not been received completely.'),
});

/** The Deployment `injector`. */
export const injector = z.strictObject({
  replicas: replicaCount()
    .default(2)
    .describe('Number of pods. With one, a node upgrade leaves the cluster without an injector for a while.'),
  port: port()
    .default(10_250)
    .describe(
      'Port that the API server connects to. Managed clusters that block other ports allow 10250 from the control plane to nodes.',
    ),
  adminPort: port().default(8481).describe('Port of health checks and metrics.'),
  hostNetwork: z
    .boolean()
    .default(false)
    .describe(
      "Uses the node's network, for clusters whose API server cannot reach pod addresses. `injector.port` and `injector.adminPort` must be free on the nodes; the kubelet uses 10250.",
    ),
  clientAuth: clientAuth.prefault({}).describe('Authentication of the API server.'),
  perClient: perClient
    .prefault({})
    .describe(
      'Limits of each client address (IPv4) or /64 network (IPv6) on the webhook port. They do not apply to clients with a verified certificate.',
    ),
  logLevel: z.enum(['debug', 'info', 'warn', 'error']).default('info').describe('Lowest level that is logged.'),
  resources: freeForm()
    .default({ requests: { cpu: '50m', memory: '96Mi' }, limits: { memory: '256Mi' } })
    .describe('Resources of the container.'),
  priorityClassName: objectName()
    .default('')
    .describe('PriorityClass, such as `system-cluster-critical`, so that it is scheduled before the pods that need it.'),
  nodeSelector: textMap().default({}).describe('Node selector.'),
  tolerations: freeList().default([]).describe('Tolerations.'),
  affinity: freeForm().default({}).describe('Affinity.'),
  topologySpreadConstraints: freeList().default([]).describe('Topology spread constraints. Empty: spread over nodes and zones.'),
  podLabels: textMap().default({}).describe('Additional labels of the pods.'),
  podAnnotations: textMap().default({}).describe('Additional annotations of the pods.'),
  annotations: textMap().default({}).describe('Annotations of the Deployment.'),
  podSecurityContext: podSecurityContext(),
  securityContext: containerSecurityContext(),
  strategy: freeForm()
    .default({ type: 'RollingUpdate', rollingUpdate: { maxUnavailable: 0, maxSurge: 1 } })
    .describe('Update strategy. With `hostNetwork` and as many replicas as nodes, `maxUnavailable` must not be 0.'),
  terminationGracePeriodSeconds: z.number().int().min(0).default(30).describe('Seconds that a pod has to shut down.'),
  extraEnv: freeList().default([]).describe('Additional environment variables of the container, as a Kubernetes `env` list.'),
  service: service.prefault({}).describe('Service of the injector.'),
});

/** The Deployment `rotation`. */
export const rotation = z.strictObject({
  resources: freeForm()
    .default({ requests: { cpu: '10m', memory: '64Mi' }, limits: { memory: '128Mi' } })
    .describe('Resources of the container.'),
  podLabels: textMap().default({}).describe('Additional labels of the pod.'),
  podAnnotations: textMap().default({}).describe('Additional annotations of the pod.'),
  serviceAccount: z
    .strictObject({
      create: z.boolean().default(true).describe('Creates the ServiceAccount.'),
      name: objectName()
        .default('')
        .describe("Name of the ServiceAccount. Empty: derived from the release name. It must differ from the injector's."),
      annotations: textMap().default({}).describe('Annotations of the ServiceAccount.'),
    })
    .prefault({})
    .describe("ServiceAccount of the rotation controller. No other one may read the CA's key and change the webhook."),
});

const certManager = z.strictObject({
  issuerRef: freeForm()
    .default({})
    .describe(
      'Issuer: `{ name, kind, group }`. It must write its CA to `ca.crt`. Empty: the chart creates a CA for this webhook only.',
    ),
  duration: z
    .string()
    .regex(/^\d+h$/)
    .default('2160h')
    .describe('Lifetime of a certificate.'),
  renewBefore: z
    .string()
    .regex(/^\d+h$/)
    .default('720h')
    .describe('Time before expiry at which the certificate is renewed.'),
});

/** The source of the webhook's certificate. */
export const certificate = z.strictObject({
  mode: z
    .enum(['self-signed', 'cert-manager', 'existing-secret'])
    .default('self-signed')
    .describe(
      'Source of the certificate that the API server verifies. `self-signed`: the rotation controller issues and renews it, and writes its CA into the webhook. `cert-manager`: cert-manager issues it. `existing-secret`: you provide it.',
    ),
  certManager: certManager.prefault({}).describe('Only with `mode: cert-manager`.'),
  existingSecret: objectName()
    .default('')
    .describe('Only with `mode: existing-secret`: the Secret with `tls.crt` and `tls.key`. It is reloaded without a restart.'),
  caBundle: z
    .string()
    .default('')
    .describe(
      'Only with `mode: existing-secret`: the CA, as PEM text. Leave it empty if `admission.webhookAnnotations` have another tool write it.',
    ),
});
