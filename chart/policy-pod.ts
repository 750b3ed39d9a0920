/** CEL that compares the annotations and the other containers of a pod with its sidecar, as src/kubernetes/injector does. */
import { APP_HEALTH, PROBE_PLACES } from '../src/kubernetes/injector/app-probes.ts';
import { APP_PORT_MODES, PORT_NUMBER } from '../src/kubernetes/injector/kubernetes-values.ts';
import { CONTAINER, DOMAIN, STATUS_ANNOTATION } from '../src/kubernetes/injector/names.ts';
import { SETTINGS, type Setting } from '../src/kubernetes/injector/settings.ts';
import { APP_PROBE, USER } from '../src/kubernetes/injector/sidecar.ts';
import { SAME_TEXT } from '../src/kubernetes/injector/sidecar-check.ts';
import { PROBE_TARGET_PATTERN, RESERVED_PORT_NAMES, VOLUME_NAMES } from '../src/kubernetes/injector/sidecar-rules.ts';
import { toStatusPattern } from '../src/kubernetes/injector/status.ts';
import { celText } from './cel-shape.ts';
import { annotation, hasForm, matches, type PolicyVariable, TCP_PORTS } from './policy-variables.ts';

/** A variable whose value is a list of differences. */
export type PolicyDifference = PolicyVariable;

/** A list of texts. */
export const listOf = (texts: readonly string[]): string => `[${texts.map(celText).join(', ')}]`;
/** Whether a name is one of the sidecar's volumes. */
export const isReserved = (name: string): string =>
  `(${name} in ${listOf(VOLUME_NAMES.exact)} || ${name}.startsWith(${celText(VOLUME_NAMES.prefix)}))`;

const declares = (port: string): string => `${TCP_PORTS('c')}.exists(p, p.containerPort == ${port})`;

/** The interception mode, from the annotation, or from the status if the injector's default applies. */
export function toModes(): PolicyVariable[] {
  const noted = (mode: string): string => `${matches('variables.statusText', toStatusPattern(mode))} ? '${mode}'`;
  return [
    { name: 'statusText', expression: `variables.annotations[?'${STATUS_ANNOTATION}'].orValue('')` },
    { name: 'interceptionText', expression: annotation('interception', "''") },
    {
      name: 'interceptionMode',
      expression: `variables.interceptionText != '' ? variables.interceptionText.split(':')[0] : variables.isOnPodAddresses ? 'same-port' : ${noted('rename')} : ${noted('env')} : 'service'`,
    },
    { name: 'takesAppPort', expression: `variables.interceptionMode in ${listOf(APP_PORT_MODES)}` },
    {
      name: 'declaring',
      expression: `object.spec.containers.filter(c, c.name != '${CONTAINER}' && ${declares('variables.port')}).map(c, c.name)`,
    },
    // With these modes, one container beside the sidecar declares its data port: the app.
    { name: 'portApp', expression: 'variables.takesAppPort && size(variables.declaring) > 0 ? [variables.declaring[0]] : []' },
  ];
}

/** The values of \`--app-probe\` that the probes of the pod's containers name, in the order of the arguments. */
export function toAppProbes(): PolicyVariable[] {
  const quoted = (text: string): string => `'"' + ${text}.replace('\\\\', '\\\\\\\\').replace('"', '\\\\"') + '"'`;
  const kinds = PROBE_PLACES.map(([kind, [step]]) => {
    const request = `c.${step}.httpGet`;
    const prefix = `'${APP_HEALTH}/' + c.name + '/${kind}?'`;
    const url = `${request}.path.substring(size(${prefix}))`;
    const isNamed = `c.?${step}.?httpGet.?path.orValue('').startsWith(${prefix}) && dyn(${request}.port) == dyn(variables.adminPort) && ${matches(url, PROBE_TARGET_PATTERN)} && ${url}.split('/')[2] != '127.0.0.1:' + string(variables.adminPort)`;
    const headers = `${request}.?httpHeaders.orValue([])`;
    const json = `'{"url":' + ${quoted(url)} + ',"headers":[' + ${headers}.map(h, '{"name":' + ${quoted('h.name')} + ',"value":' + ${quoted("h.?value.orValue('')")} + '}').join(',') + ']}'`;
    return `variables.lasting.filter(c, ${isNamed}).map(c, c.name + '/${kind}=' + (size(${headers}) == 0 ? ${url} : ${json}).replace('$', '$$'))`;
  });
  return [
    { name: 'namedProbes', expression: `!variables.isOnPodAddresses ? [] : ${kinds.join(' + ')}` },
    {
      name: 'ownProbes',
      expression: `variables.args.filter(a, a.startsWith(${celText(APP_PROBE)})).map(a, a.substring(${APP_PROBE.length}))`,
    },
    {
      name: 'appProbes',
      expression:
        'size(variables.ownProbes) == size(variables.namedProbes) && variables.namedProbes.all(p, p in variables.ownProbes) ? variables.ownProbes : variables.namedProbes',
    },
  ];
}

