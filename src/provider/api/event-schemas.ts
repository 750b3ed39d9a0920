/** The schemas of events, as the app posts them and as the API shows them. */
import * as z from 'zod';
import { CHANNEL, EVENT_ID, EVENT_TYPE, MAX_EVENT_TYPE_LENGTH } from '../events/event.ts';

/** The most events in one request. */
export const MAX_BATCH = 100;
/** The last second of the year 9999. */
const MAX_CREATED = 253_402_300_799;

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
        'Unique ID. Posting an ID again changes nothing, so a request without a response can be repeated. Default: random.',
      ),
    created: z
      .number()
      .min(0)
      .max(MAX_CREATED)
      .optional()
      .describe('When the event happened, in seconds since 1970-01-01T00:00:00Z. Default: now.'),
    channel: z
      .string()
      .regex(CHANNEL, 'a channel is 1 to 128 letters, digits and _ : . -')
      .optional()
      .describe('Only endpoints with this channel, or without channels, receive the event.'),
  })
  .describe('An event to deliver.');
export type NewEventBody = z.output<typeof newEvent>;

export const newEvents = z
  .strictObject({
    events: z.array(newEvent).min(1).max(MAX_BATCH).describe('The IDs must differ.'),
  })
  .describe('Events that are all accepted, or none.');

export const acceptedEvent = z
  .strictObject({
    id: eventId.describe('ID of the event: `Webhook-Id` of its deliveries.'),
    duplicate: z.boolean().describe('The ID was accepted before; nothing was changed.'),
    endpoints: z.int().min(0).describe('Number of endpoints that select the event.'),
  })
  .describe('An event that is stored durably.');

export const acceptedEvents = z.strictObject({ events: z.array(acceptedEvent) }).describe('In the order of the request.');

export const storedEvent = z
  .strictObject({
    id: eventId,
    type: z.string(),
    channel: z.string().optional(),
    createdAt: z.iso.datetime().describe('When it was accepted.'),
    body: z.string().optional().describe('The body that is sent, byte for byte. Absent if it is not UTF-8.'),
    bodyBase64: z.base64().optional().describe('The body that is sent, if it is not UTF-8.'),
  })
  .describe('A stored event.');
