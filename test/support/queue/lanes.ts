/** Serves lanes by hand, so that a test decides what happens in each and when it ends. */
import type { Delivery, DeliveryQueue, Lane, LaneResult, Serving } from '../../../src/provider/queue/delivery-queue.ts';
import { until } from '../gate.ts';
import { PROVEN, settled } from './events.ts';

/** A lane run that the test holds. */
export interface HeldLane {
  readonly lane: Lane;
  readonly end: (result?: LaneResult) => void;
  readonly fail: (error: Error) => void;
}

/** Lanes that a queue serves. */
export interface HeldLanes {
  /** Runs that were started and not ended, oldest first. */
  readonly running: readonly HeldLane[];
  /** How many runs were started. */
  readonly started: () => number;
  /** Waits for a run for the endpoint. */
  readonly next: (endpoint?: string) => Promise<HeldLane>;
  /** Ends all runs, and stops. */
  readonly stop: () => Promise<void>;
}

/** Serves `queue`; each run lasts until the test ends it. */
export function holdLanes(queue: DeliveryQueue, lanes = 10): HeldLanes {
  const running: HeldLane[] = [];
  let started = 0;
  let isStopping = false;
  const serving = queue.serve(lanes, (lane) => {
    started++;
    if (isStopping) return Promise.resolve({});
    return new Promise<LaneResult>((resolve, reject) => {
      const leave = (): void => {
        const at = running.findIndex((each) => each.lane === lane);
        if (at !== -1) running.splice(at, 1);
      };
      running.push({
        lane,
        end: (result = {}) => {
          leave();
          resolve(result);
        },
        fail: (error) => {
          leave();
          reject(error);
        },
      });
    });
  });
  return {
    running,
    started: () => started,
    next: (endpoint) => until(() => running.find(({ lane }) => endpoint === undefined || lane.endpoint === endpoint)),
    stop: async () => {
      isStopping = true;
      const stopped = serving.stop();
      for (const { end } of [...running]) end();
      await stopped;
    },
  };
}

/** What `deliverAll` does with a delivery. */
export type Receive = (delivery: Delivery, lane: Lane) => void;

/** Serves `queue` with runs that deliver all that is due, and tells `receive` of each delivery before it is settled. */
export function deliverAll(queue: DeliveryQueue, now: () => number, receive: Receive, lanes = 10): Serving {
  return queue.serve(lanes, async (lane) => {
    for (;;) {
      const deliveries = await lane.take(4, now());
      if (deliveries.length === 0 || lane.signal.aborted) return {};
      for (const delivery of deliveries) receive(delivery, lane);
      await lane.settle(
        deliveries.map((delivery) => settled(delivery, { kind: 'delivered' }, now())),
        PROVEN,
      );
    }
  });
}

/** Delivers until nothing waits; returns the deliveries in order. */
export async function drain(queue: DeliveryQueue, now: () => number): Promise<Delivery[]> {
  const received: Delivery[] = [];
  const serving = deliverAll(queue, now, (delivery) => received.push(delivery));
  await until(async () => (await queue.stats(now())).waiting === 0);
  await serving.stop();
  return received;
}
