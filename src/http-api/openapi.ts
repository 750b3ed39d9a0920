/** The OpenAPI 3.1 document, generated from the table of operations and their schemas. */
import * as z from 'zod';
import type { PathParameters } from './api-router.ts';
import { defineOperation, type Operation, type ResponseDescription } from './operation.ts';
import { PROBLEMS, type ProblemCode } from './problem-catalogue.ts';

type JsonObject = Readonly<Record<string, unknown>>;
/** Zod's registry of the schemas that have a name in the document. */
type Names = z.core.$ZodRegistry<{ readonly id: string }>;

/** The errors that every operation can have. */
const COMMON: readonly ProblemCode[] = ['malformed_request', 'forbidden', 'internal', 'busy', 'draining'];
/** The errors of operations that are not public. */
const BY_AUTHENTICATION: readonly ProblemCode[] = ['unauthorized', 'too_many_attempts', 'users_unavailable'];
const WITH_BODY: readonly ProblemCode[] = [
  'invalid_json',
  'request_timeout',
  'too_large',
  'unsupported_media_type',
  'invalid_request',
];

const problem = z
  .strictObject({
    type: z.string().describe('`urn:sidegate:problem:` and the code.'),
    title: z.string(),
    status: z.int(),
    code: z.enum(Object.keys(PROBLEMS) as [ProblemCode, ...ProblemCode[]]).describe('Stable; decide by it, not by the texts.'),
    detail: z.string(),
    field: z
      .string()
      .optional()
      .describe('The first member that is invalid, such as `events[3].type`; empty: the body as a whole.'),
    errors: z.array(z.strictObject({ field: z.string(), message: z.string() })).optional(),
  })
  .describe('An error (RFC 9457).');

/** The parts of the document that differ between APIs. */
export interface OpenapiOptions {
  readonly info: { readonly title: string; readonly version: string; readonly summary: string };
  readonly servers: readonly { readonly url: string; readonly description: string }[];
  readonly securitySchemes: Readonly<
    Record<string, { readonly type: 'http'; readonly scheme: string; readonly description: string }>
  >;
  readonly parameters: PathParameters;
  /** Schemas that get a name in the document. */
  readonly requests: Readonly<Record<string, z.ZodType>>;
  readonly responses: Readonly<Record<string, z.ZodType>>;
}

/** Serves the document, without a token. */
export function createOpenapiOperation(
  operations: readonly Operation[],
  options: OpenapiOptions,
  path = '/openapi.json',
): Operation {
  // Serialized once: it takes more than a millisecond, and the document needs no token.
  let document: Buffer | undefined;
  const self: Operation = defineOperation({
    id: 'getOpenapi',
    method: 'GET',
    path,
    summary: 'This document',
    isPublic: true,
    responses: { 200: { description: 'OpenAPI 3.1.', schema: z.record(z.string(), z.unknown()) } },
    problems: [],
    handle() {
      document ??= Buffer.from(JSON.stringify(toOpenapi([...operations, self], options)));
      return { status: 200, body: document };
    },
  });
  return self;
}

/** Builds the document. */
function toOpenapi(operations: readonly Operation[], options: OpenapiOptions): JsonObject {
  const { info, servers, securitySchemes, parameters } = options;
  const requests = toNames(options.requests);
  const responses = toNames({ ...options.responses, Problem: problem });
  const paths: Record<string, Record<string, unknown>> = {};
  for (const operation of operations)
    paths[operation.path] = {
      ...paths[operation.path],
      [operation.method.toLowerCase()]: describe(operation, { requests, responses, parameters }),
    };
  return {
    openapi: '3.1.1',
    info: { ...info, license: { name: 'Apache-2.0', identifier: 'Apache-2.0' } },
    servers,
    // The last stands for none.
    security: [...Object.keys(securitySchemes).map((name) => ({ [name]: [] })), {}],
    tags: [...new Set(operations.map(({ path }) => toTag(path)))].map((name) => ({ name })),
    paths,
    components: {
      schemas: { ...toSchemas(requests, 'input'), ...toSchemas(responses, 'output') },
      securitySchemes,
    },
  };
}

/** The names that operations refer to. */
interface References {
  readonly requests: Names;
  readonly responses: Names;
  readonly parameters: PathParameters;
}

