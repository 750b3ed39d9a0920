/** The schema of the injector's config, and how it is loaded: parses the YAML, and returns a typed, frozen value or all problems at once. */
import * as z from 'zod';
import { parseYaml, readText } from '../../config/load/document.ts';
import { toProblems } from '../../config/schema/issues.ts';
import type { JsonSchema } from '../../config/schema/json-schema.ts';
import { duration, filePath, listenAddress } from '../../config/schema/scalars.ts';
import { error, type LocatedProblem, type Problem } from '../../core/problem.ts';
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
  isAbove,
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

const DNS_NAME = /^(?=.{1,253}$)[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)*$/;
const MIN_LIFE_MS = 1_000;

const objectName = () =>
  z
    .string()
    .refine((text) => hasForm(OBJECT_NAME, text), {
      error: ({ input }) => `"${String(input)}" is not the name of an object: expected ${OBJECT_NAME.expected}`,
    })
    .meta({ examples: ['sidegate-injector'] });
const life = () => duration().refine((value) => value >= MIN_LIFE_MS, 'a certificate must be valid for at least one second');

const checkInterval = () =>
  duration()
    .refine((value) => value >= MIN_LIFE_MS / 2, 'the interval must be at least 500ms')
    .prefault('10s');

/** Settings of `sidegate rotate-certificates`; the injector's server does not use them. */
const rotation = z
  .strictObject({
    namespace: objectName().describe('Namespace of the Service and both Secrets.'),
    caSecret: objectName().describe('Secret for the CA and its key. It must exist, and can be empty.'),
    serverSecret: objectName().describe("Secret for the injector's server certificate. It must exist, and can be empty."),
    service: objectName().describe('Service through which the API server calls the injector.'),
    webhook: objectName().describe('MutatingWebhookConfiguration whose caBundle is updated.'),
    dnsNames: z
      .array(z.string().regex(DNS_NAME, 'a DNS name consists of lower-case labels separated by dots'))
      .default([])
      .describe('Further DNS names in the certificate, if the API server does not use the name of the Service.'),
    caLifetime: life().prefault('365d').describe('Validity of a CA; it is replaced after two thirds of this time.'),
    serverLifetime: life()
      .prefault('7d')
      .describe('Validity of a server certificate; it is renewed after two thirds of this time.'),
    overlap: duration().prefault('24h').describe('How long a new CA is trusted before it signs certificates.'),
    checkInterval: checkInterval().describe(
      'How often Secrets and webhook configuration are checked, with a random deviation of up to a fifth.',
    ),
  })
  .refine(({ caLifetime, overlap, serverLifetime }) => overlap + serverLifetime <= caLifetime / 3, {
    error:
      'overlap + serverLifetime must not exceed a third of caLifetime, because a CA is replaced during the last third of its validity',
    path: ['caLifetime'],
  });

const trustedBy = () =>
  objectName()
    .optional()
    .describe(
      'MutatingWebhookConfiguration whose caBundle must trust the certificate before the injector is ready. Default: not checked.',
    );

const secret = z.strictObject({
  secret: z
    .strictObject({
      namespace: objectName().describe('Namespace of the Secret.'),
      name: objectName().describe('Name of the Secret: `rotation.serverSecret` of the rotation controller.'),
      checkInterval: checkInterval().describe('How often the Secret is read.'),
    })
    .describe('Certificate in a Secret that `sidegate rotate-certificates` maintains; read from the API server.'),
  webhook: trustedBy(),
});

const directory = z.strictObject({
  directory: filePath.describe(
    'Directory with tls.crt and tls.key, such as a mounted Secret of type kubernetes.io/tls; watched for changes.',
  ),
  webhook: trustedBy(),
});

const clientAuth = z.strictObject({
  mode: z
    .enum(['require', 'optional'])
    .default('require')
    .describe(
      '`require` rejects all other callers. `optional` also responds to others, within `perClient`, but without Events and look-ups for them.',
    ),
  caFile: filePath.describe("PEM file of the CAs that may issue the API server's client certificate; watched for changes."),
  allowedNames: z
    .array(z.string().min(1))
    .min(1, 'list the common names (CN) of the API server, because the CA may also sign certificates of others')
    .describe("Allowed common names (CN) of the API server's client certificate."),
});

const count = (max: number) => z.int().min(1).max(max);
const perClient = z
  .strictObject({
    maxConnections: count(1_024).default(512).describe('Maximum number of connections, of 1,024 in total.'),
    connectionsPerSecond: count(10_000).default(200).describe('New connections per second, with bursts of up to twice as many.'),
    requestsPerSecond: count(100_000).default(500).describe('Requests per second, with bursts of up to twice as many.'),
    maxUploads: count(1_024).default(64).describe('Maximum number of requests whose body has not been received completely.'),
  })
  .prefault({});

