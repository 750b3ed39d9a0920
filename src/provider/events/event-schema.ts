/** The schema of an event that an app gives: to the API, or in a row of the outbox. Apart from event.ts, so that few bundles load it. */
import * as z from 'zod';
import { TENANT, TENANT_RULE } from '../../config/schema/provider-schema.ts';
import { EVENT_ID } from './event.ts';

/** Segments of letters, digits, `_` and `-`, separated by dots. */
const EVENT_TYPE = /^[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*$/;
const MAX_EVENT_TYPE_LENGTH = 128;

/** The last second of the year 9999: the latest time of an event. */
const MAX_CREATED = 253_402_300_799;
const CREATED_RULE = 'created is a number of seconds, between the years 1970 and 9999';

export const eventId = z.string().regex(EVENT_ID, 'an ID is 1 to 128 letters, digits and _ : -');

/** All but the data of an event that the app gives. */
export const eventSchema = z.strictObject({
  type: z
    .string()
    .max(MAX_EVENT_TYPE_LENGTH, `an event type has at most ${MAX_EVENT_TYPE_LENGTH} characters`)
    .regex(EVENT_TYPE, 'an event type consists of letters, digits, _ and -, in segments separated by dots')
    .meta({ examples: ['invoice.paid'] })
    .describe('Kind of the event.'),
  id: eventId
    .optional()
    .meta({ examples: ['in_42:paid'] })
    .describe(
      'Unique ID. Posting the same event again changes nothing, so a request without a response can be repeated; another event with this ID is rejected. Default: random.',
    ),
  created: z
    .number(CREATED_RULE)
    .min(0, CREATED_RULE)
    .max(MAX_CREATED, CREATED_RULE)
    .optional()
    .describe('When the event happened, in seconds since 1970-01-01T00:00:00Z. Default: now.'),
  tenant: z
    .string()
    .regex(TENANT, TENANT_RULE)
    .optional()
    .describe(
      'Customer that the event belongs to. Only endpoints of this tenant, and those for all tenants, receive it. Default: none; endpoints without a tenant, and those for all, receive it.',
    ),
});
