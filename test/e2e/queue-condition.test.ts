/** A gate whose queue cannot be written: /readyz, the metric and the log say so, the rest goes on, and it recovers by itself. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { makeFolder } from '../support/fixtures.ts';
import { startGate, until } from '../support/gate.ts';
import { type PostgresServer, startPostgres } from '../support/postgres.ts';
import { call } from '../support/provider/client.ts';

let server: PostgresServer;
beforeAll(async () => {
  server = await startPostgres({ config: ['fsync = on'] });
});
afterAll(() => server.stop());

test('a PostgreSQL that became a read-only standby costs events a 503 and nobody the readiness', async () => {
  const file = join(makeFolder(), 'queue-url');
  writeFileSync(file, server.url());
  const queue = { postgres: { url: { file }, statementTimeout: '3s' } };
  const gate = await startGate({ provider: { address: '127.0.0.1:0', queue } });
  onTestFinished(async () => void (await gate.stop()));
  const readiness = async (): Promise<string> => {
    const response = await fetch(`http://127.0.0.1:${gate.adminPort}/readyz`);
    return `${response.status} ${(await response.text()).trim()}`;
  };
  const post = async (id: string): Promise<number> =>
    (await call(gate.providerPort, 'POST', '/v1/events', { id, type: 'invoice.paid', data: {} })).status;
  expect(await post('before')).toBe(202);
  expect(await readiness()).toBe('200 ready');
  await server.restart('standby');
  await until(async () => (await post('during')) === 503 && (await readiness()).includes('but'));
  expect(await readiness()).toBe('200 ready, but the queue cannot store events');
  expect(await gate.metric('sidegate_provider_queue_up')).toBe(0);
  await server.restart();
  await until(async () => (await post('after')) === 202 && (await readiness()) === '200 ready');
  expect(await gate.metric('sidegate_provider_queue_up')).toBe(1);
  expect(await gate.metric('sidegate_provider_queue_went_back_total')).toBe(0);
  const logged = gate
    .log()
    .filter(({ msg }) => String(msg).startsWith('queue_'))
    .map(({ msg }) => msg);
  expect(logged).toEqual(['queue_down', 'queue_up']);
});
