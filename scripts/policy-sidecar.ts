/** Writes the checks of the validating policies for a container `sidegate`, from the injector's shape and rules. */

import { toDefaulted } from '../src/kubernetes/injector/defaulted.ts';
import { PORT_NUMBER } from '../src/kubernetes/injector/kubernetes-values.ts';
import { CONTAINER, DATA_PORT, QUEUE_FOLDER, SECRET_VOLUME, SECRETS_FOLDER } from '../src/kubernetes/injector/names.ts';
import { isWhen, type Shape, type ShapeMap } from '../src/kubernetes/injector/shape.ts';
import { CONTAINER_SHAPE, POD_IPS, UPSTREAM_PREFIX } from '../src/kubernetes/injector/sidecar.ts';
import { SHARING } from '../src/kubernetes/injector/sidecar-check.ts';
import {
  ALLOWED_FIELDS,
  COMPARED,
  CREDENTIALS_FOLDER,
  PAUSE_PATTERN,
  PAUSE_PLACE,
  TERMINATION_PATH,
  VOLUME_SOURCES,
} from '../src/kubernetes/injector/sidecar-rules.ts';
import { type CelPlaceholders, celText, toCel } from './cel-shape.ts';
import { matches } from './policy-variables.ts';

const HEAD = `{{/*
Written from src/kubernetes/injector (\`npm run docs\`): what a container \`${CONTAINER}\` must contain. Every field is compared with what the injector
creates, and unknown fields are denied. Values that differ between pods are read at a place where each is alone; a forged value then differs at the
other places.
*/}}
`;
const APP_PROBE = '--app-probe=';
const SIDECAR = 'variables.sidecar';
const at = (path: string, fallback: string): string => `${SIDECAR}.?${path}.orValue(${fallback})`;

/** The values of the shape's placeholders, as the container has them. */
const PLACEHOLDERS: CelPlaceholders = {
  values: {
    port: { expression: 'variables.port', isNumber: true },
    adminPort: { expression: 'variables.adminPort', isNumber: true },
    portName: { expression: 'variables.portName' },
    appPort: { expression: 'variables.appPort' },
    queueVolume: { expression: 'variables.queueVolume' },
    pause: { expression: 'variables.pause' },
  },
  conditions: {
    isNative: 'variables.isInit',
    isOnPodAddresses: 'variables.isOnPodAddresses',
    isOnAllAddresses: '!variables.isOnPodAddresses',
    queueVolume: "variables.queueVolume != ''",
  },
  lists: {
    secrets: {
      expression: `${at('volumeMounts', '[]')}.filter(m, m.name.startsWith(${celText(SECRET_VOLUME)}))`,
      values: {
        secret: { expression: `entry.mountPath.replace(${celText(`${SECRETS_FOLDER}/`)}, '')` },
        number: { expression: `entry.name.replace(${celText(SECRET_VOLUME)}, '')` },
      },
    },
    appProbes: {
      expression: `variables.args.filter(a, a.startsWith(${celText(APP_PROBE)}))`,
      values: { appProbe: { expression: `entry.replace(${celText(APP_PROBE)}, '', 1)` } },
    },
  },
};

/** Lists whose items must be as the injector creates them, and the field that names an unknown item in messages. */
const LISTS: Readonly<Record<string, { readonly isFree: string; readonly label: string }>> = {
  env: { isFree: '(e.name in variables.allowedEnv)', label: 'name' },
  volumeMounts: {
    isFree: `(e.mountPath in variables.allowedMounts || e.mountPath.startsWith(${celText(CREDENTIALS_FOLDER)}) && !e.mountPath.contains('..'))`,
    label: 'mountPath',
  },
};

interface Variable {
  readonly name: string;
  readonly expression: string;
}

