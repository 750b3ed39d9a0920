/** Opens connections to addresses that were checked: one after the other, within one deadline. */
import { connect, type Socket } from 'node:net';
import { TLSSocket } from 'node:tls';
import type { Clock, Milliseconds } from '../../core/clock.ts';
import { onceEvent, onEvent } from '../../core/safe-events.ts';

/** Every address of a name is checked, but only these are tried. */
const MAX_TRIED_ADDRESSES = 4;

/**
 * Why a request got no complete response; a closed set, used as a label of metrics and records. `timeout`: of the response. `dns`, `connect`,
 * `tls`: no connection was opened. `blocked`: the address or the egress proxy does not allow it. `aborted`: by the caller, or by this process.
 */
export const FAILURE_KINDS = ['timeout', 'dns', 'connect', 'tls', 'reset', 'protocol', 'blocked', 'aborted'] as const;
export type FailureKind = (typeof FAILURE_KINDS)[number];

/** A connection that is being opened. */
export class Opening {
  /** The step that it waits for, which is also the kind of failure if that step fails. */
  phase: 'dns' | 'connect' | 'tls' = 'dns';
  /** Destroyed to cancel. */
  socket: Socket | undefined;
  isCanceled = false;
  /** For all addresses together; the caller cancels at its end. */
  readonly timeout: Milliseconds;

  constructor(timeout: Milliseconds) {
    this.timeout = timeout;
  }

  cancel(): void {
    this.isCanceled = true;
    this.socket?.destroy();
  }
}

/** Why no connection was opened. The message names no path and no credentials. */
export class DialFailure extends Error {
  readonly kind: FailureKind;

  constructor(kind: FailureKind, message: string) {
    super(message);
    this.name = 'DialFailure';
    this.kind = kind;
  }
}

/** Connects by TCP; rejects with DialFailure. Each side of the connection may end on its own, as in a tunnel. */
export async function dial(addresses: readonly string[], port: number, opening: Opening, clock: Clock): Promise<Socket> {
  let isLate = false;
  const stopTimer = clock.after(opening.timeout, () => {
    isLate = true;
    opening.cancel();
  });
  const connectTo = (host: string): Socket => connect({ host, port, noDelay: true, keepAlive: true, allowHalfOpen: true });
  try {
    return await dialInTurn(addresses, opening, connectTo, clock);
  } catch (thrown) {
    throw isLate ? new DialFailure('timeout', `no connection within ${opening.timeout} ms`) : thrown;
  } finally {
    stopTimer();
  }
}

/** Opens a connection to the first address that accepts one, as `connectTo` does it. The caller watches the deadline. */
export async function dialInTurn(
  addresses: readonly string[],
  opening: Opening,
  connectTo: (address: string) => Socket,
  clock: Clock,
): Promise<Socket> {
  opening.phase = 'connect';
  let failure: unknown = new DialFailure('dns', 'no address');
  for (const { address, atMost, isLast } of takeTurns(addresses, opening.timeout, clock)) {
    if (opening.isCanceled) throw new DialFailure('aborted', 'canceled');
    try {
      return await whenReady(connectTo(address), opening, clock, isLast ? undefined : atMost);
    } catch (thrown) {
      // After the TCP connection, another address would fail in the same way.
      if (opening.phase !== 'connect' || opening.isCanceled) throw thrown;
      failure = thrown;
    }
  }
  throw failure;
}

/** The addresses to try, each with its share of the time that is left, so that a dead one does not use it up. */
export function* takeTurns(
  addresses: readonly string[],
  timeout: Milliseconds,
  clock: Clock,
): Generator<{ readonly address: string; readonly atMost: Milliseconds; readonly isLast: boolean }> {
  const deadline = clock.monotonic() + timeout;
  let left = Math.min(addresses.length, MAX_TRIED_ADDRESSES);
  for (const address of addresses.slice(0, MAX_TRIED_ADDRESSES)) {
    yield { address, atMost: Math.round((deadline - clock.monotonic()) / left), isLast: left === 1 };
    left--;
  }
}

/** Waits until the socket is connected and, if it has TLS, secured. `atMost`: for the TCP connection. */
export function whenReady(socket: Socket, opening: Opening, clock: Clock, atMost?: Milliseconds): Promise<Socket> {
  opening.socket = socket;
  return new Promise((resolve, reject) => {
    const fail = (reason: string): void => {
      stopTimer?.();
      socket.destroy();
      const kind = opening.isCanceled ? 'aborted' : toFailureKind(reason, opening.phase);
      reject(new DialFailure(kind, toFailureText(opening.phase, reason)));
    };
    const stopTimer = atMost === undefined ? undefined : clock.after(atMost, () => fail('ETIMEDOUT'));
    const isTls = socket instanceof TLSSocket;
    if (isTls)
      onceEvent(socket, 'connect', () => {
        stopTimer?.();
        opening.phase = 'tls';
        socket.setNoDelay(true);
      });
    onceEvent(socket, isTls ? 'secureConnect' : 'connect', () => {
      stopTimer?.();
      // Its handshake may exceed a limit, of which an error follows.
      if (!socket.destroyed) resolve(socket);
    });
    onEvent(socket, 'error', (error) => fail(toCode(error)));
    onceEvent(socket, 'close', () => fail('ECONNRESET'));
  });
}

function toFailureText(phase: Opening['phase'], reason: string): string {
  return phase === 'tls' ? `the TLS handshake failed (${reason})` : `the connection failed (${reason})`;
}

/** With this code, the process itself ends a connection for which it has no memory. */
export const NO_MEMORY_CODE = 'ERR_TLS_HANDSHAKE_MEMORY';

/** The kind of a failure with this code: `kind`, unless it says nothing about the server. */
export function toFailureKind(code: string, kind: FailureKind): FailureKind {
  return code === NO_MEMORY_CODE ? 'aborted' : kind;
}

/** The code of an error: its message may quote what the peer sent. */
export function toCode(thrown: unknown): string {
  const { code } = Object(thrown) as { code?: unknown };
  return typeof code === 'string' ? code : 'unknown error';
}
