/** Clients that hold their connections and send, or read, as slowly as a limit allows: slow heads, slow bodies, slow reads, and silence. */
import { connect, type Socket } from 'node:net';
import { makeDelivery } from './deliveries.ts';
import { toHead } from './floods.ts';

/** What each of the clients does. */
export interface SlowAttack {
  /** Sent at once; another text for each connection, because a signature is used once. */
  readonly begin: () => string;
  /** Sent again and again; nothing if omitted. */
  readonly more?: string;
  /** Does not read the response. */
  readonly isDeaf?: boolean;
}

/** The path of a route without authentication, whose app responds with a large body. */
export const LARGE_PATH = '/open/large';
const UPLOAD_BYTES = 100_000;

/** By name. Names of the tests and of the benchmark. */
export const SLOW_ATTACKS = {
  'slow heads': { begin: () => 'POST /hooks/billing HTTP/1.1\r\nHost: a\r\n', more: 'X-A: b\r\n' },
  'slow bodies': {
    begin: () => toHead('/hooks/billing', { ...makeDelivery().headers, 'Content-Length': String(UPLOAD_BYTES) }),
    more: 'x'.repeat(64),
  },
  'slow reads': { begin: () => `GET ${LARGE_PATH} HTTP/1.1\r\nHost: a\r\n\r\n`, isDeaf: true },
  silence: { begin: () => '' },
} as const satisfies Readonly<Record<string, SlowAttack>>;

/** Whom the clients connect to, and how many they are. */
export interface SlowClientsOptions {
  readonly port: number;
  readonly count: number;
  readonly attack: SlowAttack;
  /** Loopback addresses that they take turns with. */
  readonly addresses: readonly string[];
}

/** Clients that are connected. */
export interface SlowClients {
  /** How many connections the gate has not closed. */
  open(): number;
  stop(): void;
}

/** The system holds 511 connections that nobody has accepted yet, and the rest would try again seconds later. */
const BATCH = 200;
const MORE_EVERY_MS = 250;

/** Loopback addresses of as many clients. */
export function toAddresses(count: number): string[] {
  return Array.from({ length: count }, (_, index) => `127.0.${1 + Math.floor(index / 250)}.${1 + (index % 250)}`);
}

/** Connects them, and resolves once all of them were connected. A connection that the gate closes is not replaced. */
export async function holdSlowClients({ port, count, attack, addresses }: SlowClientsOptions): Promise<SlowClients> {
  const open = new Set<Socket>();
  const hold = (index: number): Promise<void> =>
    new Promise((resolve) => {
      const socket = connect({ port, host: '127.0.0.1', localAddress: addresses[index % addresses.length] });
      open.add(socket);
      // Flowing, or it would not notice its end.
      if (attack.isDeaf !== true) socket.resume();
      socket.on('error', () => undefined);
      socket.once('close', () => {
        open.delete(socket);
        resolve();
      });
      socket.once('connect', () => {
        socket.write(attack.begin());
        resolve();
      });
    });
  const timer = setInterval(() => {
    for (const socket of attack.more === undefined ? [] : open) socket.write(attack.more ?? '');
  }, MORE_EVERY_MS);
  for (let done = 0; done < count; done += BATCH)
    await Promise.all(Array.from({ length: Math.min(BATCH, count - done) }, (_, index) => hold(done + index)));
  return {
    open: () => open.size,
    stop() {
      clearInterval(timer);
      for (const socket of open) socket.destroy();
    },
  };
}
