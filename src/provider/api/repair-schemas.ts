/** The schemas of repairs. */
import * as z from 'zod';
import { DELIVERY_STATES, type DeliveryState, REPAIR_ACTIONS } from '../queue/delivery-queue.ts';
import { deliveryState, filter } from './delivery-schemas.ts';

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
    changed: z.int().min(0).describe('Deliveries that were changed or created so far.'),
    total: z.int().min(0).describe('Deliveries that match; in the last line of a repair, those that were changed.'),
    excluded: z
      .int()
      .min(0)
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
