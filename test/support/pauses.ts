/** Pauses that may hold any amount of memory. */
import { type Clock, systemClock } from '../../src/core/clock.ts';
import type { PauseOwner } from '../../src/core/reading.ts';

/** A client whose pauses are not limited. */
export function makePauseOwner(clock: Clock = systemClock): PauseOwner {
  return {
    network: '203.0.113.9',
    pauses: { clock, add: () => undefined, remove: () => undefined, onBytes: () => undefined },
  };
}
