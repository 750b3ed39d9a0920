/** The config's JSON Schema, for editors; derived from the schema that the gate parses its config with. */
import { stringify } from 'yaml';
import * as z from 'zod';
import { ConfigSchema } from './schema.ts';

/** A JSON Schema node, with the keywords that are used here. */
export interface JsonSchema {
  readonly properties?: Readonly<Record<string, JsonSchema>>;
  readonly items?: JsonSchema;
  readonly anyOf?: readonly JsonSchema[];
  /** Of the members that `properties` does not name. */
  readonly additionalProperties?: JsonSchema | boolean;
  readonly examples?: readonly unknown[];
  /** The value may contain secrets, although the config takes them by reference elsewhere. */
  readonly writeOnly?: boolean;
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

/** The schema, and all variants if it is of a union. */
export function toVariants(schema: JsonSchema): JsonSchema[] {
  return [schema, ...(schema.anyOf ?? []).flatMap(toVariants)];
}

/** The schemas of a member or an item of a value with these schemas; of what may contain secrets, none are known. */
export function descend(schemas: readonly JsonSchema[], step: PropertyKey): JsonSchema[] {
  return schemas.flatMap(({ properties = {}, additionalProperties, items, writeOnly }) => {
    if (writeOnly === true) return [];
    const name = String(step);
    const next = typeof step === 'number' ? items : Object.hasOwn(properties, name) ? properties[name] : additionalProperties;
    return typeof next === 'object' ? toVariants(next) : [];
  });
}

/** The keys that are allowed at a path in the config. */
export function toKnownKeys(schema: JsonSchema, path: readonly PropertyKey[]): string[] {
  return path.reduce(descend, toVariants(schema)).flatMap(({ properties = {} }) => Object.keys(properties));
}

/** An example of the value at a path in the config, as one line of YAML; undefined if the schema has none. */
export function findExample(schema: JsonSchema, path: readonly PropertyKey[]): string | undefined {
  const [example] = path.reduce(descend, toVariants(schema)).flatMap(({ examples = [] }) => examples);
  return example === undefined ? undefined : toFlowYaml(example);
}

function toFlowYaml(value: unknown): string {
  return stringify(value, { collectionStyle: 'flow', lineWidth: 0 }).trimEnd();
}
