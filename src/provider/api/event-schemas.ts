/** The schemas of events, as the app posts them and as the API shows them. */
import * as z from 'zod';
import { EVENT_ID, EVENT_TYPE, MAX_CREATED, MAX_EVENT_TYPE_LENGTH, TENANT } from '../events/event.ts';
import { eventFilter, page, toPageSchema } from './delivery-schemas.ts';

/** The most events in one request. */
export const MAX_BATCH = 100;

const eventId = z.string().regex(EVENT_ID, 'an ID is 1 to 128 letters, digits and _ : -');
const isObject = (value: unknown): boolean => typeof value === 'object' && value !== null && !Array.isArray(value);

/** `data` is sent as its bytes were received, so nothing below it is parsed into a new value. */
export const newEvent = z
  .strictObject({
    type: z
      .string()
      .max(MAX_EVENT_TYPE_LENGTH, `an event type has at most ${MAX_EVENT_TYPE_LENGTH} characters`)
      .regex(EVENT_TYPE, 'an event type consists of letters, digits, _ and -, in segments separated by dots')
      .meta({ examples: ['invoice.paid'] })
      .describe('Kind of the event.'),
    data: z
      .unknown()
      .refine(isObject, 'expected an object')
      .meta({ type: 'object', additionalProperties: true, examples: [{ invoice: 'in_42' }] })
      .describe('Payload; delivered byte for byte as it was posted.'),
    id: eventId
      .optional()
      .meta({ examples: ['in_42:paid'] })
      .describe(
        'Unique ID. Posting the same event again changes nothing, so a request without a response can be repeated; another event with this ID is rejected. Default: random.',
      ),
    created: z
      .number()
      .min(0)
      .max(MAX_CREATED)
      .optional()
      .describe('When the event happened, in seconds since 1970-01-01T00:00:00Z. Default: now.'),
    tenant: z
      .string()
      .regex(TENANT, 'a tenant is 1 to 128 letters, digits and _ : . -')
      .optional()
      .describe(
        'Customer that the event belongs to. Only endpoints of this tenant, and those for all tenants, receive it. Default: none; endpoints without a tenant, and those for all, receive it.',
      ),
  })
  .describe('An event to deliver.');
export type NewEventBody = z.output<typeof newEvent>;

export const newEvents = z
  .strictObject({
    events: z.array(newEvent).min(1).max(MAX_BATCH).describe('The IDs must differ.'),
  })
  .describe('Events that are all accepted, or none, except for those whose ID another event has.');

export const acceptedEvent = z
  .strictObject({
    id: eventId.describe('ID of the event: `Webhook-Id` of its deliveries.'),
    duplicate: z.boolean().describe('The ID was accepted before; nothing was changed.'),
    endpoints: z
      .int()
      .min(0)
      .describe('Number of endpoints that select the event; 0 for a duplicate, which is not delivered again.'),
  })
  .describe('An event that is stored durably.');

export const acceptedEvents = z.strictObject({ events: z.array(acceptedEvent) }).describe('In the order of the request.');

export const storedEvent = z
  .strictObject({
    id: eventId,
    type: z.string(),
    tenant: z.string().optional(),
    createdAt: z.iso.datetime().describe('When it was accepted.'),
    erased: z.boolean().describe('The payload was erased, and there is no body.'),
    body: z.string().optional().describe('The body that is sent, byte for byte. Absent if it is not UTF-8.'),
    bodyBase64: z.base64().optional().describe('The body that is sent, if it is not UTF-8.'),
  })
  .describe('A stored event.');

export const eventQuery = z.strictObject({
  ...eventFilter,
  unrouted: z.enum(['true']).optional().describe('Only events that no endpoint selected.'),
  ...page,
});

export const event = z
  .strictObject({
    id: eventId,
    type: z.string(),
    tenant: z.string().optional(),
    createdAt: z.iso.datetime().describe('When it was accepted.'),
    deliveries: z.int().min(0).describe('Number of endpoints that it was for.'),
    waiting: z.int().min(0).describe('Deliveries that wait.'),
    failed: z.int().min(0).describe('Deliveries that are dead or skipped.'),
  })
  .describe('An event, and what became of it.');

export const eventPage = toPageSchema(event, ', or none, although more follow.').describe('Events, newest first.');

export const erasedPayloads = z
  .strictObject({ erased: z.int().min(0).describe('Events whose payload was erased by this request.') })
  .describe('How many payloads were erased.');
