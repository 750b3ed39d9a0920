import { afterAll, beforeAll } from 'vitest';
import { type PostgresServer, startPostgres } from '../support/postgres.ts';
import { createPostgresStores } from '../support/queue/postgres-store.ts';
import { describeDeliveryQueue } from './delivery-queue.contract.ts';

let server: PostgresServer;

beforeAll(async () => {
  server = await startPostgres({ config: ['fsync = on'] });
});
afterAll(async () => {
  await server.stop();
});

describeDeliveryQueue(
  'the delivery queue in PostgreSQL',
  createPostgresStores(() => server),
);
