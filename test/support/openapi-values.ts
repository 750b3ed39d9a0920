/** Values for the schemas of an OpenAPI document, for its fuzzers. */
import { fc } from './property.ts';
import type { OpenapiChecker } from './provider/openapi.ts';

interface Schema {
  readonly $ref?: string;
  readonly anyOf?: readonly Schema[];
  readonly enum?: readonly unknown[];
  readonly const?: unknown;
  readonly type?: string;
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly propertyNames?: Schema;
  readonly required?: string[];
  readonly items?: Schema;
  readonly maxItems?: number;
  readonly minimum?: number;
  readonly maximum?: number;
  readonly pattern?: string;
}

/** Values for a schema: mostly valid ones, and some that are not. */
export function makeValid(schema: Schema, checker: OpenapiChecker): fc.Arbitrary<unknown> {
  if (schema.$ref !== undefined)
    return makeValid(checker.document.components.schemas[schema.$ref.split('/').at(-1) ?? ''] ?? {}, checker);
  if (schema.anyOf !== undefined) return fc.oneof(...schema.anyOf.map((each) => makeValid(each, checker)));
  if (schema.enum !== undefined) return fc.constantFrom(...schema.enum);
  if (schema.const !== undefined) return fc.constant(schema.const);
  switch (schema.type) {
    case 'object':
      return schema.properties === undefined
        ? fc.dictionary(
            schema.propertyNames === undefined ? fc.string() : fc.constantFrom('X-A', 'host', '__proto__', 'a b', 'constructor'),
            fc.string(),
          )
        : fc.record(
            Object.fromEntries(Object.entries(schema.properties).map(([name, each]) => [name, makeValid(each, checker)])),
            { requiredKeys: schema.required ?? [] },
          );
    case 'array':
      return fc.array(makeValid(schema.items ?? {}, checker), { maxLength: Math.min(schema.maxItems ?? 4, 4) });
    case 'integer':
      return fc.integer({ min: schema.minimum ?? -5, max: schema.maximum ?? 1_000 });
    case 'number':
      return fc.double({ min: schema.minimum ?? -5, max: schema.maximum ?? 1e12, noNaN: true });
    case 'boolean':
      return fc.boolean();
    case 'null':
      return fc.constant(null);
    default:
      return fc.oneof(
        schema.pattern === undefined
          ? fc.constantFrom('15s', '1h', 'https://x.example', '2026-01-01T00:00:00Z', 'whsec_AAAA')
          : fc.stringMatching(new RegExp(schema.pattern)),
        { arbitrary: fc.string({ unit: 'binary', maxLength: 40 }), weight: 1 },
      );
  }
}

/** Replaces a part of a valid value by anything. */
export const makeMutated = (valid: fc.Arbitrary<unknown>): fc.Arbitrary<unknown> =>
  fc.oneof(
    { arbitrary: valid, weight: 6 },
    {
      arbitrary: fc
        .tuple(valid, fc.string(), fc.jsonValue())
        .map(([value, name, extra]) => ({ ...Object(value), [name]: extra })),
      weight: 2,
    },
    { arbitrary: fc.jsonValue(), weight: 1 },
  );
