/** Finds Services in the same manifests that bypass the injected sidecars, with the rules of `sidegate doctor`. */

import { checkServices } from '../doctor/check-services.ts';
import type { FindingCode } from '../doctor/finding.ts';
import type { Container, Ingress, Pod, PodTemplate, Service, ServicePort } from '../doctor/objects.ts';
import type { KubeVersion } from '../injector/outcome.ts';
import { isRaw, listAt, objectAt, type Raw, textAt } from '../injector/raw.ts';
import { findWorkloads } from './workloads.ts';

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
