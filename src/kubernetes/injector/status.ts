/** What the injector leaves on a pod about its work, and how that is read again. */
import { createHash } from 'node:crypto';
import type { SidecarDefaults } from './injector-config.ts';
import type { Takeover } from './kubernetes-values.ts';
import { INJECTED_LABEL, STATUS_ANNOTATION } from './names.ts';
import { objectAt, textAt } from './raw.ts';

/** The annotation's JSON. */
export interface InjectionStatus {
  /** Of sidegate. */
  readonly version: string;
  readonly takeover: Takeover;
  readonly sidecar: 'native' | 'container';
  /** Of the defaults that the sidecar was made with; the rest stands in the pod's own annotations. */
  readonly hash: string;
}

const HASH_LENGTH = 12;
/** Of the status' fields: whoever may make pods may write any text there, and it is shown to people. */
const FORMS: Readonly<Record<keyof InjectionStatus, RegExp>> = {
  version: /^[0-9A-Za-z][0-9A-Za-z.+-]{0,63}$/,
  takeover: /^(?:service|rename|same-port|env)$/,
  sidecar: /^(?:native|container)$/,
  hash: /^[0-9a-z]{1,64}$/,
};
/** In place of the hash where the library chart made the sidecar, which knows no defaults of an injector. */
export const LIBRARY_HASH = 'library';

/** Changes whenever a default does. */
export function toDefaultsHash(defaults: SidecarDefaults): string {
  return createHash('sha256').update(toHashedText(defaults)).digest('hex').slice(0, HASH_LENGTH);
}

/** One line for each default, in an order that never changes: templates that hash it must come to the same. */
function toHashedText({ resources, takeover, ...rest }: SidecarDefaults): string {
  return [
    rest.image,
    rest.imagePullPolicy,
    rest.imagePullSecrets.join(','),
    takeover.variable === undefined ? takeover.mode : `${takeover.mode}:${takeover.variable}`,
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

/** The status of a pod, if it bears a sound one. */
export function readStatus(pod: unknown): InjectionStatus | undefined {
  const metadata = objectAt(pod, 'metadata');
  if (textAt(objectAt(metadata, 'labels'), INJECTED_LABEL) !== 'true') return undefined;
  const status = parse(textAt(objectAt(metadata, 'annotations'), STATUS_ANNOTATION) ?? '');
  const isSound = Object.entries(FORMS).every(([key, form]) => form.test(textAt(status, key) ?? ''));
  return isSound ? (status as unknown as InjectionStatus) : undefined;
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
