import { describe, expect, test } from 'vitest';
import type { Delivery, DeliveryFilter, DeliveryQueue, DeliveryState } from '../../src/provider/queue/delivery-queue.ts';
import { until } from '../support/gate.ts';
import { fc } from '../support/property.ts';
import { newEvent, newId, PROVEN, settled } from '../support/queue/events.ts';
import type { QueueFixture } from './delivery-queue.contract.ts';

const ENDPOINTS = ['a', 'b', 'c'] as const;
const CREATED_AT = 1_700_000_000_000;

interface ModelDelivery {
  readonly event: string;
  readonly endpoint: string;
  readonly orderKey: string | undefined;
  state: DeliveryState;
  attempts: number;
}

/** Deliveries of an event that a step appends; `id` is one of a few, so that some are appended twice. */
interface Append {
  readonly kind: 'append';
  readonly events: readonly {
    readonly id: number;
    readonly targets: readonly { endpoint: string; key: number; isSkipped: boolean }[];
  }[];
}
/**
 * Delivers all that waits for `endpoints`; `retries` and `outcome` decide how often a delivery fails, and how it ends. `isRepaired`: each is canceled and
 * retried during its first attempt.
 */
interface Serve {
  readonly kind: 'serve';
  readonly endpoints: readonly string[];
  readonly retries: number;
  readonly outcome: number;
  readonly isRepaired: boolean;
}
interface Replay {
  readonly kind: 'replay';
  readonly filter: { readonly endpoint?: string; readonly state?: DeliveryState };
}
type Step = Append | Serve | Replay | { readonly kind: 'prune' } | { readonly kind: 'reopen' };

const target = fc.record({ endpoint: fc.constantFrom(...ENDPOINTS), key: fc.nat(2), isSkipped: fc.nat(9).map((n) => n === 0) });
const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 4,
    arbitrary: fc.record({
      kind: fc.constant('append' as const),
      events: fc.array(
        fc.record({ id: fc.nat(30), targets: fc.uniqueArray(target, { maxLength: 3, selector: ({ endpoint }) => endpoint }) }),
        { maxLength: 6 },
      ),
    }),
  },
  {
    weight: 3,
    arbitrary: fc.record({
      kind: fc.constant('serve' as const),
      endpoints: fc.subarray([...ENDPOINTS], { minLength: 1 }),
      retries: fc.nat(3),
      outcome: fc.nat(5),
      isRepaired: fc.boolean(),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      kind: fc.constant('replay' as const),
      filter: fc.record(
        { endpoint: fc.constantFrom(...ENDPOINTS), state: fc.constantFrom<DeliveryState>('delivered', 'dead', 'skipped') },
        { requiredKeys: [] },
      ),
    }),
  },
  { weight: 1, arbitrary: fc.constant({ kind: 'prune' as const }) },
  { weight: 1, arbitrary: fc.constant({ kind: 'reopen' as const }) },
);

const FINAL = ['delivered', 'delivered', 'dead', 'skipped'] as const;
const numberOf = (event: string): number => Number(event.split('_').at(-1));

/** How a delivery ends, and after how many failed attempts. */
function fate({ retries, outcome }: Serve, event: string): { readonly failures: number; readonly end: (typeof FINAL)[number] } {
  const n = numberOf(event);
  return { failures: (n + retries) % 3, end: FINAL[(n + outcome) % FINAL.length] ?? 'dead' };
}

/** The simplest queue that behaves as promised. */
class Model {
  readonly events = new Map<string, ModelDelivery[]>();

  append({ events }: Append, prefix: string): string[] {
    return events.map(({ id, targets }) => {
      const event = `${prefix}_${id}`;
      if (this.events.has(event)) return 'duplicate';
      const toDelivery = ({ endpoint, key, isSkipped }: (typeof targets)[number]): ModelDelivery => ({
        event,
        endpoint,
        orderKey: key === 0 ? undefined : `k${key}`,
        state: isSkipped ? 'skipped' : 'waiting',
        attempts: 0,
      });
      this.events.set(event, targets.map(toDelivery));
      return 'stored';
    });
  }

  /** Returns the events in the order in which each key's deliveries end. */
  serve(serve: Serve): Map<string, string[]> {
    const order = new Map<string, string[]>();
    for (const delivery of this.all()) {
      if (delivery.state !== 'waiting' || !serve.endpoints.includes(delivery.endpoint)) continue;
      const { failures, end } = fate(serve, delivery.event);
      delivery.attempts += failures + (end === 'skipped' ? 0 : 1);
      // The first attempt could not end it.
      if (serve.isRepaired && failures === 0 && end === 'dead') delivery.attempts++;
      delivery.state = end;
      if (delivery.orderKey === undefined) continue;
      const key = `${delivery.endpoint} ${delivery.orderKey}`;
      order.set(key, [...(order.get(key) ?? []), delivery.event]);
    }
    return order;
  }

  replay({ filter }: Replay): number {
    const matching = this.all().filter(
      ({ endpoint, state }) =>
        state !== 'waiting' && (filter.endpoint ?? endpoint) === endpoint && (filter.state ?? state) === state,
    );
    for (const delivery of matching) delivery.state = 'waiting';
    return matching.length;
  }

  prune(): number {
    const done = [...this.events].filter(([, deliveries]) => deliveries.every(({ state }) => state !== 'waiting'));
    for (const [event] of done) this.events.delete(event);
    return done.length;
  }

