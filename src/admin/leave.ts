/** `GET /prestop`: the kubelet's word that the pod is about to end, long before SIGTERM comes to a sidecar that outlives its app. */
import type { CancelTimer, Clock } from '../core/clock.ts';
import { onceEvent } from '../core/safe-events.ts';
import { toPlain } from './answer.ts';
import type { Endpoint } from './router.ts';

/** What the endpoint stands on. */
export interface LeaveParts {
  readonly clock: Clock;
  /** From now on each connection ends with its next answer: who comes again comes to another pod. */
  readonly leave: () => void;
}

const LONGEST_PAUSE_S = 600;
const SECONDS = /^\d{1,3}$/;

/**
 * Open to everybody, as the kubelet comes from the node and has no token: all that a stranger brings about is that connections are not kept.
 * `?pause=` holds the answer for so many seconds, and with it the SIGTERM.
 */
export function createLeaveEndpoint({ clock, leave }: LeaveParts): Endpoint {
  return {
    path: '/prestop',
    method: 'GET',
    isOpen: true,
    async answer({ request, query }) {
      const written = query.get('pause') ?? '0';
      if (!SECONDS.test(written) || Number(written) > LONGEST_PAUSE_S)
        return toPlain(400, `pause is a number of seconds, ${LONGEST_PAUSE_S} at most`);
      // HEAD asks what GET would say, and changes nothing (RFC 9110 §9.2.1).
      if (request.method === 'GET') {
        leave();
        await pauseWhileOpen(Number(written) * 1_000, request.socket, clock);
      }
      return toPlain(200, 'connections end with their next answer');
    },
  };
}

function pauseWhileOpen(
  duration: number,
  socket: { on(event: 'close', listener: () => void): unknown; off(event: 'close', listener: () => void): unknown },
  clock: Clock,
): Promise<void> {
  if (duration === 0) return Promise.resolve();
  return new Promise((resolve) => {
    let cancel: CancelTimer = () => undefined;
    const end = (): void => {
      cancel();
      socket.off('close', end);
      resolve();
    };
    cancel = clock.after(duration, end);
    onceEvent(socket, 'close', end);
  });
}
