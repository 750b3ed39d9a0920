/** The forms that values of the chart are written in, shared by all its groups. */
import { z } from 'zod';
import type { ValueForm } from '../src/kubernetes/injector/kubernetes-values.ts';

/** A mapping that Kubernetes knows and the chart passes on as it is. */
export function freeForm(): z.ZodRecord<z.ZodString, z.ZodUnknown> {
  return z.record(z.string(), z.unknown());
}

/** A list of such mappings. */
export function freeList(): z.ZodArray<z.ZodRecord<z.ZodString, z.ZodUnknown>> {
  return z.array(freeForm());
}

/** Labels or annotations. Values are text: YAML reads an unquoted `true` or `1` as something else. */
export function textMap(): z.ZodRecord<z.ZodString, z.ZodString> {
  return z.record(z.string(), z.string());
}

/** A TCP port. */
export function port(): z.ZodNumber {
  return z.number().int().min(1).max(65_535);
}

/** The name of an object, or empty where the chart makes one. */
export function objectName(): z.ZodString {
  return z.string().regex(/^(?:[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?)?$/);
}

/** Text in a form of Kubernetes' own that the injector reads, too. */
export function formed({ pattern }: ValueForm, example: string): z.ZodString {
  return z
    .string()
    .regex(new RegExp(pattern, 'u'))
    .meta({ examples: [example] });
}

/** How images are pulled. */
export const PULL_POLICIES = ['Always', 'IfNotPresent', 'Never'] as const;
