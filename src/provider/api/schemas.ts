/** The schemas of the API: deliveries, repairs, events and endpoints. */
import * as z from 'zod';
import { ENDPOINT_NAME, endpointSettings, ONE_TENANT_RULE } from '../../config/schema/provider-schema.ts';
import { duration, instant } from '../../config/schema/scalars.ts';
import { isJsonObject } from '../../core/json-path.ts';
import { DISABLED_REASONS } from '../endpoints/endpoint.ts';
import type { EndpointSettings } from '../endpoints/endpoint-record.ts';
import { eventId, eventSchema } from '../events/event-schema.ts';
import { DELIVERY_STATES, type DeliveryState, REPAIR_ACTIONS } from '../queue/delivery-queue.ts';

const MAX_PAGE = 250;
const DEFAULT_PAGE = 50;
const MAX_ITERATOR_LENGTH = 1_024;

const count = z.int().min(0);
const time = z.iso.datetime();
export const deliveryState = z.enum(DELIVERY_STATES);
/** The name of an endpoint, or of a route with an inbox. */
const RECEIVER = /^(?:inbox:)?[a-z0-9](?:[a-z0-9._-]{0,61}[a-z0-9])?$/;

/** The ID of an endpoint, or of the app of a route with an inbox. */
export const receiverId = z.string().regex(RECEIVER, 'not an endpoint ID');

export const eventFilter = {
  type: eventSchema.shape.type.optional().describe('Only events of this type.'),
  tenant: eventSchema.shape.tenant.describe('Only events of this tenant.'),
  from: instant().optional().describe('Only events that were accepted at this time or later (RFC 3339).'),
  to: instant().optional().describe('Only events that were accepted before this time (RFC 3339).'),
};

export const filter = {
  endpoint: receiverId
    .optional()
    .describe('Only deliveries to this endpoint; `inbox:` and the name of a route selects those of its inbox.'),
  event: eventId.optional().describe('Only deliveries of this event.'),
  ...eventFilter,
};

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

const attempt = z
  .strictObject({
    at: time,
    durationMs: z.number().min(0),
    status: z.int().optional().describe('Status of the response, if there was one.'),
    outcome: z.string(),
    detail: z.string().optional().describe('Why it failed.'),
  })
  .describe('An attempt to deliver.');
export type AttemptView = z.output<typeof attempt>;

const deliveryShape = {
  id: z.string().describe('The IDs of event and endpoint, joined by `~`.'),
  event: z.string(),
  endpoint: z.string(),
  type: z.string(),
  tenant: z.string().optional(),
  state: deliveryState.describe(
    '`waiting`: due now or later, or in flight. `delivered`: acknowledged. `dead`: rejected, or all attempts failed. `skipped`: the endpoint was disabled or deleted, or has another tenant.',
  ),
  createdAt: time.describe('When the event was accepted.'),
  attempts: count,
  due: time.optional().describe('When the next attempt is due.'),
  settledAt: time.optional(),
  lastAttempt: attempt.optional(),
};

export const delivery = z.strictObject(deliveryShape).describe('One event for one endpoint.');
export type OutgoingDelivery = z.output<typeof delivery>;

export const deliveryWithAttempts = z
  .strictObject({
    ...deliveryShape,
    sourceEvent: z.string().optional().describe('Of an inbox: the ID that the sender gave the event.'),
    history: z.array(attempt).describe('The newest 20 attempts, newest first.'),
  })
  .describe('A delivery with its attempts.');
export type OutgoingDeliveryDetail = z.output<typeof deliveryWithAttempts>;

export const deliveryPage = toPageSchema(delivery, ', or none, although more follow.').describe(
  'Deliveries, newest event first.',
);

/** `recover`: creates deliveries that an endpoint never got. */
const ACTIONS = [...REPAIR_ACTIONS, 'recover'] as const;
const SELECTING = ['endpoint', 'event', 'tenant', 'type', 'from', 'to'] as const;
/** The states that an action changes if the request names none. */
export const DEFAULT_STATES = {
  retry: ['dead', 'skipped'],
  cancel: ['waiting'],
  purge: ['dead', 'skipped'],
} as const satisfies Record<string, readonly DeliveryState[]>;

