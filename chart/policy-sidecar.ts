/** Writes the checks of the validating policies for a container `sidegate`, from the injector's shape and rules. */

import { OBJECT_NAME, PORT_NUMBER, PORT_NUMBER_OR_NAME, VOLUME_NAME } from '../src/kubernetes/injector/kubernetes-values.ts';
import {
  CONFIG_VOLUME,
  CONTAINER,
  DATA_PORT,
  QUEUE_FOLDER,
  SECRET_VOLUME,
  SECRETS_FOLDER,
} from '../src/kubernetes/injector/names.ts';
import {
  CONTAINER_SHAPE,
  isWhen,
  POD_IPS,
  type Shape,
  type ShapeMap,
  UPSTREAM_PREFIX,
  USER,
  VOLUMES_SHAPE,
} from '../src/kubernetes/injector/sidecar.ts';
import { OTHER_SOURCE, SHARING, toDefaulted } from '../src/kubernetes/injector/sidecar-check.ts';
import {
  ADDED_MOUNT_FIELDS,
  ADDED_MOUNT_SOURCES,
  ALLOWED_FIELDS,
  COMPARED,
  CREDENTIALS_PATTERN,
  MESH_PROBE,
  PAUSE_PATH,
  PAUSE_PATTERN,
  RESIZE_POLICY,
  RESOURCE_FIELDS,
  RESOURCE_NAMES,
  SECRET_NUMBER_PATTERN,
  TERMINATION_PATH,
  TOKENS_PATTERN,
} from '../src/kubernetes/injector/sidecar-rules.ts';
import { type CelPlaceholders, celText, toCel } from './cel-shape.ts';
import { isReserved, listOf, type PolicyDifference, toAppProbes, toModes, toPodDifferences } from './policy-pod.ts';
import { annotation, hasForm, IS_OF_QUEUE, matches, type PolicyVariable, toQueueVolumes } from './policy-variables.ts';

const HEAD = `{{/*
Written from src/kubernetes/injector (\`npm run docs\`): what a container \`${CONTAINER}\` must contain. Every field is compared with what the injector
creates, and unknown fields are denied. Values that differ between pods are read from the pod, each only in its form, and then compared at every
place that the injector writes them to: arguments, ports, probes, mounts, volumes and annotations.
*/}}
`;
const SIDECAR = 'variables.sidecar';
const at = (path: string, fallback: string): string => `${SIDECAR}.?${path}.orValue(${fallback})`;

const entryAfter = (field: string, prefix: string, condition: (text: string) => string): string => {
  const rest = `entry.${field}.substring(${prefix.length})`;
  return `(entry.${field}.startsWith(${celText(prefix)}) && ${condition(rest)} ? ${rest} : '')`;
};
const SECRET = entryAfter('mountPath', `${SECRETS_FOLDER}/`, (rest) => hasForm(OBJECT_NAME, rest));

/** The values of the shape's placeholders, as the container has them. */
const PLACEHOLDERS: CelPlaceholders = {
  values: {
    port: { expression: 'variables.port', isNumber: true },
    adminPort: { expression: 'variables.adminPort', isNumber: true },
    portName: { expression: 'variables.portName' },
    appPort: { expression: 'variables.appPort' },
    config: { expression: 'variables.config' },
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
      expression: 'variables.secretMounts',
      values: {
        secret: { expression: SECRET },
        number: { expression: entryAfter('name', SECRET_VOLUME, (rest) => matches(rest, SECRET_NUMBER_PATTERN)) },
      },
    },
    appProbes: { expression: 'variables.appProbes', values: { appProbe: { expression: 'entry' } } },
  },
};

/** Whether a mount `e` has only the fields and the path of one that another webhook may add. */
const IS_FREE_MOUNT = `(e.all(k, k in ${listOf(ADDED_MOUNT_FIELDS)}) && (e.mountPath in variables.allowedMounts || ${matches('e.mountPath', CREDENTIALS_PATTERN)} && !${matches('e.mountPath', TOKENS_PATTERN)}))`;
/** Lists whose items must be as the injector creates them, and how messages name an unknown item. */
const LISTS: Readonly<Record<string, { readonly isFree: string; readonly label: string }>> = {
  env: { isFree: '(e.name in variables.allowedEnv)', label: 'e.name' },
  volumeMounts: {
    isFree: `(${IS_FREE_MOUNT} && e.name in variables.addedVolumes)`,
    label: `e.mountPath + (${IS_FREE_MOUNT} ? ${celText(OTHER_SOURCE)} : '')`,
  },
};

