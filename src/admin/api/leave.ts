/** `GET /prestop`: announces that the pod is about to stop, long before SIGTERM reaches a native sidecar, which stops after its app. */
import type { Socket } from 'node:net';
import type { CancelTimer, Clock } from '../../core/clock.ts';
import { offEvent, onceEvent } from '../../core/safe-events.ts';
import { type AdminResponse, toPlain } from '../response.ts';
import type { AdminEndpoint } from '../router.ts';

const MAX_PAUSE_S = 600;
/** The hook sends one request; each held request occupies one of the admin port's few connections. */
const MAX_HELD = 4;
const LEAVING = toPlain(200, 'connections will be closed after their next response');
const SECONDS = /^\d{1,3}$/;

/**
 * Only for clients on loopback, with or without an admin token: the injected `preStop` hook is an `exec`, so it runs inside the pod.
 * Other clients could otherwise make the gate close its connections for 15 minutes, and hold requests open. `?pause=` delays the
 * response by that many seconds, and thus the SIGTERM.
 */
export function createLeaveEndpoint({
  clock,
  leave,
}: {
  readonly clock: Clock;
  /** From now on each connection is closed after its next response, so that clients reconnect to another pod. */
  readonly leave: () => void;
}): AdminEndpoint {
  let held = 0;
  const hold = async (seconds: number, socket: Socket): Promise<AdminResponse> => {
    if (seconds === 0) return LEAVING;
    if (held >= MAX_HELD) return toPlain(503, `${MAX_HELD} requests are already waiting for the end of their pause`);
    held++;
    await pauseWhileOpen(seconds * 1_000, socket, clock);
    held--;
    return LEAVING;
  };
  return {
    path: '/prestop',
    method: 'GET',
    isOpen: 'loopback',
    respond({ request, query }) {
      const written = query.get('pause') ?? '0';
      if (!SECONDS.test(written) || Number(written) > MAX_PAUSE_S)
        return toPlain(400, `pause must be an integer from 0 to ${MAX_PAUSE_S} (seconds)`);
      // HEAD is safe: it changes nothing (RFC 9110 §9.2.1).
      if (request.method !== 'GET') return LEAVING;
      leave();
      return hold(Number(written), request.socket);
    },
  };
}

function pauseWhileOpen(duration: number, socket: Socket, clock: Clock): Promise<void> {
  return new Promise((resolve) => {
    let cancel: CancelTimer = () => undefined;
    const onClose = onceEvent(socket, 'close', () => {
      cancel();
      resolve();
    });
    cancel = clock.after(duration, () => {
      offEvent(socket, 'close', onClose);
      resolve();
    });
  });
}
