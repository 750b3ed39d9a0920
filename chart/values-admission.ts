/** Values of admission control: the injection of the sidecar, and the policies that deny unprotected pods. */
import { z } from 'zod';
import {
  ADDED_MOUNT,
  ADDED_VARIABLE,
  CONTAINER_NAME,
  PROGRAM_FOLDERS,
  PROGRAM_VARIABLES,
} from '../src/kubernetes/injector/kubernetes-values.ts';
import { labelSelector, textMap } from './values-forms.ts';

const ACTIONS = z.array(z.enum(['Deny', 'Warn', 'Audit'])).min(1);

/** Webhook or mutating policy, and the two validating policies for both modes. */
export const admission = z.strictObject({
  mode: z
    .enum(['webhook', 'policy'])
    .default('webhook')
    .describe(
      'The component that adds the sidecar. `webhook`: the injector, on any cluster. `policy`: the API server, by a MutatingAdmissionPolicy (Kubernetes 1.36 and newer), without an injector and without a certificate.',
    ),
  failurePolicy: z
    .enum(['Ignore', 'Fail'])
    .default('Ignore')
    .describe(
      'Failure policy of the webhook for labeled pods while no injector responds. `Ignore`: `admission.protect` denies pods without a sidecar. `Fail`: the API server denies all labeled pods, also those that already have a sidecar unless `admission.protect` checks them.',
    ),
  reinvocationPolicy: z
    .enum(['IfNeeded', 'Never'])
    .default('IfNeeded')
    .describe('`IfNeeded`: the API server calls the injector again if another webhook changed the pod.'),
  timeoutSeconds: z.number().int().min(1).max(30).default(5).describe('Seconds that the API server waits for the injector.'),
  excludedNamespaces: z
    .array(z.string())
    .default(['kube-system', 'kube-node-lease'])
    .describe('Namespaces where no pod gets the sidecar.'),
  namespaceSelector: labelSelector()
    .default({})
    .describe(
      'Label selector (`matchLabels`, `matchExpressions`) for the namespaces where sidecars are injected. Empty: all namespaces that are not excluded.',
    ),
  webhookAnnotations: textMap().default({}).describe('Annotations of the webhook configuration.'),
  protect: z
    .boolean()
    .default(true)
    .describe(
      'Creates a ValidatingAdmissionPolicy that denies pods with the label `sidegate.dev/inject: "true"` but without a sidecar (Kubernetes 1.30 and newer).',
    ),
  protectActions: ACTIONS.default(['Deny']).describe('Actions of that policy: `[Deny]`, or `[Warn, Audit]` during a rollout.'),
  enforce: z
    .boolean()
    .default(true)
    .describe(
      'Creates a ValidatingAdmissionPolicy that denies every pod without a sidecar in namespaces with the label `sidegate.dev/enforce: "true"`, so that a forgotten pod label does not leave an app unprotected.',
    ),
  enforceActions: ACTIONS.default(['Deny']).describe('Actions of that policy.'),
  allowedImages: z
    .array(z.string().regex(/^(?:\*|[A-Za-z0-9][A-Za-z0-9._:/@-]*)$/))
    .default([])
    .describe(
      "Images that both policies allow for a container `sidegate`, in addition to the chart's images (`image`, `sidecar.image`). An entry with a tag or digest allows exactly that image; a tag allows no digest. A repository allows all of its tags and digests; pods of the library chart, of `sidegate inject` and of a registry mirror may need that. `*` allows any image and disables this protection.",
    ),
  allowedEnv: z
    .array(
      z
        .string()
        .regex(new RegExp(ADDED_VARIABLE.pattern))
        .meta({ not: { pattern: PROGRAM_VARIABLES } }),
    )
    .default([
      ...['AWS_DEFAULT_REGION', 'AWS_REGION', 'AWS_ROLE_ARN', 'AWS_STS_REGIONAL_ENDPOINTS', 'AWS_WEB_IDENTITY_TOKEN_FILE'],
      ...['AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE', 'AWS_CONTAINER_CREDENTIALS_FULL_URI'],
      ...['AZURE_AUTHORITY_HOST', 'AZURE_CLIENT_ID', 'AZURE_FEDERATED_TOKEN_FILE', 'AZURE_TENANT_ID'],
    ])
    .describe(
      'Environment variables that other webhooks may add to a container `sidegate`; both policies deny all others. The default lists the variables of AWS and Azure workload identities. Variables that change the program, such as `NODE_OPTIONS`, are not accepted.',
    ),
  allowedMounts: z
    .array(
      z
        .string()
        .regex(new RegExp(ADDED_MOUNT.pattern))
        .meta({ not: { pattern: PROGRAM_FOLDERS } }),
    )
    .default([])
    .describe(
      'Paths that other webhooks may mount into a container `sidegate`, such as `/certs`; both policies deny all others. Paths below `/var/run/secrets/` are always allowed, except those of Kubernetes. The volume must be a Secret, a ConfigMap or projected, and no mount may be inside another: links in other volumes, such as an `emptyDir`, could lead a mount over the program. Folders of the program, such as `/opt`, are not accepted.',
    ),
  allowedInitContainers: z
    .array(z.string().regex(new RegExp(CONTAINER_NAME.pattern)))
    .default([])
    .describe(
      'Names of init containers that may start before a native sidecar, such as `istio-init` and `istio-proxy`; both policies deny all others. Such a container can answer on the port of the sidecar before the sidecar does, and its name proves nothing: list only names in clusters where a mesh adds them.',
    ),
  insecureAllowOtherSidecars: z
    .boolean()
    .default(false)
    .describe(
      'Allows hand-written containers named `sidegate`. The policies then do not compare the command, arguments, environment, mounts, ports, probes and security context with those that the injector creates.',
    ),
});
