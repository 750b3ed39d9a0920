/** The table of annotations. Validation, the rules of the admission policies and docs/injection.md derive from it. */
import { findNearest } from '../../config/schema/did-you-mean.ts';
import {
  CONTAINER_NAME,
  CPU,
  DEFAULT_MEMORY_LIMIT,
  DEFAULT_MEMORY_REQUEST,
  hasForm,
  IMAGE,
  INTERCEPTION,
  MEMORY,
  OBJECT_NAME,
  OBJECT_NAMES,
  PORT_NUMBER,
  PORT_NUMBER_OR_NAME,
  SIDECAR_MODE,
  type SidecarMode,
  toInterception,
  toNames,
  toWholeSeconds,
  type ValueForm,
  VOLUME_NAME,
  WHOLE_SECONDS,
} from './kubernetes-values.ts';
import { DENIED_ANNOTATION, DOMAIN, QUEUE_FOLDER, STATUS_ANNOTATION } from './names.ts';
import { isRaw, objectAt, type Raw } from './raw.ts';

/** One annotation. */
export interface Setting<T = unknown> {
  /** Without the prefix `sidegate.dev/`. */
  readonly name: string;
  readonly form: ValueForm;
  /** Parses text of that form. */
  readonly read: (text: string) => T;
  /** The default: a phrase, or the injector's setting. */
  readonly fallback: string;
  readonly description: string;
  readonly example: string;
}

const setting = <T>(
  name: string,
  form: ValueForm,
  read: (text: string) => T,
  rest: Pick<Setting, 'fallback' | 'description' | 'example'>,
): Setting<T> => ({ name, form, read, ...rest });

const asIs = (text: string): string => text;
const toPort = (text: string): number | string => (/^[0-9]+$/.test(text) ? Number(text) : text);

/** All annotations, by their names in code. */
export const SETTINGS = {
  config: setting('config', OBJECT_NAME, asIs, {
    fallback: 'required',
    description: "The ConfigMap with sidegate's config in its key `gate.yaml`.",
    example: 'web-gate',
  }),
  secrets: setting('secrets', OBJECT_NAMES, toNames, {
    fallback: 'none',
    description: 'Secrets that the config refers to; each is mounted as the directory `../secrets/NAME`, relative to the config.',
    example: 'stripe-webhook, web-users',
  }),
  queueVolume: setting('queue-volume', VOLUME_NAME, asIs, {
    fallback: 'none',
    description: `A volume of the pod for the SQLite queue of \`provider\`. It is mounted writable at \`${QUEUE_FOLDER}\`, and only into the sidecar.`,
    example: 'queue',
  }),
  interception: setting('interception', INTERCEPTION, toInterception, {
    fallback: '`sidecar.interception`, otherwise `service`',
    description:
      'How the sidecar intercepts requests to the app. After a colon: the environment variable of the app that is set.',
    example: 'same-port:HOST',
  }),
  appContainer: setting('app-container', CONTAINER_NAME, asIs, {
    fallback: 'the only candidate',
    description: 'The container of the app.',
    example: 'web',
  }),
  appPort: setting('app-port', PORT_NUMBER_OR_NAME, toPort, {
    fallback: 'the only TCP port of its container',
    description: 'The port of the app, by number or name.',
    example: 'http',
  }),
  port: setting('port', PORT_NUMBER, Number, {
    fallback: '`sidecar.port`, otherwise 8480',
    description: 'The data port of the sidecar. Not allowed with `same-port` and `env`, where it is the port of the app.',
    example: '8480',
  }),
  adminPort: setting('admin-port', PORT_NUMBER, Number, {
    fallback: '`sidecar.adminPort`, otherwise 8481',
    description: 'The admin port of the sidecar, for health and metrics.',
    example: '8481',
  }),
  sidecar: setting('sidecar', SIDECAR_MODE, (text) => text as SidecarMode, {
    fallback: '`sidecar.mode`, otherwise `auto`',
    description:
      '`native`: a native sidecar (an init container with restartPolicy Always); `container`: a plain container; `auto`: native if the cluster supports it.',
    example: 'native',
  }),
  image: setting('image', IMAGE, asIs, {
    fallback: '`sidecar.image`',
    description: 'The image of the sidecar.',
    example: 'registry.example/sidegate:1.0.0',
  }),
  imagePullSecrets: setting('image-pull-secrets', OBJECT_NAMES, toNames, {
    fallback: '`sidecar.imagePullSecrets`, otherwise none',
    description:
      'Secrets for pulling the image; added to those of the pod. Kubernetes adds those of the ServiceAccount only to a pod without any: with `sidegate inject` and the library chart, list them in the pod as well.',
    example: 'registry-login',
  }),
  cpuRequest: setting('cpu-request', CPU, asIs, {
    fallback: '`sidecar.resources.requests.cpu`, otherwise 50m',
    description: 'CPU request of the sidecar.',
    example: '100m',
  }),
  memoryRequest: setting('memory-request', MEMORY, asIs, {
    fallback: `\`sidecar.resources.requests.memory\`, otherwise ${DEFAULT_MEMORY_REQUEST}`,
    description: 'Memory request of the sidecar.',
    example: '128Mi',
  }),
  cpuLimit: setting('cpu-limit', CPU, asIs, {
    fallback: '`sidecar.resources.limits.cpu`, otherwise none',
    description: 'CPU limit of the sidecar.',
    example: '1',
  }),
  memoryLimit: setting('memory-limit', MEMORY, asIs, {
    fallback: `\`sidecar.resources.limits.memory\`, otherwise ${DEFAULT_MEMORY_LIMIT}`,
    description: 'Memory limit of the sidecar.',
    example: '256Mi',
  }),
  preStop: setting('pre-stop', WHOLE_SECONDS, toWholeSeconds, {
    fallback: '`sidecar.preStop`, otherwise 5s',
    description:
      'How long the app keeps running after its pod starts to be removed from its endpoints (preStop); `0s` disables the delay.',
    example: '10s',
  }),
} as const;

