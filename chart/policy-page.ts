/** Writes the templates of the policies with which the API server injects the sidecar, from the injector's source. */
import { APP_HEALTH } from '../src/kubernetes/injector/app-probes.ts';
import {
  DATA_PORT,
  DENIED_ANNOTATION,
  INJECT_LABEL,
  INJECTED_LABEL,
  STATUS_ANNOTATION,
} from '../src/kubernetes/injector/names.ts';
import { toPointer } from '../src/kubernetes/injector/patch.ts';
import { LONGEST_GRACE_SECONDS } from '../src/kubernetes/injector/shutdown.ts';
import { CONTAINER_SHAPE, VOLUMES_SHAPE } from '../src/kubernetes/injector/sidecar.ts';
import { type CelPlaceholders, celText, toCel } from './cel-shape.ts';
import { toRules } from './policy-rules.ts';
import { toVariables } from './policy-variables.ts';

const HEAD = '{{/* Written from src/kubernetes/injector (`npm run docs`): the result is the same as that of the injector. */}}\n';
const V = 'variables.';
const text = (name: string) => ({ expression: V + name });
const number = (name: string) => ({ expression: V + name, isNumber: true }) as const;

const PLACEHOLDERS: CelPlaceholders = {
  values: {
    image: text('image'),
    imagePullPolicy: { expression: "'{{ .Values.sidecar.imagePullPolicy }}'" },
    port: number('port'),
    adminPort: number('adminPort'),
    portName: { expression: celText(DATA_PORT) },
    appPort: number('appPort'),
    config: text('config'),
    queueVolume: text('queueVolume'),
    cpuRequest: text('cpuRequest'),
    memoryRequest: text('memoryRequest'),
    cpuLimit: text('cpuLimit'),
    memoryLimit: text('memoryLimit'),
    // A native sidecar stops after the app, so it needs no delay.
    pause: { expression: '0', isNumber: true },
  },
  conditions: {
    isNative: 'true',
    isOnPodAddresses: 'variables.isSamePort',
    isOnAllAddresses: '!variables.isSamePort',
    cpuLimit: "variables.cpuLimit != ''",
    queueVolume: "variables.queueVolume != ''",
  },
  lists: {
    secrets: {
      expression: 'variables.range.filter(i, i < size(variables.secrets))',
      values: { secret: { expression: 'variables.secrets[entry]' }, number: { expression: 'entry + 1', isNumber: true } },
    },
    appProbes: { expression: 'variables.asked', values: { appProbe: { expression: toAppProbe() } } },
  },
};

/** The URL that the sidecar requests for a probe; the probe's path in the pod contains it as well (`redirect` in app-probes.ts). */
function toTarget(handler: string): string {
  const at = `'://127.0.0.1:' + string(${handler}.port)`;
  const url = `(${handler}.isTls ? 'https' : 'http') + ${at} + (${handler}.path.startsWith('/') ? '' : '/') + ${handler}.path`;
  return `(${handler}.action == 'tcpSocket' ? 'tcp' + ${at} : ${url})`;
}

function toAppProbe(): string {
  return `entry.container + '/' + entry.kind + '=' + ${toTarget('entry')}.replace('$', '$$')`;
}

const add = (path: string, value: string): string => `JSONPatch{op: 'add', path: ${path}, value: ${value}}`;
const at = (...path: readonly string[]): string => celText(toPointer(path));

function toGrace(): string {
  const [longest, extended] = [LONGEST_GRACE_SECONDS, 'variables.grace + variables.preStop'];
  return `variables.preStop < ${longest} && ${extended} > ${longest} ? (variables.grace > ${longest} ? variables.grace : ${longest}) : ${extended}`;
}

