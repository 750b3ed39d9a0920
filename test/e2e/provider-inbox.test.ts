/** Routes with `ack: onAccept`: which deliveries are the same, and what becomes of those whose route is removed. */
import { createHmac, generateKeyPairSync, sign } from 'node:crypto';
import { join } from 'node:path';
import { afterEach, expect, test } from 'vitest';
import { type Answer, send } from '../support/client.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { makeFolder, useApp, useRedis } from '../support/fixtures.ts';
import { type Sections, startGate, type TestGate, toRoute, until } from '../support/gate.ts';

const SECRET = "It's a Secret to Everybody";
const BODY = '{"ref":"refs/heads/main"}';
const MINUTE = 60_000;

const app = useApp();
const redis = useRedis();
let gate: TestGate;
let clock: FakeClock | undefined;

/** A fake clock has to move for the gate to stop. */
async function stop(): Promise<void> {
  let isStopped = false;
  const stopping = gate.stop().then(() => {
    isStopped = true;
  });
  await until(async () => {
    await clock?.advance(1_000);
    return isStopped;
  });
  await stopping;
}

afterEach(async () => {
  await stop();
  clock = undefined;
});

const toInbox = (name: string, webhook: Sections = {}): Sections =>
  toRoute(app.port, {
    match: { path: `/hooks/${name}` },
    route: { name },
    webhook: { scheme: 'github', ack: 'onAccept', ...webhook },
  });
const toProvider = (path = join(makeFolder(), 'queue.db'), over: Sections = {}): Sections => ({
  address: '127.0.0.1:0',
  queue: { sqlite: { path, allowVolatile: true } },
  ...over,
});

async function start(sections: Sections): Promise<void> {
  gate = await startGate(sections, clock, { secret: SECRET });
}

function push(id: string, route = 'billing'): Promise<Answer> {
  const signature = `sha256=${createHmac('sha256', SECRET).update(BODY).digest('hex')}`;
  const headers = { 'Content-Type': 'application/json', 'X-GitHub-Delivery': id, 'X-Hub-Signature-256': signature };
  return send(gate.port, { path: `/hooks/${route}`, headers, body: BODY });
}

async function list(query = ''): Promise<Record<string, unknown>[]> {
  const { text } = await send(gate.providerPort, { method: 'GET', path: `/v1/deliveries${query}` });
  return (JSON.parse(text) as { data: Record<string, unknown>[] }).data;
}

test('events with the same bytes are different if the route trusts their IDs', async () => {
  await start({ routes: [toInbox('billing', { dedup: { unsignedId: 'trust' } })], provider: toProvider() });
  expect([(await push('a')).status, (await push('b')).status]).toEqual([202, 202]);
  await until(() => app.received.length === 2);
  expect(await push('b')).toMatchObject({ status: 200, code: 'duplicate' });
  expect(app.received.map(({ headers }) => headers['x-github-delivery']).sort()).toEqual(['a', 'b']);
  expect(new Set((await list()).map(({ event }) => event)).size).toBe(2);
});

test('events with the same bytes are one if their IDs are not signed and not trusted', async () => {
  await start({ routes: [toInbox('billing')], provider: toProvider() });
  expect((await push('a')).status).toBe(202);
  await until(async () => (await list('?state=delivered')).length === 1);
  expect(await push('b')).toMatchObject({ status: 200, code: 'duplicate' });
  expect([app.received.length, (await list()).length]).toEqual([1, 1]);
});

test('a sender that counts 202 as a failure gets the status that it counts as delivered', async () => {
  const { publicKey, privateKey } = generateKeyPairSync('ed25519');
  const key = publicKey.export({ format: 'der', type: 'spki' }).subarray(-32).toString('hex');
  gate = await startGate(
    {
      routes: [
        toInbox('xero', { scheme: 'xero', keys: [{ name: 'current', secret: { file: 'secret' } }] }),
        toInbox('dropbox-sign', { scheme: 'dropbox-sign', keys: [{ name: 'current', secret: { file: 'secret' } }] }),
        toInbox('discord', { scheme: 'discord', keys: [{ name: 'current', secret: { file: 'discord-key' } }] }),
      ],
      provider: toProvider(),
    },
    clock,
    { secret: SECRET, 'discord-key': key },
  );
  const post = (name: string, headers: Readonly<Record<string, string>>, body: string): Promise<Answer> =>
    send(gate.port, { path: `/hooks/${name}`, headers: { 'Content-Type': 'application/json', ...headers }, body });
  const mac = createHmac('sha256', SECRET).update(BODY).digest('base64');
  const xero = await post('xero', { 'X-Xero-Signature': mac }, BODY);
  expect([xero.status, xero.headers['content-length']]).toEqual([200, '0']);
  const seconds = String(Math.floor(Date.now() / 1000));
  const hash = createHmac('sha256', SECRET).update(`${seconds}signature_request_sent`).digest('hex');
  const signed = { event_type: 'signature_request_sent', event_time: seconds, event_hash: hash };
  const form = new URLSearchParams({ json: JSON.stringify({ event: signed }) }).toString();
  const dropbox = await post('dropbox-sign', { 'Content-Type': 'application/x-www-form-urlencoded' }, form);
  expect([dropbox.status, dropbox.text, dropbox.headers['content-length']]).toEqual([200, 'Hello API Event Received', '24']);
  const event = '{"type":1,"event":{}}';
  const time = String(Math.floor(Date.now() / 1000));
  const signature = sign(null, Buffer.from(time + event), privateKey).toString('hex');
  const discord = await post('discord', { 'X-Signature-Ed25519': signature, 'X-Signature-Timestamp': time }, event);
  expect([discord.status, discord.headers['content-length']]).toEqual([204, undefined]);
  await until(() => app.received.length === 3);
});

test('deliveries of a removed route are skipped, also if a SQLite queue is used beside the Redis of the store', async () => {
  app.handler = (_request, response) => response.writeHead(500).end();
  const provider = toProvider(undefined, { schedule: ['1h'] });
  const store = { redis: { url: `redis://127.0.0.1:${redis.port}` } };
  await start({ store, provider, routes: [toInbox('billing')] });
  await until(async () => (await push('a')).status === 202);
  await until(async () => (await list())[0]?.['attempts'] === 1);
  await stop();
  clock = new FakeClock(Date.now() + 120 * MINUTE);
  const routes = [toInbox('other')];
  await start({ store, provider, routes });
  const startedAt = clock.now();
  const [skipped] = await until(async () => {
    await clock?.advance(5_000);
    const found = await list('?state=skipped');
    return found.length > 0 && found;
  });
  expect(skipped).toMatchObject({ endpoint: 'inbox:billing', attempts: 1 });
  // Before that, the route may only be missing during a rolling update.
  expect(clock.now() - startedAt).toBeGreaterThanOrEqual(15 * MINUTE);
}, 60_000);
