/** Stops a running gate without losing an event: rejects new requests, finishes the requests in flight, then closes the store. */
import { connect, type Socket } from 'node:net';
import type { Config, RouteConfig } from '../config/schema/config.ts';
import { type Clock, type Milliseconds, pause, within } from '../core/clock.ts';
import { onEvent, runDetached } from '../core/safe-events.ts';
import type { ExchangePort } from '../gateway/exchange.ts';
import type { Capacity } from '../gateway/pipeline/capacity.ts';
import type { Settlements } from '../gateway/pipeline/claims.ts';
import { lookUpForConnect } from '../http/dial/resolve.ts';
import type { ListenPhase, ListenServer } from '../http/server/server.ts';
import type { AuthzEndpoint } from './authz.ts';
import type { GateLogger } from './log-events.ts';

/** The forward proxy during shutdown: its port has the phases of the data port, and its tunnels count as requests. */
export interface DrainedProxy {
  enter(phase: ListenPhase): void;
  idle(): Promise<void>;
  readonly inFlight: number;
  readonly tunnels: number;
  destroy(): void;
}

/** Time for the last settlements: the store may be slow, but the pod is about to terminate. */
const SETTLE_TIMEOUT_MS: Milliseconds = 2_000;
/** A replay may stream for long; its client repeats it. */
const API_DRAIN_MS: Milliseconds = 5_000;
const RECORD_TIMEOUT_MS: Milliseconds = 500;
/** Time for the last spans: a collector that is unavailable must not delay the shutdown. */
const EXPORT_TIMEOUT_MS: Milliseconds = 2_000;

/** Drains and closes everything. True if every request in flight was finished. */
export async function drain(parts: {
  readonly clock: Clock;
  readonly logger: GateLogger;
  readonly listen: ListenServer;
  /** The forward proxy, if there is one. */
  readonly proxy: DrainedProxy | undefined;
  readonly authz: AuthzEndpoint | undefined;
  readonly provider: { stopDelivering(): Promise<void>; stop(atMost: Milliseconds): Promise<void> } | undefined;
  readonly requests: ExchangePort;
  readonly capacity: Capacity;
  readonly settlements: Settlements;
  readonly store: { close(): Promise<void> };
  readonly tracing: { close(atMost: Milliseconds): Promise<void> };
  readonly config: Pick<Config, 'shutdown' | 'routes'>;
}): Promise<boolean> {
  const { clock, requests, listen, authz, proxy, provider, config } = parts;
  const enter = (phase: ListenPhase): void => {
    for (const port of [listen, authz, proxy]) port?.enter(phase);
  };
  // Endpoints are removed some time after readiness fails: until then requests are served, but their connections are closed. If the apps
  // have ended, every request would get 503, and waiting would only delay the end of the pod: that of a Job, for example. Clients of the
  // other ports do not need the apps.
  enter('leaving');
  const apps = authz === undefined && proxy === undefined ? config.routes : [];
  await waitForApps(apps, config.shutdown.grace, clock);
  enter('refusing');
  const endsAt = clock.monotonic() + config.shutdown.drain;
  const isFinished = await within(
    clock,
    config.shutdown.drain,
    Promise.all([requests.idle(), authz?.idle(), proxy?.idle(), provider?.stopDelivering()]),
  );
  if (!isFinished) {
    const tunnels = proxy?.tunnels ?? 0;
    parts.logger.warn('drain_incomplete', { requests: requests.inFlight + (proxy?.inFlight ?? 0) - tunnels, tunnels });
    // Claims of requests that wait for capacity are released, all others are held until their leases expire.
    parts.capacity.close();
    // One turn of the loop lets the released ones reach the settlements.
    await pause(clock, 0);
  }
  await parts.settlements.drain(SETTLE_TIMEOUT_MS);
  // After the requests: those of routes with an inbox are stored in its queue. Before the pools of the apps are closed.
  await provider?.stop(Math.max(0, Math.min(API_DRAIN_MS, endsAt - clock.monotonic())));
  listen.destroy();
  proxy?.destroy();
  // The records of tunnels and upgraded connections that were cut are written at their end.
  await within(clock, RECORD_TIMEOUT_MS, Promise.all([requests.idle(), proxy?.idle()]));
  await Promise.all([parts.store.close(), parts.tracing.close(EXPORT_TIMEOUT_MS)]);
  return isFinished;
}

const LOOK_INTERVAL_MS: Milliseconds = 250;

/** Waits for `atMost`, or until the apps of all routes reject connections. Without a route it waits for all of `atMost`. */
function waitForApps(routes: readonly Pick<RouteConfig, 'upstream'>[], atMost: Milliseconds, clock: Clock): Promise<void> {
  const apps =
    atMost === 0 ? [] : [...new Map(routes.map(({ upstream }) => [`${upstream.host} ${upstream.port}`, upstream])).values()];
  return new Promise((resolve) => {
    let isLooking = false;
    // Connections that neither succeed nor fail would keep the process running.
    const ended = new AbortController();
    const finish = (): void => {
      ended.abort();
      cancelEnd();
      cancelLooks();
      resolve();
    };
    const look = async (): Promise<void> => {
      if (isLooking || apps.length === 0) return;
      isLooking = true;
      const rejected = await Promise.all(apps.map((app) => rejectsConnections(app, ended.signal)));
      isLooking = false;
      if (rejected.every(Boolean)) finish();
    };
    const cancelEnd = clock.after(atMost, finish);
    const cancelLooks = clock.every(LOOK_INTERVAL_MS, () => runDetached(look()));
    runDetached(look());
  });
}

/** True only if the system says that nothing listens there; every doubt counts as an app that runs. */
function rejectsConnections({ host, port }: RouteConfig['upstream'], signal: AbortSignal): Promise<boolean> {
  return new Promise((resolve) => {
    const socket: Socket = connect({ host, port, lookup: lookUpForConnect, signal });
    const end = (isRejected: boolean): void => {
      socket.destroy();
      resolve(isRejected);
    };
    onEvent(socket, 'connect', () => end(false));
    onEvent(socket, 'error', (error: NodeJS.ErrnoException) => end(error.code === 'ECONNREFUSED'));
  });
}
