/** The rules of the admission policy that injects, each with its message: pods that src/kubernetes/injector denies, and pods that only the webhook can handle. */

import { KNATIVE, KNATIVE_MESSAGE } from '../src/kubernetes/injector/inject.ts';
import {
  ADMIN_PORT,
  CONTAINER,
  DATA_PORT,
  DENIED_ANNOTATION,
  DOMAIN,
  STATUS_ANNOTATION,
} from '../src/kubernetes/injector/names.ts';
import { SETTINGS, type Setting } from '../src/kubernetes/injector/settings.ts';
import { USER } from '../src/kubernetes/injector/sidecar.ts';
import { SHARING } from '../src/kubernetes/injector/sidecar-check.ts';
import { RESERVED_PORT_NAMES, VOLUME_NAMES } from '../src/kubernetes/injector/sidecar-rules.ts';
import { celText } from './cel-shape.ts';
import { isReserved, listOf } from './policy-pod.ts';
import { annotation, hasForm, IS_OF_QUEUE, MOST, TCP_PORTS } from './policy-variables.ts';

/** A condition and the message if it does not hold, both in CEL. */
export interface PolicyRule {
  readonly holds: string;
  readonly message: string;
}

const CONTAINERS = '(variables.initContainers + variables.containers)';
const BY_WEBHOOK = 'install the chart with admission.mode: webhook, or use `sidegate inject -f`';

/** All rules. */
export function toRules(): PolicyRule[] {
  return [...toSettingRules(), ...toPodRules(), ...toQueueRules(), ...toPortRules(), ...toProbeRules()];
}

const toAnnotation = (name: string): string => `${DOMAIN}/${name}`;

function toSettingRules(): PolicyRule[] {
  const settings = Object.entries(SETTINGS) as [keyof typeof SETTINGS, Setting][];
  const names = settings.map(([, { name }]) => toAnnotation(name));
  const unknown = `variables.annotations.filter(k, k.startsWith('${DOMAIN}/') && !(k in [${[...names, STATUS_ANNOTATION, DENIED_ANNOTATION].map(celText).join(', ')}]))`;
  const forms = settings.map(([key, { name, form, example }]) => {
    const value = annotation(key, celText(example));
    return {
      holds: hasForm(form, value),
      message: `${celText(`the annotation ${toAnnotation(name)} is "`)} + ${value} + ${celText(`": expected ${form.expected}, for example ${example}`)}`,
    };
  });
  return [
    {
      holds: `size(${unknown}) == 0`,
      message: `'the annotation ' + ${unknown}[0] + ${celText(
        ` is unknown: the known ones are ${Object.values(SETTINGS)
          .map(({ name }) => name)
          .join(', ')}`,
      )}`,
    },
    ...forms,
    {
      holds: "variables.config != ''",
      message: celText(`the annotation ${DOMAIN}/config is missing: name the ConfigMap whose key gate.yaml is sidegate's config`),
    },
    {
      holds: "variables.interception == 'service' || variables.isSamePort",
      message: `'the interception mode ' + variables.interception + ${celText(` is not supported by the API server's own policy: use service or same-port, or ${BY_WEBHOOK}`)}`,
    },
    {
      holds: "variables.mode != 'container'",
      message: celText(
        `${DOMAIN}/sidecar is container, but the API server's own policy supports only native sidecars: remove it, or ${BY_WEBHOOK}`,
      ),
    },
    {
      holds: `!('${DOMAIN}/port' in variables.annotations) || !variables.isSamePort || variables.dataPortText == string(variables.appPort)`,
      message: `'${DOMAIN}/port is ' + variables.dataPortText + ', but with interception mode same-port the sidecar uses the port ' + string(variables.appPort) + ' of the app: remove ${DOMAIN}/port'`,
    },
    ...toResourceRules(),
  ];
}

function toResourceRules(): PolicyRule[] {
  return ['cpu', 'memory'].map((kind) => {
    const [request, limit] = [`variables.${kind}Request`, `variables.${kind}Limit`];
    return {
      holds: `${limit} == '' || !isQuantity(${limit}) || !isQuantity(${request}) || !quantity(${request}).isGreaterThan(quantity(${limit}))`,
      message: `'the ${kind} request ' + ${request} + ' of the sidecar is above its limit ' + ${limit} + ': set ${DOMAIN}/${kind}-request and ${DOMAIN}/${kind}-limit'`,
    };
  });
}

