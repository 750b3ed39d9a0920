/** Operations of an API: one table describes them for the router, the validation and the OpenAPI document. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type * as z from 'zod';
import type { PauseOwner } from '../core/reading.ts';
import type { ProblemCode } from './problem-catalogue.ts';

/** A response; the server adds the fields that all responses have. */
export interface ApiResponse {
  readonly status: number;
  readonly contentType?: string;
  /** Sent as JSON; a Buffer has JSON already. */
  readonly body?: unknown;
  /** Sent as lines of JSON, as they appear; texts are sent as they are. */
  readonly lines?: AsyncIterable<unknown> | Iterable<string>;
  /** Writes the body itself once the head is written, and ends the response. */
  readonly stream?: (response: ServerResponse, client: PauseOwner) => void;
  readonly headers?: Readonly<Record<string, string | readonly string[]>>;
  /** The body was handed over to the connection, which counts it from now on, or will not be sent. */
  readonly onWritten?: () => void;
  /** Set by `toProblem`. */
  readonly problem?: ProblemCode;
  /** The end of the request is uncertain: the connection is closed after the response. */
  readonly mustClose?: boolean;
}

/** A valid request. */
export interface ApiRequest<Query, Body> {
  /** The parts of the path in braces, decoded. */
  readonly params: Readonly<Record<string, string>>;
  readonly query: Query;
  readonly body: Body;
  /** The bytes of the body; they are only valid until the response is sent. */
  readonly content: Buffer;
  readonly incoming: IncomingMessage;
}

/** A response in the OpenAPI document. */
export interface ResponseDescription {
  readonly description: string;
  /** Absent: without a body. */
  readonly schema?: z.ZodType;
  /** Default: application/json. */
  readonly contentType?: string;
  readonly headers?: readonly string[];
}

/** The body of a request. */
interface BodyDescription<Body> {
  readonly schema: z.ZodType<Body>;
  /** Larger ones get 413. */
  readonly maxBytes: number;
  /** An empty body stands for `{}`. */
  readonly isOptional?: boolean;
}

/** One operation. */
export interface Operation<Query = unknown, Body = unknown> {
  /** Its name in metrics and in the OpenAPI document. */
  readonly id: string;
  readonly method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';
  /** Such as `/v1/events/{id}`; a parameter ends at the next `/`, or at the literal text that follows it. */
  readonly path: string;
  readonly summary: string;
  readonly description?: string;
  /** Needs no token. */
  readonly isPublic?: boolean;
  readonly query?: z.ZodType<Query>;
  readonly body?: BodyDescription<Body>;
  /** It accepts `If-Match` with the version of the resource. */
  readonly acceptsIfMatch?: boolean;
  readonly responses: Readonly<Record<number, ResponseDescription>>;
  /** The errors of this operation, besides those that every operation can have. */
  readonly problems: readonly ProblemCode[];
  handle(request: ApiRequest<Query, Body>): ApiResponse | Promise<ApiResponse>;
}

/** Checks the types of one operation, and forgets them for the table. */
export function defineOperation<Query = undefined, Body = undefined>(operation: Operation<Query, Body>): Operation {
  return operation as unknown as Operation;
}

/** A response with a JSON body. */
export function toJson(status: number, body: unknown, headers?: Readonly<Record<string, string>>): ApiResponse {
  return headers === undefined ? { status, body } : { status, body, headers };
}
