/** The schema of the injector's own config: what sidecars are like where a pod does not say otherwise, and how the injector is reached. */
import * as z from 'zod';
import { injectServer, rotation } from './injector-server-schema.ts';
import {
  ADDED_MOUNT,
  ADDED_VARIABLE,
  CPU,
  DEFAULT_MEMORY_LIMIT,
  DEFAULT_MEMORY_REQUEST,
  hasForm,
  IMAGE,
  MEMORY,
  OBJECT_NAME,
  PROGRAM_FOLDERS,
  PROGRAM_VARIABLES,
  type SidecarMode,
  TAKEOVER,
  toTakeover,
  toWholeSeconds,
  type ValueForm,
  WHOLE_SECONDS,
} from './kubernetes-values.ts';

const formed = (form: ValueForm, example: string) =>
  z
    .string({ error: () => `expected text such as ${example}` })
    .refine((text) => hasForm(form, text), {
      error: ({ input }) => `"${String(input)}" is not right: expected ${form.expected}, for example ${example}`,
    })
    .meta({ examples: [example] });
const HIGHEST_PORT = 65_535;
const port = () =>
  z
    .int()
    .min(1, { error: ({ input }) => `port ${String(input)} is below 1` })
    .max(HIGHEST_PORT, { error: ({ input }) => `port ${String(input)} is above ${HIGHEST_PORT}` });
const objectName = () => formed(OBJECT_NAME, 'sidegate-injector');

const resources = z
  .strictObject({
    requests: z
      .strictObject({
        cpu: formed(CPU, '50m').default('50m').describe('Cores that are kept for it.'),
        memory: formed(MEMORY, DEFAULT_MEMORY_REQUEST).default(DEFAULT_MEMORY_REQUEST).describe('Memory that is kept for it.'),
      })
      .prefault({}),
    limits: z
      .strictObject({
        cpu: formed(CPU, '1').optional().describe('Most cores. Left out: no limit.'),
        memory: formed(MEMORY, DEFAULT_MEMORY_LIMIT).default(DEFAULT_MEMORY_LIMIT).describe('Most memory.'),
      })
      .prefault({}),
  })
  .prefault({});

const sidecar = z.strictObject({
  image: formed(IMAGE, 'registry.example/sidegate:1.0.0').describe('The image of the sidecar.'),
  imagePullPolicy: z.enum(['Always', 'IfNotPresent', 'Never']).default('IfNotPresent').describe('When nodes pull it.'),
  imagePullSecrets: z.array(objectName()).default([]).describe('Secrets that the image is pulled with; added to the pod.'),
  allowedImages: z
    .array(z.string().min(1))
    .optional()
    .describe(
      'Images that sidecars may have: each an image with its tag or digest, or a repository, of which any tag and digest is allowed. `*` allows any image, as leaving it out does.',
    ),
  allowedEnv: z
    .array(
      formed(ADDED_VARIABLE, 'AWS_ROLE_ARN').refine((name) => !new RegExp(PROGRAM_VARIABLES).test(name), {
        error: ({ input }) => `${String(input)} changes the program of the sidecar: take it out of the list`,
      }),
    )
    .default([])
    .describe('Names of environment variables that other webhooks may add to sidecars.'),
  allowedMounts: z
    .array(
      formed(ADDED_MOUNT, '/vault/secrets').refine((path) => !new RegExp(PROGRAM_FOLDERS).test(path), {
        error: ({ input }) => `${String(input)} is a folder of the program of the sidecar: take it out of the list`,
      }),
    )
    .default([])
    .describe('Paths that other webhooks may mount into sidecars. Those below `/var/run/secrets/` always may be.'),
  takeover: formed(TAKEOVER, 'service')
    .prefault('service')
    .transform(toTakeover)
    .describe('How the sidecar gets between a Service and the app.'),
  mode: z
    .enum(['auto', 'native', 'container'] satisfies SidecarMode[])
    .default('auto')
    .describe(
      '`native`: an init container that restarts; `container`: one beside the app; `auto`: native where the cluster knows it.',
    ),
  port: port().default(8480).describe("The sidecar's data port."),
  adminPort: port().default(8481).describe('Its port for health and metrics.'),
  movedPort: port().default(8482).describe('Where an app listens that was moved by its port variable.'),
  resources,
  preStop: formed(WHOLE_SECONDS, '5s')
    .prefault('5s')
    .transform(toWholeSeconds)
    .describe('How long apps go on serving after their pod began to leave its endpoints; `0s`: not at all.'),
});

/** The whole file. */
export const InjectorConfigSchema = z.strictObject({
  sidecar,
  server: injectServer.optional().describe('For `sidegate inject-server` only.'),
  rotation: rotation.optional().describe('For `sidegate rotate-certificates` only.'),
  log: z.strictObject({ level: z.enum(['debug', 'info', 'warn', 'error']).default('info') }).prefault({}),
});