/** The parts of the patch, each a list of operations; the sidecar comes last, because it moves the init containers. */
function toOperations(): string[] {
  const answered = `{'path': dyn('${APP_HEALTH}/' + h.container + '/' + h.kind + '?' + ${toTarget('h')}), 'port': dyn(variables.adminPort)}`;
  const preStop = "{'sleep': dyn({'seconds': dyn(variables.preStop)})}";
  const env = "'/spec/containers/' + string(variables.appIndex) + '/env'";
  const entry = "{'name': dyn(variables.variable), 'value': dyn('127.0.0.1')}";
  const volumes = toCel(VOLUMES_SHAPE, PLACEHOLDERS);
  const container = toCel(CONTAINER_SHAPE, PLACEHOLDERS);
  const status = `'{"version":"{{ .Chart.AppVersion }}","takeover":"' + (variables.isSamePort ? 'same-port' : 'service') + '","sidecar":"native","hash":"{{ include "sidegate.defaultsHash" . }}"}'`;
  return [
    `!variables.isSamePort || variables.variable == '' ? [] : size(variables.env) == 0 ? [${add(env, `[${entry}]`)}] : variables.envIndex < 0 ? [${add(`${env} + '/0'`, entry)}] : [${add(`${env} + '/' + string(variables.envIndex) + '/value'`, "'127.0.0.1'")}]`,
    `variables.asked.map(h, ${add("h.at + '/httpGet'", answered)})`,
    "variables.asked.filter(h, h.action == 'tcpSocket').map(h, JSONPatch{op: 'remove', path: h.at + '/tcpSocket'})",
    `variables.preStop == 0 ? [] : variables.range.filter(i, i < size(variables.containers) && !has(variables.containers[i].lifecycle)).map(i, ${add("'/spec/containers/' + string(i) + '/lifecycle'", `{'preStop': dyn(${preStop})}`)})`,
    `variables.preStop == 0 ? [] : variables.range.filter(i, i < size(variables.containers) && has(variables.containers[i].lifecycle) && !has(variables.containers[i].lifecycle.preStop)).map(i, ${add("'/spec/containers/' + string(i) + '/lifecycle/preStop'", preStop)})`,
    `variables.preStop == 0 ? [] : [${add(at('spec', 'terminationGracePeriodSeconds'), toGrace())}]`,
    `size(variables.volumes) == 0 ? [${add(at('spec', 'volumes'), volumes)}] : (${volumes}).map(v, ${add(at('spec', 'volumes', '-'), 'v')})`,
    `size(variables.pullSecrets) == 0 ? [] : size(object.spec.?imagePullSecrets.orValue([])) == 0 ? [${add(at('spec', 'imagePullSecrets'), "variables.pullSecrets.map(name, {'name': name})")}] : variables.pullSecrets.map(name, ${add(at('spec', 'imagePullSecrets', '-'), "{'name': name}")})`,
    `size(variables.initContainers) == 0 ? [${add(at('spec', 'initContainers'), `[dyn(${container})]`)}] : [${add(at('spec', 'initContainers', '0'), container)}]`,
    // Another webhook solved the problem since.
    `${celText(DENIED_ANNOTATION)} in variables.annotations ? [JSONPatch{op: 'remove', path: ${at('metadata', 'annotations', DENIED_ANNOTATION)}}] : []`,
    `[${add(at('metadata', 'labels', INJECTED_LABEL), "'true'")}, ${add(at('metadata', 'annotations', STATUS_ANNOTATION), status)}]`,
  ];
}

function toDenial(): string {
  const path = ['metadata', 'annotations'];
  // The API server shows neither a message with a line break nor one above 5 KiB.
  const line = "variables.problem.replace('\\n', ' ')";
  const reason = `(size(${line}) > 2000 ? ${line}.substring(0, 2000) : ${line})`;
  const first = `[${add(at(...path), `{${celText(DENIED_ANNOTATION)}: ${reason}}`)}]`;
  return `(size(variables.annotations) == 0 ? ${first} : [${add(at(...path, DENIED_ANNOTATION), reason)}])`;
}

/** Renders templates/mutating-admission-policy.yaml. */
export function renderMutatingPolicy(): string {
  const problem = toRules().map(({ holds, message }) => `!(${holds})\n  ? ${message.replaceAll('\n', ' ')} :\n`);
  const parts = toOperations().map((part) => `(${part})`);
  return `${HEAD}{{- if eq .Values.admission.mode "policy" }}
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
${renderMetadata()}
spec:
  failurePolicy: Fail
  reinvocationPolicy: IfNeeded
${renderMatch()}
  variables:
${renderVariables()}
    # The pod then gets no sidecar, and the policies that deny it for that show what it says.
    - name: problem
      expression: >-
${indent(`${problem.join('')}''`, 8)}
  mutations:
    - patchType: JSONPatch
      jsonPatch:
        expression: >-
          variables.problem != '' ? ${toDenial()} :
${indent(parts.join(' +\n'), 10)}
{{- end }}
`;
}

/** Renders templates/mutating-admission-policy-binding.yaml. */
export function renderBinding(): string {
  return `${HEAD}{{- if eq .Values.admission.mode "policy" }}
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
${renderMetadata()}
spec:
  policyName: {{ include "sidegate.fullname" . }}-inject
  matchResources:
    namespaceSelector:
      {{- include "sidegate.injectedNamespaces" . | nindent 6 }}
{{- end }}
`;
}

function renderMetadata(): string {
  return `metadata:
  name: {{ include "sidegate.fullname" . }}-inject
  labels:
    {{- include "sidegate.componentLabels" (dict "root" . "component" "admission") | nindent 4 }}`;
}

/** Selects pods that request the sidecar and have none; the policy \`protected\` checks those that have one. */
function renderMatch(): string {
  return `  matchConstraints:
    objectSelector:
      matchLabels:
        ${INJECT_LABEL}: "true"
    resourceRules:
      - apiGroups: [""]
        apiVersions: [v1]
        resources: [pods]
        operations: [CREATE]
        scope: Namespaced
  matchConditions:
    {{- include "sidegate.policyMatchConditions" . | nindent 4 }}
    - name: not-injected
      expression: >-
        object.metadata.?labels.orValue({})[?'${INJECTED_LABEL}'].orValue('') != 'true' ||
        !(object.spec.containers.exists(c, c.name == 'sidegate') || object.spec.?initContainers.orValue([]).exists(c, c.name == 'sidegate'))`;
}

function renderVariables(): string {
  return toVariables()
    .map(({ name, expression }) => `    - name: ${name}\n      expression: >-\n${indent(expression, 8)}`)
    .join('\n');
}

function indent(lines: string, by: number): string {
  return lines
    .split('\n')
    .map((line) => ' '.repeat(by) + line)
    .join('\n');
}
