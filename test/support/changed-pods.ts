/** Every single change of a pod's sidecar: at each path, a field or an item is removed, added, altered, repeated or moved. */

// biome-ignore lint/suspicious/noExplicitAny: tests reach deep into objects that they have just written
type Json = any;

/** A pod with one change. */
export interface ChangedPod {
  readonly what: string;
  readonly pod: Json;
}

/** Changes that no check reports, each with its reason. */
const FREE: readonly (readonly [RegExp, string])[] = [
  [/\/imagePullPolicy$/, 'AlwaysPullImages sets it; the image itself is compared'],
  [
    /\/resources(?:\/(?:requests|limits)(?:\/(?:cpu|memory))?)? (?:removed|=.*)$/,
    'LimitRanges and autoscalers write requests and limits',
  ],
  [/\/terminationMessagePolicy$/, 'decides only where the kubelet reads the last message'],
  [/^\/metadata\/annotations\/sidegate\.dev~1[a-z-]+ removed$/, 'pods of the library chart have no such annotations'],
  [/^\/metadata\/annotations\/sidegate\.dev~1status/, 'informs kubectl and the doctor; anyone can copy it'],
  [
    /sidegate\.dev~1interception = "same-port:[A-Za-z]+"$/,
    'the variable is set in the app, whose program the author of the pod chooses',
  ],
  [/^\/metadata\/annotations\/sidegate\.dev~1image /, 'the image is compared with the allowed ones'],
];

/** Whether nothing needs to report the change. */
export function isFreeChange(what: string): boolean {
  const [path = ''] = what.split(' ');
  return FREE.some(([pattern]) => pattern.test(pattern.source.includes(' ') ? what : path));
}

/** All changes of the container `sidegate`, of its volumes and of the annotations of sidegate. */
export function* changesOf(pod: Json): Generator<ChangedPod> {
  const isOwn = (each: Json): boolean => each.name.startsWith('sidegate');
  for (const list of ['initContainers', 'containers', 'volumes'])
    for (const [index, item] of (pod.spec[list] ?? []).entries())
      if (isOwn(item)) yield* changesAt(pod, ['spec', list, index], isOwn(item));
  for (const key of Object.keys(pod.metadata.annotations).filter((name) => name.startsWith('sidegate.dev/')))
    yield* changesAt(pod, ['metadata', 'annotations', key], true);
}

type Path = readonly (string | number)[];

function* changesAt(pod: Json, path: Path, isRemovable: boolean): Generator<ChangedPod> {
  const value = path.reduce((from, step) => from[step], pod);
  const key = path.at(-1) as string | number;
  const change = (how: string, edit: (parent: Json) => void): ChangedPod => {
    const copy = structuredClone(pod);
    edit(path.slice(0, -1).reduce((from, step) => from[step], copy));
    return { what: `/${path.map((step) => String(step).replaceAll('/', '~1')).join('/')} ${how}`, pod: copy };
  };
  const set = (how: string, changed: unknown): ChangedPod =>
    change(how, (parent) => {
      parent[key] = changed;
    });
  if (isRemovable)
    yield change('removed', (parent) => (Array.isArray(parent) ? parent.splice(Number(key), 1) : delete parent[key]));
  if (Array.isArray(value)) {
    for (const [index, item] of value.entries()) yield set(`with item ${index} repeated`, value.toSpliced(index, 0, item));
    if (value.length > 1) yield set('reversed', value.toReversed());
    yield set('with an item like the last', [...value, alter(value.at(-1))]);
    for (const index of value.keys()) yield* changesAt(pod, [...path, index], true);
  } else if (typeof value === 'object') {
    for (const name of ['novelty', 'subPath', 'optional']) yield set(`with the field ${name}`, { ...value, [name]: 'x' });
    for (const name of Object.keys(value)) yield* changesAt(pod, [...path, name], true);
  } else for (const other of othersOf(value)) yield set(`= ${JSON.stringify(other)}`, other);
}

function othersOf(value: unknown): unknown[] {
  if (typeof value === 'boolean') return [!value];
  if (typeof value === 'number') return [value + 1, 0, String(value)];
  return [`${value}x`, `${value}/../x`, ''];
}

