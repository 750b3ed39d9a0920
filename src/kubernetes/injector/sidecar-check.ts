/** Compares the container `sidegate` of a pod with the one that this version injects: marks are no proof, since anyone can copy them. */
import { isDeepStrictEqual } from 'node:util';
import { toDefaulted } from './defaulted.ts';
import { PORT_NUMBER } from './kubernetes-values.ts';
import { CONTAINER, SECRET_VOLUME, SECRETS_FOLDER } from './names.ts';
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
const LONGEST_SHOWN = 80;
/** Of one kind. */
const MOST_NAMED = 8;
/** Items of a list; annotations of 8,192 characters name fewer Secrets. More are not compared, so that no list holds up the injector. */
const MOST_ITEMS = 4_096;
/** Fields of a pod by which containers reach each other's processes. hostIPC is none: the gate has no shared memory and no message queue. */
export const SHARING = ['hostPID', 'shareProcessNamespace'] as const;

/** The container `sidegate` of a pod. */
export interface NamedSidecar {
  readonly container: Raw;
  /** Among the init containers. */
  readonly isInit: boolean;
}

/** The container by its name, whatever it is; init containers come first. */
export function findNamed(pod: Raw): NamedSidecar | undefined {
  const spec = objectAt(pod, 'spec');
  const isNamed = (container: unknown): container is Raw => isRaw(container) && textAt(container, 'name') === CONTAINER;
  const native = listAt(spec, 'initContainers').find(isNamed);
  if (native !== undefined) return { container: native, isInit: true };
  const plain = listAt(spec, 'containers').find(isNamed);
  return plain === undefined ? undefined : { container: plain, isInit: false };
}

/**
 * Names everything about the pod's container `sidegate` that is not as this version injects it: `command`, `env NODE_OPTIONS`.
 * Empty where it is the sidecar; undefined where there is none.
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
      .slice(0, MOST_NAMED),
    ...COMPARED.flatMap((key) => compareField(key, container, expected, rules)),
    ...(['', TERMINATION_PATH].includes(textAt(container, 'terminationMessagePath') ?? '') ? [] : ['terminationMessagePath']),
    ...findVolumes(pod),
  ].map(show);
}

/** Something about the pod around its sidecar. */
export interface PodFault {
  /** `network`: the app is reached elsewhere; `processes`: others reach the gate's process; `end`: the gate ends before the app. */
  readonly kind: 'network' | 'processes' | 'end';
  readonly text: string;
}

/** What is wrong with the pod around its sidecar, however sound that is. */
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

/** What the holes of the shape must have been filled with, read where each stands alone; a wrong one differs somewhere else. */
function bindValues(container: Raw, isInit: boolean): SidecarValues {
  const args = listAt(container, 'args').filter((arg) => typeof arg === 'string');
  const [data, admin] = listAt(container, 'ports');
  const upstream = args.find((arg) => arg.startsWith(UPSTREAM_PREFIX))?.slice(UPSTREAM_PREFIX.length) ?? '';
  const isOnPodAddresses = args.some((arg) => arg.startsWith(`${POD_IPS}:`));
  const mounts = listAt(container, 'volumeMounts')
    .slice(0, MOST_ITEMS)
    .filter((mount) => textAt(mount, 'name')?.startsWith(SECRET_VOLUME));
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
    secrets: mounts.map((mount) => ({
      secret: (textAt(mount, 'mountPath') ?? '').slice(SECRETS_FOLDER.length + 1),
      number: Number((textAt(mount, 'name') ?? '').slice(SECRET_VOLUME.length)),
    })),
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

/** Compares a list without its items that are free; names the items that the sidecar does not have. */
function compareList(
  key: string,
  label: string,
  container: Raw,
  expected: readonly Raw[],
  isFree: (item: unknown) => boolean,
): string[] {
  if (listAt(container, key).length > MOST_ITEMS) return [key];
  const without = (from: unknown): unknown[] => listAt(from, key).filter((item) => !isFree(item));
  const own = without(container);
  if (expected.some((each) => isDeepStrictEqual(own, without(each)))) return [];
  const known = new Set(expected.flatMap(without).map(toText));
  const strange = own.filter((item) => !known.has(toText(item))).slice(0, MOST_NAMED);
  return strange.length === 0 ? [key] : strange.map((item) => `${key} ${textAt(item, label) ?? ''}`);
}

/** The same for equal values, in whatever order their fields stand. */
function toText(item: unknown): string {
  return JSON.stringify(item, (_key, value: unknown) =>
    isRaw(value) ? Object.fromEntries(Object.entries(value).sort()) : value,
  );
}

/** A path with `..` leads out of the folder that it begins with. */
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
  return strange.slice(0, MOST_NAMED);
}

/** What anyone may have written, fit for a sentence. */
function show(text: string): string {
  const clean = text.replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, ' ');
  return clean.length > LONGEST_SHOWN ? `${clean.slice(0, LONGEST_SHOWN)}…` : clean;
}