function toVariables(): PolicyVariable[] {
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
    { name: 'allowedInitContainers', expression: '{{ default list .Values.admission.allowedInitContainers | toJson }}' },
    { name: 'annotations', expression: 'object.metadata.?annotations.orValue({})' },
    { name: 'volumes', expression: 'object.spec.?volumes.orValue([])' },
    {
      name: 'addedVolumes',
      expression: `variables.volumes.filter(v, ${ADDED_MOUNT_SOURCES.map((source) => `v.?${source}.hasValue()`).join(' || ')}).map(v, v.name)`,
    },
    ...toOthers(),
    { name: 'args', expression: at('args', '[]') },
    { name: 'ports', expression: at('ports', '[]') },
    { name: 'port', expression: first('0', 'containerPort', '0') },
    { name: 'adminPort', expression: first('1', 'containerPort', '0') },
    { name: 'upstreams', expression: upstreams },
    {
      name: 'appPort',
      expression: `size(variables.upstreams) > 0 && ${matches('variables.upstreams[0]', PORT_NUMBER.pattern)} ? variables.upstreams[0] : '0'`,
    },
    { name: 'isOnPodAddresses', expression: `variables.args.exists(a, a.startsWith(${celText(`${POD_IPS}:`)}))` },
    ...toModes(),
    { name: 'portNameText', expression: first('0', 'name', "''") },
    {
      name: 'portName',
      expression: `variables.interceptionMode != 'rename' ? '${DATA_PORT}' : ${matches('variables.portNameText', PORT_NUMBER_OR_NAME.pattern)} ? variables.portNameText : ''`,
    },
    ...toVolumeVariables(),
    ...toAppProbes(),
    toPause(),
    ...differences,
    {
      name: 'differences',
      expression: `size(variables.sidecars) == 0 ? [] : ${differences.map(({ name }) => `variables.${name}`).join(' + ')}`,
    },
    { name: 'shared', expression: toShared() },
  ];
}

/** The other containers, and those of them that last as long as the app. */
function toOthers(): PolicyVariable[] {
  return [
    {
      name: 'others',
      expression: `(variables.initContainers + object.spec.containers).filter(c, c.name != '${CONTAINER}')`,
    },
    {
      name: 'lasting',
      expression: `(variables.initContainers.filter(c, c.?restartPolicy.orValue('') == 'Always') + object.spec.containers).filter(c, c.name != '${CONTAINER}')`,
    },
  ];
}

function toVolumeVariables(): PolicyVariable[] {
  const queue = 'variables.queueMounts[0].name';
  return [
    {
      name: 'configs',
      expression: `variables.volumes.filter(v, v.name == '${CONFIG_VOLUME}').map(v, v.?configMap.?name.orValue(''))`,
    },
    {
      name: 'config',
      expression: `size(variables.configs) > 0 && ${hasForm(OBJECT_NAME, 'variables.configs[0]')} ? variables.configs[0] : ''`,
    },
    {
      name: 'secretMounts',
      expression: `${at('volumeMounts', '[]')}.filter(m, m.name.startsWith(${celText(SECRET_VOLUME)}))`,
    },
    { name: 'secrets', expression: `variables.secretMounts.map(entry, ${SECRET})` },
    { name: 'secretNames', expression: `${annotation('secrets', "''")}.split(',').map(n, n.trim())` },
    { name: 'queueMounts', expression: `${at('volumeMounts', '[]')}.filter(m, m.mountPath == ${celText(QUEUE_FOLDER)})` },
    {
      name: 'queueVolume',
      expression: `size(variables.queueMounts) > 0 && ${hasForm(VOLUME_NAME, queue)} && !${isReserved(queue)} ? ${queue} : ''`,
    },
    ...toQueueVolumes(),
  ];
}

function toPause(): PolicyVariable {
  const place = PAUSE_PATH.map((step) => (typeof step === 'number' ? `[?${step}]` : `.?${step}`)).join('');
  const text = `string(${SIDECAR}${place}.orValue(''))`;
  return { name: 'pause', expression: `!variables.isInit && ${matches(text, PAUSE_PATTERN)} ? ${text} : '0'` };
}

