/** What a port needs to read bodies, without a container around it. */
import { systemClock } from '../../src/core/clock.ts';
import { BodyWatch, type ListenMemory } from '../../src/http/server/limits.ts';
import { NO_PRESSURE } from '../../src/http/server/memory-guard.ts';

const MIB = 1024 * 1024;

/** Usual bounds, and no limit on the process itself. */
export function createMemory(): ListenMemory {
  const limits = {
    bodyIdleTimeout: 15_000,
    bodyMinRate: 500,
    bodyTimeout: 300_000,
    streamMinRate: 10_240,
    streamTimeout: 3_600_000,
    maxBufferedBytes: 64 * MIB,
    maxLargeBodies: 64,
  };
  return {
    bodies: new BodyWatch(limits, systemClock, () => undefined, NO_PRESSURE),
    guard: NO_PRESSURE,
  };
}
