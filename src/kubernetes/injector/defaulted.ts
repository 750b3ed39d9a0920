/** Adds to a shape the defaults that the API server writes into what it stores, so that a stored pod can be compared with it. */
import { each, isEach, isHole, isList, isText, isWhen, type Shape, type ShapeMap, when } from './shape.ts';

/** Of k8s.io/api/core/v1: SetDefaults_Probe. */
const PROBE = { timeoutSeconds: 1, periodSeconds: 10, successThreshold: 1, failureThreshold: 3 } as const;
/** By the key under which the object stands: SetDefaults_HTTPGetAction, SetDefaults_ObjectFieldSelector and probes. */
const DEFAULTS: Readonly<Record<string, ShapeMap>> = {
  startupProbe: PROBE,
  readinessProbe: PROBE,
  livenessProbe: PROBE,
  httpGet: { scheme: 'HTTP' },
  fieldRef: { apiVersion: 'v1' },
};

/** The same shape with defaults; fields that the shape has stay. */
export function toDefaulted(shape: Shape, key = ''): Shape {
  if (typeof shape !== 'object' || isHole(shape) || isText(shape)) return shape;
  if (isWhen(shape)) return when(shape.$when, toDefaulted(shape.then, key));
  if (isEach(shape)) return each(shape.$each, toDefaulted(shape.of));
  if (isList(shape)) return shape.map((item) => toDefaulted(item));
  const entries = Object.entries(shape as ShapeMap).map(([name, inner]) => [name, toDefaulted(inner, name)] as const);
  return { ...DEFAULTS[key], ...Object.fromEntries(entries) };
}
