/** The injector's decisions (src/kubernetes/injector) as CEL variables for the admission policies; each always has a value. */

import { HOOK_PLACES, PROBE_PLACES } from '../src/kubernetes/injector/app-probes.ts';
import { PORT_NUMBER, type ValueForm, WHOLE_SECONDS } from '../src/kubernetes/injector/kubernetes-values.ts';
import { DEFAULT_CONTAINER_ANNOTATION, DOMAIN } from '../src/kubernetes/injector/names.ts';
import { QUEUE_SOURCES } from '../src/kubernetes/injector/queue-volume.ts';
import { SETTINGS } from '../src/kubernetes/injector/settings.ts';
import { celText } from './cel-shape.ts';

/** A variable of a policy. */
export interface PolicyVariable {
  readonly name: string;
  readonly expression: string;
}

/** Maximum length of lists, because CEL has no ranges. No realistic pod reaches it. */
export const MOST = 32;
const RANGE = `[${Array.from({ length: MOST }, (_, index) => index).join(', ')}]`;

/** The value of an annotation; `fallback`: the default in CEL. */
export function annotation(key: keyof typeof SETTINGS, fallback: string): string {
  return `variables.annotations[?${celText(`${DOMAIN}/${SETTINGS[key].name}`)}].orValue(${fallback})`;
}
const sidecar = (value: string): string => `'{{ .Values.sidecar.${value} }}'`;
/** Whether a text matches a format; raw strings leave the pattern unchanged. */
export const matches = (text: string, pattern: string): string => `${text}.matches(r'${pattern}')`;
/** Whether a text has a format. */
export const hasForm = ({ pattern, maxLength }: ValueForm, text: string): string =>
  matches(text, pattern) + (maxLength === undefined ? '' : ` && size(${text}) <= ${maxLength}`);
export const TCP_PORTS = (container: string): string =>
  `${container}.?ports.orValue([]).filter(p, p.?protocol.orValue('TCP') == 'TCP')`;
/** Whether a volume `v` is of a kind that a queue may have. */
export const IS_OF_QUEUE = `(${QUEUE_SOURCES.map((source) => `has(v.${source})`).join(' || ')})`;
/** The indexes of a list. */
const indexes = (list: string, condition: string): string => `variables.range.filter(i, i < size(${list}) && ${condition})`;
const toPort = (text: string): string => `${matches(text, PORT_NUMBER.pattern)} ? int(${text}) : 0`;
const distinct = (list: string): string =>
  `${indexes(list, `!variables.range.exists(j, j < i && ${list}[j] == ${list}[i])`)}.map(i, ${list}[i])`;
const toList = (text: string): string => `${text}.trim() == '' ? [] : ${text}.split(',').map(name, name.trim())`;

/** All variables, in the order of their dependencies. */
export function toVariables(): PolicyVariable[] {
  return [
    { name: 'range', expression: RANGE },
    { name: 'annotations', expression: 'object.metadata.?annotations.orValue({})' },
    { name: 'containers', expression: 'object.spec.containers' },
    { name: 'initContainers', expression: 'object.spec.?initContainers.orValue([])' },
    { name: 'volumes', expression: 'object.spec.?volumes.orValue([])' },
    ...toSettingVariables(),
    ...toQueueVolumes(),
    ...toAppVariables(),
    ...toHandlerVariables(),
  ];
}

/** The names of all volumes with the storage of the queue's; the claim of an ephemeral volume is named POD-VOLUME. */
export function toQueueVolumes(): PolicyVariable[] {
  const claim = (volume: string): string => `${volume}.?persistentVolumeClaim.?claimName.orValue('')`;
  const isOf = (first: string, second: string): string =>
    `has(${second}.ephemeral) && ${claim(first)}.endsWith('-' + ${second}.name)`;
  const isSame = `${claim('q')} != '' && ${claim('v')} == ${claim('q')} || ${isOf('v', 'q')} || ${isOf('q', 'v')}`;
  return [
    { name: 'queues', expression: 'variables.volumes.filter(q, q.name == variables.queueVolume)' },
    {
      name: 'queueVolumes',
      expression: `variables.queueVolume == '' ? [] : [variables.queueVolume] + variables.volumes.filter(v, variables.queues.exists(q, ${isSame})).map(v, v.name)`,
    },
  ];
}

