/** Checks the types of the fields that a patch would change, and the size of what a patch or a message would repeat. */
import { containersOf, lastingContainersOf } from './app.ts';
import type { Findings } from './findings.ts';
import { MAX_NAME_LENGTH } from './kubernetes-values.ts';
import { has, isRaw, listAt, objectAt, type Raw, textAt } from './raw.ts';

/** The admission policies have a smaller limit. */
const MAX_CONTAINERS = 128;

/** Denies pods that the API server would also reject as malformed. */
export function checkForm(pod: Raw, findings: Findings): void {
  const spec = objectAt(pod, 'spec');
  const metadata = objectAt(pod, 'metadata');
  const malformed = [
    ...findMalformed('spec', spec, {
      lists: ['containers', 'initContainers', 'ephemeralContainers', 'volumes', 'imagePullSecrets'],
      maps: [],
    }),
    ...findMalformed('metadata', metadata, { lists: [], maps: ['labels', 'annotations'] }),
    ...lastingContainersOf(pod).flatMap(({ container, path }) =>
      findMalformed(path.join('.'), container, { lists: ['env', 'ports'], maps: ['lifecycle'] }),
    ),
  ];
  for (const problem of malformed) findings.deny('malformed', `not a valid pod: ${problem}`);
}

/**
 * Why a pod is not read at all. The API server checks names only after the webhooks: a patch and messages that repeat long ones, once for each
 * port, mount or probe, would exceed the memory of the injector.
 */
export function findOversize(pod: Raw): string | undefined {
  const spec = objectAt(pod, 'spec');
  const containers = [...containersOf(pod, 'initContainers'), ...containersOf(pod, 'containers')];
  if (containers.length > MAX_CONTAINERS)
    return `the pod has ${containers.length} containers; the maximum is ${MAX_CONTAINERS}: remove some`;
  const lists = [
    ...['initContainers', 'containers', 'ephemeralContainers', 'volumes'].map((list) => listAt(spec, list)),
    ...containers.flatMap(({ container }) => ['ports', 'volumeMounts', 'volumeDevices'].map((list) => listAt(container, list))),
  ];
  const isLong = (item: unknown): boolean => (textAt(item, 'name') ?? '').length > MAX_NAME_LENGTH;
  if (!lists.some((list) => list.some(isLong))) return undefined;
  return `not a valid pod: the name of a container, port, volume or mount has more than ${MAX_NAME_LENGTH} characters: shorten it`;
}

interface Expected {
  readonly lists: readonly string[];
  readonly maps: readonly string[];
}

function findMalformed(place: string, from: Raw, { lists, maps }: Expected): string[] {
  const wrongLists = lists.filter((key) => has(from, key) && !Array.isArray(from[key]));
  const wrongMaps = maps.filter((key) => has(from, key) && !isRaw(from[key]));
  return [
    ...wrongLists.map((key) => `${place}.${key} is not a list`),
    ...wrongMaps.map((key) => `${place}.${key} is not an object`),
  ];
}
