/** Injects faults of processes, machines and networks, at times that the seed decides; those of messages are in faults.ts. */
import type { AppNode } from './app-node.ts';
import type { FaultLevel } from './faults.ts';
import type { GateNode } from './gate-node.ts';
import { PROVIDER_MACHINE, REDIS_MACHINE } from './machine-config.ts';
import type { RedisNode } from './redis-node.ts';
import { MAX_CLOCK_STEP_MS } from './senders.ts';
import type { Node, World } from './world.ts';

/** Between two faults, on average. */
const MEAN_GAP_MS: Readonly<Record<Exclude<FaultLevel, 'none'>, number>> = { sparse: 900_000, dense: 120_000 };
/** Of bursts of events: how many come in a storm. */
const STORM_SHARES: Readonly<Record<Exclude<FaultLevel, 'none'>, number>> = { sparse: 0.2, dense: 0.5 };
const MAX_OUTAGE_MS = 180_000;
const MAX_STORM_MS = 60_000;
/** The usual grace period of pods. */
const MAX_STOP_MS = 30_000;
const MAX_LOST_WRITES = 40;
const APP_FAILURES: Readonly<Record<Exclude<FaultLevel, 'none'>, number>> = { sparse: 0.01, dense: 0.08 };

export interface ChaosTargets {
  readonly gates: readonly GateNode[];
  readonly apps: readonly AppNode[];
  readonly redis: RedisNode | undefined;
  /** The senders' machine, whose clock can be wrong, too. */
  readonly senderMachine: string;
}

export class Chaos {
  readonly #world: World;
  readonly #targets: ChaosTargets;
  readonly #level: Exclude<FaultLevel, 'none'>;
  readonly #faults: readonly (() => void)[];
  #isOver = false;

  constructor(world: World, targets: ChaosTargets, level: Exclude<FaultLevel, 'none'>) {
    this.#world = world;
    this.#targets = targets;
    this.#level = level;
    const always = [
      () => this.#kill([...targets.gates, ...targets.apps]),
      () => this.#restart(),
      () => this.#pause(),
      () => this.#partition(),
      () => this.#stepClock(),
      () => this.#failingApp(),
    ];
    const ofRedis = [() => this.#kill(this.#redis), () => this.#failOver(), () => this.#loseAll()];
    this.#faults = targets.redis === undefined ? always : [...always, ...ofRedis];
  }

  start(): void {
    for (const app of this.#targets.apps) app.failureRate = APP_FAILURES[this.#level];
    this.#next();
  }

  /** Everything works again. */
  heal(): void {
    this.#isOver = true;
    const { gates, apps, senderMachine } = this.#targets;
    this.#world.note('heal');
    this.#world.faults.heal();
    for (const app of apps) app.failureRate = 0;
    for (const { machine } of [...gates, ...this.#redis]) this.#setClock(machine, 0);
    this.#setClock(senderMachine, 0);
    for (const node of [...gates, ...apps, ...this.#redis]) {
      this.#world.scheduler.resume(node.owner);
      if (!node.isRunning) node.start();
    }
  }

  get #redis(): readonly RedisNode[] {
    return this.#targets.redis === undefined ? [] : [this.#targets.redis];
  }

  get #random(): World['scheduler']['random'] {
    return this.#world.scheduler.random;
  }

  #next(): void {
    const gap = -Math.log(1 - this.#random.fraction()) * MEAN_GAP_MS[this.#level];
    this.#later(gap, () => {
      if (this.#isOver) return;
      this.#random.pick(this.#faults)();
      this.#next();
    });
  }

  #later(delay: number, run: () => void): void {
    this.#world.scheduler.after(delay, this.#world.outside, run);
  }

  /** Messages have faults around this time. */
  scheduleStorm(at: number): void {
    if (!this.#random.isLikely(STORM_SHARES[this.#level])) return;
    this.#later(at - this.#world.scheduler.now, () => {
      if (this.#isOver) return;
      const duration = this.#random.skewed(1_000, MAX_STORM_MS);
      this.#world.note(`storm for ${Math.round(duration)} ms`);
      this.#world.faults.storm(duration);
    });
  }

  #kill(nodes: readonly Node[]): void {
    this.#world.killFor(this.#random.pick(nodes), this.#random.skewed(100, MAX_OUTAGE_MS));
  }

