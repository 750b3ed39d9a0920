/** One simulated world: its time, network, machines and faults. */
import type { Clock } from '../../src/core/clock.ts';
import { runTimer } from '../../src/core/safe-events.ts';
import type { WorkerSettings } from '../../src/provider/queue/messages.ts';
import { CrossingFaults, type FaultLevel } from './faults.ts';
import { Ledger } from './ledger.ts';
import { Network } from './network.ts';
import { type Platform, toTimerDelay } from './platform.ts';
import { type Owner, Scheduler } from './scheduler.ts';
import { SimulatedThread } from './sqlite-thread.ts';

/** 2026-01-01. */
const EPOCH_MS = 1_767_225_600_000;

/** A process that can be killed and started again. */
export interface Node {
  readonly machine: string;
  readonly owner: Owner;
  readonly isRunning: boolean;
  start(): void;
  kill(): void;
}

export class World {
  readonly scheduler: Scheduler;
  readonly network: Network;
  readonly ledger = new Ledger();
  readonly faults: CrossingFaults;
  readonly nodes: Node[] = [];
  /** Of the world itself: actors that never fail. */
  readonly outside: Owner;
  /** How far the wall clock of a machine is off. */
  readonly #clockOffsets = new Map<string, number>();
  readonly #machines = new Map<Owner, string>();
  readonly #threads = new Map<Owner, SimulatedThread>();
  readonly #subscriptions = new Map<Owner, (() => void)[]>();

  constructor(seed: number, level: FaultLevel) {
    this.scheduler = new Scheduler(seed);
    this.faults = new CrossingFaults(this.scheduler, this.ledger, level, {
      machineOf: (owner) => this.machineOf(owner),
      crash: (owner, delay) => this.#crash(owner, delay),
      pause: (owner, duration) => this.#pause(owner, duration),
    });
    this.network = new Network(this.scheduler, this.faults);
    this.outside = this.createOwner('world', '10.4.0.254');
  }

  /** A process on a machine. */
  createOwner(name: string, machine: string): Owner {
    const owner = this.scheduler.createOwner(name);
    this.#machines.set(owner, machine);
    this.network.place(owner, machine);
    return owner;
  }

  machineOf(owner: Owner): string {
    return this.#machines.get(owner) ?? '';
  }

  note(text: string): void {
    this.scheduler.trace.add(this.scheduler.now, text);
  }

  /** Unix time in milliseconds, as a machine sees it. */
  wallClock(machine: string): number {
    return Math.floor(EPOCH_MS + this.scheduler.now + (this.#clockOffsets.get(machine) ?? 0));
  }

  stepClock(machine: string, offset: number): void {
    this.#clockOffsets.set(machine, offset);
  }

  clockOffset(machine: string): number {
    return this.#clockOffsets.get(machine) ?? 0;
  }

  createClock(owner: Owner): Clock {
    const { scheduler } = this;
    const machine = this.machineOf(owner);
    return {
      now: () => this.wallClock(machine),
      monotonic: () => scheduler.now,
      after(delay, action) {
        const event = scheduler.after(toTimerDelay(delay), owner, () => runTimer(action));
        return () => scheduler.cancel(event);
      },
      every(interval, action) {
        const event = scheduler.every(toTimerDelay(interval), owner, () => runTimer(action));
        return () => scheduler.cancel(event);
      },
    };
  }

  /** What the code of all processes sees as its machine. */
  toPlatform(): Platform {
    const { scheduler, network } = this;
    return {
      scheduler,
      connect: (options) => network.connect(scheduler.current as Owner, options).toSocket(),
      bind: (server, options) => network.bind(server, options),
      unbind: (server) => network.unbind(server),
      addressOf: (server) => network.addressOf(server),
      createWorker: (data) => {
        const owner = scheduler.current as Owner;
        const thread = new SimulatedThread(scheduler, owner, this.faults, data as WorkerSettings);
        this.#threads.set(owner, thread);
        return thread.toWorker();
      },
      wallClock: (owner) => this.wallClock(this.machineOf(owner)),
      onSubscribe: (unsubscribe) => {
        const owner = scheduler.current as Owner;
        this.#subscriptions.set(owner, [...(this.#subscriptions.get(owner) ?? []), unsubscribe]);
      },
    };
  }

  /** Ends a process without any warning. */
  endProcess(owner: Owner): void {
    owner.isDead = true;
    this.network.drop(owner);
    this.#threads.get(owner)?.kill();
    this.#threads.delete(owner);
    for (const unsubscribe of this.#subscriptions.get(owner) ?? []) unsubscribe();
    this.#subscriptions.delete(owner);
  }

  /** Ends what is left when the simulation is over. */
  close(): void {
    for (const { owner } of this.nodes) if (!owner.isDead) this.endProcess(owner);
  }

  /** Kills the process, and starts it again later. */
  #crash(owner: Owner, delay: number): void {
    const { scheduler } = this;
    scheduler.after(delay, this.outside, () => {
      const node = this.nodes.find((each) => each.owner === owner);
      if (node !== undefined) this.killFor(node, scheduler.random.skewed(200, 60_000));
    });
  }

  killFor(node: Node, downtime: number): void {
    if (!node.isRunning) return;
    const { scheduler } = this;
    this.note(`kill ${node.owner.name} for ${Math.round(downtime)} ms`);
    this.ledger.addFault(`kill ${toKind(node.owner)}`, scheduler.now, scheduler.now + downtime, [node.machine]);
    node.kill();
    scheduler.after(downtime, this.outside, () => {
      if (!node.isRunning) node.start();
    });
  }

  #pause(owner: Owner, duration: number): void {
    const node = this.nodes.find((each) => each.owner === owner);
    if (node?.isRunning === true) this.pause(node, duration);
  }

  /** Stops a process for a while, as SIGSTOP or a busy host do. */
  pause(node: Node, duration: number): void {
    const { now } = this.scheduler;
    this.note(`pause ${node.owner.name} for ${Math.round(duration)} ms`);
    node.owner.pausedUntil = Math.max(node.owner.pausedUntil, now + duration);
    this.ledger.addFault(`pause ${toKind(node.owner)}`, now, now + duration, [node.machine]);
  }
}

function toKind({ name }: Owner): string {
  return name.replace(/[- \d.]+$/, '');
}