function toSettingVariables(): PolicyVariable[] {
  return [
    { name: 'config', expression: annotation('config', "''") },
    { name: 'interception', expression: annotation('interception', `'{{ .Values.sidecar.interception }}'`) },
    { name: 'isSamePort', expression: "variables.interception.startsWith('same-port')" },
    { name: 'variable', expression: "variables.interception.contains(':') ? variables.interception.split(':')[1] : ''" },
    { name: 'mode', expression: annotation('sidecar', sidecar('mode')) },
    { name: 'image', expression: annotation('image', `'{{ include "sidegate.sidecarImage" . }}'`) },
    { name: 'cpuRequest', expression: annotation('cpuRequest', sidecar('resources.requests.cpu')) },
    { name: 'memoryRequest', expression: annotation('memoryRequest', sidecar('resources.requests.memory')) },
    { name: 'cpuLimit', expression: annotation('cpuLimit', sidecar('resources.limits.cpu | default ""')) },
    { name: 'memoryLimit', expression: annotation('memoryLimit', sidecar('resources.limits.memory')) },
    { name: 'preStopText', expression: annotation('preStop', sidecar('preStop')) },
    {
      name: 'preStop',
      expression: `!${matches('variables.preStopText', WHOLE_SECONDS.pattern)} ? 0 : variables.preStopText.endsWith('m') ? int(variables.preStopText.replace('m', '')) * 60 : int(variables.preStopText.replace('s', ''))`,
    },
    {
      name: 'grace',
      expression:
        'object.spec.?terminationGracePeriodSeconds.orValue(30) < 0 ? 1 : object.spec.?terminationGracePeriodSeconds.orValue(30)',
    },
    { name: 'queueVolume', expression: annotation('queueVolume', "''") },
    { name: 'secretList', expression: toList(annotation('secrets', "''")) },
    { name: 'secrets', expression: distinct('variables.secretList') },
    {
      name: 'pullSecretList',
      expression: `(${toList(annotation('imagePullSecrets', "''"))}) + {{ .Values.sidecar.imagePullSecrets | toJson }}`,
    },
    {
      name: 'pullSecrets',
      expression: `(${distinct('variables.pullSecretList')}).filter(name, !object.spec.?imagePullSecrets.orValue([]).exists(s, s.?name.orValue('') == name))`,
    },
  ];
}

function toAppVariables(): PolicyVariable[] {
  const byPortName = `variables.containers.filter(c, (${TCP_PORTS('c')}).exists(p, p.?name.orValue('') == variables.appPortText && variables.appPortText != ''))`;
  const byPorts = `variables.containers.filter(c, size(${TCP_PORTS('c')}) > 0)`;
  const usual = `variables.containers.filter(c, c.name == variables.annotations[?${celText(DEFAULT_CONTAINER_ANNOTATION)}].orValue(''))`;
  return [
    { name: 'appContainer', expression: annotation('appContainer', "''") },
    { name: 'appPortText', expression: annotation('appPort', "''") },
    {
      name: 'apps',
      expression: `variables.appContainer != '' ? variables.containers.filter(c, c.name == variables.appContainer) : size(variables.containers) == 1 ? variables.containers : size(${usual}) == 1 ? ${usual} : size(${byPortName}) == 1 ? ${byPortName} : ${byPorts}`,
    },
    { name: 'app', expression: 'size(variables.apps) == 1 ? variables.apps[0] : variables.containers[0]' },
    {
      name: 'appIndex',
      expression: `${indexes('variables.containers', 'variables.containers[i].name == variables.app.name')}[0]`,
    },
    {
      name: 'appPorts',
      expression: `${matches('variables.appPortText', '^[0-9]+$')} ? [${toPort('variables.appPortText')}] : (${TCP_PORTS('variables.app')}).filter(p, variables.appPortText == '' || p.?name.orValue('') == variables.appPortText).map(p, int(p.containerPort))`,
    },
    { name: 'appPort', expression: 'size(variables.appPorts) == 1 ? variables.appPorts[0] : 0' },
    { name: 'dataPortText', expression: annotation('port', sidecar('port')) },
    { name: 'port', expression: `variables.isSamePort ? variables.appPort : ${toPort('variables.dataPortText')}` },
    { name: 'adminPortText', expression: annotation('adminPort', sidecar('adminPort')) },
    { name: 'adminPort', expression: toPort('variables.adminPortText') },
    { name: 'env', expression: 'variables.app.?env.orValue([])' },
    // The last: if a variable is set twice, the last value counts.
    { name: 'envIndex', expression: 'variables.env.map(e, e.name).lastIndexOf(variables.variable)' },
  ];
}

