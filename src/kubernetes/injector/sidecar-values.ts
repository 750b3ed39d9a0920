/** Reads the values of a sidecar from the pod that has it, each in its form, so that the sidecar can be rebuilt and compared. */
import { containersOf, type DeclaredPort, lastingContainersOf, tcpPortsOf } from './app.ts';
import { APP_HEALTH, isProbeOf, readHeaders, toAppProbe } from './app-probes.ts';
import { PROBE_PLACES } from './handlers.ts';
import {
  APP_PORT_MODES,
  hasForm,
  MAX_NAME_LENGTH,
  OBJECT_NAME,
  PORT_NUMBER,
  PORT_NUMBER_OR_NAME,
  toNames,
  type ValueForm,
  VOLUME_NAME,
} from './kubernetes-values.ts';
import { CONFIG_VOLUME, CONTAINER, DATA_PORT, DOMAIN, QUEUE_FOLDER, SECRET_VOLUME, SECRETS_FOLDER } from './names.ts';
import { listAt, numberAt, objectAt, type Raw, textAt } from './raw.ts';
import { SETTINGS, type Setting } from './settings.ts';
import { APP_PROBE, POD_IPS, type SidecarValues, UPSTREAM_PREFIX } from './sidecar.ts';
import { isSidecarVolume, PAUSE_PATH, PAUSE_PATTERN, PROBE_TARGET_PATTERN, SECRET_NUMBER_PATTERN } from './sidecar-rules.ts';
import { readStatusText } from './status.ts';

/** Maximum length of a list that is read or compared, which bounds the work; annotations of 8,192 characters name fewer Secrets. */
export const MAX_ITEMS = 4_096;

/** The values of a pod's sidecar, and its interception mode. */
export interface ReadSidecar {
  readonly values: SidecarValues;
  readonly mode: string;
}

const SECRET_NAME = new RegExp(OBJECT_NAME.pattern);
const SECRET_NUMBER = new RegExp(SECRET_NUMBER_PATTERN);

/** Annotations whose text is that of the value with the same name. */
export const SAME_TEXT = ['config', 'queueVolume', 'port', 'adminPort'] as const satisfies readonly (keyof typeof SETTINGS)[];

const ALL_SETTINGS = Object.entries(SETTINGS) as readonly [keyof typeof SETTINGS, Setting][];

/** Reads the values of a pod's container `sidegate`. A value of another form becomes one that no pod can have. */
export function readSidecar(pod: Raw, { container, isInit }: { readonly container: Raw; readonly isInit: boolean }): ReadSidecar {
  const args = listAt(container, 'args').filter((arg) => typeof arg === 'string');
  const [data, admin] = listAt(container, 'ports');
  const upstream = args.find((arg) => arg.startsWith(UPSTREAM_PREFIX))?.slice(UPSTREAM_PREFIX.length);
  const isOnPodAddresses = args.some((arg) => arg.startsWith(`${POD_IPS}:`));
  const adminPort = numberAt(admin, 'containerPort') ?? 0;
  const mode = readMode(pod, isOnPodAddresses);
  const values = {
    image: '',
    imagePullPolicy: '',
    isNative: isInit,
    isOnPodAddresses,
    isOnAllAddresses: !isOnPodAddresses,
    port: numberAt(data, 'containerPort') ?? 0,
    adminPort,
    portName: mode === 'rename' ? ofForm(PORT_NUMBER_OR_NAME, textAt(data, 'name')) : DATA_PORT,
    appPort: Number(ofForm(PORT_NUMBER, upstream)),
    config: ofForm(OBJECT_NAME, textAt(objectAt(findVolume(pod, CONFIG_VOLUME), 'configMap'), 'name')),
    secrets: readSecrets(container),
    queueVolume: readQueueVolume(container),
    appProbes: readAppProbes(pod, args, isOnPodAddresses ? adminPort : undefined),
    cpuRequest: '',
    memoryRequest: '',
    cpuLimit: undefined,
    memoryLimit: '',
    pause: isInit ? 0 : readPause(container),
  };
  return { values, mode };
}

/** Annotations with another value than the sidecar has; for a pod without them, its author chose the values elsewhere. */
export function findOtherSettings(pod: Raw, { values, mode }: ReadSidecar): string[] {
  const differs = (key: keyof typeof SETTINGS, isSame: (text: string) => boolean): string[] => {
    const text = readAnnotation(pod, key);
    return text === undefined || isSame(text) ? [] : [`annotation ${DOMAIN}/${SETTINGS[key].name}`];
  };
  const secrets = values.secrets.map(({ secret }) => secret);
  const kind = values.isNative ? 'native' : 'container';
  return [
    ...ALL_SETTINGS.flatMap(([key, { form }]) => differs(key, (text) => hasForm(form, text))),
    ...SAME_TEXT.flatMap((key) => differs(key, (text) => text === String(values[key] ?? ''))),
    ...differs('secrets', (text) => {
      const names = toNames(text);
      return names.length === secrets.length && secrets.every((secret) => names.includes(secret));
    }),
    ...differs('sidecar', (text) => text === 'auto' || text === kind),
    ...differs('appPort', (text) => {
      if (mode === 'rename' && !hasForm(PORT_NUMBER, text)) return text === values.portName;
      const port = mode === 'env' ? values.port : values.appPort;
      return text === String(port) || otherPortsOf(pod).some(({ name, number }) => name === text && number === port);
    }),
    ...((mode === 'same-port') === values.isOnPodAddresses ? [] : [`annotation ${DOMAIN}/interception`]),
    ...(hasOrder(values, mode) ? [] : [`interception mode ${mode} of a plain container`]),
    ...(areDistinct(values) ? [] : ['the numbers of the ports']),
  ];
}

