/** THE table of annotations: validation, the admission policies' rules and docs/injection.md all derive from it. */
import { findNearest } from '../../config/schema/did-you-mean.ts';
import {
  CONTAINER_NAME,
  CPU,
  DEFAULT_MEMORY_LIMIT,
  DEFAULT_MEMORY_REQUEST,
  hasForm,
  IMAGE,
  MEMORY,
  OBJECT_NAME,
  OBJECT_NAMES,
  PORT_NUMBER,
  PORT_NUMBER_OR_NAME,
  SIDECAR_MODE,
  type SidecarMode,
  TAKEOVER,
  toNames,
  toTakeover,
  toWholeSeconds,
  type ValueForm,
  WHOLE_SECONDS,
} from './kubernetes-values.ts';
import { DOMAIN, STATUS_ANNOTATION } from './names.ts';
import { isRaw, objectAt, type Raw } from './raw.ts';

/** One annotation. */
export interface Setting<T = unknown> {
  /** After `sidegate.dev/`. */
  readonly name: string;
  readonly form: ValueForm;
  /** Turns text of that form into its value. */
  readonly read: (text: string) => T;
  /** What holds where it is left out: a sentence, or the injector's own setting. */
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

/** All of them, by what they are called in code. */
export const SETTINGS = {
  config: setting('config', OBJECT_NAME, asIs, {
    fallback: 'required',
    description: 'The ConfigMap whose key `gate.yaml` is the config of the gate.',
    example: 'web-gate',
  }),
  secrets: setting('secrets', OBJECT_NAMES, toNames, {
    fallback: 'none',
    description: 'Secrets that the config refers to; each becomes the folder `../secrets/NAME` beside the config.',
    example: 'stripe-webhook, web-users',
  }),
  takeover: setting('takeover', TAKEOVER, toTakeover, {
    fallback: '`sidecar.takeover`, else `service`',
    description: 'How the sidecar gets between a Service and the app; after the colon the variable of the app that is set.',
    example: 'same-port:HOST',
  }),
  appContainer: setting('app-container', CONTAINER_NAME, asIs, {
    fallback: 'the only one it can be',
    description: 'The container that the app is in.',
    example: 'web',
  }),
  appPort: setting('app-port', PORT_NUMBER_OR_NAME, toPort, {
    fallback: 'its only TCP port',
    description: 'The port of the app, by number or name.',
    example: 'http',
  }),
  port: setting('port', PORT_NUMBER, Number, {
    fallback: '`sidecar.port`, else 8480',
    description: 'The data port of the sidecar. Not with `same-port` and `env`, where it is the one of the app.',
    example: '8480',
  }),
  adminPort: setting('admin-port', PORT_NUMBER, Number, {
    fallback: '`sidecar.adminPort`, else 8481',
    description: 'The port of the sidecar for health and metrics.',
    example: '8481',
  }),
  sidecar: setting('sidecar', SIDECAR_MODE, (text) => text as SidecarMode, {
    fallback: '`sidecar.mode`, else `auto`',
    description:
      '`native`: an init container that restarts; `container`: one beside the app; `auto`: native where the cluster knows it.',
    example: 'native',
  }),
  image: setting('image', IMAGE, asIs, {
    fallback: '`sidecar.image`',
    description: 'The image of the sidecar.',
    example: 'registry.example/sidegate:1.0.0',
  }),
  imagePullSecrets: setting('image-pull-secrets', OBJECT_NAMES, toNames, {
    fallback: '`sidecar.imagePullSecrets`, else none',
    description: 'Secrets that the image is pulled with; added to those of the pod.',
    example: 'registry-login',
  }),
  cpuRequest: setting('cpu-request', CPU, asIs, {
    fallback: '`sidecar.resources.requests.cpu`, else 50m',
    description: 'Cores that are kept for the sidecar.',
    example: '100m',
  }),
  memoryRequest: setting('memory-request', MEMORY, asIs, {
    fallback: `\`sidecar.resources.requests.memory\`, else ${DEFAULT_MEMORY_REQUEST}`,
    description: 'Memory that is kept for the sidecar.',
    example: '128Mi',
  }),
  cpuLimit: setting('cpu-limit', CPU, asIs, {
    fallback: '`sidecar.resources.limits.cpu`, else none',
    description: 'Most cores of the sidecar.',
    example: '1',
  }),
  memoryLimit: setting('memory-limit', MEMORY, asIs, {
    fallback: `\`sidecar.resources.limits.memory\`, else ${DEFAULT_MEMORY_LIMIT}`,
    description: 'Most memory of the sidecar.',
    example: '256Mi',
  }),
  preStop: setting('pre-stop', WHOLE_SECONDS, toWholeSeconds, {
    fallback: '`sidecar.preStop`, else 5s',
    description: 'How long the app goes on serving after its pod began to leave its endpoints; `0s`: not at all.',
    example: '10s',
  }),
} as const;

type Read<S> = S extends Setting<infer T> ? T : never;
/** What a pod's annotations say. */
export type PodSettings = { readonly [Key in keyof typeof SETTINGS]: Read<(typeof SETTINGS)[Key]> | undefined } & {
  readonly config: string;
};
/** The settings, or sentences on all that is wrong with them. */
export type SettingsRead = { readonly settings: PodSettings } | { readonly problems: readonly string[] };

const PREFIX = `${DOMAIN}/`;
const ALL: readonly (readonly [string, Setting])[] = Object.entries(SETTINGS);
const NAMES = ALL.map(([, { name }]) => name);
const LONGEST_SHOWN = 60;

/** Reads the annotations of a pod. */
export function readSettings(pod: Raw): SettingsRead {
  const annotations = objectAt(objectAt(pod, 'metadata'), 'annotations');
  const problems = Object.keys(annotations).flatMap((key) => findUnknown(key));
  const settings: Record<string, unknown> = {};
  for (const [key, setting] of ALL) {
    const annotation = PREFIX + setting.name;
    if (!Object.hasOwn(annotations, annotation)) continue;
    const problem = judge(setting, annotations[annotation]);
    if (problem === undefined) settings[key] = setting.read(String(annotations[annotation]));
    else problems.push(problem);
  }
  if (!Object.hasOwn(annotations, PREFIX + SETTINGS.config.name))
    problems.push(`the annotation ${PREFIX}config is missing: name the ConfigMap whose key gate.yaml is the gate's config`);
  return problems.length > 0 ? { problems } : { settings: settings as unknown as PodSettings };
}

function findUnknown(key: string): string[] {
  const name = key.slice(PREFIX.length);
  if (!key.startsWith(PREFIX) || key === STATUS_ANNOTATION || NAMES.includes(name)) return [];
  const nearest = name === 'inject' ? undefined : findNearest(name, NAMES);
  const hint = nearest === undefined ? `known are ${NAMES.join(', ')}` : `did you mean ${PREFIX}${nearest}?`;
  return [`the annotation ${show(key)} is unknown: ${name === 'inject' ? 'it is a label' : hint}`];
}

function judge({ name, form, example }: Setting, value: unknown): string | undefined {
  const place = `the annotation ${PREFIX}${name}`;
  if (typeof value !== 'string') return `${place} is ${describe(value)}: annotations are text, put it in quotes`;
  if (hasForm(form, value)) return undefined;
  const nearest = form.words === undefined ? undefined : findNearest(value, form.words);
  const hint = nearest === undefined ? '' : `; did you mean ${nearest}?`;
  return `${place} is "${show(value)}": expected ${form.expected}, for example ${example}${hint}`;
}

function describe(value: unknown): string {
  if (value === null) return 'empty';
  return isRaw(value) || Array.isArray(value) ? 'no text' : String(value);
}

/** What strangers wrote, fit for a sentence. */
function show(text: string): string {
  const clean = text.replace(/[\p{Cc}\p{Cf}]/gu, ' ');
  return clean.length > LONGEST_SHOWN ? `${clean.slice(0, LONGEST_SHOWN)}…` : clean;
}
