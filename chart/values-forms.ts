/** Schemas of single values that the groups of the chart's values share. */
import { z } from 'zod';
import type { ValueForm } from '../src/kubernetes/injector/kubernetes-values.ts';

/** A Kubernetes object that the chart passes on unchanged. */
export function freeForm(): z.ZodRecord<z.ZodString, z.ZodUnknown> {
  return z.record(z.string(), z.unknown());
}

/** A list of such objects. */
export function freeList(): z.ZodArray<z.ZodRecord<z.ZodString, z.ZodUnknown>> {
  return z.array(freeForm());
}

/** A label selector. Templates pass it on, and an unknown field would select everything or be dropped. */
export function labelSelector(): z.ZodRecord<z.ZodString, z.ZodUnknown> {
  // Not `propertyNames`: Helm then reports the path of another value.
  return freeForm().meta({ patternProperties: { '^match(Labels|Expressions)$': {} }, additionalProperties: false });
}

/** Labels or annotations. Values must be strings: YAML parses an unquoted `true` or `1` as another type. */
export function textMap(): z.ZodRecord<z.ZodString, z.ZodString> {
  return z.record(z.string(), z.string());
}

/** A number of pods. */
export function replicaCount(): z.ZodNumber {
  return z.number().int().min(1).max(1_000);
}

/** A TCP port. */
export function port(): z.ZodNumber {
  return z.number().int().min(1).max(65_535);
}

/** The name of an object. Empty: the chart chooses it. */
export function objectName(): z.ZodString {
  return z.string().regex(/^(?:[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?)?$/);
}

/** A string in a format of Kubernetes that the injector also parses. */
export function formed({ pattern }: ValueForm, example: string): z.ZodString {
  return z
    .string()
    .regex(new RegExp(pattern, 'u'))
    .meta({ examples: [example] });
}

/** Image pull policies. */
export const PULL_POLICIES = ['Always', 'IfNotPresent', 'Never'] as const;

/** The security context of pods. */
export function podSecurityContext() {
  return freeForm()
    .default({
      runAsNonRoot: true,
      runAsUser: 65_532,
      runAsGroup: 65_532,
      fsGroup: 65_532,
      seccompProfile: { type: 'RuntimeDefault' },
    })
    .describe('Security context of the pods. The default meets the Pod Security Standard `restricted`.');
}

/** The security context of a container. */
export function containerSecurityContext() {
  return freeForm()
    .default({ allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: { drop: ['ALL'] } })
    .describe('Security context of the container.');
}
