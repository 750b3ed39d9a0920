/** Writes and reads the status annotation of an injected pod. */
import { createHash } from 'node:crypto';
import type { SidecarDefaults } from './injector-config.ts';
import type { InterceptionMode } from './kubernetes-values.ts';
import { INJECTED_LABEL, STATUS_ANNOTATION } from './names.ts';
import { objectAt, textAt } from './raw.ts';

/** The annotation's JSON. */
export interface InjectionStatus {
  /** Version of sidegate. */
  readonly version: string;
  /** The interception mode, under its first name: during an upgrade, an older injector must be able to read it. */
  readonly takeover: InterceptionMode;
  readonly sidecar: 'native' | 'container';
  /** Hash of the defaults that the sidecar was created with; other settings are in the pod's annotations. */
  readonly hash: string;
}

const HASH_LENGTH = 12;
/**
 * The text of a valid status, with one of the modes, also for the admission policies: CEL cannot parse JSON. Anyone who can create pods can write any
 * text there, and it is displayed.
 */
export function toStatusPattern(mode: string): string {
  return `^\\{"version":"[0-9A-Za-z][0-9A-Za-z.+-]{0,63}","takeover":"(?:${mode})","sidecar":"(?:native|container)","hash":"[0-9a-z]{1,64}"\\}$`;
}
const STATUS = new RegExp(toStatusPattern('service|rename|same-port|env'));
/** Used instead of the hash by the library chart, which does not know the defaults of an injector. */
export const LIBRARY_HASH = 'library';

/** A hash of the defaults. */
export function toDefaultsHash(defaults: SidecarDefaults): string {
  return createHash('sha256').update(toHashedText(defaults)).digest('hex').slice(0, HASH_LENGTH);
}

/** One line per default, in a fixed order, so that chart templates can compute the same hash. */
function toHashedText({ resources, interception, ...rest }: SidecarDefaults): string {
  return [
    rest.image,
    rest.imagePullPolicy,
    rest.imagePullSecrets.join(','),
    interception.variable === undefined ? interception.mode : `${interception.mode}:${interception.variable}`,
    rest.mode,
    rest.port,
    rest.adminPort,
    rest.movedPort,
    resources.requests.cpu,
    resources.requests.memory,
    resources.limits.cpu ?? '',
    resources.limits.memory,
    rest.preStop,
  ].join('\n');
}

/** The status of an injected pod, if it has a valid one. */
export function readStatus(pod: unknown): InjectionStatus | undefined {
  return textAt(objectAt(objectAt(pod, 'metadata'), 'labels'), INJECTED_LABEL) === 'true' ? readStatusText(pod) : undefined;
}

/** The valid status annotation of a pod, with or without the label. */
export function readStatusText(pod: unknown): InjectionStatus | undefined {
  const text = textAt(objectAt(objectAt(pod, 'metadata'), 'annotations'), STATUS_ANNOTATION) ?? '';
  return STATUS.test(text) ? (JSON.parse(text) as InjectionStatus) : undefined;
}
