/** Finds the pods and pod templates in Kubernetes objects, and what bypasses their sidecars. */

import { checkServices } from '../doctor/check-services.ts';
import type { FindingCode } from '../doctor/finding.ts';
import type { Container, Ingress, Pod, PodTemplate, Service, ServicePort } from '../doctor/objects.ts';
import { INJECT_LABEL } from '../injector/names.ts';
import type { KubeVersion, TemplateOwner } from '../injector/outcome.ts';
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

// Finds Services in the same manifests that bypass the injected sidecars, with the rules of `sidegate doctor`.

/** Without host ports and other ports than the app's: the injector itself warns about these. */
const CODES: ReadonlySet<FindingCode> = new Set(['service-to-app', 'headless-to-app', 'service-to-nothing']);

/** Returns messages without duplicates: what bypasses which sidecar, and how to fix it. `values`: the documents after injection. */
export function findBypasses(
  values: readonly unknown[],
  { namespace: fallback, kube }: { readonly namespace: string; readonly kube: KubeVersion },
): string[] {
  const objects = values.flatMap(toObjects);
  const namespaceOf = (object: Raw): string => textAt(objectAt(object, 'metadata'), 'namespace') ?? fallback;
  const ofKind = (kind: string): Raw[] => objects.filter((object) => textAt(object, 'kind') === kind);
  const facts = {
    version: kube,
    services: { items: ofKind('Service').map((object) => toService(object, namespaceOf(object))) },
    ingresses: { items: ofKind('Ingress').map((object) => toIngress(object, namespaceOf(object))) },
    endpointSlices: { items: [] },
  };
  const workloads = values.flatMap((value) => findWorkloads(value));
  const found = workloads.flatMap(({ kind, name, namespace = fallback, pod }) =>
    checkServices({ namespace, pods: [toPod(pod, namespace)] }, facts)
      .filter(({ code }) => CODES.has(code))
      .map(({ message, fix }) => `${kind}/${name}: warning: ${message}; ${fix}`),
  );
  return [...new Set(found)];
}

/** Returns the objects, including those in Lists. */
function toObjects(value: unknown): Raw[] {
  if (!isRaw(value)) return [];
  const items = (textAt(value, 'kind') ?? '').endsWith('List') ? listAt(value, 'items') : [];
  return items.length > 0 ? items.flatMap(toObjects) : [value];
}

function toMetadata(object: Raw, namespace: string): Service['metadata'] {
  return {
    name: textAt(objectAt(object, 'metadata'), 'name') ?? '?',
    namespace,
    labels: toTexts(objectAt(objectAt(object, 'metadata'), 'labels')),
  };
}

function toTexts(raw: Raw): Readonly<Record<string, string>> {
  return Object.fromEntries(Object.entries(raw).filter((entry): entry is [string, string] => typeof entry[1] === 'string'));
}

function toService(object: Raw, namespace: string): Service {
  const spec = objectAt(object, 'spec');
  const [type, clusterIP] = [textAt(spec, 'type'), textAt(spec, 'clusterIP')];
  return {
    metadata: toMetadata(object, namespace),
    spec: {
      ...(type === undefined ? undefined : { type }),
      ...(clusterIP === undefined ? undefined : { clusterIP }),
      selector: toTexts(objectAt(spec, 'selector')),
      ports: listAt(spec, 'ports').filter(isPort),
    },
  };
}

function isPort(value: unknown): value is ServicePort {
  return isRaw(value) && typeof value['port'] === 'number';
}

function toIngress(object: Raw, namespace: string): Ingress {
  const rules = listAt(objectAt(object, 'spec'), 'rules').map((rule) => {
    const paths = listAt(objectAt(rule, 'http'), 'paths').map((path) => ({ backend: toBackend(objectAt(path, 'backend')) }));
    const host = textAt(rule, 'host');
    return { ...(host === undefined ? undefined : { host }), http: { paths } };
  });
  return {
    metadata: toMetadata(object, namespace),
    spec: { defaultBackend: toBackend(objectAt(objectAt(object, 'spec'), 'defaultBackend')), rules },
  };
}

function toBackend(backend: Raw): { readonly service?: { readonly name: string } } {
  const name = textAt(objectAt(backend, 'service'), 'name');
  return name === undefined ? {} : { service: { name } };
}

function toPod(pod: Raw, namespace: string): Pod {
  const spec = objectAt(pod, 'spec');
  const annotations = toTexts(objectAt(objectAt(pod, 'metadata'), 'annotations'));
  return {
    metadata: { ...toMetadata(pod, namespace), annotations },
    spec: {
      containers: toContainers(spec, 'containers'),
      initContainers: toContainers(spec, 'initContainers'),
    } satisfies PodTemplate['spec'],
  };
}

function toContainers(spec: Raw, key: string): Container[] {
  return listAt(spec, key)
    .filter(isRaw)
    .map((container) => {
      const restartPolicy = textAt(container, 'restartPolicy');
      return {
        name: textAt(container, 'name') ?? '',
        args: listAt(container, 'args').filter((arg) => typeof arg === 'string'),
        ports: listAt(container, 'ports').filter(isContainerPort),
        ...(restartPolicy === undefined ? undefined : { restartPolicy }),
      };
    });
}

function isContainerPort(value: unknown): value is NonNullable<Container['ports']>[number] {
  return isRaw(value) && typeof value['containerPort'] === 'number';
}
