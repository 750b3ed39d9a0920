/** Notices during shutdown that no app runs any more: a native sidecar stops after its app, and need not wait for further requests. */
import { connect, type Socket } from 'node:net';
import type { RouteConfig } from '../config/schema/config.ts';
import type { Clock, Milliseconds } from '../core/clock.ts';
import { lookUpForConnect } from '../core/name-lookup.ts';
import { onEvent, runDetached } from '../core/safe-events.ts';

type App = RouteConfig['upstream'];

const LOOK_INTERVAL_MS: Milliseconds = 250;

/** Waits for `atMost`, or until the apps of all routes reject connections. Without a route it waits for all of `atMost`. */
export function waitForApps(routes: readonly { readonly upstream: App }[], atMost: Milliseconds, clock: Clock): Promise<void> {
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
function rejectsConnections({ host, port }: App, signal: AbortSignal): Promise<boolean> {
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
