/** Values of the central sending side: a Deployment of `sidegate deliver`, which sends the events that the sidecars of apps accept. */
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

const ranges = (): z.ZodArray<z.ZodString> => z.array(z.string().regex(/^[0-9a-fA-F.:]+\/[0-9]{1,3}$/));

const networkPolicy = z.strictObject({
  enabled: z
    .boolean()
    .default(true)
    .describe(
      'Creates a NetworkPolicy that allows ingress only to the admin port, and egress only to DNS, PostgreSQL and endpoints.',
    ),
  metricsFrom: freeList().default([]).describe('NetworkPolicy peers that may connect to the admin port. Empty: all.'),
  postgresPorts: z.array(port()).default([5432]).describe('TCP ports of PostgreSQL, or of its connection pooler.'),
  postgresTo: freeList().default([]).describe('NetworkPolicy peers of PostgreSQL. Empty: all addresses.'),
  endpointPorts: z.array(port()).default([443]).describe('TCP ports of endpoints, or of the egress proxy.'),
  exceptRanges: ranges()
    .default([
      ...['10.0.0.0/8', '100.64.0.0/10', '127.0.0.0/8', '169.254.0.0/16', '172.16.0.0/12', '192.168.0.0/16'],
      ...['fc00::/7', 'fe80::/10'],
    ])
    .describe(
      'Address ranges (CIDR) that endpoints must not be in, in addition to the checks of `provider.egress`. Empty: endpoints, or an egress proxy, may have any address.',
    ),
  egress: freeList().default([]).describe('Additional egress rules, such as one for a tracing collector.'),
});

/** The Deployment `deliver`. */
export const deliver = z.strictObject({
  enabled: z.boolean().default(false).describe('Creates the Deployment. It needs a queue in PostgreSQL.'),
  namespace: objectName()
    .default('')
    .describe(
      'Namespace of its objects, such as that of the app, so that both use the same ConfigMap and Secrets. Empty: the release namespace. A namespace with the label `sidegate.dev/enforce` denies its pods.',
    ),
  config: freeForm()
    .default({})
    .describe(
      'The config with `provider.queue.postgres`, as YAML. Endpoints must be the same as in the config of the sidecars that accept events. `routes`, `store` and other receiving sections are ignored.',
    ),
  existingConfigMap: objectName().default('').describe('ConfigMap with the config in its key `gate.yaml`, instead of `config`.'),
  existingSecret: objectName().default('').describe('Secret with the config in its key `gate.yaml`, instead of `config`.'),
  secrets: z
    .array(objectName().min(1))
    .default([])
    .describe(
      'Secrets that the config refers to, such as the one with the URL of PostgreSQL; each is mounted as the directory `../secrets/NAME`, relative to the config.',
    ),
  replicas: replicaCount()
    .default(2)
    .describe('Number of pods. They share the endpoints; each endpoint is served by one pod at a time.'),
  adminPort: port().default(8481).describe('Port of health checks and metrics.'),
  resources: freeForm()
    .default({ requests: { cpu: '100m', memory: '96Mi' }, limits: { memory: '256Mi' } })
    .describe('Resources of the container.'),
  extraEnv: freeList()
    .default([])
    .describe('Additional environment variables, as a Kubernetes `env` list: the variables that the config refers to.'),
  extraVolumes: freeList().default([]).describe('Additional volumes of the pods.'),
  extraVolumeMounts: freeList().default([]).describe('Additional mounts of the container.'),
  priorityClassName: objectName().default('').describe('PriorityClass of the pods.'),
  nodeSelector: textMap().default({}).describe('Node selector, such as the nodes whose egress address your receivers allow.'),
  tolerations: freeList().default([]).describe('Tolerations.'),
  affinity: freeForm().default({}).describe('Affinity.'),
  topologySpreadConstraints: freeList().default([]).describe('Topology spread constraints. Empty: spread over nodes and zones.'),
  podLabels: textMap().default({}).describe('Additional labels of the pods, such as those that an egress gateway selects by.'),
  podAnnotations: textMap().default({}).describe('Additional annotations of the pods.'),
  annotations: textMap().default({}).describe('Annotations of the Deployment.'),
  podSecurityContext: podSecurityContext(),
  securityContext: containerSecurityContext(),
  strategy: freeForm()
    .default({ type: 'RollingUpdate', rollingUpdate: { maxUnavailable: 0, maxSurge: 1 } })
    .describe('Update strategy.'),
  terminationGracePeriodSeconds: z
    .number()
    .int()
    .min(0)
    .default(45)
    .describe('Seconds that a pod has to finish its attempts. Must exceed `shutdown.grace` plus `shutdown.drain` of the config.'),
  serviceAccount: z
    .strictObject({
      create: z.boolean().default(true).describe('Creates the ServiceAccount. Its token is not mounted.'),
      name: objectName().default('').describe('Name of the ServiceAccount. Empty: derived from the release name.'),
      annotations: textMap().default({}).describe('Annotations of the ServiceAccount.'),
    })
    .prefault({})
    .describe('ServiceAccount of the pods, which never call the API server.'),
  podDisruptionBudget: z
    .strictObject({
      enabled: z.boolean().default(true).describe('Creates a PodDisruptionBudget.'),
      maxUnavailable: z
        .union([z.number().int().min(0), z.string().regex(/^\d+%$/)])
        .default(1)
        .describe('Maximum number or percentage of pods that may be unavailable at once.'),
    })
    .prefault({})
    .describe('Limits how many pods a node drain may stop at once.'),
  networkPolicy: networkPolicy.prefault({}).describe('Network access of the pods.'),
});
