/** Compares the container `sidegate` of a pod with the one that this version injects: labels and annotations prove nothing, because anyone can copy them. */

import { isDeepStrictEqual } from 'node:util';
import { containersOf, type DeclaredPort, lastingContainersOf, type PlacedContainer, tcpPortsOf } from './app.ts';
import { APP_HEALTH, isProbeOf, PROBE_PLACES, readHeaders, toAppProbe } from './app-probes.ts';
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
import { findEarlier, findTaken, hasSidecarUser, type IsOfApp, type TakenResource } from './other-containers.ts';
import { findOtherSource, volumesOfQueue } from './queue-volume.ts';
import { has, isRaw, listAt, numberAt, objectAt, type Raw, textAt } from './raw.ts';
import { SETTINGS, type Setting } from './settings.ts';
import {
  APP_PROBE,
  CONTAINER_SHAPE,
  each,
  fill,
  isEach,
  isList,
  isPlaceholder,
  isText,
  isWhen,
  POD_IPS,
  type Shape,
  type ShapeMap,
  type SidecarValues,
  UPSTREAM_PREFIX,
  USER,
  VOLUMES_SHAPE,
  when,
} from './sidecar.ts';
import {
  ADDED_MOUNT_FIELDS,
  ADDED_MOUNT_SOURCES,
  ALLOWED_FIELDS,
  COMPARED,
  isAllowedImage,
  isCredentialsPath,
  isSidecarVolume,
  MESH_PROBE,
  PAUSE_PATH,
  PAUSE_PATTERN,
  PROBE_TARGET_PATTERN,
  RESIZE_POLICY,
  RESOURCE_FIELDS,
  RESOURCE_NAMES,
  SECRET_NUMBER_PATTERN,
  type SidecarRules,
  TERMINATION_PATH,
} from './sidecar-rules.ts';
import { readStatusText } from './status.ts';

/** SetDefaults_Probe of k8s.io/api/core/v1. */
const PROBE = { timeoutSeconds: 1, periodSeconds: 10, successThreshold: 1, failureThreshold: 3 } as const;
/** Defaults by the key of the object: SetDefaults_HTTPGetAction, SetDefaults_ObjectFieldSelector, those of probes and of volumes. */
const DEFAULTS: Readonly<Record<string, ShapeMap>> = {
  startupProbe: PROBE,
  readinessProbe: PROBE,
  livenessProbe: PROBE,
  httpGet: { scheme: 'HTTP' },
  fieldRef: { apiVersion: 'v1' },
  configMap: { defaultMode: 0o644 },
  secret: { defaultMode: 0o644 },
};

const DEFAULTED_SHAPE = toDefaulted(CONTAINER_SHAPE);
const DEFAULTED_VOLUMES = toDefaulted(VOLUMES_SHAPE);
const MAX_SHOWN_LENGTH = 120;
/** Maximum number of reported differences of one kind. */
const MAX_REPORTED = 8;
/** Fields of a pod that let containers access each other's processes. Not hostIPC: the gate has no shared memory and no message queue. */
export const SHARING = ['hostPID', 'shareProcessNamespace'] as const;

const PHRASES: Readonly<Record<TakenResource['kind'], (what: string) => string>> = {
  port: (what) => `port ${what} of`,
  'port name': () => 'a port name of',
  user: (what) => `runAsUser ${what} of`,
  volume: () => 'a volume of the sidecar in',
};
/** Of an added mount at an allowed path; the admission policies say the same. */
export const OTHER_SOURCE = ' (its volume must be a Secret, a ConfigMap or projected)';

/** The container `sidegate` of a pod. */
interface NamedSidecar {
  readonly container: Raw;
  /** Whether it is an init container. */
  readonly isInit: boolean;
}

/** The container with that name, valid or not; init containers come first. */
export function findNamed(pod: Raw): NamedSidecar | undefined {
  const spec = objectAt(pod, 'spec');
  const isNamed = (container: unknown): container is Raw => isRaw(container) && textAt(container, 'name') === CONTAINER;
  const native = listAt(spec, 'initContainers').find(isNamed);
  if (native !== undefined) return { container: native, isInit: true };
  const plain = listAt(spec, 'containers').find(isNamed);
  return plain === undefined ? undefined : { container: plain, isInit: false };
}

function countNamed(pod: Raw): number {
  const spec = objectAt(pod, 'spec');
  const all = [...listAt(spec, 'initContainers'), ...listAt(spec, 'containers')];
  return all.filter((container) => textAt(container, 'name') === CONTAINER).length;
}

