/** The schema of the injector's config: the defaults of sidecars, and the injector's server. */
import * as z from 'zod';
import { injectServer, rotation } from './injector-server-schema.ts';
import {
  ADDED_MOUNT,
  ADDED_VARIABLE,
  CONTAINER_NAME,
  CPU,
  DEFAULT_MEMORY_LIMIT,
  DEFAULT_MEMORY_REQUEST,
  hasForm,
  IMAGE,
  INTERCEPTION,
  MEMORY,
  OBJECT_NAME,
  PROGRAM_FOLDERS,
  PROGRAM_VARIABLES,
  type SidecarMode,
  toInterception,
  toWholeSeconds,
  type ValueForm,
  WHOLE_SECONDS,
} from './kubernetes-values.ts';

const formed = (form: ValueForm, example: string) =>
  z
    .string({ error: () => `expected a string such as ${example}` })
    .refine((text) => hasForm(form, text), {
      error: ({ input }) => `"${String(input)}" is invalid: expected ${form.expected}, for example ${example}`,
    })
    .meta({ examples: [example] });
const MAX_PORT = 65_535;
const port = () =>
  z
    .int()
    .min(1, { error: ({ input }) => `port ${String(input)} is below 1` })
    .max(MAX_PORT, { error: ({ input }) => `port ${String(input)} is above ${MAX_PORT}` });
const objectName = () => formed(OBJECT_NAME, 'sidegate-injector');

const resources = z
  .strictObject({
    requests: z
      .strictObject({
        cpu: formed(CPU, '50m').default('50m').describe('CPU request of the sidecar.'),
        memory: formed(MEMORY, DEFAULT_MEMORY_REQUEST).default(DEFAULT_MEMORY_REQUEST).describe('Memory request of the sidecar.'),
      })
      .prefault({}),
    limits: z
      .strictObject({
        cpu: formed(CPU, '1').optional().describe('CPU limit of the sidecar. Default: no limit.'),
        memory: formed(MEMORY, DEFAULT_MEMORY_LIMIT).default(DEFAULT_MEMORY_LIMIT).describe('Memory limit of the sidecar.'),
      })
      .prefault({}),
  })
  .prefault({});

const sidecar = z.strictObject({
  image: formed(IMAGE, 'registry.example/sidegate:1.0.0').describe('Image of the sidecar.'),
  imagePullPolicy: z.enum(['Always', 'IfNotPresent', 'Never']).default('IfNotPresent').describe('When nodes pull the image.'),
  imagePullSecrets: z.array(objectName()).default([]).describe('Secrets for pulling the image; added to the pod.'),
  allowedImages: z
    .array(z.string().min(1))
    .optional()
    .describe(
      'Images that sidecars may use. Each entry is an image with its tag or digest, or a repository, which allows all its tags and digests. `*` allows any image. Default: any image.',
    ),
  allowedEnv: z
    .array(
      formed(ADDED_VARIABLE, 'AWS_ROLE_ARN').refine((name) => !new RegExp(PROGRAM_VARIABLES).test(name), {
        error: ({ input }) => `${String(input)} changes the program of the sidecar: remove it from the list`,
      }),
    )
    .default([])
    .describe('Environment variables that other webhooks may add to sidecars.'),
  allowedMounts: z
    .array(
      formed(ADDED_MOUNT, '/certs').refine((path) => !new RegExp(PROGRAM_FOLDERS).test(path), {
        error: ({ input }) => `${String(input)} is a directory of the program of the sidecar: remove it from the list`,
      }),
    )
    .default([])
    .describe(
      'Paths that other webhooks may mount into sidecars. Paths below `/var/run/secrets/` are always allowed, except those of Kubernetes. The volume must be a Secret, a ConfigMap or projected, and no mount may be inside another.',
    ),
  allowedInitContainers: z
    .array(formed(CONTAINER_NAME, 'istio-proxy'))
    .default([])
    .describe('Names of init containers that may start before the sidecar, such as those of a mesh.'),
  interception: formed(INTERCEPTION, 'service')
    .prefault('service')
    .transform(toInterception)
    .describe('How the sidecar intercepts requests to the app.'),
  mode: z
    .enum(['auto', 'native', 'container'] satisfies SidecarMode[])
    .default('auto')
    .describe(
      '`native`: a native sidecar (an init container with restartPolicy Always); `container`: a plain container; `auto`: native if the cluster supports it.',
    ),
  port: port().default(8480).describe('Data port of the sidecar.'),
  adminPort: port().default(8481).describe('Admin port of the sidecar, for health and metrics.'),
  movedPort: port().default(8482).describe('Port that the app listens on with the interception mode `env`.'),
  resources,
  preStop: formed(WHOLE_SECONDS, '5s')
    .prefault('5s')
    .transform(toWholeSeconds)
    .describe(
      'How long apps keep running after their pod starts to be removed from its endpoints (preStop); `0s` disables the delay.',
    ),
});

/** The whole file. */
export const InjectorConfigSchema = z.strictObject({
  sidecar,
  server: injectServer.optional().describe('For `sidegate inject-server` only.'),
  rotation: rotation.optional().describe('For `sidegate rotate-certificates` only.'),
  log: z.strictObject({ level: z.enum(['debug', 'info', 'warn', 'error']).default('info') }).prefault({}),
});
