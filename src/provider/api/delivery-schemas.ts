/** The schemas of deliveries. */
import * as z from 'zod';
import { instant } from '../../config/schema/scalars.ts';
import { EVENT_ID, EVENT_TYPE, MAX_EVENT_TYPE_LENGTH, TENANT } from '../events/event.ts';
import { DELIVERY_STATES } from '../queue/delivery-queue.ts';

const MAX_PAGE = 250;
const DEFAULT_PAGE = 50;
const MAX_ITERATOR_LENGTH = 1_024;

export const deliveryState = z.enum(DELIVERY_STATES);
const eventId = z.string().regex(EVENT_ID, 'not an event ID');
/** The name of an endpoint, or of a route with an inbox. */
const RECEIVER = /^(?:inbox:)?[a-z0-9](?:[a-z0-9._-]{0,61}[a-z0-9])?$/;

/** The ID of an endpoint, or of the app of a route with an inbox. */
export const receiverId = z.string().regex(RECEIVER, 'not an endpoint ID');

/** Selects events. */
export const eventFilter = {
  type: z
    .string()
    .max(MAX_EVENT_TYPE_LENGTH)
    .regex(EVENT_TYPE, 'not an event type')
    .optional()
    .describe('Only events of this type.'),
  tenant: z.string().regex(TENANT, 'not a tenant').optional().describe('Only events of this tenant.'),
  from: instant().optional().describe('Only events that were accepted at this time or later (RFC 3339).'),
  to: instant().optional().describe('Only events that were accepted before this time (RFC 3339).'),
};

/** Selects deliveries, besides their state. */
export const filter = {
  endpoint: receiverId
    .optional()
    .describe('Only deliveries to this endpoint; `inbox:` and the name of a route selects those of its inbox.'),
  event: eventId.optional().describe('Only deliveries of this event.'),
  ...eventFilter,
};

/** The query of every list. */
export const page = {
  limit: z.coerce.number().int().min(1).max(MAX_PAGE).default(DEFAULT_PAGE).describe('Maximum number of results.'),
  iterator: z.string().max(MAX_ITERATOR_LENGTH).optional().describe('`iterator` of the page before.'),
};

/** A page of any list. `fewer`: when a page is shorter than its limit. */
export const toPageSchema = (item: z.ZodType, fewer: string): z.ZodType =>
  z.strictObject({
    data: z.array(item).describe(`Can be fewer than the limit${fewer}`),
    iterator: z.string().nullable().describe('Position of the next page; null on the last one.'),
    done: z.boolean().describe('This is the last page.'),
  });

export const deliveryQuery = z.strictObject({
  ...filter,
  state: z.array(deliveryState).optional().describe('Only deliveries in these states; repeatable.'),
  ...page,
});

export const attempt = z
  .strictObject({
    at: z.iso.datetime(),
    durationMs: z.number().min(0),
    status: z.int().optional().describe('Status of the response, if there was one.'),
    outcome: z.string(),
    detail: z.string().optional().describe('Why it failed.'),
  })
  .describe('An attempt to deliver.');

const deliveryShape = {
  id: z.string().describe('The IDs of event and endpoint, joined by `~`.'),
  event: z.string(),
  endpoint: z.string(),
  type: z.string(),
  tenant: z.string().optional(),
  state: deliveryState.describe(
    '`waiting`: due now or later, or in flight. `delivered`: acknowledged. `dead`: rejected, or all attempts failed. `skipped`: the endpoint was disabled or deleted, or has another tenant.',
  ),
  createdAt: z.iso.datetime().describe('When the event was accepted.'),
  attempts: z.int().min(0),
  due: z.iso.datetime().optional().describe('When the next attempt is due.'),
  settledAt: z.iso.datetime().optional(),
  lastAttempt: attempt.optional(),
};

export const delivery = z.strictObject(deliveryShape).describe('One event for one endpoint.');

export const deliveryWithAttempts = z
  .strictObject({ ...deliveryShape, history: z.array(attempt).describe('The newest 20 attempts, newest first.') })
  .describe('A delivery with its attempts.');

export const deliveryPage = toPageSchema(delivery, ', or none, although more follow.').describe(
  'Deliveries, newest event first.',
);
