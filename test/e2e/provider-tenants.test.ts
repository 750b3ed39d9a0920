/** No sequence of calls delivers an event to an endpoint of another tenant: random sequences, with the API, the SQLite engine and the lanes. */
import { onTestFinished, test } from 'vitest';
import { createLaneRunner, toLaneCount } from '../../src/provider/lanes/lane-runner.ts';
import { DELIVERY_STATES, type Delivery, type DeliveryQueue } from '../../src/provider/queue/delivery-queue.ts';
import { FakeClock, settle } from '../support/fake-clock.ts';
import { fc } from '../support/property.ts';
import { startApiOver, type TestApi } from '../support/provider/api.ts';
import { responded } from '../support/provider/endpoint.ts';
import { DEFAULTS, toConfigEndpoint } from '../support/provider/endpoints.ts';
import { LANE_SETTINGS, recordHooks } from '../support/provider/fake-lane.ts';
import { makeQueueFolder, openSqliteQueue } from '../support/queue/sqlite-store.ts';

const RUNS = 20;
const STEPS = { minLength: 50, maxLength: 150, size: 'max' } as const;
/** Deliveries to an endpoint that was deleted are skipped after 15 minutes of looks at it. */
const SKIP_MS = 16 * 60_000;
const LOOK_MS = 29_000;
const TIME_LIMIT_MS = 60_000;

/** Whose receiver an endpoint's URL is. An event belongs to one of the first three. */
type Owner = 'none' | 't1' | 't2' | 'all';
const OWNERS = ['none', 't1', 't2', 'all'] as const satisfies readonly Owner[];
const ACTIONS = ['disable', 'enable', 'rotate-secret', 'test'] as const;
const owner = fc.constantFrom(...OWNERS);
const endpoint = fc.constantFrom('a', 'b');
/** Counted back from the newest. */
const event = fc.nat({ max: 3 });

const step = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({ do: fc.constant('post' as const), owner: fc.constantFrom('none', 't1', 't2'), isNew: fc.boolean() }),
  },
  { weight: 4, arbitrary: fc.record({ do: fc.constant('create' as const), endpoint, owner }) },
  {
    weight: 2,
    arbitrary: fc.record({ do: fc.constant('change' as const), endpoint, owner, method: fc.constantFrom('PATCH', 'PUT') }),
  },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('act' as const), endpoint, action: fc.constantFrom(...ACTIONS) }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constant('delete' as const), endpoint }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constant('retry' as const), event, endpoint }) },
  {
    weight: 4,
    arbitrary: fc.record({
      do: fc.constant('repair' as const),
      action: fc.constantFrom('retry', 'retry', 'recover', 'cancel', 'purge'),
      endpoint: fc.option(endpoint, { nil: undefined }),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({ do: fc.constant('reload' as const), endpoint, owner: fc.option(owner, { nil: undefined }) }),
  },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('respond' as const), status: fc.constantFrom(200, 400, 500) }) },
  { weight: 6, arbitrary: fc.record({ do: fc.constant('wait' as const), time: fc.constantFrom(0, 6_000) }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('wait' as const), time: fc.constant(SKIP_MS) }) },
);
type Step = typeof step extends fc.Arbitrary<infer T> ? T : never;

const toUrl = (of: Owner): string => `https://${of}.example/hooks`;
const toTenant = (of: Owner): object => {
  if (of === 'none') return {};
  return of === 'all' ? { allTenants: true } : { tenant: of };
};

/** The API, a queue and the lanes. Bodies name their owner, and so do URLs. */
class World {
  readonly #clock: FakeClock;
  readonly #queue: DeliveryQueue;
  readonly #api: TestApi<DeliveryQueue>;
  readonly #stop: () => Promise<void>;
  #status = 200;
  #events = 0;
  sent = 0;
  /** Deliveries to the receiver of another tenant. */
  readonly strays: string[] = [];

  static async open(): Promise<World> {
    const { path, remove } = makeQueueFolder();
    const clock = new FakeClock();
    const queue = await openSqliteQueue(path, { clock });
    return new World(clock, queue, await startApiOver(queue, { clock }), remove);
  }

  private constructor(clock: FakeClock, queue: DeliveryQueue, api: TestApi<DeliveryQueue>, remove: () => void) {
    this.#clock = clock;
    this.#queue = queue;
    this.#api = api;
    const { registry } = api;
    const sender = {
      send: (delivery: Delivery, { url }: { readonly url: string }) => Promise.resolve(this.#receive(delivery, url)),
    };
    const runner = createLaneRunner({ clock, queue, registry, sender, hooks: recordHooks([]), settings: LANE_SETTINGS });
    const serving = queue.serve(toLaneCount(LANE_SETTINGS), runner.run);
    this.#stop = async () => {
      api.stop();
      await serving.stop();
      await queue.close();
      remove();
    };
  }