function toPodRules(): PolicyRule[] {
  const terms =
    'object.spec.?affinity.?nodeAffinity.?requiredDuringSchedulingIgnoredDuringExecution.?nodeSelectorTerms.orValue([])';
  const isForWindows = `(size(${terms}) > 0 && ${terms}.all(t, t.?matchExpressions.orValue([]).exists(e, e.key == 'kubernetes.io/os' && e.operator == 'In' && e.?values.orValue([]) == ['windows'])))`;
  const volume = `variables.volumes.exists(v, ${isReserved('v.name')})`;
  return [
    {
      holds: '!object.spec.?hostNetwork.orValue(false)',
      message: celText(
        'the pod uses hostNetwork: clients could bypass the sidecar on the network of the node; remove hostNetwork',
      ),
    },
    {
      holds: SHARING.map((key) => `!object.spec.?${key}.orValue(false)`).join(' && '),
      message: celText(
        'the pod has hostPID or shareProcessNamespace: true, so other containers could read the secrets in the memory of the sidecar, or end it and use its port; remove the field',
      ),
    },
    {
      holds: `!${CONTAINERS}.exists(c, c.?securityContext.?runAsUser.orValue(object.spec.?securityContext.?runAsUser.orValue(-1)) == ${USER})`,
      message: celText(
        `a container of the pod runs as user ${USER}, which is the user of the sidecar: with workers, it could take a share of the connections of the sidecar; set securityContext.runAsUser to another`,
      ),
    },
    {
      holds: `!${CONTAINERS}.exists(c, c.?volumeMounts.orValue([]).exists(m, ${isReserved('m.name')}) || c.?volumeDevices.orValue([]).exists(m, ${isReserved('m.name')}))`,
      message: celText('a container of the pod mounts a volume that is reserved for the sidecar: use a separate volume'),
    },
    {
      holds: `object.spec.?os.?name.orValue(object.spec.?nodeSelector.orValue({})[?'kubernetes.io/os'].orValue('')) != 'windows' && (has(object.spec.os) || 'kubernetes.io/os' in object.spec.?nodeSelector.orValue({}) || !(has(object.spec.securityContext) && has(object.spec.securityContext.windowsOptions)) && !variables.containers.exists(c, has(c.securityContext) && has(c.securityContext.windowsOptions)) && !${isForWindows})`,
      message: celText('the pod is for Windows, but the sidecar runs only on Linux: run a gate on Linux in front of it'),
    },
    {
      holds: `!object.metadata.?labels.orValue({}).exists(name, name.startsWith('${KNATIVE}'))`,
      message: celText(KNATIVE_MESSAGE),
    },
    {
      holds: '!has(object.spec.resources)',
      message: celText(
        `the pod has spec.resources, to which the sidecar's would have to be added, which the API server's own policy cannot do: ${BY_WEBHOOK}`,
      ),
    },
    {
      holds: `!variables.containers.exists(c, c.name == '${CONTAINER}') && !variables.initContainers.exists(c, c.name == '${CONTAINER}')`,
      message: celText(`the pod has a container named ${CONTAINER} that is not the injected one: rename it`),
    },
    {
      holds: `!${volume}`,
      message: celText(
        `the pod has a volume named ${[...VOLUME_NAMES.exact, VOLUME_NAMES.prefix].join(', ')}…, which is reserved for the sidecar: rename it`,
      ),
    },
    {
      holds: `size(variables.containers) <= ${MOST} && size(variables.initContainers) <= ${MOST}`,
      message: celText(`the pod has more than ${MOST} containers: ${BY_WEBHOOK}`),
    },
    {
      holds: `size(variables.secretList) <= ${MOST} && size(variables.pullSecretList) <= ${MOST}`,
      message: celText(`the sidecar has more than ${MOST} Secrets or imagePullSecrets: ${BY_WEBHOOK}`),
    },
    {
      holds: 'size(variables.apps) == 1',
      message: `'the pod has the containers ' + variables.containers.map(c, c.name).join(', ') + ': set the container of the app in the annotation ${DOMAIN}/app-container'`,
    },
    {
      holds: 'size(variables.appPorts) == 1',
      message: `'the container ' + variables.app.name + ' declares no TCP port, or several: set the port of the app in the annotation ${DOMAIN}/app-port'`,
    },
  ];
}

