/** Routes with `ack: onAccept` whose sender signs an ID again, with other content. */
import { createHmac } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { type Answer, send } from '../support/client.ts';
import { makeFolder, useApp } from '../support/fixtures.ts';
import { startGate, type TestGate, toRoute, until } from '../support/gate.ts';
import { startPostgres } from '../support/postgres.ts';

const SECRET = Buffer.alloc(32, 3);
const PAID = '{"order":1,"state":"paid"}';
const REFUNDED = '{"order":1,"state":"refunded"}';

const app = useApp();

const QUEUES = {
  SQLite: async () => ({ sqlite: { path: join(makeFolder(), 'queue.db'), allowVolatile: true } }),
  PostgreSQL: async () => {
    const server = await startPostgres({ config: ['fsync = on'] });
    onTestFinished(() => server.stop());
    const file = join(makeFolder(), 'url');
    writeFileSync(file, server.url());
    return { postgres: { url: { file } } };
  },
};

function push({ port }: TestGate, body: string): Promise<Answer> {
  const time = String(Math.floor(Date.now() / 1000));
  const signature = createHmac('sha256', SECRET).update(`evt_1.${time}.${body}`).digest('base64');
  const signed = { 'Webhook-Id': 'evt_1', 'Webhook-Timestamp': time, 'Webhook-Signature': `v1,${signature}` };
  return send(port, { path: '/hooks/orders', headers: { 'Content-Type': 'application/json', ...signed }, body });
}

test.each(['SQLite', 'PostgreSQL'] as const)(
  'it is a duplicate with a warning while the ID is known, and reaches the app with a queue in %s once it is not',
  async (engine) => {
    const queue = await QUEUES[engine]();
    const match = { path: '/hooks/orders' };
    const route = toRoute(app.port, { match, webhook: { scheme: 'standard-webhooks', ack: 'onAccept' } });
    const sections = { routes: [route], provider: { address: '127.0.0.1:0', queue } };
    const start = () => startGate(sections, undefined, { secret: `whsec_${SECRET.toString('base64')}` });
    let gate = await start();
    onTestFinished(async () => {
      await gate.stop();
    });
    const expectReused = async (body: string) => {
      expect(await push(gate, body)).toMatchObject({ status: 200, code: 'duplicate' });
      const reused = await until(() => gate.log().find(({ reason }) => reason === 'id_reused'));
      expect(reused).toMatchObject({ level: 'warn', code: 'duplicate' });
      expect(await gate.metric('sidegate_dedup_operations_total{outcome="id_reused"}')).toBe(1);
    };
    expect((await push(gate, PAID)).status).toBe(202);
    await expectReused(REFUNDED);
    await until(() => app.received.length === 1);
    await gate.stop();
    gate = await start();
    expect((await push(gate, REFUNDED)).status).toBe(202);
    await until(() => app.received.length === 2);
    await expectReused(PAID);
    expect(await push(gate, REFUNDED)).toMatchObject({ status: 200, code: 'duplicate' });
    // Before the restart, it was stored.
    await gate.stop();
    gate = await start();
    expect((await push(gate, PAID)).status).toBe(202);
    expect(app.received.map(({ body }) => body.toString())).toEqual([PAID, REFUNDED]);
  },
  60_000,
);