  #receive({ event: id, body }: Delivery, url: string) {
    this.sent++;
    const of = (JSON.parse(body.toString()) as { data: { owner: Owner } }).data.owner;
    const receiver = new URL(url).hostname.split('.')[0];
    if (receiver !== 'all' && receiver !== of) this.strays.push(`${id} of ${of} to ${receiver}`);
    return responded(this.#status);
  }

  close(): Promise<void> {
    return this.#stop();
  }

  async run(given: Step): Promise<void> {
    const call = (method: string, path: string, body?: object) => this.#api.request(method, `/v1${path}`, body);
    switch (given.do) {
      case 'post':
        await call('POST', '/events', {
          ...{ id: `e${given.isNew ? ++this.#events : this.#events}`, type: 'a', data: { owner: given.owner } },
          ...toTenant(given.owner),
        });
        return;
      case 'create':
        await call('POST', '/endpoints', { id: given.endpoint, url: toUrl(given.owner), ...toTenant(given.owner) });
        return;
      case 'change': {
        const other = given.owner === 'all' ? { tenant: null, allTenants: true } : { allTenants: false };
        const body = { ...(given.method === 'PATCH' && { tenant: null, ...other }), ...toTenant(given.owner) };
        await call(given.method, `/endpoints/${given.endpoint}`, { url: this.#toOwnUrl(given.endpoint, given.owner), ...body });
        return;
      }
      case 'act': {
        const of = this.#findOwner(given.endpoint);
        const data = given.action === 'test' ? { data: { owner: of === 'all' ? 'none' : of } } : undefined;
        await call('POST', `/endpoints/${given.endpoint}/${given.action}`, data);
        return;
      }
      case 'delete':
        await call('DELETE', `/endpoints/${given.endpoint}`);
        return;
      case 'retry':
        await call('POST', `/deliveries/e${this.#events - given.event}~${given.endpoint}/retry`);
        return;
      case 'repair': {
        const { action, endpoint: id } = given;
        const states = action === 'retry' ? { states: DELIVERY_STATES } : undefined;
        await call('POST', '/repairs', { action, endpoint: id, from: '2000-01-01T00:00:00Z', ...states });
        return;
      }
      case 'reload': {
        const { endpoint: id, owner: of } = given;
        const over = of === undefined ? undefined : { url: toUrl(of), tenant: undefined, ...toTenant(of) };
        this.#api.registry.replaceConfig(over === undefined ? [] : [toConfigEndpoint(id, over)], DEFAULTS);
        return;
      }
      case 'respond':
        this.#status = given.status;
        return;
      default:
        await this.#wait(given.time);
    }
  }

  /** A PUT that names no tenant keeps it, and must keep its receiver; any other change moves to the receiver of the new owner. */
  #toOwnUrl(id: string, of: Owner): string {
    return toUrl(of === 'none' ? (this.#findOwner(id) ?? of) : of);
  }

  #findOwner(id: string): Owner | undefined {
    const { url } = this.#api.registry.get(id) ?? {};
    return url === undefined ? undefined : (new URL(url).hostname.split('.')[0] as Owner);
  }

  async #wait(time: number): Promise<void> {
    for (let passed = 0; passed <= time; passed += LOOK_MS) {
      await this.#clock.advance(Math.min(LOOK_MS, time));
      for (let round = 0; round < (time > LOOK_MS ? 2 : 8); round++) {
        await this.#queue.stats(this.#clock.now());
        await settle();
      }
    }
  }
}

test('random sequences of calls never deliver an event to an endpoint of another tenant', async () => {
  let sent = 0;
  const open = new Set<World>();
  onTestFinished(() => Promise.all([...open].map((world) => world.close())).then(() => undefined));
  await fc.assert(
    fc.asyncProperty(owner, owner, fc.array(step, STEPS), async (ofA, ofB, steps) => {
      const world = await World.open();
      open.add(world);
      await world.run({ do: 'create', endpoint: 'a', owner: ofA });
      await world.run({ do: 'create', endpoint: 'b', owner: ofB });
      for (const each of steps) await world.run(each);
      await world.run({ do: 'wait', time: 0 });
      await world.close();
      open.delete(world);
      sent += world.sent;
      return world.strays.length === 0;
    }),
    // Shrinking a counterexample could take longer.
    { numRuns: RUNS, interruptAfterTimeLimit: TIME_LIMIT_MS },
  );
  if (sent < 5 * RUNS) throw new Error(`only ${sent} deliveries were sent: the sequences prove nothing`);
}, 120_000);
