/** Finds the operation of a request, validates its path, query and body, and writes the response. */

import type { IncomingMessage, OutgoingHttpHeaders, ServerResponse } from 'node:http';
import * as z from 'zod';
import { findNearest } from '../config/schema/did-you-mean.ts';
import type { Milliseconds } from '../core/clock.ts';
import { endCounted, type PauseOwner, pauseUntilDrained } from '../core/reading.ts';
import { Refusal } from '../core/refusal.ts';
import type { RequestBody } from '../core/request.ts';
import { parseStrictJson } from '../core/strict-json.ts';
import type { ApiResponse, Operation } from './operation.ts';
import { type FieldError, toInvalid, toProblem, toRefusalProblem } from './problem.ts';

/** The forms of the parameters in paths, by name. */
export type PathParameters = Readonly<Record<string, z.ZodString>>;

/** The operation of a request. */
interface RoutedOperation {
  readonly operation: Operation;
  readonly params: Readonly<Record<string, string>>;
}

interface CompiledOperation {
  readonly operation: Operation;
  readonly pattern: RegExp;
  readonly names: readonly string[];
}

/** A result of validation. */
type Validated<T> = { readonly kind: 'valid'; readonly value: T } | { readonly kind: 'invalid'; readonly response: ApiResponse };

/** A web page of another origin cannot send this type without a CORS preflight, which gets no approval here. */
const IS_JSON = /^application\/json *(?:;|$)/i;
/** The bounds of a body. An event of 256 KiB can have 131,072 values, which take 30 MB of heap; no real one has. */
export const JSON_BOUNDS = { maxDepth: 64, maxValues: 65_536 };
/** Names of members in error messages: at most so many, of so many characters. */
const MAX_SHOWN_NAMES = 20;
const MAX_SHOWN_NAME = 64;
const SPECIAL = /[.*+?^${}()|[\]\\]/g;
const ENCODED_TILDE = /%7e/gi;
const PARAMETER = /\{(\w+)\}/g;
const EMPTY_OBJECT = Buffer.from('{}');

/** The table of operations. */
export class ApiRouter {
  readonly #compiled: readonly CompiledOperation[];
  readonly #parameters: PathParameters;

  constructor(operations: readonly Operation[], parameters: PathParameters) {
    this.#compiled = operations.map(compile);
    this.#parameters = parameters;
  }

  /** Returns the operation; a string is the `Allow` of a path that exists; undefined: the path does not exist. */
  find(method: string, received: string): RoutedOperation | string | undefined {
    // Some clients encode it, although it is unreserved (RFC 3986 §2.3).
    const path = received.replaceAll(ENCODED_TILDE, '~');
    const allowed: string[] = [];
    for (const { operation, pattern, names } of this.#compiled) {
      const match = pattern.exec(path);
      if (match === null) continue;
      const params = this.#toParams(names, match.slice(1));
      if (params === undefined) continue;
      if (operation.method === method || (operation.method === 'GET' && method === 'HEAD')) return { operation, params };
      allowed.push(operation.method === 'GET' ? 'GET, HEAD' : operation.method);
    }
    return allowed.length === 0 ? undefined : allowed.join(', ');
  }

  /** Undefined if a parameter does not have its form. */
  #toParams(names: readonly string[], values: readonly string[]): Record<string, string> | undefined {
    const params: Record<string, string> = {};
    for (const [index, name] of names.entries()) {
      const value = decode(values[index] ?? '');
      if (value === undefined || this.#parameters[name]?.safeParse(value).success !== true) return undefined;
      params[name] = value;
    }
    return params;
  }
}

/** Validates a request, reads its body, and handles it. `text`: the query. */
export async function handleOperation(
  { operation, params }: RoutedOperation,
  incoming: IncomingMessage,
  text: string | undefined,
  body: RequestBody,
): Promise<ApiResponse> {
  const query = validateQuery(operation, text);
  if (query.kind === 'invalid') return query.response;
  const mediaType = checkMediaType(operation, incoming, body.declaredLength === 0);
  if (mediaType !== undefined) return mediaType;
  const maxBytes = operation.body?.maxBytes ?? 0;
  const content = await body.read(maxBytes);
  if (content instanceof Refusal) return toRefusalProblem(content, maxBytes);
  const validated = validateBody(operation, content);
  if (validated.kind === 'invalid') return validated.response;
  return operation.handle({ params, query: query.value, body: validated.value, content, incoming });
}

/** Validates the query: unknown and repeated parameters are errors, so that a misspelt filter does not select everything. */
export function validateQuery({ query: schema }: Operation, query: string | undefined): Validated<unknown> {
  const given = new URLSearchParams(query);
  const values: Record<string, unknown> = Object.create(null) as Record<string, unknown>;
  for (const name of new Set(given.keys())) {
    const all = given.getAll(name);
    values[name] = all.length > 1 || isList(schema, name) ? all : all[0];
  }
  if (schema !== undefined) return validate(schema, values);
  const [unknown] = given.keys();
  return unknown === undefined
    ? { kind: 'valid', value: undefined }
    : toInvalidResult([{ field: unknown, message: 'this operation has no parameters in the query' }]);
}

/** Whether the head allows the body to be read as JSON; returns the response that rejects it. */
function checkMediaType({ body }: Operation, { headers }: IncomingMessage, isEmpty: boolean): ApiResponse | undefined {
  if (isEmpty && (body === undefined || body.isOptional === true)) return undefined;
  if (body === undefined) return toProblem('malformed_request', 'this operation has no body');
  const { 'content-type': contentType = '', 'content-encoding': coding = 'identity' } = headers;
  if (IS_JSON.test(contentType) && coding === 'identity') return undefined;
  const detail = 'send the body as Content-Type: application/json, without a Content-Encoding';
  return toProblem('unsupported_media_type', detail, { headers: { Accept: 'application/json' } });
}

