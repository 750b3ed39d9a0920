/** Asks Redis servers for their state without blocking this process, which also carries the traffic of the run. */
import { Redis } from 'ioredis';
import type { RedisServer } from '../support/redis.ts';
import type { Random } from '../support/seeded.ts';
import { LEASE_MS, lasts } from './settings.ts';

/** Faults of this target exclude each other. */
export const STORE = 'store';
/** The durability that the documentation recommends. */
export const DURABLE = ['appendonly yes', 'appendfsync everysec'];

const TIMEOUT_MS = 2_000;
const POLL_MS = 100;

/** Runs one command; rejects if the server does not respond. */
export async function ask({ port }: RedisServer, command: string, ...args: readonly (string | number)[]): Promise<unknown> {
  const client = new Redis({
    port,
    retryStrategy: () => null,
    maxRetriesPerRequest: 0,
    enableReadyCheck: false,
    connectTimeout: TIMEOUT_MS,
    commandTimeout: TIMEOUT_MS,
  });
  client.on('error', () => undefined);
  try {
    return await client.call(command, ...args);
  } finally {
    client.disconnect();
  }
}

/** Whether the server takes writes; also false if it does not respond. */
export async function isMaster(server: RedisServer): Promise<boolean> {
  return (await readRole(server))[0] === 'master';
}

/** Whether it is a master, or a replica that follows its master. */
export async function isInSync(server: RedisServer): Promise<boolean> {
  const role = await readRole(server);
  return role[0] === 'master' || role[3] === 'connected';
}

/** Whether it has read its data after a start, and so takes all commands. Some, such as ROLE, it takes before. */
export async function isLoaded(server: RedisServer): Promise<boolean> {
  return ask(server, 'PING').then(
    () => true,
    () => false,
  );
}

async function readRole(server: RedisServer): Promise<readonly unknown[]> {
  try {
    return (await ask(server, 'ROLE')) as readonly unknown[];
  } catch {
    return [];
  }
}

/** The servers that take writes. */
export async function findMasters(servers: readonly RedisServer[]): Promise<RedisServer[]> {
  const are = await Promise.all(servers.map(isMaster));
  return servers.filter((_, i) => are[i] === true);
}

/** Waits for a state. */
export async function untilTrue(isTrue: () => Promise<boolean>): Promise<void> {
  while (!(await isTrue())) await lasts(POLL_MS);
}

/** Waits until all servers work together again. One that ended by itself is started again. */
export async function untilWhole(servers: readonly RedisServer[], isWhole: () => Promise<boolean>): Promise<void> {
  await untilTrue(async () => {
    for (const server of servers)
      await ask(server, 'PING').catch((error: NodeJS.ErrnoException) =>
        /ECONNREFUSED|closed/.test(error.message) ? server.restart() : undefined,
      );
    return isWhole();
  });
}

/** Pauses a server, for longer than the lease every third time. */
export async function pauseFor(server: RedisServer, random: Random): Promise<undefined> {
  server.signal('SIGSTOP');
  await lasts(random(3) === 0 ? LEASE_MS + random(1_000) : 100 + random(1_000));
  server.signal('SIGCONT');
}
