/** Connects only to addresses that were checked: names are resolved once, so that a second DNS answer cannot differ. */
import { lookup } from 'node:dns/promises';
import { connect, isIP, type Socket } from 'node:net';
import { type Clock, type Milliseconds, within } from '../../core/clock.ts';
import type { Destination } from '../../core/destination.ts';
import { toErrorText } from '../../core/errors.ts';
import { onceEvent } from '../../core/safe-events.ts';
import { isPublicAddress } from './special-addresses.ts';

/** Resolves a name to its addresses. */
export type Resolve = (host: string) => Promise<readonly string[]>;

/** Addresses that may be dialled, or why there are none. */
export type Resolution =
  | { readonly addresses: readonly string[] }
  | { readonly problem: 'not_found' | 'not_public'; readonly detail: string };

/** The system's resolver: uses /etc/hosts and the cluster's DNS. */
export const systemResolve: Resolve = async (host) => (await lookup(host, { all: true })).map(({ address }) => address);

/** Limits how long a name may take: the system's resolver may ask several slow servers, several times each. */
export function resolveWithin(resolve: Resolve, atMost: Milliseconds, clock: Clock): Resolve {
  return async (host) => {
    const addresses = resolve(host);
    if (!(await within(clock, atMost, addresses))) throw new Error(`${host} was not resolved within ${atMost} ms`);
    return addresses;
  };
}

/** Resolves a destination. One address that is not public rejects the whole answer: it is a sign of DNS rebinding. */
export async function resolveDestination(
  { host }: Destination,
  options: { readonly denyPrivate: boolean; readonly resolve: Resolve },
): Promise<Resolution> {
  let addresses: readonly string[];
  try {
    addresses = isIP(host) === 0 ? await options.resolve(host) : [host];
  } catch (thrown) {
    return { problem: 'not_found', detail: toErrorText(thrown) };
  }
  if (addresses.length === 0) return { problem: 'not_found', detail: `${host} has no address` };
  const nonPublic = options.denyPrivate ? addresses.find((address) => !isPublicAddress(address)) : undefined;
  return nonPublic === undefined ? { addresses } : { problem: 'not_public', detail: `${host} resolves to ${nonPublic}` };
}

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
