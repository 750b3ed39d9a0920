/** The provider's part of its OpenAPI document: names of schemas, parameters in paths, and how clients authenticate. */
import * as z from 'zod';
import { ENDPOINT_NAME } from '../../config/schema/provider-schema.ts';
import type { PathParameters } from '../../http-api/api-router.ts';
import type { OpenapiOptions } from '../../http-api/openapi.ts';
import { EVENT_ID, TENANT } from '../events/event.ts';
import { delivery, deliveryPage, deliveryWithAttempts, receiverId } from './delivery-schemas.ts';
import {
  createdEndpoint,
  endpoint,
  endpointPage,
  endpointPatch,
  endpointReplacement,
  endpointStats,
  newEndpoint,
  rotatedSecret,
  rotation,
  testEvent,
} from './endpoint-schemas.ts';
import {
  acceptedEvent,
  acceptedEvents,
  erasedPayloads,
  event,
  eventPage,
  newEvent,
  newEvents,
  storedEvent,
} from './event-schemas.ts';
import { repairProgress, repairRequest, retriedDelivery } from './repair-schemas.ts';

/** The forms of the parameters in paths. */
export const PATH_PARAMETERS: PathParameters = {
  tenant: z.string().regex(TENANT).describe('ID of the tenant.'),
  event: z.string().regex(EVENT_ID).describe('ID of the event.'),
  endpoint: z.string().regex(ENDPOINT_NAME).describe('ID of the endpoint.'),
  receiver: receiverId.describe('ID of the endpoint, or `inbox:` and the name of a route.'),
};

const REQUESTS = { NewEvent: newEvent, NewEvents: newEvents, NewEndpoint: newEndpoint, EndpointReplacement: endpointReplacement };
const MORE_REQUESTS = { EndpointPatch: endpointPatch, Rotation: rotation, TestEvent: testEvent, RepairRequest: repairRequest };
const RESPONSES = {
  AcceptedEvent: acceptedEvent,
  AcceptedEvents: acceptedEvents,
  StoredEvent: storedEvent,
  Event: event,
  EventPage: eventPage,
  ErasedPayloads: erasedPayloads,
  Endpoint: endpoint,
  CreatedEndpoint: createdEndpoint,
  EndpointPage: endpointPage,
  RotatedSecret: rotatedSecret,
  EndpointStats: endpointStats,
  Delivery: delivery,
  DeliveryWithAttempts: deliveryWithAttempts,
  DeliveryPage: deliveryPage,
  RetriedDelivery: retriedDelivery,
  RepairProgress: repairProgress,
};

/** The document of the provider's port. */
export function toDocumentOptions(version: string): OpenapiOptions {
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
    requests: { ...REQUESTS, ...MORE_REQUESTS },
    responses: RESPONSES,
  };
}
