/** Where pods stand in Kubernetes objects: a Pod is one, and what makes pods has a template of them. */
import type { Path } from '../injector/patch.ts';
import { isRaw, listAt, objectAt, type Raw, textAt } from '../injector/raw.ts';

/** A pod, or a template of pods. */
export interface Workload {
  readonly kind: string;
  readonly name: string;
  readonly namespace: string | undefined;
  readonly apiVersion: string;
  /** Of the object in its document. */
  readonly objectPath: Path;
  /** Of the pod in the object. */
  readonly podPath: Path;
  readonly object: Raw;
  readonly pod: Raw;
  /** What it makes must come to an end. */
  readonly isJob: boolean;
}

const TEMPLATE: Path = ['spec', 'template'];
const PLACES: Readonly<Record<string, Path>> = {
  Pod: [],
  PodTemplate: ['template'],
  CronJob: ['spec', 'jobTemplate', 'spec', 'template'],
};
const JOBS: ReadonlySet<string> = new Set(['Job', 'CronJob']);

/** Every pod and template of pods in a document, those in a List, too. */
export function findWorkloads(value: unknown, objectPath: Path = []): Workload[] {
  const kind = textAt(value, 'kind') ?? '';
  const items = listAt(value, 'items');
  if (kind.endsWith('List') && items.length > 0)
    return items.flatMap((item, index) => findWorkloads(withKind(item, value, kind), [...objectPath, 'items', index]));
  if (!isRaw(value)) return [];
  const podPath = PLACES[kind] ?? TEMPLATE;
  const pod = podPath.reduce<Raw>((from, step) => objectAt(from, String(step)), value);
  const isKnown = Object.hasOwn(PLACES, kind);
  if (!isKnown && listAt(objectAt(pod, 'spec'), 'containers').length === 0) return [];
  const metadata = objectAt(value, 'metadata');
  return [
    {
      kind,
      name: textAt(metadata, 'name') ?? textAt(metadata, 'generateName') ?? '?',
      namespace: textAt(metadata, 'namespace'),
      apiVersion: textAt(value, 'apiVersion') ?? '',
      objectPath,
      podPath,
      object: value,
      pod,
      isJob: JOBS.has(kind),
    },
  ];
}

/** Items of a PodList say nothing of their kind: the list does. */
function withKind(item: unknown, list: unknown, listKind: string): unknown {
  if (!isRaw(item) || textAt(item, 'kind') !== undefined || listKind === 'List') return item;
  return { apiVersion: textAt(list, 'apiVersion') ?? '', kind: listKind.slice(0, -'List'.length), ...item };
}
