/** Compares the container `sidegate` of a pod with the one that this version injects: labels and annotations prove nothing, because anyone can copy them. */
import { isDeepStrictEqual } from 'node:util';
import { toDefaulted } from './defaulted.ts';
import { PORT_NUMBER } from './kubernetes-values.ts';
import { CONTAINER, QUEUE_FOLDER, SECRET_VOLUME, SECRETS_FOLDER } from './names.ts';
import { isRaw, listAt, numberAt, objectAt, type Raw, textAt } from './raw.ts';
import { fill } from './shape.ts';
import { CONTAINER_SHAPE, POD_IPS, type SidecarValues, UPSTREAM_PREFIX } from './sidecar.ts';
import {
  ALLOWED_FIELDS,
  COMPARED,
  CREDENTIALS_FOLDER,
  isAllowedImage,
  PAUSE_PATTERN,
  PAUSE_PLACE,
  type SidecarRules,
  TERMINATION_PATH,
  VOLUME_SOURCES,
} from './sidecar-rules.ts';

const DEFAULTED_SHAPE = toDefaulted(CONTAINER_SHAPE);
const APP_PROBE = '--app-probe=';
const MAX_SHOWN_LENGTH = 80;
/** Maximum number of reported differences of one kind. */
const MAX_REPORTED = 8;
/** Maximum length of a compared list, which bounds the work; annotations of 8,192 characters name fewer Secrets. */
const MAX_ITEMS = 4_096;
/** Fields of a pod that let containers access each other's processes. Not hostIPC: the gate has no shared memory and no message queue. */
export const SHARING = ['hostPID', 'shareProcessNamespace'] as const;

