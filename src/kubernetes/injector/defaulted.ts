/** Adds the defaults of the API server to a shape, so that a stored pod can be compared with it. */
import { each, isEach, isList, isPlaceholder, isText, isWhen, type Shape, type ShapeMap, when } from './shape.ts';

/** SetDefaults_Probe of k8s.io/api/core/v1. */
const PROBE = { timeoutSeconds: 1, periodSeconds: 10, successThreshold: 1, failureThreshold: 3 } as const;
/** Defaults by the key of the object: SetDefaults_HTTPGetAction, SetDefaults_ObjectFieldSelector, those of probes and of volumes. */
const DEFAULTS: Readonly<Record<string, ShapeMap>> = {
  startupProbe: PROBE,
  readinessProbe: PROBE,
  livenessProbe: PROBE,
  httpGet: { scheme: 'HTTP' },
  fieldRef: { apiVersion: 'v1' },
  configMap: { defaultMode: 0o644 },
  secret: { defaultMode: 0o644 },
};

/** The shape with defaults; fields that the shape already has are kept. */
export function toDefaulted(shape: Shape, key = ''): Shape {
  if (typeof shape !== 'object' || isPlaceholder(shape) || isText(shape)) return shape;
  if (isWhen(shape)) return when(shape.$when, toDefaulted(shape.then, key));
  if (isEach(shape)) return each(shape.$each, toDefaulted(shape.of));
  if (isList(shape)) return shape.map((item) => toDefaulted(item));
  const entries = Object.entries(shape as ShapeMap).map(([name, inner]) => [name, toDefaulted(inner, name)] as const);
  return { ...DEFAULTS[key], ...Object.fromEntries(entries) };
}