/**
 * Lists all differences between the pod and what this version would inject into it: its container `sidegate`, with the volumes, the settings
 * and the other containers that belong to it. Such as `command` or `env NODE_OPTIONS`. Empty if there are none; undefined if the pod has no
 * such container. The values come from the pod, each only in its form and compared at every place where the shape has it.
 */
export function findDifferences(pod: Raw, rules: SidecarRules): readonly string[] | undefined {
  const named = findNamed(pod);
  if (named === undefined) return undefined;
  const { container } = named;
  const read = readSidecar(pod, named);
  const expected = [CONTAINER_SHAPE, DEFAULTED_SHAPE].map((shape) => fill(shape, read.values) as Raw);
  const image = textAt(container, 'image') ?? '';
  return [
    ...(isAllowedImage(image, rules.allowedImages) ? [] : [`image ${show(image)}`]),
    ...Object.keys(container)
      .filter((key) => !ALLOWED_FIELDS.includes(key) && !isEmpty(container[key]))
      .slice(0, MAX_REPORTED),
    ...COMPARED.flatMap((key) => compareField(key, container, expected, toFree(pod, rules))),
    ...(['', TERMINATION_PATH].includes(textAt(container, 'terminationMessagePath') ?? '') ? [] : ['terminationMessagePath']),
    ...(areKnownResources(container) ? [] : ['resources']),
    ...(listAt(container, 'resizePolicy').every((each) => textAt(each, 'restartPolicy') === RESIZE_POLICY)
      ? []
      : ['resizePolicy']),
    ...(countNamed(pod) > 1 ? ['several containers of the name'] : []),
    ...findVolumes(
      pod,
      [VOLUMES_SHAPE, DEFAULTED_VOLUMES].map((shape) => fill(shape, read.values) as readonly unknown[]),
    ),
    ...findQueueVolume(pod, read.values.queueVolume),
    ...findOtherSettings(pod, read),
    ...(read.values.isNative ? findEarlier(pod, rules) : []).slice(0, MAX_REPORTED),
    ...findIntrusions(pod, read).slice(0, MAX_REPORTED),
  ].map(show);
}

function areKnownResources(container: Raw): boolean {
  const resources = objectAt(container, 'resources');
  const names = RESOURCE_FIELDS.flatMap((field) => Object.keys(objectAt(resources, field)));
  return (
    Object.keys(resources).every((key) => RESOURCE_FIELDS.includes(key)) && names.every((name) => RESOURCE_NAMES.includes(name))
  );
}

/** With `same-port` and `env`, one container beside the sidecar declares its data port: the app. */
function findIntrusions(pod: Raw, { values: { portName, port, adminPort, queueVolume }, mode }: ReadSidecar): string[] {
  const declares = ({ container }: PlacedContainer): boolean => tcpPortsOf(container).some(({ number }) => number === port);
  const app = APP_PORT_MODES.includes(mode)
    ? containersOf(pod, 'containers').find((each) => each.name !== CONTAINER && declares(each))
    : undefined;
  const isOfApp: IsOfApp = ({ path }, { number }) => number === port && path.join() === app?.path.join();
  const taken = findTaken(pod, { portName, ports: [port, adminPort], queueVolume }, isOfApp);
  return [...new Set(taken.map(({ kind, container, what }) => `${PHRASES[kind](what)} ${container}`))];
}

/** A problem with the pod around its sidecar. */
export interface PodFault {
  /** `network`: clients can bypass the sidecar; `processes`: other containers can access its process; `end`: it can end before the app. */
  readonly kind: 'network' | 'processes' | 'end';
  readonly text: string;
}

/** Problems with the pod around its sidecar, even if the sidecar itself is valid. */
export function findPodFaults(pod: Raw): readonly PodFault[] {
  const spec = objectAt(pod, 'spec');
  const named = findNamed(pod);
  const fault = (kind: PodFault['kind'], text: string): PodFault => ({ kind, text });
  const ephemeral = named === undefined ? [] : listAt(spec, 'ephemeralContainers');
  const queueVolume = named === undefined || ephemeral.length === 0 ? undefined : readSidecar(pod, named).values.queueVolume;
  const queueVolumes = queueVolume === undefined ? [] : volumesOfQueue(pod, queueVolume);
  const reaching = ephemeral.flatMap((each) => {
    const how = findReach(pod, each, queueVolumes);
    return how === undefined ? [] : [`the ephemeral container ${show(textAt(each, 'name') ?? '')} ${how}`];
  });
  return [
    ...(spec['hostNetwork'] === true ? [fault('network', 'hostNetwork: true')] : []),
    ...SHARING.filter((key) => spec[key] === true).map((key) => fault('processes', `${key}: true`)),
    ...reaching.map((text) => fault('processes', text)),
    ...(named?.isInit === false && (textAt(spec, 'restartPolicy') ?? 'Always') !== 'Always'
      ? [fault('end', `restartPolicy: ${show(textAt(spec, 'restartPolicy') ?? '')} of the pod`)]
      : []),
  ];
}

