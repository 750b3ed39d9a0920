/** The sidecar's container and volumes: the only shape, shared by webhook, command line, admission policy and library chart. */
import {
  ADMIN_PORT,
  CONFIG_FOLDER,
  CONFIG_KEY,
  CONFIG_VOLUME,
  CONTAINER,
  NO_TOKEN_VOLUME,
  QUEUE_FOLDER,
  SECRET_VOLUME,
  SECRETS_FOLDER,
  TOKEN_FOLDER,
} from './names.ts';

// Shapes: Kubernetes objects with placeholders. The sidecar is defined once as a shape, and filled with values, CEL or Helm expressions.

/** A placeholder for a value. */
interface Placeholder<Name extends string = string> {
  readonly $value: Name;
}
/** Text that contains placeholders. */
export interface Text<Name extends string = string> {
  readonly $text: readonly (string | Placeholder<Name>)[];
}
/** Present only if the condition holds; as an item of a list it stands for zero or one items. */
interface When<Name extends string = string> {
  readonly $when: Name;
  readonly then: Shape;
}
/** One item for each entry of a list of entries. */
interface Each<Name extends string = string> {
  readonly $each: Name;
  readonly of: Shape;
}
/** A value with placeholders. */
export type Shape = string | number | boolean | Placeholder | Text | When | Each | readonly Shape[] | ShapeMap;
/** An object with placeholders. */
export interface ShapeMap {
  readonly [key: string]: Shape;
}

/** The values for a shape's placeholders. */
interface Values {
  readonly [name: string]: string | number | boolean | undefined | readonly Values[];
}

const value = <Name extends string>($value: Name): Placeholder<Name> => ({ $value });
const text = (...$text: readonly (string | Placeholder)[]): Text => ({ $text });
export const when = ($when: string, then: Shape): When => ({ $when, then });
export const each = ($each: string, of: Shape): Each => ({ $each, of });

export const isPlaceholder = (shape: Shape): shape is Placeholder => typeof shape === 'object' && '$value' in shape;
export const isText = (shape: Shape): shape is Text => typeof shape === 'object' && '$text' in shape;
export const isWhen = (shape: Shape): shape is When => typeof shape === 'object' && '$when' in shape;
export const isEach = (shape: Shape): shape is Each => typeof shape === 'object' && '$each' in shape;
export const isList = (shape: Shape): shape is readonly Shape[] => Array.isArray(shape);

/** Fills the shape with values; the values of a list's entries shadow outer ones. */
export function fill(shape: Shape, values: Values): unknown {
  if (typeof shape !== 'object') return shape;
  if (isPlaceholder(shape)) return values[shape.$value];
  if (isText(shape)) return shape.$text.map((part) => (typeof part === 'string' ? part : String(values[part.$value]))).join('');
  if (isList(shape)) return shape.flatMap((item) => fillItem(item, values));
  return Object.fromEntries(
    Object.entries(shape as ShapeMap).flatMap(([key, inner]) => fillItem(inner, values).map((filled) => [key, filled])),
  );
}

/** Fills an item of a list, which can result in zero, one or several items. */
function fillItem(shape: Shape, values: Values): unknown[] {
  if (isWhen(shape)) return isSet(values[shape.$when]) ? fillItem(shape.then, values) : [];
  if (!isEach(shape)) return [fill(shape, values)];
  const entries = values[shape.$each];
  return Array.isArray(entries) ? entries.flatMap((entry: Values) => fillItem(shape.of, { ...values, ...entry })) : [];
}

function isSet(found: Values[string]): boolean {
  return found !== undefined && found !== false;
}

// The sidecar.

/** The values of the shape's placeholders. */
export interface SidecarValues extends Values {
  readonly image: string;
  readonly imagePullPolicy: string;
  readonly isNative: boolean;
  /** Listens only on the pod's addresses, because the app listens on loopback. */
  readonly isOnPodAddresses: boolean;
  readonly isOnAllAddresses: boolean;
  readonly port: number;
  readonly adminPort: number;
  readonly portName: string;
  readonly appPort: number;
  readonly config: string;
  readonly secrets: readonly { readonly secret: string; readonly number: number }[];
  /** A volume of the pod. */
  readonly queueVolume: string | undefined;
  /** Each is `CONTAINER/KIND=URL`. */
  readonly appProbes: readonly { readonly appProbe: string }[];
  readonly cpuRequest: string;
  readonly memoryRequest: string;
  readonly cpuLimit: string | undefined;
  readonly memoryLimit: string;
  /** Delay of its shutdown in seconds; 0 for a native sidecar, which ends after the app. */
  readonly pause: number;
}

/**
 * A user that no image of an app has: not 65532, the default of distroless images, nor 1337, which Istio reserves. With `workers`, the kernel
 * lets any process of this user in the pod join the data port (SO_REUSEPORT). The injector and the policies deny it in other containers.
 */