  /** As in a rollout: SIGTERM, then SIGKILL if it takes too long, then a new process. */
  #restart(): void {
    const gate = this.#random.pick(this.#targets.gates);
    if (!gate.isRunning) return;
    const { owner } = gate;
    const { scheduler, ledger } = this.#world;
    this.#world.note(`restart ${owner.name}`);
    ledger.count('restarts');
    const from = scheduler.now;
    const isKept = this.#targets.redis !== undefined && gate.machine !== PROVIDER_MACHINE;
    const end = (isFinished: boolean): void => {
      if (owner.isDead) return;
      const isUndisturbed = ledger.findFaults(from - MAX_OUTAGE_MS, scheduler.now, [gate.machine, REDIS_MACHINE]).length === 0;
      // An orderly stop excuses nothing, unless what the process remembers ends with it, or the store does not take its last confirmations.
      if (!isKept || !isFinished || !isUndisturbed) ledger.addFault('kill gate', from, scheduler.now, [gate.machine]);
      gate.kill();
      gate.start();
    };
    gate.stop().then(
      (isFinished) => this.#later(0, () => end(isFinished)),
      (error: unknown) => ledger.alarms.push(`${owner.name} does not stop: ${String(error)}`),
    );
    this.#later(MAX_STOP_MS, () => end(false));
  }

  #pause(): void {
    const node = this.#random.pick([...this.#targets.gates, ...this.#targets.apps, ...this.#redis]);
    if (node.isRunning) this.#world.pause(node, this.#random.skewed(500, MAX_OUTAGE_MS));
  }

  #partition(): void {
    const machines = [...this.#targets.gates, ...this.#redis].map(({ machine }) => machine);
    const [a, b] = [this.#random.pick(machines), this.#random.pick([...machines, this.#targets.senderMachine])];
    const duration = this.#random.skewed(500, MAX_OUTAGE_MS);
    this.#world.note(`partition of ${a} and ${b} for ${Math.round(duration)} ms`);
    this.#world.faults.block(a, b, duration);
  }

  #stepClock(): void {
    const machines = [...this.#targets.gates, ...this.#redis].map(({ machine }) => machine);
    const machine = this.#random.pick([...machines, this.#targets.senderMachine]);
    const size = this.#random.skewed(1_000, MAX_CLOCK_STEP_MS);
    this.#setClock(machine, this.#random.isLikely(0.5) ? size : -size);
    this.#later(this.#random.skewed(1_000, 4 * MAX_OUTAGE_MS), () => {
      if (!this.#isOver) this.#setClock(machine, 0);
    });
  }

  /** Both steps are faults: leases of Redis end early, or late. */
  #setClock(machine: string, offset: number): void {
    const { now } = this.#world.scheduler;
    const before = this.#world.clockOffset(machine);
    if (before === offset) return;
    this.#world.note(`clock of ${machine} off by ${Math.round(offset)} ms`);
    this.#world.stepClock(machine, offset);
    this.#world.ledger.addFault('clock step', now, now + Math.abs(offset - before), [machine]);
  }

  #failingApp(): void {
    const app = this.#random.pick(this.#targets.apps);
    const { now } = this.#world.scheduler;
    const duration = this.#random.skewed(1_000, MAX_OUTAGE_MS);
    this.#world.ledger.addFault('failing app', now, now + duration, [app.machine]);
    app.failureRate = 0.6;
    this.#later(duration, () => {
      if (!this.#isOver) app.failureRate = APP_FAILURES[this.#level];
    });
  }

  #failOver(): void {
    const { redis } = this.#targets;
    if (redis?.isRunning !== true) return;
    const { now } = this.#world.scheduler;
    this.#world.ledger.addFault('failover', now, now, [redis.machine]);
    redis.failOver(this.#random.below(MAX_LOST_WRITES));
  }

  #loseAll(): void {
    const { redis } = this.#targets;
    if (redis?.isRunning !== true) return;
    const { now } = this.#world.scheduler;
    this.#world.ledger.addFault('empty restart', now, now, [redis.machine]);
    redis.restartEmpty();
  }
}