/** Differences of the annotations, and what other containers take of the sidecar. */
export function toPodDifferences(): PolicyDifference[] {
  return [...toSettingDifferences(), ...toIntrusions()];
}

function toSettingDifferences(): PolicyDifference[] {
  const settings = Object.entries(SETTINGS) as [keyof typeof SETTINGS, Setting][];
  const difference = (key: keyof typeof SETTINGS, holds: string): string =>
    `(${holds} ? [] : ['annotation ${DOMAIN}/${SETTINGS[key].name}'])`;
  const forms = settings.map(([key, { form, example }]) => difference(key, hasForm(form, annotation(key, celText(example)))));
  const appPort = annotation('appPort', "''");
  const port = "(variables.interceptionMode == 'env' ? string(variables.port) : variables.appPort)";
  const named = `object.spec.containers.exists(c, c.name != '${CONTAINER}' && ${TCP_PORTS('c')}.exists(p, p.?name.orValue('') == ${appPort} && string(p.containerPort) == ${port}))`;
  const values = [
    ...SAME_TEXT.map((key) => difference(key, `${annotation(key, `string(variables.${key})`)} == string(variables.${key})`)),
    difference(
      'secrets',
      `!('${DOMAIN}/${SETTINGS.secrets.name}' in variables.annotations) || variables.secretNames.all(n, n in variables.secrets) && variables.secrets.all(s, s in variables.secretNames)`,
    ),
    difference('sidecar', `${annotation('sidecar', "'auto'")} in ['auto', variables.isInit ? 'native' : 'container']`),
    difference(
      'appPort',
      `${appPort} == '' || (variables.interceptionMode == 'rename' && !${matches(appPort, PORT_NUMBER.pattern)} ? ${appPort} == variables.portName : ${appPort} == ${port} || ${named})`,
    ),
    difference('interception', `(variables.interceptionMode == 'same-port') == variables.isOnPodAddresses`),
  ];
  return [
    { name: 'differs_forms', expression: forms.join(' + ') },
    { name: 'differs_settings', expression: values.join(' + ') },
  ];
}

function toIntrusions(): PolicyDifference[] {
  const names = `(${listOf(RESERVED_PORT_NAMES)} + [variables.portName])`;
  const taking = (port: string): string => `variables.others.filter(c, ${declares(port)})`;
  const isOwn = `(${isReserved('m.name')} || m.name in variables.queueVolumes)`;
  const order = 'variables.initContainers.map(c, c.name)';
  return [
    {
      name: 'differs_order',
      expression: `!variables.isInit ? [] : variables.initContainers.filter(c, ${order}.indexOf(c.name) < ${order}.indexOf('${CONTAINER}') && !(c.name in variables.allowedInitContainers)).map(c, c.name + ' before ${CONTAINER}')`,
    },
    {
      name: 'differs_plain',
      expression: `variables.isInit || !(variables.isOnPodAddresses || variables.takesAppPort) ? [] : ['interception mode ' + variables.interceptionMode + ' of a plain container']`,
    },
    {
      name: 'differs_numbers',
      expression: `variables.adminPort != variables.port && string(variables.adminPort) != variables.appPort && (string(variables.port) == variables.appPort) == variables.isOnPodAddresses ? [] : ['the numbers of the ports']`,
    },
    {
      name: 'differs_portNames',
      expression: `variables.others.filter(c, c.?ports.orValue([]).exists(p, p.?name.orValue('') in ${names})).map(c, 'a port name of ' + c.name)`,
    },
    {
      name: 'differs_adminPort',
      expression: `${taking('variables.adminPort')}.map(c, 'port ' + string(variables.adminPort) + ' of ' + c.name)`,
    },
    {
      name: 'differs_dataPort',
      expression: `${taking('variables.port')}.filter(c, !(c.name in variables.portApp)).map(c, 'port ' + string(variables.port) + ' of ' + c.name)`,
    },
    {
      name: 'differs_user',
      expression: `variables.others.filter(c, c.?securityContext.?runAsUser.orValue(object.spec.?securityContext.?runAsUser.orValue(-1)) == ${USER}).map(c, 'runAsUser ${USER} of ' + c.name)`,
    },
    {
      name: 'differs_mounts',
      expression: `variables.others.filter(c, c.?volumeMounts.orValue([]).exists(m, ${isOwn}) || c.?volumeDevices.orValue([]).exists(m, ${isOwn})).map(c, 'a volume of the sidecar in ' + c.name)`,
    },
  ];
}
