/** `GET /prestop`: the kubelet's word that the pod is about to end, long before SIGTERM comes to a sidecar that outlives its app. */
import type { Socket } from 'node:net';
import type { CancelTimer, Clock } from '../../core/clock.ts';
import { offEvent, onceEvent } from '../../core/safe-events.ts';
import { type Answer, toPlain } from '../answer.ts';
import type { Endpoint } from '../router.ts';

/** What the endpoint stands on. */
export interface LeaveParts {
  readonly clock: Clock;
  /** From now on each connection ends with its next answer: who comes again comes to another pod. */
  readonly leave: () => void;
}

const LONGEST_PAUSE_S = 600;
/** The kubelet asks once; each of these holds one of the admin port's few connections. */
const MAX_HELD = 4;
const LEAVING = toPlain(200, 'connections end with their next answer');
const SECONDS = /^\d{1,3}$/;

/**
 * Answers callers on loopback only, with or without an admin token: the injected `preStop` hook is an `exec`, so it runs inside the pod.
 * Another client could otherwise end all kept connections for 15 minutes, and hold requests open. `?pause=` delays the response by so
 * many seconds, and with it the SIGTERM.
 */
export function createLeaveEndpoint({ clock, leave }: LeaveParts): Endpoint {
  let held = 0;
  const hold = async (seconds: number, socket: Socket): Promise<Answer> => {
    if (seconds === 0) return LEAVING;
    if (held >= MAX_HELD) return toPlain(503, `${MAX_HELD} requests are waiting for their pause already`);
    held++;
    await pauseWhileOpen(seconds * 1_000, socket, clock);
    held--;
    return LEAVING;
  };
  return {
    path: '/prestop',
    method: 'GET',
    isOpen: 'loopback',
    answer({ request, query }) {
      const written = query.get('pause') ?? '0';
      if (!SECONDS.test(written) || Number(written) > LONGEST_PAUSE_S)
        return toPlain(400, `pause is a number of seconds, ${LONGEST_PAUSE_S} at most`);
      // HEAD asks what GET would say, and changes nothing (RFC 9110 §9.2.1).
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