function toQueueRules(): PolicyRule[] {
  const mounts = (container: string): string =>
    `${container}.?volumeMounts.orValue([]).exists(m, m.name in variables.queueVolumes) || ${container}.?volumeDevices.orValue([]).exists(m, m.name in variables.queueVolumes)`;
  const mounting = `${CONTAINERS}.filter(c, ${mounts('c')})`;
  return [
    {
      holds: `variables.queueVolume == '' || variables.volumes.exists(v, v.name == variables.queueVolume)`,
      message: `'${DOMAIN}/queue-volume is ' + variables.queueVolume + ', but the pod has no such volume: add it to the volumeClaimTemplates of the StatefulSet'`,
    },
    {
      holds: `!variables.volumes.exists(v, v.name == variables.queueVolume && !${IS_OF_QUEUE})`,
      message: `'${DOMAIN}/queue-volume is ' + variables.queueVolume + ', a volume that is read-only or not of the sidecar alone: use a volume claim'`,
    },
    {
      holds: `variables.queueVolume == '' || size(${mounting}) == 0`,
      message: `'the container ' + ${mounting}[0].name + ' mounts the volume ' + variables.queueVolume + ' of ${DOMAIN}/queue-volume, or another with its claim, so it could change queued events and read secrets of endpoints: use a separate volume'`,
    },
  ];
}

function toPortRules(): PolicyRule[] {
  const own = (number: string): string =>
    `(variables.initContainers.exists(c, ${TCP_PORTS('c')}.exists(p, p.containerPort == ${number})) || variables.containers.exists(c, ${TCP_PORTS('c')}.exists(p, p.containerPort == ${number} && !(c.name == variables.app.name && p.containerPort == variables.appPort))))`;
  return [
    {
      holds: 'variables.port != variables.adminPort && variables.adminPort != variables.appPort',
      message: `'the admin port ' + string(variables.adminPort) + ' of the sidecar is its data port, or that of the app: set ${DOMAIN}/admin-port'`,
    },
    {
      holds: 'variables.isSamePort || variables.port != variables.appPort',
      message: `'the app listens on ' + string(variables.port) + ', the data port of the sidecar: set ${DOMAIN}/port to another'`,
    },
    {
      holds: `!(${own('variables.port')} || ${own('variables.adminPort')})`,
      message: `'a container of the pod uses port ' + string(variables.port) + ' or ' + string(variables.adminPort) + ', which the sidecar needs: change it, or ${DOMAIN}/port and ${DOMAIN}/admin-port'`,
    },
    {
      holds: `!${CONTAINERS}.exists(c, c.?ports.orValue([]).exists(p, p.?name.orValue('') in ${listOf(RESERVED_PORT_NAMES)}))`,
      message: celText(`the pod has a port named ${DATA_PORT} or ${ADMIN_PORT}, which is reserved for the sidecar: rename it`),
    },
  ];
}

function toProbeRules(): PolicyRule[] {
  const none = (condition: string): string => `!variables.handlers.exists(h, ${condition})`;
  const rule = (condition: string, sentence: string): PolicyRule => ({ holds: none(condition), message: celText(sentence) });
  return [
    {
      holds: '!variables.hooks.exists(h, h.port == -1)',
      message: celText("a hook uses the name of a port that its container does not declare: write the port's number"),
    },
    {
      holds: '!variables.hooks.exists(h, h.port == variables.appPort)',
      message: celText(
        'a postStart or preStop hook uses the port that interception mode same-port moves to loopback, where the kubelet cannot connect: use exec or sleep, or another interception mode',
      ),
    },
    rule('h.port == -1', "a probe uses the name of a port that its container does not declare: write the port's number"),
    rule(
      "h.action != 'grpc' && h.port == variables.adminPort",
      `a probe uses the admin port of the sidecar: use a port of the app, or set ${DOMAIN}/admin-port to another`,
    ),
    rule(
      "h.action == 'grpc' && h.port == variables.appPort",
      'a probe uses gRPC on the port that interception mode same-port moves to loopback: use an httpGet or exec probe, or another interception mode',
    ),
    rule(
      'h.isTls && h.port == variables.appPort',
      'a probe uses HTTPS, but the sidecar connects to the app over HTTP: serve HTTP in the app, or use another interception mode',
    ),
    rule('h.hasHeaders', `a probe has httpHeaders, which the API server's own policy cannot handle: ${BY_WEBHOOK}`),
    rule("!h.path.matches('^[!-~]*$')", `a probe has a path that is not ASCII: ${BY_WEBHOOK}`),
    {
      holds:
        "!variables.isSamePort || variables.variable == '' || !variables.env.exists(e, e.name == variables.variable && has(e.valueFrom))",
      message: `'the variable ' + variables.variable + ' of the app uses valueFrom, but ${DOMAIN}/interception has to set it: remove the variable from the container'`,
    },
  ];
}
