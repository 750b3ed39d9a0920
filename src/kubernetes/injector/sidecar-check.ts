/** Compares the container `sidegate` of a pod with the one that this version injects: labels and annotations prove nothing, because anyone can copy them. */
import { isDeepStrictEqual } from 'node:util';
import { containersOf, type PlacedContainer, tcpPortsOf } from './app.ts';
import { APP_PORT_MODES } from './kubernetes-values.ts';
import { CONTAINER } from './names.ts';
import { findEarlier, findTaken, hasSidecarUser, type IsOfApp, type TakenResource } from './other-containers.ts';
import { findOtherSource, volumesOfQueue } from './queue-volume.ts';
import { has, isRaw, listAt, objectAt, type Raw, textAt } from './raw.ts';
import { each, fill, isEach, isList, isPlaceholder, isText, isWhen, type Shape, type ShapeMap, when } from './shape.ts';
import { CONTAINER_SHAPE, USER, VOLUMES_SHAPE } from './sidecar.ts';
import {
  ADDED_MOUNT_FIELDS,
  ADDED_MOUNT_SOURCES,
  ALLOWED_FIELDS,
  COMPARED,
  isAllowedImage,
  isCredentialsPath,
  isSidecarVolume,
  RESIZE_POLICY,
  RESOURCE_FIELDS,
  RESOURCE_NAMES,
  type SidecarRules,
  TERMINATION_PATH,
} from './sidecar-rules.ts';
import { findOtherSettings, MAX_ITEMS, type ReadSidecar, readSidecar } from './sidecar-values.ts';

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
      return expected.some((each) => isSame(container[key], each[key])) ? [] : [key];
  }
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