/** How an ephemeral container reaches the sidecar. It is added to a running pod, by another right. */
function findReach(pod: Raw, ephemeral: unknown, queueVolumes: readonly string[]): string | undefined {
  if (textAt(ephemeral, 'targetContainerName') === CONTAINER) return `targets ${CONTAINER}`;
  if (hasSidecarUser(pod, ephemeral)) return `runs as user ${USER}`;
  const own = [...listAt(ephemeral, 'volumeMounts'), ...listAt(ephemeral, 'volumeDevices')]
    .map((mount) => textAt(mount, 'name') ?? '')
    .find((name) => isSidecarVolume(name) || queueVolumes.includes(name));
  return own === undefined ? undefined : `mounts ${own}`;
}

/** Which items of the lists other webhooks may add; `note`: what is wrong with an item at an allowed path. */
type Free = Readonly<Record<'env' | 'volumeMounts', (item: unknown) => boolean>> & { readonly note: (item: unknown) => string };

function toFree(pod: Raw, { allowedEnv, allowedMounts }: SidecarRules): Free {
  const ofSources = new Set(
    listAt(objectAt(pod, 'spec'), 'volumes')
      .filter((volume) => isRaw(volume) && ADDED_MOUNT_SOURCES.some((source) => has(volume, source)))
      .map((volume) => textAt(volume, 'name')),
  );
  return {
    env: (entry) => allowedEnv.includes(textAt(entry, 'name') ?? ''),
    volumeMounts: (mount) => isFreeMount(mount, allowedMounts) && ofSources.has(textAt(mount, 'name')),
    note: (mount) => (isFreeMount(mount, allowedMounts) ? OTHER_SOURCE : ''),
  };
}

function compareField(key: string, container: Raw, expected: readonly Raw[], free: Free): string[] {
  switch (key) {
    case 'env':
      return compareList(key, container, expected, { isFree: free.env, toName: (entry) => textAt(entry, 'name') ?? '' });
    case 'volumeMounts':
      return [...new Set([...compareList(key, container, expected, toMounts(free)), ...findNested(container)])];
    default:
      return expected.some((each) => isSame(container[key], each[key])) ? [] : [`${key}${toMeshNote(key, container)}`];
  }
}

function toMeshNote(key: string, container: Raw): string {
  const path = textAt(objectAt(objectAt(container, key), 'httpGet'), 'path');
  return key === MESH_PROBE.key && path === MESH_PROBE.path ? MESH_PROBE.note : '';
}

interface ListItems {
  readonly isFree: (item: unknown) => boolean;
  readonly toName: (item: unknown) => string;
}

function toMounts({ volumeMounts, note }: Free): ListItems {
  return { isFree: volumeMounts, toName: (mount) => `${textAt(mount, 'mountPath') ?? ''}${note(mount)}` };
}

/** Compares a list without its allowed extra items; returns the items that the sidecar does not have. */
function compareList(key: string, container: Raw, expected: readonly Raw[], { isFree, toName }: ListItems): string[] {
  if (listAt(container, key).length > MAX_ITEMS) return [key];
  const without = (from: unknown): unknown[] => listAt(from, key).filter((item) => !isFree(item));
  const own = without(container);
  if (expected.some((each) => isDeepStrictEqual(own, without(each)))) return [];
  const known = new Set(expected.flatMap(without).map(toText));
  const strange = own.filter((item) => !known.has(toText(item))).slice(0, MAX_REPORTED);
  return strange.length === 0 ? [key] : strange.map((item) => `${key} ${toName(item)}`);
}

/** Serializes a value independently of the order of its fields. */
function toText(item: unknown): string {
  return JSON.stringify(item, (_key, value: unknown) =>
    isRaw(value) ? Object.fromEntries(Object.entries(value).sort()) : value,
  );
}

