/** All operations of the API, their OpenAPI document, and those that the console offers, too. */
import * as z from 'zod';
import { ENDPOINT_NAME } from '../../config/schema/provider-schema.ts';
import type { PathParameters } from '../../http-api/api-router.ts';
import { createOpenapiOperation, type OpenapiOptions } from '../../http-api/openapi.ts';
import type { ApiResponse, Operation } from '../../http-api/operation.ts';
import { EVENT_ID, TENANT } from '../events/event.ts';
import { toThrownProblem } from './api-errors.ts';
import type { OperationParts } from './api-parts.ts';
import { createDeliveryOperations } from './delivery-operations.ts';
import * as deliveries from './delivery-schemas.ts';
import { createEndpointActions } from './endpoint-actions.ts';
import { createEndpointOperations } from './endpoint-operations.ts';
import * as endpoints from './endpoint-schemas.ts';
import { createEventOperations } from './event-operations.ts';
import * as events from './event-schemas.ts';
import { createRepairOperations } from './repair-operations.ts';
import * as repairs from './repair-schemas.ts';

/** The forms of the parameters in paths. */
export const PATH_PARAMETERS: PathParameters = {
  tenant: z.string().regex(TENANT).describe('ID of the tenant.'),
  event: z.string().regex(EVENT_ID).describe('ID of the event.'),
  endpoint: z.string().regex(ENDPOINT_NAME).describe('ID of the endpoint.'),
  receiver: deliveries.receiverId.describe('ID of the endpoint, or `inbox:` and the name of a route.'),
};

/** The schemas that have a name in the document. */
const REQUESTS = {
  NewEvent: events.newEvent,
  NewEvents: events.newEvents,
  NewEndpoint: endpoints.newEndpoint,
  EndpointReplacement: endpoints.endpointReplacement,
  EndpointPatch: endpoints.endpointPatch,
  Rotation: endpoints.rotation,
  TestEvent: endpoints.testEvent,
  RepairRequest: repairs.repairRequest,
};
const RESPONSES = {
  AcceptedEvent: events.acceptedEvent,
  AcceptedEvents: events.acceptedEvents,
  StoredEvent: events.storedEvent,
  Event: events.event,
  EventPage: events.eventPage,
  ErasedPayloads: events.erasedPayloads,
  Endpoint: endpoints.endpoint,
  CreatedEndpoint: endpoints.createdEndpoint,
  EndpointPage: endpoints.endpointPage,
  RotatedSecret: endpoints.rotatedSecret,
  EndpointStats: endpoints.endpointStats,
  Delivery: deliveries.delivery,
  DeliveryWithAttempts: deliveries.deliveryWithAttempts,
  DeliveryPage: deliveries.deliveryPage,
  RetriedDelivery: repairs.retriedDelivery,
  RepairProgress: repairs.repairProgress,
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

/** Operations, and what their document needs. */
export interface ConsoleOperations extends Pick<OpenapiOptions, 'requests' | 'responses'> {
  readonly operations: readonly Operation[];
  readonly parameters: PathParameters;
  /** Undefined for an error that is not expected. */
  readonly toThrownProblem: (thrown: unknown) => ApiResponse | undefined;
}

/** Lists all operations. */
export function createOperations(parts: OperationParts, version: string): Operation[] {
  const operations = createEach(parts);
  return [...operations, createOpenapiOperation(operations, toDocumentOptions(version))];
}

/** Those of the console, with their paths on the provider's port. */
export function createConsoleOperations(parts: OperationParts): ConsoleOperations {
  const operations = createEach(parts).filter(({ id }) => OFFERED.has(id));
  return { operations, parameters: PATH_PARAMETERS, requests: REQUESTS, responses: RESPONSES, toThrownProblem };
}

function createEach(parts: OperationParts): Operation[] {
  return [
    ...createEventOperations(parts),
    ...createEndpointOperations(parts),
    ...createEndpointActions(parts),
    ...createDeliveryOperations(parts),
    ...createRepairOperations(parts),
  ];
}

/** The document of the provider's port. */
function toDocumentOptions(version: string): OpenapiOptions {
  return {
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
    requests: REQUESTS,
    responses: RESPONSES,
  };
}
