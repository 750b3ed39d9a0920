/** Creates the queue in the database that the config names. */
import type { Clock } from '../../core/clock.ts';
import { SidegateError } from '../../core/errors.ts';
import type { ConnectionResult } from '../postgres/connection.ts';
import type { DeliveryQueue, QueueBounds } from './delivery-queue.ts';
import { openPostgresStore } from './postgres/postgres-client.ts';
import { PostgresDatabase, type PostgresSettings } from './postgres/postgres-database.ts';
import { SqlQueue } from './sql-queue.ts';
import { openSqliteStore, type SqliteSettings } from './sqlite/worker-client.ts';
import type { QueueHooks } from './store-client.ts';

export interface QueueParts {
  readonly clock: Clock;
  readonly bounds: QueueBounds;
  readonly hooks: QueueHooks;
}

/** The database, with the secrets of its settings. */
export type QueuePlace = ({ readonly kind: 'sqlite' } & SqliteSettings) | ({ readonly kind: 'postgres' } & PostgresSettings);

export function createQueue(place: QueuePlace, { clock, bounds, hooks }: QueueParts): DeliveryQueue {
  const openStore =
    place.kind === 'sqlite' ? openSqliteStore(place, bounds, hooks) : openPostgresStore(place, bounds, clock, hooks);
  return new SqlQueue(openStore, clock, hooks);
}

/** Tests that the queue can be used, without a change; undefined for a file, which only one process can open. */
export function testQueue(place: QueuePlace): Promise<ConnectionResult> | undefined {
  if (place.kind === 'sqlite') return undefined;
  const title = `PostgreSQL, schema ${place.schema}`;
  const hint = 'docs/provider.md lists what the URL, the server and the role need';
  return PostgresDatabase.test(place).then(
    () => ({ title, hint, failure: undefined }),
    (thrown: unknown) => {
      if (thrown instanceof SidegateError) return { title, hint, failure: thrown.message };
      throw thrown;
    },
  );
}
