/** A queue under test in a schema of its own of a PostgreSQL server. */

import { systemClock } from '../../../src/core/clock.ts';
import { Secret } from '../../../src/core/secret.ts';
import type { DeliveryQueue } from '../../../src/provider/queue/delivery-queue.ts';
import { createQueue } from '../../../src/provider/queue/sql-queue.ts';
import type { PostgresTarget } from '../../../src/state/postgres.ts';
import type { PostgresServer } from '../postgres.ts';
import { type QueueOptions, toParts } from './sqlite-store.ts';
import type { CreateQueueStore } from './store.ts';

let counter = 0;

/** The database that a URL of a test server names. */
export function toTarget(text: string): PostgresTarget {
  const url = new URL(text);
  const password = new Secret(Buffer.from(decodeURIComponent(url.password)));
  return {
    host: url.hostname,
    port: Number(url.port),
    database: url.pathname.slice(1),
    user: url.username,
    password,
    tls: undefined,
  };
}

/** Creates a queue. */
export function createPostgresQueue(
  url: string,
  schema: string,
  over: QueueOptions = {},
  { statementTimeout = 10_000 }: { readonly statementTimeout?: number } = {},
): DeliveryQueue {
  const settings = { target: toTarget(url), schema, maxConnections: 6, statementTimeout };
  return createQueue({ kind: 'postgres', ...settings }, toParts(over));
}

/** Opens a queue. */
export async function openPostgresQueue(url: string, schema: string, over: QueueOptions = {}): Promise<DeliveryQueue> {
  const queue = createPostgresQueue(url, schema, over);
  await queue.open();
  return queue;
}

/** Empty stores for the contract suite. */
export function createPostgresStores(server: () => PostgresServer, toUrl = (): string => server().url()): CreateQueueStore {
  return async () => {
    const schema = `queue_${++counter}`;
    return {
      clock: systemClock,
      pass: (duration) => new Promise((resolve) => setTimeout(resolve, duration)),
      open: (over) => openPostgresQueue(toUrl(), schema, over),
      isShared: true,
      child: { module: new URL('./postgres-child.ts', import.meta.url).pathname, argument: `${schema} ${toUrl()}` },
      damage: (statement) => void server().sql(`SET search_path TO "${schema}"; ${statement}`),
      remove: async () => void server().sql(`DROP SCHEMA "${schema}" CASCADE`),
    };
  };
}
