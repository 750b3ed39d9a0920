/** Writes the parts of the library chart that it shares with the injector: the sidecar, its volumes, and the formats of settings. */
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { hasForm, PORT_NUMBER } from '../src/kubernetes/injector/kubernetes-values.ts';
import { SETTINGS, type Setting } from '../src/kubernetes/injector/settings.ts';
import { CONTAINER_SHAPE, VOLUMES_SHAPE } from '../src/kubernetes/injector/sidecar.ts';
import { toHelm } from './helm-shape.ts';

type Form = Pick<Setting, 'form' | 'description' | 'example'>;

/** Settings that are lists in a chart. In annotations all values are strings. */
const LISTS = ['secrets', 'imagePullSecrets'];
const BEGIN = '<!-- settings: written by `npm run docs` -->\n';
const END = '<!-- /settings -->\n';

/** Settings that only the chart has. */
const OWN: Readonly<Record<string, string>> = {
  imagePullPolicy: 'Pull policy of the image: `Always`, `IfNotPresent` or `Never`. Default: `IfNotPresent`.',
  movedPort: 'With `env`: the port that the app listens on. Default: 8482.',
  portName: 'With `rename`: the port name that moves from the app to the sidecar.',
  appProbes: 'With `same-port`: the app\'s probes by container and kind, `{ web: { livez: "http://127.0.0.1:3000/healthz" } }`.',
  gracePeriodSeconds: 'Seconds that the app needs to shut down. Default: 30.',
};
/** Settings whose format differs from the annotation's: a chart cannot read the app's container or the cluster's version. */
const OTHERWISE: Readonly<Record<string, Form>> = {
  appPort: { form: PORT_NUMBER, description: 'The port of the app, by number.', example: '3000' },
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

/** Old names of settings, which remain valid. */
const OLD: readonly (readonly [string, Form])[] = Object.values(SETTINGS).flatMap((setting: Setting) =>
  setting.oldName === undefined ? [] : [[setting.oldName, setting]],
);

function toKnown(): string[] {
  return [...ROWS.map(([key]) => key), ...Object.keys(OWN)];
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
  ].join('\n');
}

/** Renders the library chart's README with its table. */
export function renderLibraryReadme(): string {
  const text = readFileSync(fileURLToPath(new URL('../chart/sidegate-lib/README.md', import.meta.url)), 'utf8');
  const [before, rest = ''] = text.split(BEGIN);
  const after = rest.split(END)[1];
  if (after === undefined) throw new Error(`chart/sidegate-lib/README.md has no ${BEGIN.trim()} … ${END.trim()}`);
  const rows = ROWS.map(
    ([key, { description, example }]) =>
      `| \`${key}\` | \`${LISTS.includes(key) ? `[${example}]` : example}\` | ${description} |\n`,
  );
  const own = Object.entries(OWN).map(([key, description]) => `| \`${key}\` | | ${description} |\n`);
  return `${before}${BEGIN}\n| setting | example | description |\n| --- | --- | --- |\n${[...rows, ...own].join('')}\n${END}${after}`;
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
    `{{- $known := list ${[...known, ...OLD.map(([key]) => key)].map((key) => JSON.stringify(key)).join(' ')} -}}`,
    '{{- range $key := keys . | sortAlpha -}}',
    '{{- if not (has $key $known) -}}',
    `{{- fail (printf "\\n\\nsidegate: the setting %s is unknown; the known ones are ${known.join(', ')}." $key) -}}`,
    '{{- end -}}',
    '{{- end -}}',
  ];
  for (const [key, form] of [...ROWS, ...OLD]) lines.push(toFormCheck(key, form));
  lines.push(
    `{{- include "sidegate.lib.form" (list . "movedPort" ${JSON.stringify(PORT_NUMBER.pattern)} ${JSON.stringify(PORT_NUMBER.expected)} "8482") -}}`,
  );
  return `${lines.join('\n')}\n`;
}

function toFormCheck(key: string, { form, example }: Form): string {
  if (!hasForm(form, example)) throw new Error(`${key}: the example has another form`);
  const rest = [key, form.pattern, form.expected, example].map((text) => JSON.stringify(text)).join(' ');
  return `{{- include "sidegate.lib.form" (list . ${rest}) -}}`;
}
