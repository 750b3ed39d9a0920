/** The config's JSON Schema, for editors; the same schema that the gate reads its config by. */
import { z } from 'zod';
import { ConfigSchema } from './schema.ts';

/** A JSON Schema node, as far as it is looked into here. */
export interface JsonSchema {
  readonly properties?: Readonly<Record<string, JsonSchema>>;
  readonly items?: JsonSchema;
  readonly anyOf?: readonly JsonSchema[];
  readonly [keyword: string]: unknown;
}

/** Draft-07, of what is written in the file (before defaults and units are applied). */
export function toJsonSchema(): JsonSchema {
  const schema = z.toJSONSchema(ConfigSchema, { io: 'input', target: 'draft-07', unrepresentable: 'any' });
  return { ...(schema as JsonSchema), title: 'sidegate configuration' };
}

/** The keys that may stand at a place in the config. */
export function toKnownKeys(schema: JsonSchema, path: readonly PropertyKey[]): string[] {
  const variants = [schema, ...(schema.anyOf ?? [])];
  const [step, ...rest] = path;
  if (step === undefined) return variants.flatMap((variant) => Object.keys(variant.properties ?? {}));
  return variants.flatMap((variant) => {
    const next = typeof step === 'number' ? variant.items : variant.properties?.[String(step)];
    return next === undefined ? [] : toKnownKeys(next, rest);
  });
}
