/** A lane, a sender, a registry and recording hooks in memory, for tests of what a lane run does. Engines are tested with their own stores. */
import type { AttemptResult, Sender } from '../../../src/provider/attempt/attempt.ts';
import type { DisabledReason, Endpoint, EndpointRegistry, Target } from '../../../src/provider/endpoints/endpoint.ts';
import type { LaneParts } from '../../../src/provider/lanes/end-attempt.ts';
import { createLaneRunner, type LaneRunner } from '../../../src/provider/lanes/lane-runner.ts';
import { toRank } from '../../../src/provider/lanes/lane-state.ts';
import {
  type Delivery,
  FRESH_MS,
  type Lane,
  type LaneResult,
  type LaneState,
  type NewEvent,
  type SettledDelivery,
  type TakeOnly,
} from '../../../src/provider/queue/delivery-queue.ts';
import type { LaneHooks } from '../../../src/provider/telemetry/hooks.ts';
import type { FakeClock } from '../fake-clock.ts';
import { aDelivery } from './endpoint.ts';

const NO_STATE: LaneState = { failures: 0, isProven: false, since: 0 };

/** The lane of one endpoint; what is not settled is due. */
export class FakeLane implements Lane {
  readonly endpoint: string;
  state: LaneState | undefined;
  readonly deliveries: Delivery[] = [];
  /** One entry for each call. */
  readonly settled: (readonly SettledDelivery[])[] = [];
  takes = 0;
  isOutdated = false;
  needs: number | undefined;
  isLeft = false;
  /** If set, `settle` rejects. */
  failure: Error | undefined;
  readonly #controller = new AbortController();
  readonly #taken = new Set<string>();

  constructor(endpoint = 'acme', state?: LaneState) {
    this.endpoint = endpoint;
    this.state = state;
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  abort(): void {
    this.#controller.abort();
  }

  /** Deliveries that were taken and not settled. */
  get taken(): number {
    return this.#taken.size;
  }

  add(count: number, overrides: Partial<Delivery> = {}): void {
    for (let i = 0; i < count; i++)
      this.deliveries.push(aDelivery(`msg_${this.deliveries.length + 1}`, { endpoint: this.endpoint, ...overrides }));
  }

  /** What was not settled is due again. */
  returnTaken(): void {
    this.#taken.clear();
  }

  /** A delivery that waits is canceled, although it may be taken. */
  cancel(event: string): void {
    this.deliveries.splice(
      this.deliveries.findIndex((delivery) => delivery.event === event),
      1,
    );
    this.isOutdated = true;
  }

  giveBack(deliveries: readonly Delivery[]): void {
    this.isOutdated = false;
    for (const { event } of deliveries) this.#taken.delete(event);
  }

  /** As an engine: by rank, then in the order in which they were added. */
  take(limit: number, now: number, only?: TakeOnly, maxBytes = Number.POSITIVE_INFINITY): Promise<readonly Delivery[]> {
    this.takes++;
    let left = maxBytes;
    const rank = (delivery: Delivery): number => toRank(delivery, this.state ?? NO_STATE);
    const due = this.deliveries
      .filter(
        (delivery) =>
          delivery.due <= now &&
          !this.#taken.has(delivery.event) &&
          (only !== 'first' || rank(delivery) === 0) &&
          (only === undefined || only === 'heads' || rank(delivery) < 2) &&
          (only !== 'fresh' || delivery.due > now - FRESH_MS),
      )
      .sort((a, b) => rank(a) - rank(b) || (only === 'fresh' ? b.due - a.due : 0))
      .slice(0, limit);
    const tooMany = due.findIndex(({ body }) => {
      left -= body.length;
      return left < 0;
    });
    this.needs = due[tooMany]?.body.length;
    const taken = tooMany === -1 ? due : due.slice(0, tooMany);
    for (const { event } of taken) this.#taken.add(event);
    return Promise.resolve(taken);
  }

  settle(settled: readonly SettledDelivery[], state: LaneState): Promise<void> {
    if (this.failure !== undefined) return Promise.reject(this.failure);
    this.settled.push(settled);
    this.state = state;
    for (const { event, settlement } of settled) {
      this.#taken.delete(event);
      const at = this.deliveries.findIndex((delivery) => delivery.event === event);
      const [delivery] = this.deliveries.splice(at, 1);
      if (delivery === undefined) continue;
      const { attempt, tries } = delivery;
      if (settlement.kind === 'retry')
        this.deliveries.push({ ...delivery, attempt: attempt + 1, tries: tries + 1, due: settlement.due });
      if (settlement.kind === 'postponed') this.deliveries.push({ ...delivery, due: settlement.due });
    }
    return Promise.resolve();
  }

  /** The kinds of all settlements, in order. */
  get kinds(): string[] {
    return this.settled.flat().map(({ settlement }) => settlement.kind);
  }
}

/** An attempt that the test ends. */
export interface HeldAttempt {
  readonly delivery: Delivery;
  readonly endpoint: Endpoint;
  readonly end: (result: AttemptResult) => void;
}

/** Holds each attempt until the test ends it, unless `respond` is set. Aborts as a sender does. */
export class FakeSender implements Pick<Sender, 'send'> {
  readonly inFlight: HeldAttempt[] = [];
  readonly started: Delivery[] = [];
  respond: ((delivery: Delivery, endpoint: Endpoint) => AttemptResult | Promise<AttemptResult> | undefined) | undefined;

