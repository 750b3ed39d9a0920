/** Creates the deliveries that an endpoint would have got if it had existed, or had selected these events, when they were accepted. */
import { SidegateError } from '../../core/errors.ts';
import { OWN_METADATA } from '../events/event.ts';
import { INBOX_TYPE, parseInboxMetadata } from '../events/inbox-request.ts';
import type { EventFilter, EventRecord, RepairProgress } from '../queue/delivery-queue.ts';
import type { OperationParts } from './api-parts.ts';

/** A delivery that does not exist. */
interface Missing {
  readonly event: string;
  readonly orderKey: string | undefined;
}

const EVENTS_PER_PAGE = 250;
/** Events whose bodies are in memory at once. */
const BODIES_AT_ONCE = 8;

/** Counts what `recover` would create. */
export async function* countMissing(
  endpoint: string,
  filter: EventFilter,
  parts: OperationParts,
): AsyncGenerator<RepairProgress> {
  let total = 0;
  for await (const missing of findMissing(endpoint, filter, parts)) {
    total += missing.length;
    yield { changed: 0, total };
  }
}

/** Creates deliveries, after they were counted. Ends with `changed` equal to `total`, or rejects when a bound of the queue is reached. */
export async function* recover(endpoint: string, filter: EventFilter, parts: OperationParts): AsyncGenerator<RepairProgress> {
  const { queue, clock } = parts;
  let total = 0;
  for await (const progress of countMissing(endpoint, filter, parts)) {
    ({ total } = progress);
    yield progress;
  }
  let changed = 0;
  for await (const missing of findMissing(endpoint, filter, parts)) {
    const now = clock.now();
    const added = await Promise.allSettled(
      missing.map(({ event, orderKey }) => queue.addDelivery(event, endpoint, now, orderKey)),
    );
    changed += added.filter((result) => result.status === 'fulfilled' && result.value).length;
    total = Math.max(changed, total);
    yield { changed, total };
    for (const result of added) if (result.status === 'rejected') throw toEnd(result.reason, total - changed);
  }
  yield { changed, total: changed };
}

/** The error of a delivery that was not created, with the number of all that were not if they exceed a bound of the queue. */
function toEnd(thrown: unknown, rest: number): unknown {
  if (!(thrown instanceof SidegateError) || thrown.code !== 'queue_full') return thrown;
  const count = rest === 1 ? '1 delivery was' : `${rest} deliveries were`;
  return new SidegateError('system', 'queue_full', `${count} not created: ${thrown.message}`, { cause: thrown });
}

/** The missing deliveries of each page of events, the oldest first: a page is sent while the next one is read. */
async function* findMissing(endpoint: string, filter: EventFilter, parts: OperationParts): AsyncGenerator<readonly Missing[]> {
  const { queue, registry } = parts;
  let after: string | undefined;
  do {
    const { events, next } = await queue.findEvents(filter, { limit: EVENTS_PER_PAGE, after, first: 'oldest' });
    const selected = events.filter(({ type, tenant }) => {
      const target = registry.match(endpoint, { type, tenant, data: {} });
      if (target?.isSkipped === true) throw new SidegateError('user', 'endpoint_disabled', 'the endpoint was disabled meanwhile');
      return target !== undefined && type !== INBOX_TYPE;
    });
    yield await findMissingOf(selected, endpoint, parts);
    after = next;
  } while (after !== undefined);
}

async function findMissingOf(
  events: readonly EventRecord[],
  endpoint: string,
  { queue, registry }: OperationParts,
): Promise<readonly Missing[]> {
  const existing = await Promise.all(
    events.map(({ id, deliveries }) => (deliveries === 0 ? undefined : queue.find({ event: id, endpoint }, { limit: 1 }))),
  );
  const candidates = events.filter((_, i) => (existing[i]?.deliveries.length ?? 0) === 0);
  const found: Missing[] = [];
  for (let at = 0; at < candidates.length; at += BODIES_AT_ONCE) {
    const stored = await Promise.all(candidates.slice(at, at + BODIES_AT_ONCE).map(({ id }) => queue.getEvent(id)));
    for (const event of stored) {
      if (event === undefined || event.isErased || event.metadata === OWN_METADATA) continue;
      if (parseInboxMetadata(event.metadata) !== undefined) continue;
      const { id, type, tenant, body } = event;
      const target = registry.match(endpoint, { type, tenant, data: readData(body) });
      if (target !== undefined) found.push({ event: id, orderKey: target.orderKey });
    }
  }
  return found;
}

/** Of the envelope, which this program built. */
function readData(body: Buffer): Readonly<Record<string, unknown>> {
  return (JSON.parse(body.toString()) as { readonly data: Readonly<Record<string, unknown>> }).data;
}
