/** Stops a running gate without losing an event: first no new traffic, then the requests under way, then the store. */
import type { Config } from '../../config/schema/config.ts';
import { type Clock, type Milliseconds, pause, within } from '../../core/clock.ts';
import type { Capacity } from '../pipeline/capacity.ts';
import type { RequestPipeline } from '../pipeline/request-pipeline.ts';
import type { Settlements } from '../pipeline/settlements.ts';
import type { ListenPhase, ListenServer } from '../server/server.ts';
import type { AuthzEndpoint } from './authz.ts';
import type { GateLogger } from './log-events.ts';

/** What is stopped. */
export interface ShutdownParts {
  readonly clock: Clock;
  readonly logger: GateLogger;
  readonly listen: ListenServer;
  /** The forward proxy, where there is one. */
  readonly proxy: DrainedProxy | undefined;
  readonly authz: AuthzEndpoint | undefined;
  readonly pipeline: RequestPipeline;
  readonly capacity: Capacity;
  readonly settlements: Settlements;
  readonly store: { close(): Promise<void> };
  readonly tracing: { close(atMost: Milliseconds): Promise<void> };
  readonly times: Config['shutdown'];
}

/** The forward proxy as it is stopped: its port keeps step with the data port, its tunnels with the requests. */
export interface DrainedProxy {
  enter(phase: ListenPhase): void;
  idle(): Promise<void>;
  readonly inFlight: number;
  readonly tunnels: number;
  destroy(): void;
}

/** What the last settlements get: the store may be slow, but the pod's end is near. */
const SETTLE_AT_MOST_MS: Milliseconds = 2_000;
const TELL_AT_MOST_MS: Milliseconds = 500;
/** What the last spans get, in the same time: a collector that is away must not hold up the end. */
const EXPORT_AT_MOST_MS: Milliseconds = 2_000;

/** Drains; resolves when all is closed. True when every request under way was finished. */
export async function drain(parts: ShutdownParts): Promise<boolean> {
  const { clock, pipeline, listen, authz, proxy, times } = parts;
  const enter = (phase: ListenPhase): void => {
    for (const port of [listen, authz, proxy]) port?.enter(phase);
  };
  // Endpoints are removed after readiness falls, not at once: who still comes meanwhile is served, but keeps no connection.
  enter('closing');
  await pause(clock, times.grace);
  enter('refusing');
  const isFinished = await within(clock, times.drain, Promise.all([pipeline.idle(), authz?.idle(), proxy?.idle()]));
  if (!isFinished) await giveUp(parts);
  await parts.settlements.drain(SETTLE_AT_MOST_MS);
  listen.destroy();
  proxy?.destroy();
  // What was cut just now is still to be told.
  await within(clock, TELL_AT_MOST_MS, Promise.all([proxy?.idle()]));
  await Promise.all([parts.store.close(), parts.tracing.close(EXPORT_AT_MOST_MS)]);
  return isFinished;
}

/** The time is over: what waits for a place is released, what is with the app is left to its lease. */
async function giveUp(parts: ShutdownParts): Promise<void> {
  const { pipeline, proxy } = parts;
  const tunnels = proxy?.tunnels ?? 0;
  parts.logger.warn('drain_incomplete', { requests: pipeline.inFlight + (proxy?.inFlight ?? 0) - tunnels, tunnels });
  parts.capacity.close();
  // One turn of the loop lets the released ones reach the settlements.
  await pause(parts.clock, 0);
}