/** Each variable lists the names of fields that differ. There is one per field, because the API server limits the cost of an expression. */
function toDifferences(): PolicyDifference[] {
  const shape = toDefaulted(CONTAINER_SHAPE) as ShapeMap;
  const fields = COMPARED.map((key) => ({ name: `differs_${key}`, expression: toDifference(key, shape[key] as Shape) }));
  const known = listOf(ALLOWED_FIELDS);
  const mounts = at('volumeMounts', '[]');
  const volumes = `dyn(variables.volumes).filter(v, ${isReserved('v.name')})`;
  return [
    { name: 'unknownFields', expression: `${SIDECAR}.filter(k, !(k in ${known}))` },
    ...fields,
    {
      name: 'differs_terminationMessagePath',
      expression: `${at('terminationMessagePath', "''")} in ['', ${celText(TERMINATION_PATH)}] ? [] : ['terminationMessagePath']`,
    },
    {
      name: 'differs_volumes',
      expression: `${volumes} == dyn(${toCel(toDefaulted(VOLUMES_SHAPE), PLACEHOLDERS)}) ? [] : ['volumes'] + ${volumes}.map(v, 'volume ' + v.name)`,
    },
    {
      name: 'differs_nested',
      expression: `${mounts}.filter(e, size(${mounts}.filter(o, (e.mountPath + '/').startsWith(o.mountPath + '/'))) > 1).map(e, 'volumeMounts ' + e.mountPath)`,
    },
    {
      name: 'differs_queue',
      expression: `variables.volumes.filter(v, v.name == variables.queueVolume && !${IS_OF_QUEUE}).map(v, 'volume ' + v.name)`,
    },
    {
      name: 'differs_resources',
      expression: `${at('resources', '{}')}.all(k, k in ${listOf(RESOURCE_FIELDS)} && ${SIDECAR}.resources[k].all(n, n in ${listOf(RESOURCE_NAMES)})) ? [] : ['resources']`,
    },
    {
      name: 'differs_resizePolicy',
      expression: `${at('resizePolicy', '[]')}.all(r, r.?restartPolicy.orValue('') == '${RESIZE_POLICY}') ? [] : ['resizePolicy']`,
    },
    { name: 'differs_number', expression: `size(variables.sidecars) > 1 ? ['several containers of the name'] : []` },
    ...toPodDifferences(),
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
    const note = `${at(`${key}.?httpGet.?path`, "''")} == ${celText(MESH_PROBE.path)} ? ${celText(key + MESH_PROBE.note)} : ${celText(key)}`;
    return `${holds} ? [] : [${key === MESH_PROBE.key ? note : celText(key)}]`;
  }
  const without = (from: string): string => `${from}.filter(e, !${list.isFree})`;
  const own = without(at(key, '[]'));
  const wanted = without(`(${isConditional ? `${condition} ? dyn(${expected}) : dyn([])` : `dyn(${expected})`})`);
  const named = `[${celText(key)}] + ${own}.map(e, ${celText(`${key} `)} + ${list.label})`;
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

/** For `filter` or `exists`: whether an ephemeral container reaches the sidecar; `isOfQueue`: whether a mount `m` is of the volume of the queue. */
function toReaching(isOfQueue: string): string {
  const isOwn = `exists(m, ${isReserved('m.name')} || ${isOfQueue})`;
  return `e, e.?targetContainerName.orValue('') == '${CONTAINER}' || e.?securityContext.?runAsUser.orValue(object.spec.?securityContext.?runAsUser.orValue(-1)) == ${USER} || e.?volumeMounts.orValue([]).${isOwn} || e.?volumeDevices.orValue([]).${isOwn}`;
}
const REACHING = toReaching('m.name in variables.queueVolumes');
/**
 * Whether the update adds an ephemeral container that reaches the sidecar `c`. A match condition has no variables. It also matches other claims, which
 * the validation then allows. The scan of the containers is outermost, so that the cost does not grow with the product of containers and mounts. The
 * API server denies each update whose match condition costs too much, also in a pod without the sidecar.
 */
const IS_TARGETED = (() => {
  const volume =
    'object.spec.?volumes.orValue([]).exists(v, v.name == m.name && (has(v.persistentVolumeClaim) || has(v.ephemeral)))';
  const reaching = toReaching(
    `c.?volumeMounts.orValue([]).exists(q, q.mountPath == ${celText(QUEUE_FOLDER)} && (q.name == m.name || ${volume}))`,
  );
  const count = (pod: string): string => `size(${pod}.spec.?ephemeralContainers.orValue([]).filter(${reaching}))`;
  return `(object.spec.containers + object.spec.?initContainers.orValue([])).exists(c, c.name == '${CONTAINER}' && ${count('object')} > ${count('oldObject')})`;
})();

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
      holds: `size(variables.sidecars) == 0 || !object.spec.?ephemeralContainers.orValue([]).exists(${REACHING})`,
      message: `' has an ephemeral container in the process namespace of its sidecar, or with its user or volumes, which could read its secrets, end it or take its connections. Target another container, and remove runAsUser: ${USER} and mounts of the volumes of the sidecar and its queue.'`,
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
    `{{/* True for an update that adds an ephemeral container which reaches the sidecar. */}}\n{{- define "sidegate.policyTargeted" -}}\n${IS_TARGETED}\n{{- end -}}\n`,
  ].join('\n');
}

function toYaml({ holds, message }: Validation): string {
  return `- expression: >-\n    ${holds}\n  messageExpression: >-\n    variables.pod + ${message}\n  reason: Forbidden`;
}
