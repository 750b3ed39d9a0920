/** Opens TCP connections to addresses that were checked. */
import { connect, type Socket } from 'node:net';
import type { Clock, Milliseconds } from '../../core/clock.ts';
import { onceEvent } from '../../core/safe-events.ts';

/** Why a connection failed. */
export class DialFailure extends Error {
  readonly isTimeout: boolean;

  constructor(message: string, isTimeout: boolean) {
    super(message);
    this.name = 'DialFailure';
    this.isTimeout = isTimeout;
  }
}

/** Tries the addresses in turn; rejects with DialFailure. */
export async function dial(addresses: readonly string[], port: number, timeout: Milliseconds, clock: Clock): Promise<Socket> {
  let last = new DialFailure('no address', false);
  for (const address of addresses) {
    try {
      return await dialOne(address, port, timeout, clock);
    } catch (thrown) {
      last = thrown as DialFailure;
    }
  }
  throw last;
}

function dialOne(address: string, port: number, timeout: Milliseconds, clock: Clock): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket = connect({ host: address, port, noDelay: true, keepAlive: true, allowHalfOpen: true });
    const cancel = clock.after(timeout, () => {
      socket.destroy();
      reject(new DialFailure(`no connection to ${address} within ${timeout} ms`, true));
    });
    onceEvent(socket, 'connect', () => {
      cancel();
      resolve(socket);
    });
    onceEvent(socket, 'error', (error: NodeJS.ErrnoException) => {
      cancel();
      reject(new DialFailure(`${address}: ${error.code ?? error.message}`, false));
    });
  });
}