type SettingValue<S> = S extends Setting<infer T> ? T : never;
/** The settings in a pod's annotations. */
export type PodSettings = { readonly [Key in keyof typeof SETTINGS]: SettingValue<(typeof SETTINGS)[Key]> | undefined } & {
  readonly config: string;
};
/** The settings, or messages about all problems with them. */
type SettingsRead =
  | { readonly settings: PodSettings; readonly warnings: readonly string[] }
  | { readonly problems: readonly string[] };

const PREFIX = `${DOMAIN}/`;
const ALL: readonly (readonly [string, Setting])[] = Object.entries(SETTINGS);
const NAMES = ALL.map(([, { name }]) => name);
const MAX_SHOWN_LENGTH = 60;

/** Parses the annotations of a pod. */
export function readSettings(pod: Raw): SettingsRead {
  const annotations = objectAt(objectAt(pod, 'metadata'), 'annotations');
  const problems = Object.keys(annotations).flatMap((key) => findUnknown(key));
  const warnings: string[] = [];
  const settings: Record<string, unknown> = {};
  for (const [key, setting] of ALL) {
    if (!Object.hasOwn(annotations, PREFIX + setting.name)) continue;
    const value = annotations[PREFIX + setting.name];
    const problem = findProblem(setting, value);
    if (problem === undefined) settings[key] = setting.read(String(value));
    else problems.push(problem);
  }
  if (!Object.hasOwn(annotations, PREFIX + SETTINGS.config.name))
    problems.push(
      `the annotation ${PREFIX}config is missing: set it to the ConfigMap with sidegate's config in its key gate.yaml`,
    );
  return problems.length > 0 ? { problems } : { settings: settings as unknown as PodSettings, warnings };
}

function findUnknown(key: string): string[] {
  const name = key.slice(PREFIX.length);
  if (!key.startsWith(PREFIX) || key === STATUS_ANNOTATION || key === DENIED_ANNOTATION || NAMES.includes(name)) return [];
  const nearest = name === 'inject' ? undefined : findNearest(name, NAMES);
  const hint = nearest === undefined ? `known annotations: ${NAMES.join(', ')}` : `did you mean ${PREFIX}${nearest}?`;
  return [`the annotation ${show(key)} is unknown: ${name === 'inject' ? 'it is a label' : hint}`];
}

function findProblem({ name, form, example }: Setting, value: unknown): string | undefined {
  const place = `the annotation ${PREFIX}${name}`;
  if (typeof value !== 'string') return `${place} is ${describe(value)}: annotations must be strings, so put it in quotes`;
  if (hasForm(form, value)) return undefined;
  const nearest = form.words === undefined ? undefined : findNearest(value, form.words);
  const hint = nearest === undefined ? '' : `; did you mean ${nearest}?`;
  return `${place} is "${show(value)}": expected ${form.expected}, for example ${example}${hint}`;
}

function describe(value: unknown): string {
  if (value === null) return 'empty';
  return isRaw(value) || Array.isArray(value) ? 'not a string' : String(value);
}

/** Sanitizes untrusted text for a message. */
function show(text: string): string {
  const clean = text.replace(/[\p{Cc}\p{Cf}]/gu, ' ');
  return clean.length > MAX_SHOWN_LENGTH ? `${clean.slice(0, MAX_SHOWN_LENGTH)}…` : clean;
}