  isReachable?: NonNullable<Sender['isReachable']>;

  send(delivery: Delivery, endpoint: Endpoint, signal: AbortSignal): Promise<AttemptResult> {
    this.started.push(delivery);
    const response = this.respond?.(delivery, endpoint);
    if (response !== undefined) return Promise.resolve(response);
    return new Promise((resolve) => {
      const held: HeldAttempt = {
        delivery,
        endpoint,
        end: (result) => {
          this.inFlight.splice(this.inFlight.indexOf(held), 1);
          resolve(result);
        },
      };
      this.inFlight.push(held);
      signal.addEventListener('abort', () => held.end({ outcome: 'aborted', startedAt: 0, duration: 1, isSent: true }));
    });
  }
}

/** Endpoints that the test changes. */
export class FakeRegistry implements EndpointRegistry {
  readonly endpoints = new Map<string, Endpoint>();
  readonly disabled: (readonly [id: string, reason: DisabledReason])[] = [];
  operational: readonly Target[] = [];
  /** What another replica stored: it is known once a delivery was taken with this version. */
  stored: { readonly version: number; readonly endpoint?: Endpoint } | undefined;
  /** If set, the store cannot be read. */
  failure: Error | undefined;
  /** If set, there are other replicas. */
  isElsewhere?: NonNullable<EndpointRegistry['isElsewhere']>;

  async catchUp(id: string, version?: number): Promise<void> {
    const { stored } = this;
    if (stored === undefined || stored.version !== version) return;
    if (this.failure !== undefined) throw this.failure;
    this.stored = undefined;
    if (stored.endpoint === undefined) this.endpoints.delete(id);
    else this.set(stored.endpoint);
  }

  set(endpoint: Endpoint): void {
    this.endpoints.set(endpoint.id, endpoint);
  }

  get(id: string): Endpoint | undefined {
    return this.endpoints.get(id);
  }

  list(): readonly Endpoint[] {
    return [...this.endpoints.values()];
  }

  routeOperational(): readonly Target[] {
    return this.operational;
  }

  disable(id: string, reason: DisabledReason, at: number): Promise<boolean> {
    const endpoint = this.endpoints.get(id);
    if (endpoint === undefined || endpoint.disabled !== undefined) return Promise.resolve(false);
    this.endpoints.set(id, { ...endpoint, disabled: { at, reason } });
    this.disabled.push([id, reason]);
    return Promise.resolve(true);
  }
}

/** What the hooks were told, as lines. */
export function recordHooks(lines: string[]): LaneHooks {
  return {
    onAttempt: ({ id }, { event }, { outcome }, decision) => lines.push(`attempt ${id} ${event} ${outcome} ${decision?.kind}`),
    onExhausted: ({ id }, { event }, reason) => lines.push(`exhausted ${id} ${event} ${reason}`),
    onSkipped: (id, count) => lines.push(`skipped ${id} ${count}`),
    onDisabled: ({ id }, reason) => lines.push(`disabled ${id} ${reason}`),
    onBreaker: ({ id }, state) => lines.push(`breaker ${id} ${state}`),
    onFailing: ({ id }, until) => lines.push(`failing ${id} ${until}`),
    onOperationalEventLost: (type) => lines.push(`lost ${type}`),
  };
}

export const LANE_SETTINGS: LaneParts['settings'] = {
  maxConcurrency: 64,
  maxConnections: 512,
  disable: { after: 5 * 24 * 3_600_000, attempts: 20 },
  maxWaitingBytes: 32 * 1_024 * 1_024,
  maxSlowBytes: 64 * 1_024 * 1_024,
  drainTimeout: 1_000,
};

/** A lane runner with everything around it. */
export interface LaneScene {
  /** As an engine serves a lane. */
  readonly run: (lane: FakeLane) => Promise<LaneResult>;
  readonly runner: LaneRunner;
  readonly sender: FakeSender;
  readonly registry: FakeRegistry;
  /** Operational events that were appended. */
  readonly appended: NewEvent[];
  readonly hooks: string[];
  /** If set, `append` rejects. */
  failAppend: Error | undefined;
}

export function createLaneScene(
  clock: FakeClock,
  endpoints: readonly Endpoint[],
  settings: Partial<LaneParts['settings']> = {},
): LaneScene {
  const registry = new FakeRegistry();
  for (const endpoint of endpoints) registry.set(endpoint);
  const sender = new FakeSender();
  const appended: NewEvent[] = [];
  const hooks: string[] = [];
  const scene: { failAppend: Error | undefined } = { failAppend: undefined };
  const queue = {
    append(events: readonly NewEvent[]) {
      if (scene.failAppend !== undefined) return Promise.reject(scene.failAppend);
      appended.push(...events);
      return Promise.resolve(events.map(() => 'stored' as const));
    },
  };
  const runner = createLaneRunner({
    clock,
    queue,
    registry,
    sender,
    hooks: recordHooks(hooks),
    settings: { ...LANE_SETTINGS, ...settings },
    random: () => 0.5,
  });
  const run = (lane: FakeLane) => runner.run(lane).finally(() => lane.returnTaken());
  return Object.assign(scene, { run, runner, sender, registry, appended, hooks });
}