  all(): ModelDelivery[] {
    return [...this.events.values()].flat();
  }

  count(state: DeliveryState): number {
    return this.all().filter((delivery) => delivery.state === state).length;
  }
}

/** Checks random sequences of operations against a model. */
export function describeModel({ open, close, store }: QueueFixture): void {
  const now = (): number => store().clock.now();

  /** Returns the events in the order in which each key's deliveries ended. */
  async function serve(queue: DeliveryQueue, plan: Serve, keys: ReadonlyMap<string, string>): Promise<Map<string, string[]>> {
    const order = new Map<string, string[]>();
    const failed = new Map<string, number>();
    let begun = 0;
    let ended = 0;
    const repair = async (filter: DeliveryFilter): Promise<void> => {
      begun++;
      for (const action of ['cancel', 'retry'] as const)
        for await (const { total } of queue.repair(action, filter, now())) expect(total).toBe(1);
      ended++;
    };
    const serving = queue.serve(2, async (lane) => {
      if (!plan.endpoints.includes(lane.endpoint)) return { notBefore: now() + 3_600_000 };
      const taken = await lane.take(3, now());
      const isFirst = ({ event }: Delivery): boolean => plan.isRepaired && !failed.has(`${event} ${lane.endpoint}`);
      const repaired = new Set(taken.filter(isFirst));
      for (const { event, endpoint } of repaired) await repair({ event, endpoint });
      const outcomes = taken.map((delivery) => {
        const { failures, end } = fate(plan, delivery.event);
        const name = `${delivery.event} ${lane.endpoint}`;
        const before = failed.get(name) ?? 0;
        failed.set(name, before + 1);
        if (before < failures) return settled(delivery, { kind: 'retry', due: now() }, now());
        const key = end === 'delivered' || !repaired.has(delivery) ? keys.get(name) : undefined;
        if (key !== undefined) order.set(key, [...(order.get(key) ?? []), delivery.event]);
        return settled(delivery, { kind: end }, now());
      });
      await lane.settle(outcomes, PROVEN);
      return {};
    });
    // Those that an earlier step did not serve are paused.
    await Promise.all(ENDPOINTS.map((endpoint) => queue.wake(endpoint)));
    // None waits between a cancellation and the retry.
    await until(async () => {
      const before = ended;
      const isEmpty = (await queue.backlogs(plan.endpoints, now())).every(({ waiting }) => waiting === 0);
      return isEmpty && begun === before;
    });
    await serving.stop();
    return order;
  }

  async function check(queue: DeliveryQueue, model: Model): Promise<void> {
    expect(await queue.stats(now())).toMatchObject({
      storedEvents: model.events.size,
      waiting: model.count('waiting'),
      dead: model.count('dead'),
      skipped: model.count('skipped'),
    });
    const { found: deliveries } = await queue.find({}, { limit: 250 });
    const toLine = (delivery: { event: string; endpoint: string; state: string; attempts: number }): string =>
      `${delivery.event} ${delivery.endpoint} ${delivery.state} ${delivery.attempts}`;
    expect(deliveries.map(toLine).sort()).toEqual(model.all().map(toLine).sort());
  }

  async function play(steps: readonly Step[]): Promise<void> {
    const prefix = newId();
    const model = new Model();
    const keys = new Map<string, string>();
    let queue = await open();
    for (const each of steps) {
      if (each.kind === 'append') {
        const events = each.events.map(({ id, targets }) =>
          newEvent(
            targets.map(({ endpoint, key, isSkipped }) => ({ endpoint, isSkipped, ...(key > 0 && { orderKey: `k${key}` }) })),
            { id: `${prefix}_${id}`, createdAt: CREATED_AT },
          ),
        );
        expect(await queue.append(events)).toEqual(model.append(each, prefix));
        for (const { event, endpoint, orderKey } of model.all())
          if (orderKey !== undefined) keys.set(`${event} ${endpoint}`, `${endpoint} ${orderKey}`);
          else keys.delete(`${event} ${endpoint}`);
      } else if (each.kind === 'serve') {
        const order = await serve(queue, each, keys);
        expect(order).toEqual(model.serve(each));
      } else if (each.kind === 'replay') {
        const { endpoint, state } = each.filter;
        const filter: DeliveryFilter = { endpoint, states: state === undefined ? ['delivered', 'dead', 'skipped'] : [state] };
        let replayed = 0;
        for await (const progress of queue.repair('retry', filter, now())) replayed = progress.changed;
        expect(replayed).toBe(model.replay(each));
      } else if (each.kind === 'prune') {
        expect(await queue.prune(CREATED_AT + 1, CREATED_AT + 1, 1_000)).toBe(model.prune());
      } else {
        await close(queue);
        queue = await open();
      }
      await check(queue, model);
    }
    // Leaves an empty store to the next sequence.
    await serve(queue, { kind: 'serve', endpoints: ENDPOINTS, retries: 0, outcome: 0, isRepaired: false }, keys);
    await queue.prune(CREATED_AT + 1, CREATED_AT + 1, 1_000);
    await close(queue);
  }

  describe('any sequence of operations', () => {
    test('has the results that a simple model has', { timeout: 120_000 }, async () => {
      await fc.assert(fc.asyncProperty(fc.array(step, { maxLength: 14 }), play), { numRuns: 15, endOnFailure: true });
    });
  });
}
