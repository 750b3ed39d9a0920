/** Runs actions together at the end of a turn of the event loop. */
import { runNextTurn, runTimer } from './safe-events.ts';

/**
 * Collects actions of one turn. Responses that are written one after the other wake their receiver once; written when each is ready, each
 * can find the receiver asleep again. In a flood of forged deliveries, that took half of the CPU of each (bench/run.ts, scenario `forged`).
 * It bypasses no limit: a connection has one response at a time, and requests that wait behind it are counted (PortRequests).
 */
export class TurnEnd {
  #actions: (() => void)[] = [];

  /** Runs `action` at the end of this turn, in the order of the calls; an exception in it is reported. */
  add(action: () => void): void {
    if (this.#actions.length === 0) runNextTurn(() => this.#run());
    this.#actions.push(action);
  }

  #run(): void {
    const actions = this.#actions;
    this.#actions = [];
    for (const action of actions) runTimer(action);
  }
}
