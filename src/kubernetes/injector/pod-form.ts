/** Checks the types of the fields that a patch would change. */
import { lastingContainersOf } from './app.ts';
import type { Findings } from './findings.ts';
import { has, isRaw, objectAt, type Raw } from './raw.ts';

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