/** Settings of the admission server. */
const injectServer = z.strictObject({
  address: listenAddress().prefault(':10250').describe('Listen address for the API server (HTTPS).'),
  adminAddress: listenAddress().prefault(':8481').describe('Listen address for /readyz, /healthz and /metrics.'),
  clientAuth: clientAuth
    .optional()
    .describe(
      'Authenticates the API server by its client certificate. Default: no caller is authenticated, and the limits apply to all.',
    ),
  perClient: perClient.describe(
    'Limits for each client network (an IPv4 address or an IPv6 /64) without a verified certificate.',
  ),
  excludedNamespaces: z
    .array(objectName())
    .default([])
    .describe('Namespaces for which the API server never calls the injector; a review for one of them is rejected as forged.'),
  certificate: z.union([secret, directory], { error: 'expected secret: or directory:' }),
  shutdown: z
    .strictObject({
      grace: duration()
        .prefault('10s')
        .describe('How long new requests are accepted after SIGTERM, while the pod is removed from its endpoints.'),
      drain: duration().prefault('10s').describe('How long requests in flight may then take to finish.'),
    })
    .prefault({}),
});

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
  imagePullSecrets: z
    .array(formed(OBJECT_NAME, 'sidegate-injector'))
    .default([])
    .describe('Secrets for pulling the image; added to the pod.'),
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
const InjectorConfigSchema = z.strictObject({
  sidecar,
  server: injectServer.optional().describe('For `sidegate inject-server` only.'),
  rotation: rotation.optional().describe('For `sidegate rotate-certificates` only.'),
  log: z.strictObject({ level: z.enum(['debug', 'info', 'warn', 'error']).default('info') }).prefault({}),
});

type ParsedInjectorConfig = z.output<typeof InjectorConfigSchema>;
/** Settings of sidecars that a pod's annotations can override. */
export type SidecarDefaults = Readonly<ParsedInjectorConfig['sidecar']>;
/** Settings of the injector's server. @public */
export type InjectServerConfig = Readonly<NonNullable<ParsedInjectorConfig['server']>>;
/** The whole config. */
export type InjectorConfig = Readonly<ParsedInjectorConfig>;

/** The config with warnings, or the problems that prevent loading it. */
interface InjectorConfigRead {
  readonly config: InjectorConfig | undefined;
  readonly problems: readonly LocatedProblem[];
}

/** The draft-07 schema, for editors. */
function toInjectorJsonSchema(): JsonSchema {
  const schema = z.toJSONSchema(InjectorConfigSchema, { io: 'input', target: 'draft-07', unrepresentable: 'any' });
  return { ...(schema as JsonSchema), title: 'sidegate injector configuration' };
}

/** Reads and checks `file`; never throws for anything in it. */
export async function loadInjectorConfig(file: string): Promise<InjectorConfigRead> {
  const text = await readText(file);
  return typeof text === 'string' ? parseInjectorConfig(file, text) : { config: undefined, problems: [text] };
}

/** Checks the text of `file`. */
export function parseInjectorConfig(file: string, text: string): InjectorConfigRead {
  const read = parseYaml(file, text, 'start with sidecar:');
  if ('problems' in read) return { config: undefined, problems: read.problems };
  const parsed = InjectorConfigSchema.safeParse(read.value, { reportInput: true });
  const found = parsed.success
    ? [...findClashes(parsed.data.sidecar), ...findTooSmallLimits(parsed.data.sidecar)]
    : toProblems(parsed.error.issues, toInjectorJsonSchema());
  const problems = found.map(read.locate);
  return { config: parsed.success && problems.length === 0 ? Object.freeze(parsed.data) : undefined, problems };
}

/** The defaults for `image`, without a config file. */
export function toSidecarDefaults(image: string): SidecarDefaults {
  return InjectorConfigSchema.parse({ sidecar: { image } }).sidecar;
}

function findClashes({ port, adminPort, movedPort }: SidecarDefaults): Problem[] {
  const found: Problem[] = [];
  const hint = 'choose another port';
  if (port === adminPort) found.push(error(['sidecar', 'adminPort'], `${adminPort} equals sidecar.port`, hint));
  if (movedPort === port || movedPort === adminPort)
    found.push(error(['sidecar', 'movedPort'], `${movedPort} is already a port of the sidecar`, hint));
  return found;
}

/** With these limits, the injector would deny every pod without its own resource annotations. */
function findTooSmallLimits({ resources: { requests, limits } }: SidecarDefaults): Problem[] {
  const found: Problem[] = [];
  for (const kind of ['cpu', 'memory'] as const) {
    const [request, limit] = [requests[kind], limits[kind]];
    if (limit !== undefined && isAbove(request, limit))
      found.push(
        error(
          ['sidecar', 'resources', 'requests', kind],
          `${request} is above sidecar.resources.limits.${kind}, which is ${limit}`,
          'raise the limit, or lower the request',
        ),
      );
  }
  return found;
}
