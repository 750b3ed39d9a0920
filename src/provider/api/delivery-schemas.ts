/** The schemas of deliveries and replays. */
import * as z from 'zod';
import { instant } from '../../config/schema/scalars.ts';
import { EVENT_ID, EVENT_TYPE, MAX_EVENT_TYPE_LENGTH } from '../events/event.ts';
import { DELIVERY_STATES } from '../queue/delivery-queue.ts';

const MAX_PAGE = 250;
const DEFAULT_PAGE = 50;
const MAX_ITERATOR_LENGTH = 1_024;

const state = z.enum(DELIVERY_STATES);
const eventId = z.string().regex(EVENT_ID, 'not an event ID');
/** The name of an endpoint, or of a route with an inbox. */
const RECEIVER = /^(?:inbox:)?[a-z0-9](?:[a-z0-9._-]{0,61}[a-z0-9])?$/;

/** The ID of an endpoint, or of the app of a route with an inbox. */
export const receiverId = z.string().regex(RECEIVER, 'not an endpoint ID');
const from = instant().optional().describe('Only events that were accepted at this time or later (RFC 3339).');
const to = instant().optional().describe('Only events that were accepted before this time (RFC 3339).');

/** The query of every list. */
export const page = {
  limit: z.coerce.number().int().min(1).max(MAX_PAGE).default(DEFAULT_PAGE).describe('Maximum number of results.'),
  iterator: z.string().max(MAX_ITERATOR_LENGTH).optional().describe('`iterator` of the page before.'),
};

export const deliveryQuery = z.strictObject({
  endpoint: receiverId
    .optional()
    .describe('Only deliveries to this endpoint; `inbox:` and the name of a route selects those of its inbox.'),
  event: eventId.optional().describe('Only deliveries of this event.'),
  type: z
    .string()
    .max(MAX_EVENT_TYPE_LENGTH)
    .regex(EVENT_TYPE, 'not an event type')
    .optional()
    .describe('Only events of this type.'),
  state: z.array(state).optional().describe('Only deliveries in these states; repeatable.'),
  from,
  to,
  ...page,
});

export const replayRequest = z
  .strictObject({
    endpoint: receiverId
      .optional()
      .describe('Only deliveries to this endpoint; `inbox:` and the name of a route selects those of its inbox.'),
    event: eventId.optional().describe('Only deliveries of this event.'),
    from,
    to,
    states: z
      .array(state.exclude(['waiting']))
      .min(1)
      .default(['dead', 'skipped'])
      .describe('Only deliveries in these states.'),
  })
  .refine((given) => ['endpoint', 'event', 'from', 'to'].some((name) => given[name as keyof typeof given] !== undefined), {
    error: 'select deliveries by endpoint, event, from or to',
  })
  .describe(
    'Deliveries to repeat; all given members must match, and at least one of `endpoint`, `event`, `from` and `to` is required.',
  );

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
  channel: z.string().optional(),
  state: state.describe(
    '`waiting`: due now or later, or in flight. `delivered`: acknowledged. `dead`: rejected, or all attempts failed. `skipped`: the endpoint was disabled or deleted.',
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

export const deliveryPage = z
  .strictObject({
    data: z.array(delivery).describe('Can be fewer than the limit, or none, although more follow.'),
    iterator: z.string().nullable().describe('Position of the next page; null on the last one.'),
    done: z.boolean().describe('This is the last page.'),
  })
  .describe('Deliveries, newest event first.');

export const replayedDelivery = z
  .strictObject({ id: z.string(), replayed: z.boolean().describe('False: it was waiting already.') })
  .describe('A delivery that is due again.');

export const replayProgress = z
  .strictObject({
    replayed: z.int().min(0),
    total: z.int().min(0).describe('Deliveries that match, counted at the start.'),
    done: z.boolean().describe('True in the last line. Without such a line, the replay was interrupted: repeat it.'),
    error: z.string().optional().describe('Why the replay ended before it was done.'),
  })
  .describe('Progress of a replay.');