function toVariables(): Variable[] {
  const first = (list: string, field: string, fallback: string): string =>
    `size(variables.ports) > ${list} ? variables.ports[${list}].?${field}.orValue(${fallback}) : ${fallback}`;
  const upstreams = `variables.args.filter(a, a.startsWith(${celText(UPSTREAM_PREFIX)})).map(a, a.replace(${celText(UPSTREAM_PREFIX)}, '', 1))`;
  const differences = toDifferences();
  return [
    {
      name: 'sidecars',
      expression: `variables.initContainers.filter(c, c.name == '${CONTAINER}') + object.spec.containers.filter(c, c.name == '${CONTAINER}')`,
    },
    // Dynamic, so that fields which the API server does not know are compared as well.
    { name: 'sidecar', expression: 'size(variables.sidecars) == 0 ? dyn({}) : dyn(variables.sidecars[0])' },
    { name: 'isInit', expression: `variables.initContainers.exists(c, c.name == '${CONTAINER}')` },
    { name: 'allowedEnv', expression: '{{ .Values.admission.allowedEnv | toJson }}' },
    { name: 'allowedMounts', expression: '{{ default list .Values.admission.allowedMounts | toJson }}' },
    { name: 'args', expression: at('args', '[]') },
    { name: 'ports', expression: at('ports', '[]') },
    { name: 'port', expression: first('0', 'containerPort', '0') },
    { name: 'portName', expression: first('0', 'name', "''") },
    { name: 'adminPort', expression: first('1', 'containerPort', '0') },
    { name: 'upstreams', expression: upstreams },
    {
      name: 'appPort',
      expression: `size(variables.upstreams) > 0 && ${matches('variables.upstreams[0]', PORT_NUMBER.pattern)} ? variables.upstreams[0] : '0'`,
    },
    { name: 'isOnPodAddresses', expression: `variables.args.exists(a, a.startsWith(${celText(`${POD_IPS}:`)}))` },
    {
      name: 'queueMounts',
      expression: `${at('volumeMounts', '[]')}.filter(m, m.mountPath == ${celText(QUEUE_FOLDER)})`,
    },
    { name: 'queueVolume', expression: "size(variables.queueMounts) == 0 ? '' : variables.queueMounts[0].name" },
    ...toPause(),
    ...differences,
    {
      name: 'differences',
      expression: `size(variables.sidecars) == 0 ? [] : ${differences.map(({ name }) => `variables.${name}`).join(' + ')}`,
    },
    { name: 'shared', expression: toShared() },
  ];
}

function toPause(): Variable[] {
  const { path, prefix } = PAUSE_PLACE;
  const place = path.map((step) => (typeof step === 'number' ? `[?${step}]` : `.?${step}`)).join('');
  return [
    { name: 'pauseText', expression: `string(${SIDECAR}${place}.orValue(''))` },
    {
      name: 'pauseRest',
      expression: `variables.pauseText.startsWith(${celText(prefix)}) ? variables.pauseText.replace(${celText(prefix)}, '', 1) : ''`,
    },
    { name: 'pause', expression: `${matches('variables.pauseRest', PAUSE_PATTERN)} ? variables.pauseRest : '0'` },
  ];
}

/** Each variable lists the names of fields that differ. There is one per field, because the API server limits the cost of an expression. */
function toDifferences(): Variable[] {
  const shape = toDefaulted(CONTAINER_SHAPE) as ShapeMap;
  const fields = COMPARED.map((key) => ({ name: `differs_${key}`, expression: toDifference(key, shape[key] as Shape) }));
  const known = `[${ALLOWED_FIELDS.map(celText).join(', ')}]`;
  const volumes = VOLUME_SOURCES.map(({ name, isPrefix, source }) => {
    const isOwn = isPrefix ? `v.name.startsWith(${celText(name)})` : `v.name == ${celText(name)}`;
    return `(${isOwn} && !has(v.${source}))`;
  });
  return [
    { name: 'unknownFields', expression: `${SIDECAR}.filter(k, !(k in ${known}))` },
    ...fields,
    {
      name: 'differs_terminationMessagePath',
      expression: `${at('terminationMessagePath', "''")} in ['', ${celText(TERMINATION_PATH)}] ? [] : ['terminationMessagePath']`,
    },
    {
      name: 'differs_volumes',
      expression: `object.spec.?volumes.orValue([]).filter(v, ${volumes.join(' || ')}).map(v, 'volume ' + v.name)`,
    },
  ];
}