/** Only a native sidecar starts before the app, which could otherwise take the port that it used before. */
function hasOrder({ isNative, isOnPodAddresses }: SidecarValues, mode: string): boolean {
  return isNative || !(isOnPodAddresses || APP_PORT_MODES.includes(mode));
}

/** Verified requests must reach the app, not the admin port; only on the addresses of the pod, the sidecar has the port of the app. */
function areDistinct({ port, adminPort, appPort, isOnPodAddresses }: SidecarValues): boolean {
  return adminPort !== port && adminPort !== appPort && (port === appPort) === isOnPodAddresses;
}

function ofForm(form: ValueForm, text: string | undefined): string {
  return text !== undefined && hasForm(form, text) ? text : '';
}

function readAnnotation(pod: Raw, key: keyof typeof SETTINGS): string | undefined {
  return textAt(objectAt(objectAt(pod, 'metadata'), 'annotations'), `${DOMAIN}/${SETTINGS[key].name}`);
}

/** From the annotation; otherwise the injector's default applied, which only the status names. Apart from that, the status proves nothing. */
function readMode(pod: Raw, isOnPodAddresses: boolean): string {
  const [set] = readAnnotation(pod, 'interception')?.split(':') ?? [];
  if (set !== undefined || isOnPodAddresses) return set ?? 'same-port';
  const noted = readStatusText(pod)?.takeover;
  return noted === 'rename' || noted === 'env' ? noted : 'service';
}

function readPause(container: Raw): number {
  const found = PAUSE_PATH.reduce<unknown>((from, step) => (from as Raw | undefined)?.[step], container);
  return new RegExp(PAUSE_PATTERN).test(String(found)) ? Number(found) : 0;
}

function findVolume(pod: Raw, name: string): unknown {
  return listAt(objectAt(pod, 'spec'), 'volumes').find((volume) => textAt(volume, 'name') === name);
}

function readSecrets(container: Raw): SidecarValues['secrets'] {
  const mounts = listAt(container, 'volumeMounts').slice(0, MAX_ITEMS);
  const own = mounts.filter((mount) => textAt(mount, 'name')?.startsWith(SECRET_VOLUME));
  return own.map((mount) => {
    const number = (textAt(mount, 'name') ?? '').slice(SECRET_VOLUME.length);
    const path = textAt(mount, 'mountPath') ?? '';
    const secret = path.startsWith(`${SECRETS_FOLDER}/`) ? path.slice(SECRETS_FOLDER.length + 1) : '';
    const isName = secret.length <= MAX_NAME_LENGTH && SECRET_NAME.test(secret);
    return { secret: isName ? secret : '', number: SECRET_NUMBER.test(number) ? Number(number) : 0 };
  });
}

function readQueueVolume(container: Raw): string | undefined {
  const mount = listAt(container, 'volumeMounts').find((each) => textAt(each, 'mountPath') === QUEUE_FOLDER);
  if (mount === undefined) return undefined;
  const name = ofForm(VOLUME_NAME, textAt(mount, 'name'));
  return isSidecarVolume(name) ? '' : name;
}

/** The sidecar requests exactly the URLs in the probes of the pod's containers (`redirect` in app-probes.ts), in the order of its arguments. */
function readAppProbes(pod: Raw, args: readonly string[], adminPort: number | undefined): SidecarValues['appProbes'] {
  const own = args.filter((arg) => arg.startsWith(APP_PROBE)).map((arg) => arg.slice(APP_PROBE.length));
  const named = adminPort === undefined ? [] : findHealthProbes(pod, adminPort);
  const known = new Set(own);
  const isSame = own.length === named.length && named.every((probe) => known.has(probe));
  return (isSame ? own : named).map((appProbe) => ({ appProbe }));
}

function otherPortsOf(pod: Raw): DeclaredPort[] {
  return containersOf(pod, 'containers').flatMap(({ name, container }) => (name === CONTAINER ? [] : tcpPortsOf(container)));
}

function findHealthProbes(pod: Raw, adminPort: number): string[] {
  const others = lastingContainersOf(pod).filter(({ name }) => name !== CONTAINER);
  return PROBE_PLACES.flatMap(([kind, [step = '']]) =>
    others.flatMap(({ container, name }) => {
      const request = objectAt(objectAt(container, step), 'httpGet');
      const prefix = `${APP_HEALTH}/${name}/${kind}?`;
      const path = textAt(request, 'path') ?? '';
      const url = path.startsWith(prefix) ? path.slice(prefix.length) : '';
      if (request['port'] !== adminPort || !new RegExp(PROBE_TARGET_PATTERN).test(url) || isProbeOf(adminPort, url)) return [];
      return [toAppProbe(`${name}/${kind}`, url, readHeaders(request))];
    }),
  );
}
