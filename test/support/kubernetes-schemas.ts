/** Validates objects against the schemas of a Kubernetes version. Stricter than the API server: unknown fields are errors everywhere. */
import { readFileSync } from 'node:fs';
import { Ajv, type ValidateFunction } from 'ajv';
import { type SchemaVersion, toSchemaFile } from '../prepare/kubernetes-schemas.ts';

/** A schema of OpenAPI 2.0, or one that was converted to JSON Schema. */
interface Schema {
  readonly type?: string;
  readonly format?: string;
  readonly $ref?: string;
  readonly items?: Schema;
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly additionalProperties?: Schema | boolean;
  readonly required?: readonly string[];
  readonly anyOf?: readonly Schema[];
  readonly minimum?: number;
  readonly maximum?: number;
  readonly 'x-kubernetes-group-version-kind'?: readonly Kind[];
}

interface Kind {
  readonly group: string;
  readonly version: string;
  readonly kind: string;
}

/** The part of an object by which its schema is found. */
export interface Typed {
  readonly apiVersion: string;
  readonly kind: string;
}

const MAX_INT32 = 2 ** 31 - 1;
const QUANTITY = 'io.k8s.apimachinery.pkg.api.resource.Quantity';
const NUMBER_OR_STRING: Schema = { anyOf: [{ type: 'number' }, { type: 'string' }] };

/** Returns what is wrong with an object; undefined if Kubernetes has no such kind. */
export type Validate = (object: Typed) => readonly string[] | undefined;

/** Loads the schemas of a version. */
export function loadSchemas(version: SchemaVersion): Validate {
  const { definitions }: { definitions: Readonly<Record<string, Schema>> } = JSON.parse(
    readFileSync(toSchemaFile(version), 'utf8'),
  );
  const ajv = new Ajv({ allErrors: true, validateFormats: false, validateSchema: false });
  const converted = Object.entries(definitions).map(([name, schema]) => [
    name,
    name === QUANTITY ? NUMBER_OR_STRING : toStrict(schema),
  ]);
  ajv.addSchema({ $id: 'kubernetes', definitions: Object.fromEntries(converted) });
  const names = new Map<string, string>();
  for (const [name, schema] of Object.entries(definitions))
    for (const { group, version: of, kind } of schema['x-kubernetes-group-version-kind'] ?? [])
      names.set(toKey({ apiVersion: group === '' ? of : `${group}/${of}`, kind }), name);
  return (object) => {
    const name = names.get(toKey(object));
    if (name === undefined) return undefined;
    const validate = ajv.getSchema(`kubernetes#/definitions/${name}`) as ValidateFunction;
    const isValid = validate(object) as boolean;
    if (isValid) return [];
    return (validate.errors ?? []).map(
      ({ instancePath, message, params }) =>
        `${object.kind}${instancePath} ${message}${'additionalProperty' in params ? `: ${params['additionalProperty']}` : ''}`,
    );
  };
}

function toKey({ apiVersion, kind }: Typed): string {
  return `${apiVersion} ${kind}`;
}

/** An object that lists its fields has no others. */
function toStrict(schema: Schema): Schema {
  const { type, format, $ref, items, properties, additionalProperties, required } = schema;
  if ($ref !== undefined) return { $ref };
  if (format === 'int-or-string') return NUMBER_OR_STRING;
  return {
    ...(type !== undefined && { type }),
    ...(format === 'int32' && { minimum: -MAX_INT32 - 1, maximum: MAX_INT32 }),
    ...(items !== undefined && { items: toStrict(items) }),
    ...(required !== undefined && { required }),
    ...(typeof additionalProperties === 'object' && { additionalProperties: toStrict(additionalProperties) }),
    ...(properties !== undefined && {
      properties: Object.fromEntries(Object.entries(properties).map(([name, field]) => [name, toStrict(field)])),
      additionalProperties: false,
    }),
  };
}