/** A token of an account, or a path that the cluster allows; with further fields, a mount could show another part of its volume. */
function isFreeMount(mount: unknown, allowedMounts: SidecarRules['allowedMounts']): boolean {
  const path = textAt(mount, 'mountPath') ?? '';
  if (!isRaw(mount) || !Object.keys(mount).every((key) => ADDED_MOUNT_FIELDS.includes(key) || isEmpty(mount[key]))) return false;
  return allowedMounts.includes(path) || isCredentialsPath(path);
}

/** Mounts at or below the path of another. In order, the first path below a path follows it directly. */
function findNested(container: Raw): string[] {
  const paths = listAt(container, 'volumeMounts').map((mount) => `${textAt(mount, 'mountPath') ?? ''}/`);
  const nested = paths.sort().filter((path, index) => index > 0 && path.startsWith(paths[index - 1] ?? ''));
  return nested.slice(0, MAX_REPORTED).map((path) => `volumeMounts ${path.slice(0, -1)}`);
}

function isSame(actual: unknown, expected: unknown): boolean {
  return isDeepStrictEqual(isEmpty(actual) ? undefined : actual, expected);
}

/** Zero values, which the API server stores as absent. */
function isEmpty(value: unknown): boolean {
  if (value === undefined || value === null || value === '' || value === false) return true;
  return typeof value === 'object' && Object.keys(value).length === 0;
}

function findQueueVolume(pod: Raw, name: string | undefined): string[] {
  return name === undefined || findOtherSource(pod, name) === undefined ? [] : [`volume ${name}`];
}

function findVolumes(pod: Raw, expected: readonly (readonly unknown[])[]): string[] {
  const own = listAt(objectAt(pod, 'spec'), 'volumes').filter((volume) => isSidecarVolume(textAt(volume, 'name') ?? ''));
  if (expected.some((each) => isDeepStrictEqual(own, each))) return [];
  const known = new Set(expected.flat().map(toText));
  const strange = own.filter((volume) => !known.has(toText(volume))).slice(0, MAX_REPORTED);
  return strange.length === 0 ? ['volumes'] : strange.map((volume) => `volume ${textAt(volume, 'name') ?? ''}`);
}

/** Sanitizes untrusted text for a message. */
function show(text: string): string {
  const clean = text.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, ' ');
  return clean.length > MAX_SHOWN_LENGTH ? `${clean.slice(0, MAX_SHOWN_LENGTH)}…` : clean;
}

/** The shape with defaults; fields that the shape already has are kept. */
export function toDefaulted(shape: Shape, key = ''): Shape {
  if (typeof shape !== 'object' || isPlaceholder(shape) || isText(shape)) return shape;
  if (isWhen(shape)) return when(shape.$when, toDefaulted(shape.then, key));
  if (isEach(shape)) return each(shape.$each, toDefaulted(shape.of));
  if (isList(shape)) return shape.map((item) => toDefaulted(item));
  const entries = Object.entries(shape as ShapeMap).map(([name, inner]) => [name, toDefaulted(inner, name)] as const);
  return { ...DEFAULTS[key], ...Object.fromEntries(entries) };
}

// Reads the values of a sidecar from the pod that has it, each in its form, so that the sidecar can be rebuilt and compared.

/** Maximum length of a list that is read or compared, which bounds the work; annotations of 8,192 characters name fewer Secrets. */
const MAX_ITEMS = 4_096;

/** The values of a pod's sidecar, and its interception mode. */
interface ReadSidecar {
  readonly values: SidecarValues;
  readonly mode: string;
}

const SECRET_NAME = new RegExp(OBJECT_NAME.pattern);
const SECRET_NUMBER = new RegExp(SECRET_NUMBER_PATTERN);

/** Annotations whose text is that of the value with the same name. */
export const SAME_TEXT = ['config', 'queueVolume', 'port', 'adminPort'] as const satisfies readonly (keyof typeof SETTINGS)[];

const ALL_SETTINGS = Object.entries(SETTINGS) as readonly [keyof typeof SETTINGS, Setting][];

/** Reads the values of a pod's container `sidegate`. A value of another form becomes one that no pod can have. */
function readSidecar(pod: Raw, { container, isInit }: { readonly container: Raw; readonly isInit: boolean }): ReadSidecar {
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
function findOtherSettings(pod: Raw, { values, mode }: ReadSidecar): string[] {
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
