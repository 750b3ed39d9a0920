/** The values of the chart `sidegate`: values.yaml, its schema and the table of its README derive from them (`npm run docs`). */
import { z } from 'zod';
import { admission } from './values-admission.ts';
import { deliver } from './values-deliver.ts';
import { freeForm, freeList, objectName, PULL_POLICIES, textMap } from './values-forms.ts';
import { certificate, injector, rotation } from './values-injector.ts';
import { monitoring } from './values-monitoring.ts';
import { sidecar } from './values-sidecar.ts';

const NAME = '[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*';
/** With the registry, and without a tag and a digest (distribution/reference). */
const REPOSITORY = `^(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]{1,5})?/)?${NAME}(?:/${NAME})*$`;

const image = z.strictObject({
  repository: z
    .string()
    .regex(new RegExp(REPOSITORY))
    .default('ghcr.io/sidegate/sidegate')
    .describe('Repository of the image, such as your mirror of it.'),
  tag: z
    .string()
    .regex(/^(?:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?$/)
    .default('')
    .describe("Tag of the image. Empty: the digest with which the chart was released, or else the chart's `appVersion`."),
  digest: z
    .string()
    .regex(/^(?:sha256:[0-9a-f]{64})?$/)
    .default('')
    .describe('Digest of the image, `sha256:…`. It takes precedence over the tag.'),
  pullPolicy: z.enum(PULL_POLICIES).default('IfNotPresent').describe("Pull policy of the injector's image."),
});

const serviceAccount = z.strictObject({
  create: z.boolean().default(true).describe("Creates the injector's ServiceAccount."),
  name: objectName()
    .default('')
    .describe('Name of the ServiceAccount. Empty: derived from the release name, or `default` if the chart creates none.'),
  annotations: textMap().default({}).describe('Annotations of the ServiceAccount.'),
});

const rbac = z.strictObject({
  create: z
    .boolean()
    .default(true)
    .describe(
      'Creates the RBAC objects of the injector (it reads its certificate and its webhook by name, writes Events, and lists nodes for their versions) and of the rotation controller.',
    ),
  readConfigs: z
    .union([z.boolean(), z.array(objectName().min(1))])
    .default(false)
    .describe(
      'Namespaces where the injector may also read ConfigMaps, ReplicaSets and StatefulSets by name, or `true` for all. It then warns about a missing or invalid config, and about several replicas without a shared Redis. Needs `injector.clientAuth`. `sidegate doctor` reports the same with your own rights.',
    ),
});

const podDisruptionBudget = z.strictObject({
  enabled: z.boolean().default(true).describe('Creates a PodDisruptionBudget for the injector.'),
  maxUnavailable: z
    .union([z.number().int().min(0), z.string().regex(/^\d+%$/)])
    .default(1)
    .describe('Maximum number or percentage of injector pods that may be unavailable at once.'),
});

const networkPolicy = z.strictObject({
  enabled: z
    .boolean()
    .default(true)
    .describe(
      "Creates a NetworkPolicy that allows ingress only to the injector's two ports. Has no effect with `injector.hostNetwork`.",
    ),
  webhookFrom: freeList()
    .default([])
    .describe(
      'NetworkPolicy peers that may connect to the webhook port. Empty: all, because the addresses of API servers are often unknown.',
    ),
  metricsFrom: freeList()
    .default([])
    .describe("NetworkPolicy peers that may connect to the admin port. Empty: all. The kubelet's probes come from the node."),
  egressPorts: z
    .array(z.number().int().min(1).max(65_535))
    .default([])
    .describe(
      'TCP ports that the injector may connect to, in addition to DNS: those of the API server behind its Service, such as `[443, 6443]`. Empty: all.',
    ),
});

const selfTest = z.strictObject({
  enabled: z
    .boolean()
    .default(true)
    .describe(
      'Creates a pod for `helm test` (Kubernetes 1.29 and newer). The pod gets a sidecar and acts as both the sender and the app. A Job with the same pod ends `helm install` once a pod gets its sidecar.',
    ),
  namespace: objectName()
    .default('')
    .describe(
      'Namespace of that pod and its objects. The namespace must exist and allow injection. Default: the release namespace, or `default` if the release namespace is excluded from injection. With `admission.namespaceSelector` there is no default, and without a namespace the chart creates no self-test. `helm test --logs` finds the pod only in the release namespace.',
    ),
});

/** All values of the chart. */
export const ChartValues = z.strictObject({
  nameOverride: objectName().default('').describe('Replaces the chart name in names and labels.'),
  fullnameOverride: objectName().default('').describe('Replaces the release name and the chart name in names.'),
  namespaceOverride: objectName().default('').describe('Namespace of all namespaced objects. Empty: the release namespace.'),
  commonLabels: textMap().default({}).describe('Labels of all objects.'),
  image: image.prefault({}).describe('Image of the injector, and of the sidecars unless `sidecar.image` is set.'),
  imagePullSecrets: freeList().default([]).describe('Image pull secrets of the injector: a list of `{ name }`.'),
  admission: admission.prefault({}).describe('Injection of the sidecar, and the policies that deny pods without it.'),
  sidecar: sidecar.prefault({}).describe('Defaults of the sidecars. Annotations of a pod override them.'),
  injector: injector.prefault({}).describe('The Deployment that serves the webhook. Not created with `admission.mode: policy`.'),
  rotation: rotation
    .prefault({})
    .describe(
      "The Deployment that holds the CA's key and updates the webhook's `caBundle`. It listens on no port. Only with `certificate.mode: self-signed`.",
    ),
  certificate: certificate.prefault({}).describe('Certificate of the webhook.'),
  deliver: deliver
    .prefault({})
    .describe('The Deployment of `sidegate deliver`, which sends the webhooks of all apps that share its queue in PostgreSQL.'),
  serviceAccount: serviceAccount.prefault({}).describe('ServiceAccount of the injector.'),
  rbac: rbac.prefault({}).describe('RBAC objects.'),
  podDisruptionBudget: podDisruptionBudget.prefault({}).describe('Limits how many injectors a node drain may stop at once.'),
  networkPolicy: networkPolicy.prefault({}).describe('Network access of the injector.'),
  monitoring: monitoring.prefault({}).describe('Prometheus monitors, alerts and Grafana dashboards.'),
  selfTest: selfTest.prefault({}).describe('The pod that `helm test` runs.'),
  enabled: z.boolean().default(true).describe('Only for Helm: a parent chart can use it as the `condition` of this dependency.'),
  global: freeForm().default({}).describe('Set by Helm if this chart is a dependency. Ignored.'),
});

/** Values as a user writes them, without defaults. */
export type ChartInput = z.input<typeof ChartValues>;