/** Probes that connect to the pod, which the sidecar must answer, in the injector's order; and hooks, which it must not answer. */
function toHandlerVariables(): PolicyVariable[] {
  const all = [...PROBE_PLACES, ...HOOK_PLACES].map(([kind, steps]) => ({
    name: `${kind}Handlers`,
    expression: [toHandlers('initContainers', kind, steps), toHandlers('containers', kind, steps)].join(' + '),
  }));
  const concerned = (places: readonly (readonly [string, unknown])[]): string =>
    `variables.isSamePort ? (${places.map(([kind]) => `variables.${kind}Handlers`).join(' + ')}).filter(h, h.host == '' && (h.isApp || h.port == variables.appPort)) : []`;
  return [
    ...all,
    { name: 'handlers', expression: concerned(PROBE_PLACES) },
    { name: 'hooks', expression: concerned(HOOK_PLACES) },
    { name: 'asked', expression: "variables.handlers.filter(h, h.action != 'grpc')" },
  ];
}

function toHandlers(list: string, kind: string, steps: readonly string[]): string {
  const place = `variables.${list}`;
  const handler = `${place}[i].${steps.map((step) => `?${step}`).join('.')}`;
  const http = `${handler}.?httpGet`;
  const tcp = `${handler}.?tcpSocket`;
  const grpc = `${handler}.?grpc`;
  const lasting = list === 'containers' ? '' : `${place}[i].?restartPolicy.orValue('') == 'Always' && `;
  const pick = (field: string, fallback: string): string =>
    `(${http}.hasValue() ? ${http}.?${field}.orValue(${fallback}) : ${tcp}.?${field}.orValue(${fallback}))`;
  const written = `(${grpc}.hasValue() ? dyn(${grpc}.?port.orValue(0)) : dyn(${pick('port', 'dyn(0)')}))`;
  const named = `(${TCP_PORTS(`${place}[i]`)}).filter(p, p.?name.orValue('') == string(${written}))`;
  const port = `(type(${written}) == int ? int(${written}) : size(${named}) > 0 ? int(${named}[0].containerPort) : ${matches(`string(${written})`, '^[0-9]{1,5}$')} ? int(string(${written})) : -1)`;
  const fields = {
    at: `'/spec/${list}/' + string(i) + '/${steps.join('/')}'`,
    container: `${place}[i].name`,
    kind: celText(kind),
    action: `${http}.hasValue() ? 'httpGet' : ${tcp}.hasValue() ? 'tcpSocket' : 'grpc'`,
    host: pick('host', "''"),
    isApp: list === 'containers' ? 'i == variables.appIndex' : 'false',
    port,
    path: `${http}.?path.orValue('/')`,
    isTls: `${http}.?scheme.orValue('HTTP') == 'HTTPS'`,
    hasHeaders: `size(${http}.?httpHeaders.orValue([])) > 0`,
  };
  const map = Object.entries(fields).map(([key, expression]) => `${celText(key)}: dyn(${expression})`);
  return `${indexes(place, `${lasting}(${http}.hasValue() || ${tcp}.hasValue() || ${grpc}.hasValue())`)}.map(i, {${map.join(', ')}})`;
}