/** The container `sidegate` of a pod. */
export interface NamedSidecar {
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

/**
 * Lists all differences between the pod's container `sidegate` and the injected one, such as `command` or `env NODE_OPTIONS`.
 * Empty if there are none; undefined if the pod has no such container.
 */
export function findDifferences(pod: Raw, rules: SidecarRules): readonly string[] | undefined {
  const named = findNamed(pod);
  if (named === undefined) return undefined;
  const { container, isInit } = named;
  const values = bindValues(container, isInit);
  const expected = [CONTAINER_SHAPE, DEFAULTED_SHAPE].map((shape) => fill(shape, values) as Raw);
  const image = textAt(container, 'image') ?? '';
  return [
    ...(isAllowedImage(image, rules.allowedImages) ? [] : [`image ${show(image)}`]),
    ...Object.keys(container)
      .filter((key) => !ALLOWED_FIELDS.includes(key) && !isEmpty(container[key]))
      .slice(0, MAX_REPORTED),
    ...COMPARED.flatMap((key) => compareField(key, container, expected, rules)),
    ...(['', TERMINATION_PATH].includes(textAt(container, 'terminationMessagePath') ?? '') ? [] : ['terminationMessagePath']),
    ...findVolumes(pod),
  ].map(show);
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
  const targeting = listAt(spec, 'ephemeralContainers').filter((each) => textAt(each, 'targetContainerName') === CONTAINER);
  return [
    ...(spec['hostNetwork'] === true ? [fault('network', 'hostNetwork: true')] : []),
    ...SHARING.filter((key) => spec[key] === true).map((key) => fault('processes', `${key}: true`)),
    ...targeting.map((each) =>
      fault('processes', `the ephemeral container ${show(textAt(each, 'name') ?? '')} targets ${CONTAINER}`),
    ),
    ...(named?.isInit === false && (textAt(spec, 'restartPolicy') ?? 'Always') !== 'Always'
      ? [fault('end', `restartPolicy: ${show(textAt(spec, 'restartPolicy') ?? '')} of the pod`)]
      : []),
  ];
}

/** Reads the values of the shape's placeholders from the container, each at a place where it is alone; a forged value differs at another place. */
function bindValues(container: Raw, isInit: boolean): SidecarValues {
  const args = listAt(container, 'args').filter((arg) => typeof arg === 'string');
  const [data, admin] = listAt(container, 'ports');
  const upstream = args.find((arg) => arg.startsWith(UPSTREAM_PREFIX))?.slice(UPSTREAM_PREFIX.length) ?? '';
  const isOnPodAddresses = args.some((arg) => arg.startsWith(`${POD_IPS}:`));
  const mounts = listAt(container, 'volumeMounts').slice(0, MAX_ITEMS);
  const secrets = mounts.filter((mount) => textAt(mount, 'name')?.startsWith(SECRET_VOLUME));
  return {
    image: '',
    imagePullPolicy: '',
    isNative: isInit,
    isOnPodAddresses,
    isOnAllAddresses: !isOnPodAddresses,
    port: numberAt(data, 'containerPort') ?? 0,
    adminPort: numberAt(admin, 'containerPort') ?? 0,
    portName: textAt(data, 'name') ?? '',
    appPort: new RegExp(PORT_NUMBER.pattern, 'u').test(upstream) ? Number(upstream) : 0,
    config: '',
    secrets: secrets.map((mount) => ({
      secret: (textAt(mount, 'mountPath') ?? '').slice(SECRETS_FOLDER.length + 1),
      number: Number((textAt(mount, 'name') ?? '').slice(SECRET_VOLUME.length)),
    })),
    queueVolume: textAt(
      mounts.find((mount) => textAt(mount, 'mountPath') === QUEUE_FOLDER),
      'name',
    ),
    appProbes: args.filter((arg) => arg.startsWith(APP_PROBE)).map((arg) => ({ appProbe: arg.slice(APP_PROBE.length) })),
    cpuRequest: '',
    memoryRequest: '',
    cpuLimit: undefined,
    memoryLimit: '',
    pause: findPause(container),
  };
}

function findPause(container: Raw): number {
  const { path, prefix } = PAUSE_PLACE;
  const found = path.reduce<unknown>((from, step) => (from as Raw | undefined)?.[step], container);
  const text = typeof found === 'string' && found.startsWith(prefix) ? found.slice(prefix.length) : '';
  return new RegExp(PAUSE_PATTERN, 'u').test(text) ? Number(text) : 0;
}

function compareField(key: string, container: Raw, expected: readonly Raw[], rules: SidecarRules): string[] {
  switch (key) {
    case 'env':
      return compareList(key, 'name', container, expected, (entry) => rules.allowedEnv.includes(textAt(entry, 'name') ?? ''));
    case 'volumeMounts':
      return compareList(key, 'mountPath', container, expected, (mount) => isFreeMount(mount, rules));
    default:
      return expected.some((each) => isSame(container[key], each[key])) ? [] : [key];
  }
}

/** Compares a list without its allowed extra items; returns the items that the sidecar does not have. */
function compareList(
  key: string,
  label: string,
  container: Raw,
  expected: readonly Raw[],
  isFree: (item: unknown) => boolean,
): string[] {
  if (listAt(container, key).length > MAX_ITEMS) return [key];
  const without = (from: unknown): unknown[] => listAt(from, key).filter((item) => !isFree(item));
  const own = without(container);
  if (expected.some((each) => isDeepStrictEqual(own, without(each)))) return [];
  const known = new Set(expected.flatMap(without).map(toText));
  const strange = own.filter((item) => !known.has(toText(item))).slice(0, MAX_REPORTED);
  return strange.length === 0 ? [key] : strange.map((item) => `${key} ${textAt(item, label) ?? ''}`);
}

/** Serializes a value independently of the order of its fields. */
function toText(item: unknown): string {
  return JSON.stringify(item, (_key, value: unknown) =>
    isRaw(value) ? Object.fromEntries(Object.entries(value).sort()) : value,
  );
}

/** A path with `..` can leave the directory that it starts with. */
function isFreeMount(mount: unknown, { allowedMounts }: SidecarRules): boolean {
  const path = textAt(mount, 'mountPath') ?? '';
  return allowedMounts.includes(path) || (path.startsWith(CREDENTIALS_FOLDER) && !path.includes('..'));
}

function isSame(actual: unknown, expected: unknown): boolean {
  return isDeepStrictEqual(isEmpty(actual) ? undefined : actual, expected);
}

/** Zero values, which the API server stores as absent. */
function isEmpty(value: unknown): boolean {
  if (value === undefined || value === null || value === '' || value === false) return true;
  return typeof value === 'object' && Object.keys(value).length === 0;
}

function findVolumes(pod: Raw): string[] {
  const strange = listAt(objectAt(pod, 'spec'), 'volumes').flatMap((volume) => {
    const name = textAt(volume, 'name') ?? '';
    const own = VOLUME_SOURCES.find((each) => (each.isPrefix ? name.startsWith(each.name) : name === each.name));
    return own === undefined || (isRaw(volume) && isRaw(volume[own.source])) ? [] : [`volume ${name}`];
  });
  return strange.slice(0, MAX_REPORTED);
}

/** Sanitizes untrusted text for a message. */
function show(text: string): string {
  const clean = text.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, ' ');
  return clean.length > MAX_SHOWN_LENGTH ? `${clean.slice(0, MAX_SHOWN_LENGTH)}…` : clean;
}
