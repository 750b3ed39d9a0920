/** All operations of the API, their OpenAPI document, and those that the console offers, too. */
import * as z from 'zod';
import { ENDPOINT_NAME, TENANT } from '../../config/schema/provider-schema.ts';
import { SidegateError } from '../../core/errors.ts';
import type { PathParameters } from '../../http-api/api-router.ts';
import { createOpenapiOperation, type OpenapiOptions } from '../../http-api/openapi.ts';
import type { ApiResponse, Operation } from '../../http-api/operation.ts';
import { toProblem } from '../../http-api/problem.ts';
import type { ProblemCode } from '../../http-api/problem-catalogue.ts';
import { EVENT_ID } from '../events/event.ts';
import { isDiskFull, isQueueBusy } from '../queue/store-client.ts';
import type { EventRejection } from '../telemetry/provider-metrics.ts';
import type { OperationParts } from './api-parts.ts';
import { DELIVERY_OPERATIONS } from './delivery-operations.ts';
import { ENDPOINT_OPERATIONS } from './endpoint-operations.ts';
import { EVENT_OPERATIONS } from './event-operations.ts';
import * as schemas from './schemas.ts';

export const PATH_PARAMETERS: PathParameters = {
  tenant: z.string().regex(TENANT).describe('ID of the tenant.'),
  event: z.string().regex(EVENT_ID).describe('ID of the event.'),
  endpoint: z.string().regex(ENDPOINT_NAME).describe('ID of the endpoint.'),
  receiver: schemas.receiverId.describe('ID of the endpoint, or `inbox:` and the name of a route.'),
};

/** The app creates endpoints and events, and it alone has the credentials for that. */
const OFFERED: ReadonlySet<string> = new Set([
  'listEndpoints',
  'getEndpoint',
  'getEndpointStats',
  'enableEndpoint',
  'disableEndpoint',
  'rotateSecret',
  'testEndpoint',
  'listEvents',
  'listDeliveries',
  'getDelivery',
  'retryDelivery',
  'repairDeliveries',
]);

/** The operations that the console offers, and the schemas of their document. */
export type ConsoleOperations = ReturnType<typeof createConsoleOperations>;

export function createOperations(parts: OperationParts, version: string): Operation[] {
  const operations = createEach(parts);
  const document = createOpenapiOperation(operations, {
    info: {
      title: 'sidegate provider API',
      version,
      summary: 'Accepts events and delivers them as signed webhooks (Standard Webhooks).',
    },
    servers: [{ url: 'http://127.0.0.1:8482', description: 'The default of provider.address.' }],
    securitySchemes: {
      bearer: {
        type: 'http',
        scheme: 'bearer',
        description: 'provider.token. If neither it nor provider.basic is set, only requests from loopback are accepted.',
      },
      basic: { type: 'http', scheme: 'basic', description: 'A user of provider.basic.' },
    },
    parameters: PATH_PARAMETERS,
    ...toNames(operations),
  });
  return [...operations, document];
}

/** Those of the console, with their paths on the provider's port. */
export function createConsoleOperations(parts: OperationParts) {
  const all = createEach(parts);
  const operations = all.filter(({ id }) => OFFERED.has(id));
  return { operations, parameters: PATH_PARAMETERS, ...toNames(all), toThrownProblem };
}

function createEach(parts: OperationParts): Operation[] {
  return [...EVENT_OPERATIONS, ...ENDPOINT_OPERATIONS, ...DELIVERY_OPERATIONS].map((bind) => bind(parts));
}

/** The exported schemas that have a description are named in the document. Those that are the body of an operation describe requests. */
function toNames(operations: readonly Operation[]): Pick<OpenapiOptions, 'requests' | 'responses'> {
  const bodies = new Set(operations.map(({ body }) => body?.schema));
  const named = Object.entries(schemas).flatMap(([name, schema]) =>
    schema instanceof z.ZodType && schema.description !== undefined
      ? [[name.replace(/^./, (first) => first.toUpperCase()), schema] as const]
      : [],
  );
  const { true: requests = [], false: responses = [] } = Object.groupBy(named, ([, schema]) => `${bodies.has(schema)}` as const);
  return { requests: Object.fromEntries(requests), responses: Object.fromEntries(responses) };
}

const AGAIN = 'post the event again later, with the same ID';
const REJECTIONS: Partial<Readonly<Record<ProblemCode, EventRejection>>> = {
  conflict: 'conflict',
  unauthorized: 'unauthorized',
  forbidden: 'unauthorized',
  too_many_attempts: 'unauthorized',
  users_unavailable: 'unauthorized',
  too_large: 'too_large',
  queue_full: 'queue_full',
  queue_unavailable: 'queue_unavailable',
  internal: 'queue_unavailable',
  busy: 'busy',
  draining: 'busy',
};

/** Undefined for an error that is not expected. */
export function toThrownProblem(thrown: unknown): ApiResponse | undefined {
  if (!(thrown instanceof SidegateError)) return undefined;
  // The text names the endpoint or the tenant whose events do not leave.
  if (thrown.code === 'queue_full')
    return toProblem('queue_full', `${thrown.message}; repeat the request later, an event with the same ID`);
  if (thrown.code === 'queue_unavailable') {
    const problem = isDiskFull(thrown.message) ? 'the disk of the queue is full' : 'the store of the queue does not respond';
    return toProblem('queue_unavailable', `${problem}: ${AGAIN}`);
  }
  if (isQueueBusy(thrown)) return toProblem('busy', `${thrown.message}: ${AGAIN}`);
  if (thrown.code === 'too_large') return toProblem('too_large', thrown.message);
  if (thrown.code === 'unstorable')
    return toProblem('invalid_request', 'the request has a value that the store of the queue cannot hold, such as U+0000');
  if (thrown.code !== 'endpoint_conflict') return undefined;
  return toProblem('busy', 'the endpoint is being changed by many requests at once');
}

export function toRejection(problem: ProblemCode): EventRejection {
  return REJECTIONS[problem] ?? 'invalid';
}
