/** Events for tests of the delivery queue. */

import type { Target } from '../../../src/provider/endpoints/endpoint.ts';
import type {
  Delivery,
  DeliveryQueue,
  LaneState,
  NewEvent,
  SettledDelivery,
} from '../../../src/provider/queue/delivery-queue.ts';

let counter = 0;

/** An ID that no other test uses. */
export function newId(): string {
  return `msg_${++counter}`;
}

/** An event for `targets`, given by name or in full. */
export function newEvent(
  targets: readonly (string | Target)[] = ['acme'],
  over: Partial<Omit<NewEvent, 'targets'>> = {},
): NewEvent {
  const id = over.id ?? newId();
  return {
    type: 'invoice.paid',
    createdAt: 1_700_000_000_000,
    body: Buffer.from(JSON.stringify({ id })),
    metadata: '{}',
    ...over,
    id,
    targets: targets.map((target) => (typeof target === 'string' ? { endpoint: target } : target)),
  };
}

/** Appends `count` events for one endpoint, one millisecond apart, and returns their IDs in order. */
export async function appendMany(
  queue: DeliveryQueue,
  count: number,
  target: string | Target = 'acme',
  createdAt = 1_700_000_000_000,
): Promise<string[]> {
  const events = Array.from({ length: count }, (_, i) => newEvent([target], { createdAt: createdAt + i }));
  for (let i = 0; i < events.length; i += 500) await queue.append(events.slice(i, i + 500));
  return events.map(({ id }) => id);
}

/** The state of a lane without failures. */
export const PROVEN: LaneState = { failures: 0, isProven: true, since: 0 };

/** A settlement of `delivery` with the record of its attempt. */
export function settled(
  { event, attempt }: Pick<Delivery, 'event' | 'attempt'>,
  settlement: SettledDelivery['settlement'],
  at = 1_700_000_000_000,
): SettledDelivery {
  const isAttempt = settlement.kind !== 'postponed' && settlement.kind !== 'skipped';
  const isSuccess = settlement.kind === 'delivered';
  const record = { at, duration: 5, status: isSuccess ? 204 : 503, outcome: isSuccess ? 'delivered' : 'server_error' };
  return { event, attempt, at, settlement, ...(isAttempt && { record }) };
}
