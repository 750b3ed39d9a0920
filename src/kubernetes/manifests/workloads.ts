/** Finds the pods and pod templates in Kubernetes objects. */
import { INJECT_LABEL } from '../injector/names.ts';
import type { TemplateOwner } from '../injector/outcome.ts';
import type { PatchPath } from '../injector/patch.ts';
import { has, isRaw, listAt, objectAt, type Raw, textAt } from '../injector/raw.ts';

/** A pod, or an object with a pod template. */
export interface ManifestWorkload {
  readonly kind: string;
  readonly name: string;
  readonly namespace: string | undefined;
  readonly apiVersion: string;
  /** The path of the object in its document. */
  readonly objectPath: PatchPath;
  /** The path of the pod in the object. */
  readonly podPath: PatchPath;
  readonly object: Raw;
  readonly pod: Raw;
  /** Whether its pods must complete. */
  readonly isJob: boolean;
  /** Undefined for a pod. */
  readonly template: TemplateOwner | undefined;
}

const TEMPLATE: PatchPath = ['spec', 'template'];
const POD_PATHS: ReadonlyMap<string, PatchPath> = new Map([
  ['Pod', []],
  ['PodTemplate', ['template']],
  ['CronJob', ['spec', 'jobTemplate', 'spec', 'template']],
]);
const JOBS: ReadonlySet<string> = new Set(['Job', 'CronJob']);

/** Finds all pods and pod templates of a document, including those in Lists. */
export function findWorkloads(value: unknown, objectPath: PatchPath = []): ManifestWorkload[] {
  const kind = textAt(value, 'kind') ?? '';
  if (isFilledList(value))
    return listAt(value, 'items').flatMap((item, index) =>
      findWorkloads(withKind(item, value, kind), [...objectPath, 'items', index]),
    );
  if (!isRaw(value)) return [];
  const podPath = POD_PATHS.get(kind) ?? TEMPLATE;
  const pod = podPath.reduce<Raw>((from, step) => objectAt(from, String(step)), value);
  if (!POD_PATHS.has(kind) && listAt(objectAt(pod, 'spec'), 'containers').length === 0) return [];
  const metadata = objectAt(value, 'metadata');
  const apiVersion = textAt(value, 'apiVersion') ?? '';
  return [
    {
      kind,
      name: textAt(metadata, 'name') ?? textAt(metadata, 'generateName') ?? '?',
      namespace: textAt(metadata, 'namespace'),
      apiVersion,
      objectPath,
      podPath,
      object: value,
      pod,
      isJob: JOBS.has(kind),
      template: kind === 'Pod' ? undefined : { apiVersion, kind, claims: findClaims(value) },
    },
  ];
}

/** The paths of labels that request the sidecar for pods that `findWorkloads` does not find, such as those of a JobSet. */
export function findOtherRequests(value: unknown, objectPath: PatchPath = []): PatchPath[] {
  if (isFilledList(value))
    return listAt(value, 'items').flatMap((item, index) => findOtherRequests(item, [...objectPath, 'items', index]));
  const podPath = findWorkloads(value)[0]?.podPath ?? [];
  // Labels of the object itself, and of what is around the pod, such as the `jobTemplate` of a CronJob, request nothing.
  const known = new Set(Array.from({ length: podPath.length + 1 }, (_, length) => podPath.slice(0, length).join('/')));
  return findRequests(value, [])
    .filter((path) => path.at(-1) !== 'labels' || path.at(-2) !== 'metadata' || !known.has(path.slice(0, -2).join('/')))
    .map((path) => [...objectPath, ...path]);
}

function isFilledList(value: unknown): boolean {
  return (textAt(value, 'kind') ?? '').endsWith('List') && listAt(value, 'items').length > 0;
}

/** `labels`, `podLabels`, `commonLabels`: kinds name them differently. */
function findRequests(value: unknown, path: PatchPath): PatchPath[] {
  if (Array.isArray(value)) return value.flatMap((item, index) => findRequests(item, [...path, index]));
  if (!isRaw(value)) return [];
  return Object.entries(value).flatMap(([key, child]) => {
    // Kustomize adds its labels to volume claims, too. Selectors and subsets (Istio) describe pods and create none.
    if (/^(?:matchLabels|subsets|volumeClaimTemplates?)$|selector$/i.test(key)) return [];
    const isRequest = /labels$/i.test(key) && has(child, INJECT_LABEL) && objectAt(value, key)[INJECT_LABEL] !== 'false';
    return isRequest ? [[...path, key]] : findRequests(child, [...path, key]);
  });
}

/** The volumes that the controller of a StatefulSet adds to its pods. */
function findClaims(object: Raw): readonly string[] {
  return listAt(objectAt(object, 'spec'), 'volumeClaimTemplates').flatMap(
    (claim) => textAt(objectAt(claim, 'metadata'), 'name') ?? [],
  );
}

/** Items of a typed list such as PodList have no separate kind; it is derived from the list's. */
function withKind(item: unknown, list: unknown, listKind: string): unknown {
  if (!isRaw(item) || textAt(item, 'kind') !== undefined || listKind === 'List') return item;
  return { apiVersion: textAt(list, 'apiVersion') ?? '', kind: listKind.slice(0, -'List'.length), ...item };
}