/** Parses and validates the body. */
function validateBody({ body }: Operation, content: Buffer): Validated<unknown> {
  if (body === undefined) return { kind: 'valid', value: undefined };
  const text = content.length === 0 && body.isOptional === true ? EMPTY_OBJECT : content;
  const parsed = parseStrictJson(text, JSON_BOUNDS);
  if (parsed.kind === 'problem')
    return { kind: 'invalid', response: toProblem('invalid_json', `the body cannot be used: ${parsed.problem}`) };
  return validate(body.schema, parsed.value);
}

function validate(schema: z.ZodType, value: unknown): Validated<unknown> {
  const result = schema.safeParse(value);
  return result.success
    ? { kind: 'valid', value: result.data }
    : toInvalidResult(result.error.issues.flatMap((issue) => toErrors(issue, schema)));
}

function toInvalidResult(errors: readonly FieldError[]): Validated<never> {
  return { kind: 'invalid', response: toInvalid(errors) };
}

function toErrors(issue: z.core.$ZodIssue, schema: z.ZodType): FieldError[] {
  const path = toField(issue.path);
  if (issue.code !== 'unrecognized_keys') return [{ field: path, message: issue.message }];
  const known = schema instanceof z.ZodObject && path === '' ? Object.keys(schema.shape) : [];
  return issue.keys.slice(0, MAX_SHOWN_NAMES).map((key) => {
    const name = key.slice(0, MAX_SHOWN_NAME);
    const nearest = findNearest(name, known);
    return {
      field: path === '' ? name : `${path}.${name}`,
      message: nearest === undefined ? 'unknown member' : `unknown member; did you mean ${nearest}?`,
    };
  });
}

/** `events[3].type` */
function toField(path: readonly PropertyKey[]): string {
  return path.reduce<string>((text, step) => {
    if (typeof step === 'number') return `${text}[${step}]`;
    const name = String(step).slice(0, MAX_SHOWN_NAME);
    return text === '' ? name : `${text}.${name}`;
  }, '');
}

function isList(schema: z.ZodType | undefined, name: string): boolean {
  const member = schema instanceof z.ZodObject ? (schema.shape[name] as z.ZodType | undefined) : undefined;
  return (member instanceof z.ZodOptional ? member.unwrap() : member) instanceof z.ZodArray;
}

function compile(operation: Operation): CompiledOperation {
  const names = [...operation.path.matchAll(PARAMETER)].map(([, name = '']) => name);
  const literals = operation.path.split(/\{\w+\}/).map((text) => text.replaceAll(SPECIAL, '\\$&'));
  return { operation, names, pattern: new RegExp(`^${literals.join('([^/~]+)')}$`) };
}

function decode(text: string): string | undefined {
  try {
    return decodeURIComponent(text);
  } catch {
    return undefined;
  }
}

// Writes the responses of the API.

const JSON_TYPE = 'application/json';
const SEND_TIMEOUT_MS: Milliseconds = 30_000;

/** `client`: who asked. Resolves when the response is handed over to the system; rejects if its lines cannot be produced. */
export async function writeResponse(reply: ApiResponse, response: ServerResponse, client: PauseOwner): Promise<void> {
  try {
    await write(reply, response, client);
  } finally {
    reply.onWritten?.();
  }
}

async function write(reply: ApiResponse, response: ServerResponse, client: PauseOwner): Promise<void> {
  const { status, body, lines, stream, contentType = JSON_TYPE, headers } = reply;
  const fields: OutgoingHttpHeaders = { 'Cache-Control': 'no-store', 'X-Content-Type-Options': 'nosniff', ...headers };
  if (lines !== undefined) {
    response.writeHead(status, { 'Content-Type': contentType, ...fields });
    await writeLines(lines, response, client);
    return;
  }
  if (stream !== undefined) {
    response.writeHead(status, { 'Content-Type': contentType, ...fields });
    if (response.req.method === 'HEAD') response.end();
    else stream(response, client);
    return;
  }
  if (body === undefined) {
    // RFC 9110 §8.6: no length with 204.
    response.writeHead(status, fields);
    response.end();
    return;
  }
  const text = Buffer.isBuffer(body) ? body : JSON.stringify(body);
  response.writeHead(status, { 'Content-Type': contentType, 'Content-Length': Buffer.byteLength(text), ...fields });
  if (response.req.method === 'HEAD') response.end();
  else endCounted(response, text, client, SEND_TIMEOUT_MS);
}

/** Stops as soon as the client has disconnected. */
async function writeLines(lines: NonNullable<ApiResponse['lines']>, response: ServerResponse, client: PauseOwner): Promise<void> {
  for await (const line of lines) {
    if (response.destroyed) return;
    const text = typeof line === 'string' ? line : `${JSON.stringify(line)}\n`;
    if (!response.write(text)) await toDrained(response, client);
  }
  response.end();
}

/** Resolves when more can be written, or the client has disconnected. A client that does not read is disconnected. */
async function toDrained(response: ServerResponse, client: PauseOwner): Promise<void> {
  const pause = pauseUntilDrained(response, client, SEND_TIMEOUT_MS);
  await new Promise<void>((resolve) => (pause === undefined ? resolve() : pause.onOver(resolve)));
}
