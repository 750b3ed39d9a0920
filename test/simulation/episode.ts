/** One simulated world from start to end: work and faults, then quiet, then the checks, then an orderly stop. */
import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { toErrorText } from '../../src/core/errors.ts';
import { ESCAPED_ERRORS, type EscapedError } from '../../src/core/safe-events.ts';
import { AppNode } from './app-node.ts';
import { Chaos } from './chaos.ts';
import type { FaultLevel } from './faults.ts';
import { GateNode } from './gate-node.ts';
import { findViolations } from './invariants.ts';
import { findLeftovers } from './leftovers.ts';
import { type Configs, PROVIDER_MACHINE, SENDER_MACHINE, toGateMachine, type WorldShape } from './machine-config.ts';
import { enterSimulation, leaveSimulation } from './platform.ts';
import { Poster } from './poster.ts';
import { RedisNode } from './redis-node.ts';
import { SeededRandom } from './seeded-random.ts';
import { Senders } from './senders.ts';
import { World } from './world.ts';

export interface EpisodeResult {
  readonly seed: number;
  readonly hash: string;
  readonly hours: number;
  readonly executed: number;
  readonly violations: readonly string[];
  readonly counts: ReadonlyMap<string, number>;
  /** The last part of the trace. */
  readonly tail: readonly string[];
}

const HOUR_MS = 3_600_000;
const START_MS = 5_000;
/** The longest wait for senders, schedules and leases after the last fault. */
const MAX_QUIET_MS = 12 * HOUR_MS;
/** Until the last copy of a delivery was sent. */
const LAST_ATTACK_MS = 1_500_000;
const QUIET_STEP_MS = 600_000;
const EVENTS_PER_HOUR = 45;
/** Of events: how many start a new burst. */
const BURST_SHARE = 0.2;

/** What a seed decides before the world starts. */
interface Plan extends WorldShape {
  readonly level: FaultLevel;
  readonly hours: number;
}

export function planEpisode(seed: number): Plan {
  const random = new SeededRandom(seed ^ 0x5eed);
  const replicas = 1 + random.below(3);
  const level = random.pick(['none', 'sparse', 'sparse', 'dense'] as const);
  return {
    replicas,
    hasRedis: replicas > 1 || random.isLikely(0.5),
    hasProvider: random.isLikely(0.6),
    leaseSeconds: random.pick([11, 15, 60]),
    inProgress: random.pick(['wait', 'wait', 'reject']),
    onStoreError: random.pick(['refuse', 'refuse', 'refuse', 'forward']),
    level,
    // An hour with many faults takes much more work.
    hours: level === 'dense' ? 2 : random.pick([3, 4, 8]),
  };
}

/** Runs the world of a seed; equal seeds give equal hashes. `isTraced`: keeps the whole trace. */
export async function runEpisode(seed: number, configs: Configs, isTraced: boolean): Promise<EpisodeResult> {
  const plan = planEpisode(seed);
  const world = new World(seed, plan.level);
  if (isTraced) world.scheduler.trace.kept = Number.POSITIVE_INFINITY;
  const episode = new Episode(world, plan, configs);
  await episode.prepare();
  const onEscaped = (message: unknown): void => {
    world.ledger.alarms.push(
      `an exception escaped: ${(message as EscapedError).site}: ${toErrorText((message as EscapedError).error)}`,
    );
  };
  subscribe(ESCAPED_ERRORS, onEscaped);
  enterSimulation(world.toPlatform());
  try {
    const violations = await episode.run();
    return {
      seed,
      hash: world.scheduler.trace.hash,
      hours: world.scheduler.now / HOUR_MS,
      executed: world.scheduler.executed,
      violations,
      counts: world.ledger.counts,
      tail: world.scheduler.trace.tail,
    };
  } finally {
    world.close();
    leaveSimulation();
    unsubscribe(ESCAPED_ERRORS, onEscaped);
    configs.forgetQueue();
  }
}

class Episode {
  readonly #world: World;
  readonly #plan: Plan;
  readonly #configs: Configs;
  readonly #gates: GateNode[] = [];
  readonly #apps: AppNode[] = [];
  readonly #redis: RedisNode | undefined;
  #senders: Senders | undefined;
  #poster: Poster | undefined;

  constructor(world: World, plan: Plan, configs: Configs) {
    this.#world = world;
    this.#plan = plan;
    this.#configs = configs;
    this.#redis = plan.hasRedis ? new RedisNode(world) : undefined;
  }