export const USER = 64_480;
/** The group of the image, which volumes are usually made for. */
const GROUP = 65_532;
/** The variable with the pod's addresses, as used in arguments. */
export const POD_IPS = '$(SIDEGATE_POD_IPS)';
/** The upstream without the app's port. */
export const UPSTREAM_PREFIX = 'http://127.0.0.1:';

/**
 * Calls `/prestop` from inside the container, over loopback. The kubelet's own address depends on the network plug-in and may be shared
 * with clients, and a secret header would need randomness, which the policy and the library chart do not have. `$0` is the admin port,
 * `$1` the delay. Bash is part of the image and opens the connection itself: a second Node process would not fit in the memory limit.
 */
const PRESTOP_SCRIPT =
  "exec 3<>/dev/tcp/127.0.0.1/$0 && printf 'GET /prestop?pause=%s HTTP/1.0\\r\\n\\r\\n' $1 >&3 && read -r line <&3 && [[ $line == *' 200 '* ]]";

/** The argument for a probe of the app, before its value. */
export const APP_PROBE = '--app-probe=';

/** The container. */
export const CONTAINER_SHAPE: Shape = {
  name: CONTAINER,
  image: value('image'),
  imagePullPolicy: value('imagePullPolicy'),
  restartPolicy: when('isNative', 'Always'),
  args: [
    'run',
    '--config',
    `${CONFIG_FOLDER}/${CONFIG_KEY}`,
    '--listen',
    when('isOnAllAddresses', text(':', value('port'))),
    when('isOnPodAddresses', text(`${POD_IPS}:`, value('port'))),
    '--admin',
    text(':', value('adminPort')),
    '--upstream',
    text(UPSTREAM_PREFIX, value('appPort')),
    each('appProbes', text(APP_PROBE, value('appProbe'))),
  ],
  env: when('isOnPodAddresses', [{ name: 'SIDEGATE_POD_IPS', valueFrom: { fieldRef: { fieldPath: 'status.podIPs' } } }]),
  ports: [
    { name: value('portName'), containerPort: value('port'), protocol: 'TCP' },
    { name: ADMIN_PORT, containerPort: value('adminPort'), protocol: 'TCP' },
  ],
  // Without the delay, the kubelet probes before the port is open: almost every pod gets an event `Unhealthy`, and is ready no sooner.
  startupProbe: {
    httpGet: { path: '/readyz', port: value('adminPort') },
    initialDelaySeconds: 1,
    periodSeconds: 1,
    failureThreshold: 30,
  },
  readinessProbe: { httpGet: { path: '/readyz', port: value('adminPort') }, periodSeconds: 5 },
  // Restarts only what does not answer for a minute. A flood or a lack of CPU time can delay responses by seconds, and a restart would turn
  // that into an outage.
  livenessProbe: {
    httpGet: { path: '/healthz', port: value('adminPort') },
    timeoutSeconds: 5,
    periodSeconds: 10,
    failureThreshold: 6,
  },
  // A native sidecar's hook runs when the pod starts to terminate; its SIGTERM is sent after the app has ended (KEP-753).
  lifecycle: {
    preStop: { exec: { command: ['/bin/bash', '-c', PRESTOP_SCRIPT, text(value('adminPort')), text(value('pause'))] } },
  },
  resources: {
    requests: { cpu: value('cpuRequest'), memory: value('memoryRequest') },
    limits: { cpu: when('cpuLimit', value('cpuLimit')), memory: value('memoryLimit') },
  },
  securityContext: {
    runAsNonRoot: true,
    runAsUser: USER,
    runAsGroup: GROUP,
    allowPrivilegeEscalation: false,
    capabilities: { drop: ['ALL'] },
    readOnlyRootFilesystem: true,
    seccompProfile: { type: 'RuntimeDefault' },
  },
  terminationMessagePolicy: 'FallbackToLogsOnError',
  volumeMounts: [
    { name: CONFIG_VOLUME, mountPath: CONFIG_FOLDER, readOnly: true },
    // The sidecar never calls the API server: this mount keeps the token of the app's ServiceAccount out of it.
    { name: NO_TOKEN_VOLUME, mountPath: TOKEN_FOLDER, readOnly: true },
    each('secrets', {
      name: text(SECRET_VOLUME, value('number')),
      mountPath: text(`${SECRETS_FOLDER}/`, value('secret')),
      readOnly: true,
    }),
    when('queueVolume', { name: value('queueVolume'), mountPath: QUEUE_FOLDER }),
  ],
};

/** Mounts whole directories, because single mounted files would not be updated with their ConfigMap or Secret. */
export const VOLUMES_SHAPE: Shape = [
  { name: CONFIG_VOLUME, configMap: { name: value('config') } },
  { name: NO_TOKEN_VOLUME, emptyDir: { sizeLimit: '1Mi' } },
  each('secrets', { name: text(SECRET_VOLUME, value('number')), secret: { secretName: value('secret') } }),
];
