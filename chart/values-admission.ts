/** Values of the admission: who changes pods, and who sees to it that no pod goes unprotected. */
import { z } from 'zod';
import { ADDED_MOUNT, ADDED_VARIABLE, PROGRAM_FOLDERS, PROGRAM_VARIABLES } from '../src/kubernetes/injector/kubernetes-values.ts';
import { freeForm, textMap } from './values-forms.ts';

const ACTIONS = z.array(z.enum(['Deny', 'Warn', 'Audit'])).min(1);

/** Webhook or policy, and the two policies behind either. */
export const admission = z.strictObject({
  mode: z
    .enum(['webhook', 'policy'])
    .default('webhook')
    .describe(
      'Who adds the sidecar. `webhook`: the injector, on any cluster. `policy`: the API server by itself, by a MutatingAdmissionPolicy (Kubernetes 1.36 and newer): no injector, no certificate.',
    ),
  failurePolicy: z
    .enum(['Ignore', 'Fail'])
    .default('Ignore')
    .describe(
      'What becomes of labelled pods while no injector answers. `Ignore`: `admission.protect` denies them by what they lack. `Fail`: the API server denies them, also where pods in doubt have a sidecar of their own.',
    ),
  reinvocationPolicy: z
    .enum(['IfNeeded', 'Never'])
    .default('IfNeeded')
    .describe('`IfNeeded`: asked once more where another webhook has changed the pod since.'),
  timeoutSeconds: z.number().int().min(1).max(30).default(5).describe('How long the API server waits for the injector.'),
  excludedNamespaces: z
    .array(z.string())
    .default(['kube-system', 'kube-node-lease'])
    .describe(
      'Namespaces where no pod gets the sidecar. With `mode: webhook` that of the release is one, too; with `mode: policy` it is not.',
    ),
  namespaceSelector: freeForm()
    .default({})
    .describe(
      'A label selector (`matchLabels`, `matchExpressions`) for the namespaces that the injector is asked about. Empty: all others.',
    ),
  webhookAnnotations: textMap().default({}).describe('Annotations of the webhook configuration.'),
  protect: z
    .boolean()
    .default(true)
    .describe(
      'A ValidatingAdmissionPolicy that denies a pod with the label `sidegate.dev/inject: "true"` that has no sidecar, for whatever reason (Kubernetes 1.30 and newer).',
    ),
  protectActions: ACTIONS.default(['Deny']).describe('What it does: `[Deny]`, or `[Warn, Audit]` for the time of a roll-out.'),
  enforce: z
    .boolean()
    .default(true)
    .describe(
      'A ValidatingAdmissionPolicy that denies any pod without sidecar in namespaces with the label `sidegate.dev/enforce: "true"`, so that a forgotten label is no hole.',
    ),
  enforceActions: ACTIONS.default(['Deny']).describe('What that one does.'),
  allowedImages: z
    .array(z.string().min(1))
    .default([])
    .describe(
      "Images that a container `sidegate` may have, for both policies, beside the chart's own with its tag or digest (`image`, `sidecar.image`). An entry with a tag or digest allows that image; a repository allows all of its tags and digests, as pods of the library chart, of `sidegate inject` and of a registry mirror may need; `*` allows any image, which protects nothing.",
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
      'Names of environment variables that other webhooks may add to a container `sidegate`, for both policies; all others are denied. By default those of the identities of AWS and Azure. Variables that change the program, such as `NODE_OPTIONS`, cannot be named.',
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
      'Paths that other webhooks may mount into a container `sidegate`, for both policies, such as `/vault/secrets`; paths below `/var/run/secrets/` always may be. Folders of the program, such as `/opt`, cannot be named.',
    ),
  insecureAllowOtherSidecars: z
    .boolean()
    .default(false)
    .describe(
      'Whether a container `sidegate` may be anything at all, such as one that people wrote themselves: the policies then compare neither its command nor its arguments, environment, mounts, ports, probes and security context with those that the injector makes.',
    ),
});
