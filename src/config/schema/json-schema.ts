/** The config's JSON Schema, for editors; derived from the schema that the gate parses its config with. */
import { stringify } from 'yaml';
import * as z from 'zod';
import { ConfigSchema } from './schema.ts';

/** A JSON Schema node, with the keywords that are used here. */
export interface JsonSchema {
  readonly properties?: Readonly<Record<string, JsonSchema>>;
  readonly items?: JsonSchema;
  readonly anyOf?: readonly JsonSchema[];
  readonly [keyword: string]: unknown;
}

/** Draft-07 schema of the file's contents, before defaults and units are applied. */
export function toJsonSchema(): JsonSchema {
  const schema = z.toJSONSchema(ConfigSchema, {
    io: 'input',
    target: 'draft-07',
    unrepresentable: 'any',
    override: keepExamples,
  });
  return { ...(schema as JsonSchema), title: 'sidegate configuration' };
}

/** Zod drops the examples of transformed values. Ours are in the file's notation, so they stay valid. */
export const keepExamples: NonNullable<z.core.ToJSONSchemaParams['override']> = ({ zodSchema, jsonSchema }) => {
  const examples = z.globalRegistry.get(zodSchema)?.['examples'];
  if (Array.isArray(examples)) jsonSchema.examples = examples;
};

/** The keys that are allowed at a path in the config. */
export function toKnownKeys(schema: JsonSchema, path: readonly PropertyKey[]): string[] {
  const variants = [schema, ...(schema.anyOf ?? [])];
  const [step, ...rest] = path;
  if (step === undefined) return variants.flatMap((variant) => Object.keys(variant.properties ?? {}));
  return variants.flatMap((variant) => {
    const next = typeof step === 'number' ? variant.items : variant.properties?.[String(step)];
    return next === undefined ? [] : toKnownKeys(next, rest);
  });
}

/** An example of the value at a path in the config, as one line of YAML; undefined if the schema has none. */
export function findExample(schema: JsonSchema, path: readonly PropertyKey[]): string | undefined {
  const [step, ...rest] = path;
  const variants = [schema, ...(schema.anyOf ?? [])];
  for (const variant of variants) {
    if (step === undefined) {
      const [example] = (variant['examples'] as readonly unknown[] | undefined) ?? [];
      if (example !== undefined) return toFlowYaml(example);
      continue;
    }
    const next = typeof step === 'number' ? variant.items : variant.properties?.[String(step)];
    const found = next === undefined ? undefined : findExample(next, rest);
    if (found !== undefined) return found;
  }
  return undefined;
}

function toFlowYaml(value: unknown): string {
  return stringify(value, { collectionStyle: 'flow', lineWidth: 0 }).trimEnd();
}