function describe(operation: Operation, { requests, responses, parameters }: References): JsonObject {
  const { id, path, summary, description, body, isPublic } = operation;
  return {
    operationId: id,
    tags: [toTag(path)],
    summary,
    ...(description === undefined ? undefined : { description }),
    ...(isPublic === true ? { security: [] } : undefined),
    parameters: toParameters(operation, parameters),
    ...(body === undefined
      ? undefined
      : {
          requestBody: {
            required: body.isOptional !== true,
            content: { 'application/json': { schema: toReference(body.schema, requests, 'input') } },
          },
        }),
    responses: { ...toResponses(operation, responses), ...toProblems(operation) },
  };
}

/** Groups operations by the first name in their path. */
function toTag(path: string): string {
  const [, first = '', rest = ''] = /^(?:\/api)?(?:\/v1)?\/([a-z])([a-z]*)/.exec(path) ?? [];
  return first.toUpperCase() + rest;
}

function toParameters({ path, query, acceptsIfMatch }: Operation, parameters: PathParameters): JsonObject[] {
  const inPath = [...path.matchAll(/\{(\w+)\}/g)].map(([, name = '']) => ({
    name,
    in: 'path',
    required: true,
    schema: toSchema(parameters[name] ?? z.string(), 'input'),
  }));
  const { properties = {} } = query === undefined ? {} : toSchema(query, 'input');
  const inQuery = Object.entries(properties).map(([name, schema]) => ({ name, in: 'query', required: false, schema }));
  const ifMatch = {
    name: 'If-Match',
    in: 'header',
    required: false,
    description: '`ETag` of the endpoint: the change is only made if it is the current one.',
    schema: { type: 'string' },
  };
  return [...inPath, ...inQuery, ...(acceptsIfMatch === true ? [ifMatch] : [])];
}

function toResponses({ responses }: Operation, names: Names): JsonObject {
  return Object.fromEntries(Object.entries(responses).map(([status, response]) => [status, toResponse(response, names)]));
}

function toResponse(
  { description, schema, contentType = 'application/json', headers = [] }: ResponseDescription,
  names: Names,
): JsonObject {
  return {
    description,
    ...(headers.length === 0
      ? undefined
      : { headers: Object.fromEntries(headers.map((name) => [name, { schema: { type: 'string' } }])) }),
    ...(schema === undefined ? undefined : { content: { [contentType]: { schema: toReference(schema, names, 'output') } } }),
  };
}

function toProblems({ body, query, path, problems, isPublic }: Operation): JsonObject {
  const codes = new Set([...COMMON, ...problems, ...(body === undefined ? [] : WITH_BODY)]);
  if (isPublic !== true) for (const code of BY_AUTHENTICATION) codes.add(code);
  if (query !== undefined) codes.add('invalid_request');
  if (path.includes('{')) codes.add('not_found');
  const byStatus = new Map<number, ProblemCode[]>();
  for (const code of codes) byStatus.set(PROBLEMS[code].status, [...(byStatus.get(PROBLEMS[code].status) ?? []), code]);
  return Object.fromEntries(
    [...byStatus]
      .sort(([a], [b]) => a - b)
      .map(([status, all]) => [
        status,
        {
          description: all.map((code) => `${PROBLEMS[code].title} (\`${code}\`).`).join(' '),
          ...(status === 503 || status === 429 ? { headers: { 'Retry-After': { schema: { type: 'string' } } } } : undefined),
          content: { 'application/problem+json': { schema: { $ref: '#/components/schemas/Problem' } } },
        },
      ]),
  );
}

function toNames(schemas: Readonly<Record<string, z.ZodType>>): Names {
  const names: Names = z.registry<{ readonly id: string }>();
  for (const [id, schema] of Object.entries(schemas)) names.add(schema, { id });
  return names;
}

function toReference(schema: z.ZodType, names: Names, io: 'input' | 'output'): JsonObject {
  const id = names.get(schema)?.id;
  return id === undefined ? toSchema(schema, io) : { $ref: toPointer(id) };
}

function toSchemas(names: Names, io: 'input' | 'output'): JsonObject {
  const { schemas } = z.toJSONSchema(names, { io, uri: toPointer });
  return Object.fromEntries(Object.entries(schemas).map(([id, schema]) => [id, withoutMeta(schema)]));
}

function toSchema(schema: z.ZodType, io: 'input' | 'output'): { readonly properties?: JsonObject } & JsonObject {
  return withoutMeta(z.toJSONSchema(schema, { io }));
}

function toPointer(id: string): string {
  return `#/components/schemas/${id}`;
}

function withoutMeta(schema: object): JsonObject {
  const { $schema: _, $id: __, ...rest } = schema as JsonObject;
  return rest;
}
