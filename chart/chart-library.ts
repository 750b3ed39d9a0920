/** Writes the parts of the library chart that it shares with the injector: the sidecar, its volumes, and the formats of settings. */
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { CONTAINER_NAME, hasForm, OBJECT_NAME, PORT_NUMBER, VOLUME_NAME } from '../src/kubernetes/injector/kubernetes-values.ts';
import { SETTINGS, type Setting } from '../src/kubernetes/injector/settings.ts';
import { CONTAINER_SHAPE, VOLUMES_SHAPE } from '../src/kubernetes/injector/sidecar.ts';
import { PROBE_TARGET_PATTERN, RESERVED_PORT_NAMES, VOLUME_NAMES } from '../src/kubernetes/injector/sidecar-rules.ts';
import { toHelm } from './helm-shape.ts';
import { PULL_POLICIES } from './values-forms.ts';

/** `except`: a pattern of values that have the form and are rejected nevertheless. RE2 has no lookahead. */
type Form = Pick<Setting, 'form' | 'description' | 'example'> & { readonly except?: string };

/** Settings that are lists in a chart. In annotations all values are strings. */
const LISTS = ['secrets', 'imagePullSecrets'];

/** Settings that only the chart has. */
const OWN: Readonly<Record<string, Form>> = {
  imagePullPolicy: {
    form: { pattern: `^(?:${PULL_POLICIES.join('|')})$`, expected: 'Always, IfNotPresent or Never' },
    description: 'Pull policy of the image: `Always`, `IfNotPresent` or `Never`. Default: `IfNotPresent`.',
    example: 'Always',
  },
  movedPort: {
    form: PORT_NUMBER,
    description: 'With `env`: the port that the app listens on. Default: 8482.',
    example: '8482',
  },
  portName: {
    form: {
      pattern: '^[a-z0-9](?:[-a-z0-9]{0,13}[a-z0-9])?$',
      expected: `a port name: at most 15 lower-case letters, digits and dashes, with a letter, and not ${RESERVED_PORT_NAMES.join(' or ')}`,
    },
    except: `^(?:[-0-9]*|.*--.*|${RESERVED_PORT_NAMES.join('|')})$`,
    description: 'With `rename`: the port name that moves from the app to the sidecar.',
    example: 'http',
  },
  gracePeriodSeconds: {
    form: { pattern: '^[1-9][0-9]{0,4}$', expected: 'whole seconds from 1 to 99999' },
    description: 'Seconds that the app needs to shut down. Default: 30.',
    example: '45',
  },
};
/** The description of the only setting that is a map. */
const APP_PROBES =
  'With `same-port`: the app\'s probes by container and kind, `{ web: { livez: "http://127.0.0.1:3000/healthz" } }`.';
/** Settings whose format differs from the annotation's: a chart cannot read the app's container or the cluster's version. */
const OTHERWISE: Readonly<Record<string, Form>> = {
  appPort: { form: PORT_NUMBER, description: 'The port of the app, by number.', example: '3000' },
  queueVolume: {
    ...SETTINGS.queueVolume,
    form: { ...VOLUME_NAME, expected: `${VOLUME_NAME.expected}, not that of a volume of the sidecar` },
    except: `^(?:${VOLUME_NAMES.exact.join('|')}|${VOLUME_NAMES.prefix}.*)$`,
  },
  sidecar: {
    form: { pattern: '^(?:native|container)$', expected: 'native or container' },
    description: '`native` (an init container; Kubernetes 1.29 and newer), the default, or `container` (a regular container).',
    example: 'container',
  },
};
/** Annotations without a setting: the author of a chart knows which container is the app. */
const NOT_HERE = ['appContainer'];

const ROWS: readonly (readonly [string, Form])[] = Object.entries(SETTINGS)
  .filter(([key]) => !NOT_HERE.includes(key))
  .map(([key, setting]) => [key, OTHERWISE[key] ?? setting]);

function toKnown(): string[] {
  return [...ROWS.map(([key]) => key), ...Object.keys(OWN), 'appProbes'];
}

/** Renders templates/_sidecar.tpl. */
export function renderLibrarySidecar(): string {
  const { version } = JSON.parse(readFileSync(fileURLToPath(new URL('../package.json', import.meta.url)), 'utf8')) as {
    readonly version: string;
  };
  return [
    '{{/* Written from src/kubernetes/injector (`npm run docs`): it adds the same sidecar as the injector. */}}',
    define('sidegate.lib.container', toHelm(CONTAINER_SHAPE)),
    define('sidegate.lib.volumes', toHelm(VOLUMES_SHAPE)),
    define('sidegate.lib.version', `${version}\n`),
    '{{/* Fails with an explanation on unknown and malformed settings. */}}',
    define('sidegate.lib.check', toCheck()),
    '{{/* Fails with an explanation on probes that the sidecar cannot request. */}}',
    define('sidegate.lib.checkProbes', toProbeCheck()),
  ].join('\n');
}