function toDifference(key: string, shape: Shape): string {
  const list = LISTS[key];
  const isConditional = isWhen(shape);
  const condition = isConditional ? PLACEHOLDERS.conditions[shape.$when] : 'true';
  const expected = toCel(isConditional ? shape.then : shape, PLACEHOLDERS);
  if (list === undefined) {
    const isSame = `${at(key, 'dyn(null)')} == dyn(${expected})`;
    const holds = isConditional ? `(${condition} ? ${isSame} : !${SIDECAR}.?${key}.hasValue())` : isSame;
    return `${holds} ? [] : [${celText(key)}]`;
  }
  const without = (from: string): string => `${from}.filter(e, !${list.isFree})`;
  const own = without(at(key, '[]'));
  const wanted = without(`(${isConditional ? `${condition} ? dyn(${expected}) : dyn([])` : `dyn(${expected})`})`);
  const named = `[${celText(key)}] + ${own}.map(e, ${celText(`${key} `)} + e.${list.label})`;
  return `${own} == ${wanted} ? [] : ${named}`;
}

/** Settings that give other containers access to the sidecar's process, or the node's network access to the app. */
function toShared(): string {
  const keys = ['hostNetwork', ...SHARING].map((key) => `(object.spec.?${key}.orValue(false) ? [${celText(key)}] : [])`);
  return `size(variables.sidecars) == 0 ? [] : ${keys.join(' + ')}`;
}

interface Validation {
  readonly holds: string;
  readonly message: string;
}

const TARGETING = `.exists(e, e.?targetContainerName.orValue('') == '${CONTAINER}')`;

function toValidations(): Validation[] {
  return [
    {
      holds: 'size(variables.shared) == 0',
      message: `' has ' + variables.shared.join(', ') + ': true and a sidecar. With hostNetwork, clients can bypass the sidecar on the node; with hostPID and shareProcessNamespace, other containers can read the secrets in the memory of the sidecar, or end it and use its port. Remove the field.'`,
    },
    {
      holds: `size(variables.sidecars) == 0 || variables.isInit || object.spec.?restartPolicy.orValue('Always') == 'Always'`,
      message: `' has the restartPolicy ' + object.spec.?restartPolicy.orValue('') + ' and a sidecar that is a plain container: it is not restarted after it ends, and the app is then open on its own port. Use a native sidecar (sidegate.dev/sidecar: native), or restartPolicy: Always.'`,
    },
    {
      holds: `size(variables.sidecars) == 0 || !object.spec.?ephemeralContainers.orValue([])${TARGETING}`,
      message: `' has an ephemeral container in the process namespace of its sidecar, which could read its secrets or end it. Target another container.'`,
    },
    {
      holds: `!(variables.initContainers + object.spec.containers).exists(c, c.name != '${CONTAINER}' && c.?ports.orValue([]).exists(p, p.?name.orValue('') == '${DATA_PORT}'))`,
      message: `' has a port named ${DATA_PORT} on another container than the sidecar: a Service with the targetPort ${DATA_PORT} would send unverified requests to it. Rename the port.'`,
    },
  ];
}

const DIFFERENCES: Validation = {
  holds: 'size(variables.differences) == 0',
  message: `' has a container \`${CONTAINER}\` that is not the one that sidegate {{ .Chart.AppVersion }} injects: it differs in ' + variables.differences.join(', ') + '. The name \`${CONTAINER}\` is reserved: let the injector or the library chart add the container. If another webhook adds environment variables or mounts, list them in admission.allowedEnv and admission.allowedMounts.'`,
};

/** Renders templates/_sidecar.tpl. */
export function renderSidecarPolicy(): string {
  const variables = toVariables().map(({ name, expression }) => `- name: ${name}\n  expression: >-\n    ${expression}`);
  return [
    HEAD.trimEnd(),
    `{{- define "sidegate.sidecarVariables" -}}\n${variables.join('\n')}\n{{- end -}}\n`,
    `{{- define "sidegate.sidecarValidations" -}}\n${toValidations().map(toYaml).join('\n')}\n{{- if not .Values.admission.insecureAllowOtherSidecars }}\n${toYaml(DIFFERENCES)}\n{{- end }}\n{{- end -}}\n`,
    `{{/* True for an update that adds an ephemeral container to the sidecar's process namespace. */}}\n{{- define "sidegate.policyTargeted" -}}\nobject.spec.?ephemeralContainers.orValue([])${TARGETING} && !oldObject.spec.?ephemeralContainers.orValue([])${TARGETING}\n{{- end -}}\n`,
  ].join('\n');
}

function toYaml({ holds, message }: Validation): string {
  return `- expression: >-\n    ${holds}\n  messageExpression: >-\n    variables.pod + ${message}\n  reason: Forbidden`;
}