function alter(value: Json): unknown {
  if (typeof value !== 'object') return othersOf(value)[0];
  return { ...value, name: `${value.name}-2` };
}

/** Each thing of the sidecar in each kind of other container: its ports, their names, its user, its volumes, and its queue under another name. */
export function* takingsOf(pod: Json): Generator<ChangedPod> {
  const all = [...(pod.spec.initContainers ?? []), ...pod.spec.containers];
  const sidecar = all.find((each: Json) => each.name === 'sidegate');
  const queue = pod.spec.volumes.find((volume: Json) => volume.persistentVolumeClaim !== undefined);
  const again = queue === undefined ? [] : [{ ...queue, name: 'again' }];
  const volumes = [...sidecar.volumeMounts, ...again].map(({ name }: Json) => name);
  const things: Json[] = [
    ...sidecar.ports.map(({ containerPort }: Json) => ({ ports: [{ containerPort }] })),
    ...sidecar.ports.map(({ name }: Json) => ({ ports: [{ name, containerPort: 9999 }] })),
    ...sidecar.ports.map(({ name }: Json) => ({ ports: [{ name, containerPort: 9999, protocol: 'UDP' }] })),
    { securityContext: { runAsUser: sidecar.securityContext.runAsUser } },
    ...volumes.map((name) => ({ volumeMounts: [{ name, mountPath: '/taken' }] })),
    ...[queue, ...again].filter(Boolean).map(({ name }) => ({ volumeDevices: [{ name, devicePath: '/dev/taken' }] })),
  ];
  for (const [list, more] of [
    ['containers', {}],
    ['initContainers', {}],
    ['initContainers', { restartPolicy: 'Always' }],
  ] as const)
    for (const thing of things) {
      const copy = structuredClone(pod);
      copy.spec[list] = [...(copy.spec[list] ?? []), { name: 'taker', image: 'taker:1', ...more, ...thing }];
      copy.spec.volumes.push(...again);
      yield { what: `${JSON.stringify(thing)} in ${list} ${JSON.stringify(more)}`, pod: copy };
    }
}

/** Sources of volumes, and whether their content can have no links to elsewhere. */
const SOURCES: readonly (readonly [Json, boolean])[] = [
  [{ secret: { secretName: 'a' } }, true],
  [{ configMap: { name: 'a' } }, true],
  [{ projected: { sources: [{ secret: { name: 'a' } }] } }, true],
  [{ emptyDir: {} }, false],
  [{ hostPath: { path: '/a' } }, false],
  [{ persistentVolumeClaim: { claimName: 'a' } }, false],
  [{ nfs: { server: 'a', path: '/a' } }, false],
  [{ csi: { driver: 'a.example' } }, false],
];
const TOKENS = '/var/run/secrets';
/** Paths of two mounts, and whether neither is in the other. */
const PATHS: readonly (readonly [string, string, boolean])[] = [
  ['a', 'b', true],
  ['a', 'ab', true],
  ['a', 'a/b', false],
  ['a/b/c', 'a', false],
];

/** Each pair of mounts that a webhook could add; `isFree`: whether the checks accept it. */
export function* withTwoMounts(pod: Json): Generator<ChangedPod & { readonly isFree: boolean }> {
  for (const [first, isFirstFree] of SOURCES)
    for (const [second, isSecondFree] of SOURCES)
      for (const [above, below, isApart] of PATHS) {
        const copy = structuredClone(pod);
        const all = [...(copy.spec.initContainers ?? []), ...copy.spec.containers];
        const sidecar = all.find((each: Json) => each.name === 'sidegate');
        copy.spec.volumes.push({ name: 'first', ...first }, { name: 'second', ...second });
        sidecar.volumeMounts.push({ name: 'first', mountPath: `${TOKENS}/${above}` });
        sidecar.volumeMounts.push({ name: 'second', mountPath: `${TOKENS}/${below}` });
        const what = `${Object.keys(first)[0]} at ${above}, ${Object.keys(second)[0]} at ${below}`;
        yield { what, pod: copy, isFree: isFirstFree && isSecondFree && isApart };
      }
}
