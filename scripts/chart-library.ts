/** Writes what of the library chart is the injector's: the sidecar, its volumes, and the forms of settings. */
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { hasForm, PORT_NUMBER } from '../src/config/kubernetes-values.ts';
import { SETTINGS, type Setting } from '../src/injector/settings.ts';
import { CONTAINER_SHAPE, VOLUMES_SHAPE } from '../src/injector/sidecar.ts';
import { toHelm } from './helm-shape.ts';

const ROWS: readonly (readonly [string, Setting])[] = Object.entries(SETTINGS);
/** Lists in a chart are lists, and ports numbers: only in annotations all is text. */
const LISTS = ['secrets', 'imagePullSecrets'];
const BEGIN = '<!-- settings: written by `npm run docs` -->\n';
const END = '<!-- /settings -->\n';

/** Settings that a chart has beside those of annotations. */
const OWN: Readonly<Record<string, string>> = {
  imagePullPolicy: 'When the image is pulled: `Always`, `IfNotPresent` or `Never`. Left out: `IfNotPresent`.',
  movedPort: 'With `env`: where the app listens. Left out: 8482.',
  portName: "With `rename`: the port's name that the sidecar takes from the app.",
  appProbes: 'With `same-port`: the app\'s probes by container and kind, `{ web: { livez: "http://127.0.0.1:3000/healthz" } }`.',
  gracePeriodSeconds: 'What the app itself needs to end. Left out: 30.',
};
/** What of the annotations makes no sense where the chart's author writes the pod. */
const NOT_HERE = ['appContainer'];

function toKnown(): string[] {
  return [...ROWS.map(([key]) => key).filter((key) => !NOT_HERE.includes(key)), ...Object.keys(OWN)];
}

/** templates/_sidecar.tpl as it should be. */
export function renderLibrarySidecar(): string {
  const { version } = JSON.parse(readFileSync(fileURLToPath(new URL('../package.json', import.meta.url)), 'utf8')) as {
    readonly version: string;
  };
  return [
    '{{/* Written from src/injector (`npm run docs`): the sidecar is the same whoever adds it. */}}',
    define('sidegate.lib.container', toHelm(CONTAINER_SHAPE)),
    define('sidegate.lib.volumes', toHelm(VOLUMES_SHAPE)),
    define('sidegate.lib.version', `${version}\n`),
    '{{/* Fails with a sentence on settings that are unknown or badly written. */}}',
    define('sidegate.lib.check', toCheck()),
  ].join('\n');
}

/** The library chart's README with its table as it should be. */
export function renderLibraryReadme(): string {
  const text = readFileSync(fileURLToPath(new URL('../chart/sidegate-lib/README.md', import.meta.url)), 'utf8');
  const [before, rest = ''] = text.split(BEGIN);
  const after = rest.split(END)[1];
  if (after === undefined) throw new Error(`chart/sidegate-lib/README.md has no ${BEGIN.trim()} … ${END.trim()}`);
  const rows = ROWS.filter(([key]) => !NOT_HERE.includes(key)).map(
    ([key, { description, example }]) =>
      `| \`${key}\` | \`${LISTS.includes(key) ? `[${example}]` : example}\` | ${description} |\n`,
  );
  const own = Object.entries(OWN).map(([key, description]) => `| \`${key}\` | | ${description} |\n`);
  return `${before}${BEGIN}\n| setting | example | meaning |\n| --- | --- | --- |\n${[...rows, ...own].join('')}\n${END}${after}`;
}

function define(name: string, body: string): string {
  return `{{- define "${name}" -}}\n${body}{{- end -}}\n`;
}

function toCheck(): string {
  const known = toKnown();
  const lines = [
    `{{- $known := list ${known.map((key) => JSON.stringify(key)).join(' ')} -}}`,
    '{{- range $key := keys . | sortAlpha -}}',
    '{{- if not (has $key $known) -}}',
    `{{- fail (printf "\\n\\nsidegate: the setting %s is unknown; known are ${known.join(', ')}." $key) -}}`,
    '{{- end -}}',
    '{{- end -}}',
  ];
  for (const [key, setting] of ROWS) if (!NOT_HERE.includes(key)) lines.push(toFormCheck(key, setting));
  lines.push(
    `{{- include "sidegate.lib.form" (list . "movedPort" ${JSON.stringify(PORT_NUMBER.pattern)} ${JSON.stringify(PORT_NUMBER.expected)} "8482") -}}`,
  );
  return `${lines.join('\n')}\n`;
}

function toFormCheck(key: string, { form, example }: Setting): string {
  if (!hasForm(form, example)) throw new Error(`${key}: the example has another form`);
  // A chart cannot look up the name of a port in a container that its author writes.
  const { pattern, expected } = key === 'appPort' ? PORT_NUMBER : form;
  const rest = [key, pattern, expected, key === 'appPort' ? '3000' : example].map((text) => JSON.stringify(text)).join(' ');
  return `{{- include "sidegate.lib.form" (list . ${rest}) -}}`;
}
