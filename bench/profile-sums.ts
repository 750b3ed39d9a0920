/** Adds a sampling profile up: by function, and by the source file or package that the bundle's lines came from. */

interface ProfileNode {
  readonly id: number;
  readonly callFrame: { readonly functionName: string; readonly url: string; readonly lineNumber: number };
  readonly children?: readonly number[];
}

/** A profile as V8 writes it. */
export interface Profile {
  readonly nodes: readonly ProfileNode[];
  readonly samples: readonly number[];
  readonly timeDeltas: readonly number[];
}

/** Microseconds by label. */
export type Times = ReadonlyMap<string, number>;

/** The source of each line of the bundle, starting at 0. */
export type Origins = readonly string[];

/** The sums. */
export interface ProfileSums {
  readonly own: Times;
  readonly total: Times;
  readonly byOrigin: Times;
}

/** The bundler writes the path of each file above its code. */
const ORIGIN = /^\s*\/\/ ((?:src|node_modules)\/\S+)$/;
const NOT_WORK = new Set(['(idle)', '(root)']);

/** Reads the source of each line of the bundle; a package counts as one source. */
export function readOrigins(bundle: string): Origins {
  let origin = 'bundle';
  return bundle.split('\n').map((line) => {
    const path = ORIGIN.exec(line)?.[1];
    if (path !== undefined) origin = toPlace(path);
    return origin;
  });
}

function toPlace(path: string): string {
  const parts = path.split('/');
  if (parts[0] === 'src') return path;
  return parts.slice(0, parts[1]?.startsWith('@') === true ? 3 : 2).join('/');
}

/** Adds up everything except idle time; a recursive call counts once in `total`. */
export function sumUp(profile: Profile, origins: Origins): ProfileSums {
  const nodes = new Map(profile.nodes.map((node) => [node.id, node]));
  const parents = new Map<number, ProfileNode>();
  for (const node of profile.nodes) for (const child of node.children ?? []) parents.set(child, node);
  const sums = { own: new Map<string, number>(), total: new Map<string, number>(), byOrigin: new Map<string, number>() };
  for (const [id, time] of sumSamples(profile)) {
    const node = nodes.get(id) as ProfileNode;
    if (NOT_WORK.has(node.callFrame.functionName)) continue;
    add(sums.own, toLabel(node), time);
    const stack: ProfileNode[] = [];
    for (let at: ProfileNode | undefined = node; at !== undefined; at = parents.get(at.id)) stack.push(at);
    for (const label of new Set(stack.map(toLabel))) add(sums.total, label, time);
    add(sums.byOrigin, toOrigin(stack, origins), time);
  }
  return sums;
}

function sumSamples({ samples, timeDeltas }: Profile): Map<number, number> {
  const times = new Map<number, number>();
  samples.forEach((id, index) => {
    add(times, id, timeDeltas[index] ?? 0);
  });
  return times;
}

function add<Key>(times: Map<Key, number>, key: Key, time: number): void {
  times.set(key, (times.get(key) ?? 0) + time);
}

/** Native code counts for the file that called it. */
function toOrigin(stack: readonly ProfileNode[], origins: Origins): string {
  const written = stack.find(({ callFrame }) => callFrame.url !== '');
  if (written === undefined) return stack[0]?.callFrame.functionName ?? '';
  const { url, lineNumber } = written.callFrame;
  return url.startsWith('node:') ? url : (origins[lineNumber] ?? url);
}

function toLabel({ callFrame }: ProfileNode): string {
  const file = callFrame.url.split('/').at(-1) ?? '';
  return `${callFrame.functionName || '(anonymous)'} ${file === '' ? '' : `${file}:${callFrame.lineNumber + 1}`}`.trim();
}
