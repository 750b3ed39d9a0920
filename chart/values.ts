/** The values of the chart `sidegate`: values.yaml, its schema and the table of its README derive from them (`npm run docs`). */
import { z } from 'zod';
import { admission } from './values-admission.ts';
import { freeForm, freeList, objectName, PULL_POLICIES, textMap } from './values-forms.ts';
import { certificate, injector, rotation } from './values-injector.ts';
import { monitoring } from './values-monitoring.ts';
import { sidecar } from './values-sidecar.ts';

const image = z.strictObject({
  repository: z
    .string()
    .min(1)
    .default('sidegate')
    .describe('Where the image is. Build it with `docker build` and push it to a registry of yours.'),
  tag: z.string().default('').describe("Its tag. Empty: the version of the chart's app."),
  digest: z
    .string()
    .regex(/^(?:sha256:[0-9a-f]{64})?$/)
    .default('')
    .describe('Its digest, `sha256:…`; if given, it counts, not the tag.'),
  pullPolicy: z.enum(PULL_POLICIES).default('IfNotPresent').describe("When the injector's image is pulled."),
});

const serviceAccount = z.strictObject({
  create: z.boolean().default(true).describe("Whether the chart makes the injector's ServiceAccount."),
  name: objectName().default('').describe("Its name. Empty: made from the release's, or `default` where the chart makes none."),
  annotations: textMap().default({}).describe('Its annotations.'),
});

const rbac = z.strictObject({
  create: z
    .boolean()
    .default(true)
    .describe(
      'Whether the chart gives the injector its rights (to read its certificate and its webhook by name, to write Events, to list nodes for their versions), and the rotation controller its own.',
    ),
  readConfigs: z
    .union([z.boolean(), z.array(objectName().min(1))])
    .default(false)
    .describe(
      'Where the injector may also read ConfigMaps, ReplicaSets and StatefulSets by name, to warn of a config that is missing or wrong, and of several replicas that share no Redis: a list of namespaces, or `true` for all. Needs `injector.clientAuth`. `sidegate doctor` reports the same with your own rights.',
    ),
});

const podDisruptionBudget = z.strictObject({
  enabled: z.boolean().default(true).describe('Whether evictions spare the injector.'),
  maxUnavailable: z
    .union([z.number().int().min(0), z.string().regex(/^\d+%$/)])
    .default(1)
    .describe('How many of its pods may be away at once.'),
});

const networkPolicy = z.strictObject({
  enabled: z
    .boolean()
    .default(true)
    .describe("Whether only the injector's two ports can be reached. Has no effect with `injector.hostNetwork`."),
  webhookFrom: freeList()
    .default([])
    .describe(
      'Who may reach its webhook port, as NetworkPolicy peers. Empty: all, as API servers come from addresses that are often unknown.',
    ),
  metricsFrom: freeList()
    .default([])
    .describe("Who may reach its admin port. Empty: all. The kubelet's probes come from the node."),
  egressPorts: z
    .array(z.number().int().min(1).max(65_535))
    .default([])
    .describe(
      'TCP ports that it may connect to, beside DNS: those of the API server behind its Service, such as `[443, 6443]`. Empty: no limit.',
    ),
});

const selfTest = z.strictObject({
  enabled: z
    .boolean()
    .default(true)
    .describe('Whether `helm test` has a pod to run (Kubernetes 1.29 and newer): injected, it is its own sender and app.'),
  namespace: objectName()
    .min(1)
    .default('default')
    .describe(
      'Where that pod runs: a namespace that is there already, and in which pods are injected, so not the one of the release.',
    ),
});

/** All values of the chart. */
export const ChartValues = z.strictObject({
  nameOverride: objectName().default('').describe("Stands in the place of the chart's name in names and labels."),
  fullnameOverride: objectName().default('').describe("Stands in the place of the release's and the chart's name."),
  namespaceOverride: objectName().default('').describe("The namespace of all objects that have one. Empty: the release's."),
  commonLabels: textMap().default({}).describe('Labels of all objects.'),
  image: image.prefault({}).describe('The image of the injector, and of the sidecars where `sidecar.image` names no other.'),
  imagePullSecrets: freeList().default([]).describe("What the injector's image is pulled with: a list of `{ name }`."),
  admission: admission.prefault({}).describe('Who adds the sidecar, and who sees to it that no pod goes without.'),
  sidecar: sidecar.prefault({}).describe('What pods get whose annotations say nothing else.'),
  injector: injector
    .prefault({})
    .describe('The Deployment that answers the API server. Not there with `admission.mode: policy`.'),
  rotation: rotation
    .prefault({})
    .describe(
      "The Deployment that holds the key of the injector's CA and keeps the webhook's `caBundle`. It listens on no port. Only with `certificate.mode: self-signed`.",
    ),
  certificate: certificate.prefault({}).describe("The webhook's certificate."),
  serviceAccount: serviceAccount.prefault({}).describe("The injector's identity."),
  rbac: rbac.prefault({}).describe("The injector's rights."),
  podDisruptionBudget: podDisruptionBudget.prefault({}).describe('How many injectors remain while nodes are drained.'),
  networkPolicy: networkPolicy.prefault({}).describe('Who may reach the injector, and whom it may reach.'),
  monitoring: monitoring.prefault({}).describe('What is scraped, alerted by and shown.'),
  selfTest: selfTest.prefault({}).describe('What `helm test` runs.'),
  enabled: z
    .boolean()
    .default(true)
    .describe('Read by Helm alone: what `condition` may name in a chart that has this one as a dependency.'),
  global: freeForm().default({}).describe('Written by Helm where this chart is a dependency. Not read.'),
});

/** What a user may write. */
export type ChartInput = z.input<typeof ChartValues>;
