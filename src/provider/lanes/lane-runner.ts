/** Runs lanes for a delivery queue, within limits that all lanes of the process share. */
import type { Clock, Milliseconds } from '../../core/clock.ts';
import type { Sender } from '../attempt/attempt.ts';
import type { EndpointRegistry } from '../endpoints/registry.ts';
import type { DeliveryQueue, RunLane } from '../queue/delivery-queue.ts';
import type { LaneHooks } from '../telemetry/hooks.ts';
import { AbsentEndpoints } from './absent-endpoints.ts';
import { LaneRun } from './lane-run.ts';
import type { DisablePolicy } from './lane-state.ts';
import { MemoryBudget } from './memory-budget.ts';
import { OperationalEvents } from './operational-events.ts';
import { type SlotFigures, type SlotLimits, SlotPool } from './slot-pool.ts';

export interface LaneSettings extends SlotLimits {
  readonly disable: DisablePolicy;
  /** The largest body of an event, in bytes, until `setMaxBody`. */
  readonly maxEventSize: number;
  /** Of deliveries that wait or have young attempts. The largest event may always be sent. */
  readonly maxWaitingBytes: number;
  /** How long attempts in flight may take when the queue stops; then they are aborted, and made again later. */
  readonly drainTimeout: Milliseconds;
}

export interface LaneRunnerParts {
  readonly clock: Clock;
  readonly queue: Pick<DeliveryQueue, 'append'>;
  readonly registry: EndpointRegistry;
  readonly sender: Pick<Sender, 'send'>;
  readonly hooks: LaneHooks;
  readonly settings: LaneSettings;
  /** 0 to 1; by default random. */
  readonly random?: () => number;
}

export interface LaneRunner {
  /** For `DeliveryQueue.serve`. */
  readonly run: RunLane;
  readonly slots: SlotFigures;
  /** Changes the size of the largest body that a delivery can have. */
  setMaxBody(bytes: number): void;
}

/** For the metadata, and the objects around it. */
const DELIVERY_EXTRA_BYTES = 66 * 1_024;

/** How many lanes to serve at once: each attempt in flight holds one, and those that wait for a slot must not hold up the others. */
export function toLaneCount({ maxConnections }: Pick<SlotLimits, 'maxConnections'>): number {
  return 2 * maxConnections;
}

export function createLaneRunner(parts: LaneRunnerParts): LaneRunner {
  const { clock, registry, sender, hooks, settings, random = Math.random } = parts;
  const budget = new MemoryBudget(settings.maxWaitingBytes, settings.maxEventSize + DELIVERY_EXTRA_BYTES, clock);
  const slots = new SlotPool(settings, budget, clock);
  const absent = new AbsentEndpoints({ clock, budget, slots, hooks });
  const operational = new OperationalEvents(parts);
  const ending = { clock, random, registry, operational, hooks, disable: settings.disable };
  const context = { ending, registry, sender, budget, slots, drainTimeout: settings.drainTimeout };
  return {
    async run(lane) {
      const endpoint = registry.get(lane.endpoint);
      if (endpoint === undefined && registry.isElsewhere?.(lane.endpoint) === true) return absent.leave();
      if (endpoint === undefined || endpoint.disabled !== undefined) return absent.serve(lane, endpoint);
      await absent.end(lane);
      return new LaneRun(context, lane, endpoint).run();
    },
    setMaxBody: (bytes) => budget.setLargest(bytes + DELIVERY_EXTRA_BYTES),
    get slots() {
      return slots.figures;
    },
  };
}