export const repairRequest = z
  .strictObject({
    action: z
      .enum(ACTIONS)
      .describe(
        '`retry`: due now. `cancel`: what waits is skipped. `purge`: removed; the events stay. `recover`: deliveries are created of events that the endpoint selects and that were never for it; needs `endpoint` and `from`.',
      ),
    ...filter,
    states: z
      .array(deliveryState)
      .min(1)
      .max(DELIVERY_STATES.length)
      .optional()
      .describe(
        'Only deliveries in these states. Default: `dead` and `skipped` for `retry` and `purge`; `cancel` is for `waiting` only.',
      ),
    dryRun: z.boolean().default(false).describe('Only count.'),
  })
  .superRefine((given, context) => {
    const report = (message: string, path: (string | number)[]): void => context.addIssue({ code: 'custom', message, path });
    const { action, states, endpoint, event, from } = given;
    if (action === 'recover') {
      if (endpoint === undefined) report('`recover` needs an endpoint', ['endpoint']);
      if (from === undefined) report('`recover` needs the time of the oldest event to recover', ['from']);
      if (event !== undefined) report('use the operation that retries one delivery', ['event']);
      if (states !== undefined) report('`recover` creates deliveries, which have no state yet', ['states']);
      return;
    }
    if (SELECTING.every((name) => given[name] === undefined)) report(`select deliveries by ${SELECTING.join(', ')}`, []);
    const other = action === 'cancel' ? (states?.findIndex((state) => state !== 'waiting') ?? -1) : -1;
    if (other !== -1) report('only waiting deliveries can be canceled', ['states', other]);
  })
  .describe(
    `What to change. All given members must match, and at least one of ${SELECTING.map((name) => `\`${name}\``).join(', ')} is required.`,
  );
export type RepairRequest = z.output<typeof repairRequest>;

export const retriedDelivery = z
  .strictObject({ id: z.string().describe('The IDs of event and endpoint, joined by `~`.') })
  .describe('A delivery that is due now.');

export const repairProgress = z
  .strictObject({
    changed: count.describe('Deliveries that were changed or created so far.'),
    total: count.describe('Deliveries that match; in the last line of a repair, those that were changed.'),
    excluded: count
      .optional()
      .describe(
        'Of `retry`: deliveries that match and cannot be sent, as their endpoint does not exist, is disabled, or has another tenant than the event.',
      ),
    done: z.boolean().describe('True in the last line. Without such a line, the repair was interrupted: repeat it.'),
    error: z
      .string()
      .optional()
      .describe('Why the repair was not done, or how many deliveries exceed a bound of the queue, and which bound.'),
  })
  .describe('Progress of a repair.');

export const MAX_BATCH = 100;

/** `data` is sent as its bytes were received, so nothing below it is parsed into a new value. */
const data = z.unknown().refine(isJsonObject, 'expected an object').meta({ type: 'object', additionalProperties: true });

export const newEvent = eventSchema
  .extend({
    data: data.meta({ examples: [{ invoice: 'in_42' }] }).describe('Payload; delivered byte for byte as it was posted.'),
  })
  .describe('An event to deliver.');
export type NewEventBody = z.output<typeof newEvent>;

export const newEvents = z
  .strictObject({ events: z.array(newEvent).min(1).max(MAX_BATCH).describe('The IDs must differ.') })
  .describe('Events that are all accepted, or none, except for those whose ID another event has.');

export const acceptedEvent = z
  .strictObject({
    id: eventId.describe('ID of the event: `Webhook-Id` of its deliveries.'),
    duplicate: z.boolean().describe('The ID was accepted before; nothing was changed.'),
    endpoints: count.describe('Number of endpoints that select the event; 0 for a duplicate, which is not delivered again.'),
  })
  .describe('An event that is stored durably.');

export const acceptedEvents = z.strictObject({ events: z.array(acceptedEvent) }).describe('In the order of the request.');

const eventShape = {
  id: eventId,
  type: z.string(),
  tenant: z.string().optional(),
  createdAt: time.describe('When it was accepted.'),
};

export const storedEvent = z
  .strictObject({
    ...eventShape,
    erased: z.boolean().describe('The payload was erased, and there is no body.'),
    body: z.string().optional().describe('The body that is sent, byte for byte. Absent if it is not UTF-8.'),
    bodyBase64: z.base64().optional().describe('The body that is sent, if it is not UTF-8.'),
  })
  .describe('A stored event.');

export const eventQuery = z.strictObject({
  ...eventFilter,
  endpoint: receiverId.optional().describe('Only events with a delivery to this endpoint.'),
  state: z.array(deliveryState).optional().describe('Only events with such a delivery in one of these states; repeatable.'),
  unrouted: z.enum(['true']).optional().describe('Only events that no endpoint selected.'),
  ...page,
});

export const event = z
  .strictObject({
    ...eventShape,
    deliveries: count.describe('Number of endpoints that it was for.'),
    waiting: count.describe('Deliveries that wait.'),
    failed: count.describe('Deliveries that are dead or skipped.'),
  })
  .describe('An event, and what became of it.');
export type OutgoingEvent = z.output<typeof event>;

export const eventPage = toPageSchema(event, ', or none, although more follow.').describe('Events, newest first.');

export const erasedPayloads = z
  .strictObject({ erased: count.describe('Events whose payload was erased by this request.') })
  .describe('How many payloads were erased.');

const MAX_SECRET_LENGTH = 256;
const secret = z.string().max(MAX_SECRET_LENGTH);

/** Zod drops a member `__proto__` of a record without an error. */
const withoutProto = <Headers extends z.ZodType>(schema: Headers) =>
  z.preprocess((input, context) => {
    if (isJsonObject(input) && Object.hasOwn(input as object, '__proto__'))
      context.addIssue({ code: 'custom', path: ['__proto__'], message: 'a header cannot have this name; choose another one' });
    return input;
  }, schema);
const { keyType, valueType } = endpointSettings.headers.unwrap();
const headers = withoutProto(z.record(keyType, valueType));

/** In a PATCH, an absent member keeps its value: defaults must not fill it in, and null removes one that is optional. */
function toPatchShape(): Record<string, z.ZodType> {
  return Object.fromEntries(
    Object.entries(endpointSettings).map(([name, schema]) => {
      let inner: z.ZodType = schema;
      while (inner instanceof z.ZodDefault || inner instanceof z.ZodPrefault || inner instanceof z.ZodOptional)
        inner = inner.unwrap() as z.ZodType;
      const described = inner.describe(schema.description ?? '');
      return [name, schema instanceof z.ZodOptional ? described.nullable().optional() : described.optional()];
    }),
  );
}

export const newEndpoint = z
  .strictObject({
    id: z
      .string()
      .regex(
        ENDPOINT_NAME,
        'an ID is 1 to 63 lower-case letters, digits, dashes and underscores, with a letter or digit at both ends',
      )
      .optional()
      .describe('Default: random.'),
    ...endpointSettings,
    headers: headers.default({}).describe(endpointSettings.headers.description ?? ''),
    secret: secret.optional().describe('Signing secret (whsec_… or whsk_…). Default: a new random one.'),
  })
  .refine(...ONE_TENANT_RULE)
  .describe('A new endpoint.');

export const endpointReplacement = z
  .strictObject({
    ...endpointSettings,
    allTenants: endpointSettings.allTenants.unwrap().optional().describe('Cannot be changed.'),
    tenant: endpointSettings.tenant.describe('Cannot be changed.'),
    headers: headers.optional().describe('Headers that are sent in addition. Default: unchanged, as they cannot be read back.'),
  })
  .describe('All settings of an endpoint: absent ones get their default, except `headers`, `tenant` and `allTenants`.');

export const endpointPatch = z
  .strictObject({
    ...toPatchShape(),
    headers: withoutProto(z.record(keyType, valueType.nullable()))
      .optional()
      .describe('Headers to set, or to remove (`null`). The others are kept.'),
  })
  .describe('Settings to change (JSON merge patch, RFC 7396), except `tenant` and `allTenants`. `null` stands for the default.');
/** Durations in milliseconds. */
export type EndpointPatch = { readonly [Name in keyof Omit<EndpointSettings, 'headers'>]?: EndpointSettings[Name] | null } & {
  readonly headers?: HeaderPatch | undefined;
};
/** A name with null is removed. */
export type HeaderPatch = Readonly<Record<string, string | null>>;

export const rotation = z
  .strictObject({
    secret: secret.optional().describe('The new secret (whsec_… or whsk_…). Default: a random one.'),
    grace: duration()
      .optional()
      .describe(
        'How long deliveries are also signed with the old secrets; 0s if they leaked. Default: `provider.rotationGrace`.',
      ),
  })
  .describe('A rotation of the secret.');

export const testEvent = z
  .strictObject({ data: data.optional().describe('Payload. Default: a short text.') })
  .describe('A test event.');

export const endpoint = z
  .strictObject({
    id: z.string(),
    source: z
      .enum(['config', 'api', 'inbox'])
      .describe(
        'Endpoints of the config can only be enabled, disabled and tested here. `inbox`: the app of a route with `ack: onAccept`; only its deliveries can be repaired.',
      ),
    url: z.string(),
    description: z.string(),
    events: z.array(z.string()),
    tenant: z.string().optional(),
    allTenants: z.boolean(),
    headerNames: z.array(z.string()).describe('Names of the additional headers. Their values are never shown.'),
    timeout: z.string(),
    concurrency: z.int(),
    rateLimit: z.number().optional(),
    schedule: z.array(z.string()),
    retryClientErrors: z.union([z.literal('all'), z.array(z.int())]),
    orderBy: z.string().optional(),
    operational: z.boolean(),
    signatures: z
      .array(
        z.strictObject({
          version: z.enum(['v1', 'v1a']),
          publicKey: z.string().optional().describe('Verifies `v1a` signatures (whpk_…).'),
          expiresAt: time.optional().describe('Absent for the current secret.'),
        }),
      )
      .describe('Signatures that deliveries have: the current secret, and those that were rotated.'),
    disabled: z
      .strictObject({ at: time, reason: z.enum(DISABLED_REASONS) })
      .optional()
      .describe('Since when and why it is disabled; absent if it is enabled.'),
    createdAt: time.optional(),
    updatedAt: time.optional(),
  })
  .describe('An endpoint.');
export type EndpointView = z.output<typeof endpoint>;

export const createdEndpoint = z
  .strictObject({ ...endpoint.shape, secret: z.string().describe('The signing secret. It is never shown again.') })
  .describe('A new endpoint, with its secret.');

export const rotatedSecret = z
  .strictObject({ secret: z.string().describe('The new signing secret. It is never shown again.') })
  .describe('The result of a rotation.');

export const endpointStats = z
  .strictObject({
    waiting: count.describe('Deliveries that are due now or later.'),
    oldestDue: time.optional().describe('When the oldest overdue delivery became due; absent if none is overdue.'),
    failing: z
      .strictObject({
        failures: z.int().min(1).describe('Failed attempts in a row, without those of deliveries that were retried by hand.'),
        since: time.describe('When the first of them ended.'),
        lastAttempt: attempt.optional().describe('The last of them.'),
        pausedUntil: time.optional().describe('No attempt starts before.'),
      })
      .optional()
      .describe('Absent if the last attempt succeeded, or none was made since the endpoint was enabled.'),
  })
  .describe('The backlog of an endpoint, and its failures.');
export type EndpointStats = z.output<typeof endpointStats>;

export const endpointPage = toPageSchema(endpoint, ' although more follow: a page ends after 256 KiB.').describe(
  'Endpoints, sorted by ID.',
);
