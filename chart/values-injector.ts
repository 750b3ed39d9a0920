/** Values of the injector: the Deployment that answers the API server, its Service and its certificate. */
import { z } from 'zod';
import { freeForm, freeList, objectName, port, textMap } from './values-forms.ts';

const service = z.strictObject({
  type: z
    .enum(['ClusterIP', 'NodePort', 'LoadBalancer'])
    .default('ClusterIP')
    .describe('Its type. The API server needs no more than `ClusterIP`.'),
  port: port().default(443).describe('Its port, which the webhook names.'),
  annotations: textMap().default({}).describe('Annotations of the Service.'),
  ipFamilyPolicy: z
    .enum(['', 'SingleStack', 'PreferDualStack', 'RequireDualStack'])
    .default('')
    .describe('IP families of the Service; empty leaves them to the cluster.'),
});

const clientAuth = z.strictObject({
  mode: z
    .enum(['none', 'optional', 'require'])
    .default('none')
    .describe(
      'How the API server proves itself to the injector, by a client certificate that it must be configured to show. `require`: nobody else is answered. `optional`: others are answered within `injector.perClient`, but cause no Event. `none`: for clusters whose API server you cannot configure.',
    ),
  caSecret: objectName().default('').describe('A Secret with the CA of that certificate, under the key `ca.crt`.'),
  caConfigMap: objectName()
    .default('')
    .describe('A ConfigMap with it instead, under the same key: `kube-root-ca.crt` where the CA of the cluster signs it.'),
  allowedNames: z
    .array(z.string().min(1))
    .default([])
    .describe("Allowed common names (CN) of the API server's client certificate."),
});

const count = (most: number): z.ZodNumber => z.number().int().min(1).max(most);

const perClient = z.strictObject({
  maxConnections: count(1_024).default(512).describe('Maximum number of connections, of 1,024 in total.'),
  connectionsPerSecond: count(10_000).default(200).describe('New connections a second.'),
  requestsPerSecond: count(100_000).default(500).describe('Requests a second.'),
  maxUploads: count(1_024).default(64).describe('Maximum number of requests whose body has not been received completely.'),
});

/** The Deployment `injector`. */
export const injector = z.strictObject({
  replicas: z
    .number()
    .int()
    .min(1)
    .default(2)
    .describe('How many pods. With one, an upgrade of a node leaves the cluster without an injector for a while.'),
  port: port()
    .default(10_250)
    .describe(
      'The port that the API server reaches. 10250 is open from control planes to nodes on managed clusters that block others.',
    ),
  adminPort: port().default(8481).describe('The port of its health and metrics.'),
  hostNetwork: z
    .boolean()
    .default(false)
    .describe(
      "Runs on the node's network, for clusters whose API server reaches no pod addresses. `injector.port` and `injector.adminPort` must be free on the nodes: 10250 is the kubelet's.",
    ),
  clientAuth: clientAuth.prefault({}).describe('Who may ask the injector.'),
  perClient: perClient
    .prefault({})
    .describe('What one client address (of IPv6, one /64 network) may do on the webhook port without a verified certificate.'),
  logLevel: z.enum(['debug', 'info', 'warn', 'error']).default('info').describe('What is logged.'),
  resources: freeForm()
    .default({ requests: { cpu: '50m', memory: '96Mi' }, limits: { memory: '256Mi' } })
    .describe('Resources of its container.'),
  priorityClassName: z
    .string()
    .default('')
    .describe('Its PriorityClass, such as `system-cluster-critical`, so that it is placed before the pods that wait for it.'),
  nodeSelector: textMap().default({}).describe('Nodes it may run on.'),
  tolerations: freeList().default([]).describe('Taints it tolerates.'),
  affinity: freeForm().default({}).describe('Its affinity.'),
  topologySpreadConstraints: freeList()
    .default([])
    .describe('How its pods are spread. Empty: over nodes and zones, where there are several.'),
  podLabels: textMap().default({}).describe('More labels of its pods.'),
  podAnnotations: textMap().default({}).describe('More annotations of its pods.'),
  annotations: textMap().default({}).describe('Annotations of the Deployment.'),
  podSecurityContext: freeForm()
    .default({
      runAsNonRoot: true,
      runAsUser: 65_532,
      runAsGroup: 65_532,
      fsGroup: 65_532,
      seccompProfile: { type: 'RuntimeDefault' },
    })
    .describe('Security context of its pods. The default passes PodSecurity `restricted`.'),
  securityContext: freeForm()
    .default({ allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: { drop: ['ALL'] } })
    .describe('Security context of its container.'),
  strategy: freeForm()
    .default({ type: 'RollingUpdate', rollingUpdate: { maxUnavailable: 0, maxSurge: 1 } })
    .describe(
      'How the Deployment is rolled out. With `hostNetwork` and as many replicas as nodes, `maxUnavailable` must not be 0.',
    ),
  terminationGracePeriodSeconds: z.number().int().min(0).default(30).describe('How long a pod of its has to end.'),
  extraEnv: freeList().default([]).describe('More environment variables of its container, as Kubernetes writes them.'),
  service: service.prefault({}).describe('The Service in front of it.'),
});

/** The Deployment `rotation`. */
export const rotation = z.strictObject({
  resources: freeForm()
    .default({ requests: { cpu: '10m', memory: '64Mi' }, limits: { memory: '128Mi' } })
    .describe('Resources of its container.'),
  podLabels: textMap().default({}).describe('More labels of its pod.'),
  podAnnotations: textMap().default({}).describe('More annotations of its pod.'),
  serviceAccount: z
    .strictObject({
      create: z.boolean().default(true).describe('Whether the chart makes its ServiceAccount.'),
      name: objectName().default('').describe("Its name. Empty: made from the release's. It must not be the injector's."),
      annotations: textMap().default({}).describe('Its annotations.'),
    })
    .prefault({})
    .describe('Its identity, which alone may read the key of the CA and change the webhook.'),
});

const certManager = z.strictObject({
  issuerRef: freeForm()
    .default({})
    .describe(
      'The issuer: `{ name, kind, group }`. It must have an authority of its own that goes into `ca.crt`. Empty: the chart makes an authority for this webhook alone.',
    ),
  duration: z
    .string()
    .regex(/^\d+h$/)
    .default('2160h')
    .describe('How long a certificate is good for.'),
  renewBefore: z
    .string()
    .regex(/^\d+h$/)
    .default('720h')
    .describe('How long before its end it is renewed.'),
});

/** Where the webhook's certificate comes from. */
export const certificate = z.strictObject({
  mode: z
    .enum(['self-signed', 'cert-manager', 'existing-secret'])
    .default('self-signed')
    .describe(
      'Who makes the certificate that the API server checks. `self-signed`: the rotation controller does, renews it and writes its authority into the webhook. `cert-manager`: cert-manager does. `existing-secret`: you do.',
    ),
  certManager: certManager.prefault({}).describe('Only with `mode: cert-manager`.'),
  existingSecret: objectName()
    .default('')
    .describe(
      'Only with `mode: existing-secret`: the Secret with `tls.crt` and `tls.key`. A change of it is taken up without a restart.',
    ),
  caBundle: z
    .string()
    .default('')
    .describe(
      'Only with `mode: existing-secret`: the authority, as PEM text. Empty where `admission.webhookAnnotations` make another tool write it.',
    ),
});
