/** A sidegate process: the real gate, from its config to its ports. */

import type { PreparedConfig } from '../../src/app/check.ts';
import { Gate } from '../../src/app/gate.ts';
import { toErrorText } from '../../src/core/errors.ts';
import { createLogger } from '../../src/telemetry/log/logger.ts';
import type { Owner } from './scheduler.ts';
import type { Node, World } from './world.ts';

/** Log events that mean a bug, whatever was injected. */
const ALARMS = /"event":"(?:escaped_error|internal_error|lane_error|endpoint_unreadable)"|"level":"fatal"/;

export class GateNode implements Node {
  readonly machine: string;
  owner: Owner;
  readonly #world: World;
  readonly #name: string;
  readonly #ready: PreparedConfig;
  #gate: Gate | undefined;
  #starts = 0;

  constructor(world: World, name: string, machine: string, ready: PreparedConfig) {
    this.#world = world;
    this.#name = name;
    this.machine = machine;
    this.#ready = ready;
    this.owner = world.createOwner(name, machine);
    this.owner.isDead = true;
  }

  get isRunning(): boolean {
    return !this.owner.isDead;
  }

  start(): void {
    const { scheduler, ledger } = this.#world;
    this.owner = this.#world.createOwner(`${this.#name} ${++this.#starts}`, this.machine);
    const { owner } = this;
    this.#world.note(`start ${owner.name}`);
    scheduler.after(0, owner, () => {
      const logger = createLogger({
        level: 'warn',
        version: 'simulation',
        destination: { write: (line: string) => this.#onLog(line) },
      });
      const clock = this.#world.createClock(owner);
      const gate = new Gate(this.#ready, { file: 'simulation.yaml', clock, logger, version: 'simulation' });
      this.#gate = gate;
      gate.start().catch((error: unknown) => {
        // The one that holds the file of the queue is about to end.
        ledger.alarms.push(`${owner.name} cannot start: ${toErrorText(error)}`);
      });
    });
  }

  kill(): void {
    this.#world.endProcess(this.owner);
    this.#gate = undefined;
  }

  /** Stops as after SIGTERM; resolves with whether everything in flight was finished. */
  stop(): Promise<boolean> {
    return new Promise((resolve) => {
      this.#world.scheduler.after(0, this.owner, () => {
        resolve(this.#gate?.stop() ?? Promise.resolve(true));
      });
    });
  }

  #onLog(line: string): void {
    if (ALARMS.test(line)) this.#world.ledger.alarms.push(`${this.owner.name}: ${line.trim()}`);
  }
}