  /** Reads the configs, before virtual time starts. */
  async prepare(): Promise<void> {
    const { replicas, hasProvider } = this.#plan;
    for (let index = 0; index < replicas; index++) {
      const machine = toGateMachine(index);
      const ready = await this.#configs.read(this.#configs.toGateSections(machine, this.#plan));
      this.#gates.push(new GateNode(this.#world, `gate ${index}`, machine, ready));
      this.#apps.push(new AppNode(this.#world, machine));
    }
    if (hasProvider) {
      const ready = await this.#configs.read(this.#configs.toProviderSections(this.#plan));
      this.#gates.push(new GateNode(this.#world, 'provider', PROVIDER_MACHINE, ready));
      this.#apps.push(new AppNode(this.#world, PROVIDER_MACHINE));
    }
    this.#world.nodes.push(...this.#gates, ...this.#apps, ...(this.#redis === undefined ? [] : [this.#redis]));
  }

  async run(): Promise<string[]> {
    const { scheduler, ledger } = this.#world;
    const { level, hours } = this.#plan;
    for (const node of this.#world.nodes) node.start();
    await scheduler.run(START_MS);
    const targets = { gates: this.#gates, apps: this.#apps, redis: this.#redis, senderMachine: SENDER_MACHINE };
    const chaos = level === 'none' ? undefined : new Chaos(this.#world, targets, level);
    this.#scheduleWork(hours * HOUR_MS, (at) => chaos?.scheduleStorm(at));
    chaos?.start();
    await scheduler.run(hours * HOUR_MS);
    chaos?.heal();
    await this.#waitForQuiet();
    const deliveries = await this.#list();
    const leftovers = await findLeftovers(this.#world, this.#gates, () => this.#closeClients());
    return [...findViolations(ledger, this.#plan, deliveries), ...leftovers];
  }

  #scheduleWork(until: number, onBurst: (at: number) => void): void {
    const { random } = this.#world.scheduler;
    const targets = this.#gates.map(({ machine }) => machine).filter((machine) => machine !== PROVIDER_MACHINE);
    const senders = new Senders(this.#world, targets);
    this.#senders = senders;
    const count = Math.round((until / HOUR_MS) * EVENTS_PER_HOUR);
    const versions = new Map<number, number>();
    // In bursts: events that come together compete.
    let burst = START_MS;
    for (let number = 0; number < count; number++) {
      if (random.isLikely(BURST_SHARE)) {
        burst = random.between(START_MS, until);
        onBurst(burst);
      }
      const at = burst + random.skewed(0, 5_000);
      if (random.isLikely(0.25)) {
        const resource = random.below(4);
        const version = (versions.get(resource) ?? 0) + 1;
        versions.set(resource, version);
        senders.schedule(at, `ord-${resource}-${version}`, 'ordered', { resource: `res${resource}`, version });
      } else senders.schedule(at, `evt-${number}`, 'hooks', {});
      if (random.isLikely(0.15)) senders.scheduleAttack(at + random.skewed(0, 60_000), number);
    }
    if (this.#plan.hasProvider) this.#scheduleProvider(until, count, onBurst);
  }

  #scheduleProvider(until: number, count: number, onBurst: (at: number) => void): void {
    const { random } = this.#world.scheduler;
    const poster = new Poster(this.#world);
    this.#poster = poster;
    let burst = START_MS;
    for (let number = 0; number < count / 2; number++) {
      if (random.isLikely(BURST_SHARE)) {
        burst = random.between(START_MS, until);
        onBurst(burst);
      }
      const at = burst + random.skewed(0, 5_000);
      const tenant = random.isLikely(0.03) ? 'nowhere' : `receiver-${random.below(this.#plan.replicas)}`;
      if (random.isLikely(0.5)) this.#senders?.schedule(at, `inbox-${number}`, 'inbox', {}, [PROVIDER_MACHINE]);
      else poster.schedule(at, `post-${number}`, tenant, `customer-${random.below(5)}`);
    }
  }

  async #waitForQuiet(): Promise<void> {
    const { scheduler } = this.#world;
    const last = scheduler.now + MAX_QUIET_MS;
    await scheduler.run(scheduler.now + LAST_ATTACK_MS);
    do await scheduler.run(scheduler.now + QUIET_STEP_MS);
    while (scheduler.now < last && !(await this.#isQuiet()));
  }

  async #isQuiet(): Promise<boolean> {
    if ((this.#senders?.pending ?? 0) + (this.#poster?.pending ?? 0) > 0) return false;
    const deliveries = await this.#list();
    return deliveries?.every(({ state }) => state === 'delivered' || state === 'dead') !== false;
  }

  async #list(): Promise<Awaited<ReturnType<Poster['list']>>> {
    const { scheduler } = this.#world;
    const poster = this.#poster;
    if (poster === undefined) return undefined;
    let isDone = false;
    let found: Awaited<ReturnType<Poster['list']>>;
    poster.run(async () => {
      found = await poster.list();
      isDone = true;
    });
    await scheduler.run(scheduler.now + 120_000, () => isDone);
    return found;
  }

  #closeClients(): void {
    this.#senders?.close();
    this.#poster?.close();
  }
}