/** The table of the library chart's README. */
export function renderSettingTable(): string {
  const rows = ROWS.map(
    ([key, { description, example }]) =>
      `| \`${key}\` | \`${LISTS.includes(key) ? `[${example}]` : example}\` | ${description} |\n`,
  );
  const own = [...Object.entries(OWN).map(([key, { description }]) => [key, description]), ['appProbes', APP_PROBES]].map(
    ([key, description]) => `| \`${key}\` | | ${description} |\n`,
  );
  return `| setting | example | description |\n| --- | --- | --- |\n${[...rows, ...own].join('')}`;
}

function define(name: string, body: string): string {
  return `{{- define "${name}" -}}\n${body}{{- end -}}\n`;
}

function toCheck(): string {
  const known = toKnown();
  const lines = [
    '{{- if not (kindIs "map" .) -}}',
    '{{- fail "\\n\\nsidegate: a helper was given no settings: pass an object with config, image and appPort, such as .Values.sidegate." -}}',
    '{{- end -}}',
    `{{- $known := list ${known.map((key) => JSON.stringify(key)).join(' ')} -}}`,
    '{{- range $key := keys . | sortAlpha -}}',
    '{{- if not (has $key $known) -}}',
    `{{- fail (printf "\\n\\nsidegate: the setting %s is unknown; the known ones are ${known.join(', ')}." $key) -}}`,
    '{{- end -}}',
    '{{- end -}}',
  ];
  for (const [key, form] of [...ROWS, ...Object.entries(OWN)]) lines.push(toFormCheck(key, form));
  lines.push('{{- include "sidegate.lib.checkProbes" . -}}');
  return `${lines.join('\n')}\n`;
}

function toFormCheck(key: string, { form, example, except = '' }: Form): string {
  if (!hasForm(form, example)) throw new Error(`${key}: the example has another form`);
  const item = LISTS.includes(key) ? OBJECT_NAME.pattern : '';
  const rest = [key, form.pattern, form.expected, example, except, item].map((text) => JSON.stringify(text)).join(' ');
  return `{{- include "sidegate.lib.form" (list . ${rest}) -}}`;
}

function toProbeCheck(): string {
  const fail = (text: string, ...values: string[]): string =>
    `{{- fail (printf ${JSON.stringify(`\n\nsidegate: the setting appProbes ${text}.`)} ${values.join(' ')}) -}}`;
  const example = '{ web: { livez: "http://127.0.0.1:3000/healthz" } }';
  return [
    '{{- $probes := default dict .appProbes -}}',
    '{{- if not (kindIs "map" $probes) -}}',
    fail(`is %q: expected URLs by container and kind, for example ${example}`, '(toString $probes)'),
    '{{- end -}}',
    '{{- range $container, $kinds := $probes -}}',
    `{{- if not (and (kindIs "map" $kinds) (regexMatch ${JSON.stringify(CONTAINER_NAME.pattern)} $container)) -}}`,
    fail(
      `has %q: %q: expected the name of a container with URLs by kind, for example ${example}`,
      '$container',
      '(toString $kinds)',
    ),
    '{{- end -}}',
    '{{- range $kind, $url := $kinds -}}',
    '{{- if not (has $kind (list "livez" "readyz" "startupz")) -}}',
    fail(
      'has %s/%s; the known ones are livez, readyz and startupz. Anyone who reaches the admin port could trigger a hook: use exec or sleep',
      '$container',
      '$kind',
    ),
    '{{- end -}}',
    '{{- $own := printf "^[a-z]+://127[.]0[.]0[.]1:%d(?:/|$)" (int (default 8481 $.adminPort)) -}}',
    `{{- if or (not (kindIs "string" $url)) (not (regexMatch ${JSON.stringify(PROBE_TARGET_PATTERN)} (toString $url))) (regexMatch $own (toString $url)) -}}`,
    fail(
      'has %s/%s: %q: expected a URL of a port of the app at 127.0.0.1, without blanks, for example http://127.0.0.1:3000/healthz or tcp://127.0.0.1:3000',
      '$container',
      '$kind',
      '(toString $url)',
    ),
    '{{- end -}}',
    '{{- end -}}',
    '{{- end -}}',
    '',
  ].join('\n');
}
