/** Whether the places that a patch would add to are what they are in any pod. */
import { lastingContainersOf } from './app.ts';
import type { Findings } from './findings.ts';
import { has, isRaw, objectAt, type Raw } from './raw.ts';

/** Denies what the API server would not take for a pod either. */
export function checkForm(pod: Raw, findings: Findings): void {
  const spec = objectAt(pod, 'spec');
  const metadata = objectAt(pod, 'metadata');
  const misshapen = [
    ...findMisshapen('spec', spec, {
      lists: ['containers', 'initContainers', 'ephemeralContainers', 'volumes', 'imagePullSecrets'],
      maps: [],
    }),
    ...findMisshapen('metadata', metadata, { lists: [], maps: ['labels', 'annotations'] }),
    ...lastingContainersOf(pod).flatMap(({ container, path }) =>
      findMisshapen(path.join('.'), container, { lists: ['env', 'ports'], maps: ['lifecycle'] }),
    ),
  ];
  for (const problem of misshapen) findings.deny('malformed', `this is no pod: ${problem}`);
}

interface Expected {
  readonly lists: readonly string[];
  readonly maps: readonly string[];
}

function findMisshapen(place: string, from: Raw, { lists, maps }: Expected): string[] {
  const wrongLists = lists.filter((key) => has(from, key) && !Array.isArray(from[key]));
  const wrongMaps = maps.filter((key) => has(from, key) && !isRaw(from[key]));
  return [
    ...wrongLists.map((key) => `${place}.${key} is not a list`),
    ...wrongMaps.map((key) => `${place}.${key} is not a mapping`),
  ];
}
