/** The contract of the delivery queue: one suite, which every engine passes. */
import { afterEach, beforeEach, describe } from 'vitest';
import type { DeliveryQueue } from '../../src/provider/queue/delivery-queue.ts';
import type { CreateQueueStore, QueueOver, QueueStore } from '../support/queue/store.ts';
import { describeAppending } from './delivery-queue-append.contract.ts';
import { describeCrashes } from './delivery-queue-crash.contract.ts';
import { describeLanes } from './delivery-queue-lanes.contract.ts';
import { describeModel } from './delivery-queue-model.contract.ts';
import { describeOrder } from './delivery-queue-order.contract.ts';
import { describeRecords } from './delivery-queue-records.contract.ts';
import { describeReplays } from './delivery-queue-replay.contract.ts';
import { describeSettling } from './delivery-queue-settle.contract.ts';
import { describeShares } from './delivery-queue-shares.contract.ts';
import { describeEndpointStore } from './endpoint-store.contract.ts';

/** An empty store for each test. */
export interface QueueFixture {
  readonly store: () => QueueStore;
  /** A queue on the store; it is closed after the test. */
  readonly open: (over?: QueueOver) => Promise<DeliveryQueue>;
  /** Closes a queue before the test ends. */
  readonly close: (queue: DeliveryQueue) => Promise<void>;
}

const PARTS: readonly ((fixture: QueueFixture) => void)[] = [
  describeAppending,
  describeLanes,
  describeSettling,
  describeRecords,
  describeReplays,
  describeShares,
  describeOrder,
  describeEndpointStore,
  describeCrashes,
  describeModel,
];

/** The suite, or some parts of it. */
export function describeDeliveryQueue(name: string, create: CreateQueueStore, parts = PARTS): void {
  // Thousands of deliveries through a database take seconds, and more on a busy machine.
  describe(name, { timeout: 60_000 }, () => {
    const fixture = useStore(create);
    for (const describePart of parts) describePart(fixture);
  });
}

function useStore(create: CreateQueueStore): QueueFixture {
  const opened = new Set<DeliveryQueue>();
  let store: QueueStore | undefined;
  const get = (): QueueStore => {
    if (store === undefined) throw new Error('no test is running');
    return store;
  };
  const close = async (queue: DeliveryQueue): Promise<void> => {
    opened.delete(queue);
    await queue.close();
  };
  beforeEach(async () => {
    store = await create();
  });
  afterEach(async () => {
    for (const queue of [...opened]) await close(queue);
    await get().remove();
    store = undefined;
  });
  return {
    store: get,
    open: async (over) => {
      const queue = await get().open(over);
      opened.add(queue);
      return queue;
    },
    close,
  };
}
