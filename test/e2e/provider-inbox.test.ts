/** Routes with `ack: onAccept`: which deliveries are the same, and what becomes of those whose route loses `ack` or its name. */
import { createHmac, generateKeyPairSync, sign } from 'node:crypto';
import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, expect, onTestFinished, test } from 'vitest';
import { type Answer, send } from '../support/client.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { makeFolder, useApp, useRedis } from '../support/fixtures.ts';
import { type Sections, startGate, type TestGate, toRoute, until } from '../support/gate.ts';
import { startPostgres } from '../support/postgres.ts';
import { startStoppableApp } from '../support/stoppable-app.ts';

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

function push(id: string, route = 'billing', body = BODY): Promise<Answer> {
  const signature = `sha256=${createHmac('sha256', SECRET).update(body).digest('hex')}`;
  const headers = { 'Content-Type': 'application/json', 'X-GitHub-Delivery': id, 'X-Hub-Signature-256': signature };
  return send(gate.port, { path: `/hooks/${route}`, headers, body });
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
  expect(await push('b')).toMatchObject({ status: 503, code: 'event_conflict' });
  expect([app.received.length, (await list()).length]).toEqual([1, 1]);
});

test.each(['linear', 'zendesk', 'custom', 'unsignedBody'])(
  'a captured delivery under an invented ID, or without one, is a duplicate: %s',
  async (name) => {
    const custom = {
      signature: { header: 'X-Custom-Signature', encoding: 'hex' },
      ...(name === 'unsignedBody'
        ? { signed: ['timestamp'], unsignedBody: true }
        : { signed: ['timestamp', 'body'], separator: '.' }),
      timestamp: { header: 'X-Custom-Time' },
      id: { header: 'X-Custom-Id' },
    };
    const scheme = name === 'linear' || name === 'zendesk' ? { scheme: name } : { scheme: 'custom', custom };
    await start({ routes: [toInbox('billing', scheme)], provider: toProvider() });
    const now = new Date();
    const seconds = String(Math.floor(now.getTime() / 1_000));
    const body = JSON.stringify({ webhookTimestamp: now.getTime(), id: 1 });
    const mac = (text: string, encoding: 'hex' | 'base64' = 'hex'): string =>
      createHmac('sha256', SECRET).update(text).digest(encoding);
    const toCustom = (text: string) => ({ 'X-Custom-Time': seconds, 'X-Custom-Signature': mac(text) });
    const signed: Record<string, Record<string, string>> = {
      linear: { 'Linear-Signature': mac(body) },
      zendesk: {
        'X-Zendesk-Webhook-Signature-Timestamp': now.toISOString(),
        'X-Zendesk-Webhook-Signature': mac(`${now.toISOString()}${body}`, 'base64'),
      },
      custom: toCustom(`${seconds}.${body}`),
      unsignedBody: toCustom(seconds),
    };
    const idHeader = { linear: 'Linear-Delivery', zendesk: 'X-Zendesk-Webhook-Invocation-Id' }[name] ?? 'X-Custom-Id';
    const deliver = (id?: string): Promise<Answer> =>
      send(gate.port, {
        path: '/hooks/billing',
        headers: { 'Content-Type': 'application/json', ...signed[name], ...(id !== undefined && { [idHeader]: id }) },
        body,
      });
    expect((await deliver('genuine')).code).toBeUndefined();
    await until(async () => (await list('?state=delivered')).length === 1);
    for (const id of ['invented', 'another', undefined, 'genuine'])
      expect(await deliver(id)).toMatchObject({ status: 200, code: 'duplicate' });
    expect([app.received.length, (await list()).length]).toEqual([1, 1]);
  },
);

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

test('a dead delivery is sent again when its sender repeats it, until the app has handled it', async () => {
  app.handler = (_request, response) => response.writeHead(410).end();
  await start({ routes: [toInbox('billing')], provider: toProvider() });
  expect((await push('a')).status).toBe(202);
  await until(async () => (await list('?state=dead')).length === 1);
  expect(await push('a')).toMatchObject({ status: 200, code: 'duplicate' });
  await until(() => app.received.length === 2);
  await until(async () => (await list('?state=dead')).length === 1);
  app.handler = (_request, response) => response.end('handled');
  expect(await push('a')).toMatchObject({ status: 200, code: 'duplicate' });
  await until(async () => (await list('?state=delivered')).length === 1);
  expect(await push('a')).toMatchObject({ status: 200, code: 'duplicate' });
  expect(await list()).toMatchObject([{ state: 'delivered', attempts: 3 }]);
  expect(app.received).toHaveLength(3);
});

/** How a queue is configured, and how it is lost. */
const QUEUES = {
  SQLite: async () => {
    const folder = makeFolder();
    const lose = (): void => {
      for (const end of ['', '-wal', '-shm']) rmSync(join(folder, `queue.db${end}`), { force: true });
    };
    return { queue: { sqlite: { path: join(folder, 'queue.db'), allowVolatile: true } }, lose };
  },
  PostgreSQL: async () => {
    const server = await startPostgres({ config: ['fsync = on'] });
    onTestFinished(() => server.stop());
    const file = join(makeFolder(), 'url');
    writeFileSync(file, server.url());
    const lose = (): void => void server.sql('DROP SCHEMA sidegate CASCADE');
    return { queue: { postgres: { url: { file } } }, lose };
  },
};

test.each(['SQLite', 'PostgreSQL'] as const)(
  'a delivery that was lost with the queue in %s is stored again',
  async (engine) => {
    app.handler = (_request, response) => response.writeHead(500).end();
    const { queue, lose } = await QUEUES[engine]();
    const route = `lost-${engine.toLowerCase()}`;
    const sections = {
      store: { redis: { url: `redis://127.0.0.1:${redis.port}` } },
      provider: toProvider(undefined, { queue }),
      routes: [toInbox(route)],
    };
    // Its ID gets an age by what is left of this retention, not by that of the later config.
    await start({ ...sections, routes: [toInbox(route, { dedup: { retention: '7d' } })] });
    await until(async () => (await push('a', route)).status === 202);
    expect(await push('a', route)).toMatchObject({ status: 200, code: 'duplicate' });
    await stop();
    lose();
    app.handler = (_request, response) => response.end('handled');
    app.received.length = 0;
    await start(sections);
    await until(() => gate.log().some(({ msg }) => msg === 'store_up'));
    const statuses = (await Promise.all([push('a', route), push('a', route)])).map(({ status }) => status);
    expect([Math.min(...statuses) >= 200, Math.max(...statuses)]).toEqual([true, 202]);
    await until(async () => (await list('?state=delivered')).length === 1);
    expect(await push('a', route)).toMatchObject({ status: 200, code: 'duplicate' });
    expect(app.received).toHaveLength(1);
  },
  60_000,
);

test.each([
  ['after its retention', { retention: '10m' }, 11 * MINUTE, 0],
  ['before its retention, as the queue was full', { maxBytes: '20Ki', endpointShare: 1 }, 2 * MINUTE, 0],
  ['before its retention, and much of the queue is free since then', { maxBytes: '20Ki', endpointShare: 1 }, 2 * MINUTE, 6_000],
])(
  'a delivery that the app handled stays a duplicate when it leaves the queue %s',
  async (_when, over, time, padding) => {
    clock = new FakeClock(Date.now());
    const queue = { sqlite: { path: join(makeFolder(), 'queue.db'), allowVolatile: true }, ...over };
    const routes = [toInbox('billing', { dedup: { unsignedId: 'trust' } })];
    await start({ routes, provider: toProvider(undefined, { queue }) });
    const body = JSON.stringify({ padding: 'x'.repeat(padding) });
    const pushIt = (id: string) => push(id, 'billing', body);
    expect((await pushIt('a')).status).toBe(202);
    const [first] = await until(async () => {
      const found = await list('?state=delivered');
      return found.length === 1 && found;
    });
    for (let count = 0; count < 60; count++) await until(async () => (await pushIt(`b${count}`)).status === 202);
    await until(() => app.received.length === 61);
    await until(async () => (await list('?state=waiting')).length === 0);
    await clock.advance(time);
    await until(async () => (await list(`?event=${String(first?.['event'])}`)).length === 0);
    if (padding > 0) {
      await clock.advance(10_000);
      await until(async () => (await gate.metric('sidegate_provider_queue_stored_bytes')) < 0.85 * 20 * 1024);
    }
    expect(await pushIt('a')).toMatchObject({ status: 200, code: 'duplicate' });
    expect(app.received).toHaveLength(61);
  },
  60_000,
);

test('another event with the same bytes is stored once the IDs are forgotten, and not acknowledged as the first one', async () => {
  const sections = { routes: [toInbox('billing')], provider: toProvider() };
  await start(sections);
  expect([(await push('a')).status, (await push('b')).status]).toEqual([202, 503]);
  await stop();
  await start(sections);
  expect((await push('a')).status).toBe(202);
  await stop();
  await start(sections);
  expect((await push('b')).status).toBe(202);
  await until(() => app.received.length === 2);
  expect(app.received.map(({ headers }) => headers['x-github-delivery'])).toEqual(['a', 'b']);
});

/** A delivery of a sender without IDs or times. */
function pushPaystack(): Promise<Answer> {
  const signature = createHmac('sha512', SECRET).update(BODY).digest('hex');
  return send(gate.port, {
    path: '/hooks/paystack',
    headers: { 'Content-Type': 'application/json', 'X-Paystack-Signature': signature },
    body: BODY,
  });
}

describe('a sender that sends the same bytes for a later event', () => {
  const toSections = (over: Sections = {}): Sections => ({
    routes: [toInbox('paystack', { scheme: 'paystack', dedup: { retention: '20m' } })],
    provider: toProvider(undefined, { schedule: [] }),
    ...over,
  });

  test('gets each stored once dedup.retention is over, and a repetition sends a dead one again', async () => {
    clock = new FakeClock(Date.now());
    await start(toSections());
    for (let count = 1; count <= 3; count++) {
      app.handler = (_request, response) => response.writeHead(count === 3 ? 500 : 200).end();
      expect(await pushPaystack()).toMatchObject({ status: 200, code: undefined });
      await until(() => app.received.length === count);
      await until(async () => (await list('?state=waiting')).length === 0);
      expect(await pushPaystack()).toMatchObject({ status: 200, code: 'duplicate' });
      if (count < 3) await clock.advance(21 * MINUTE);
    }
    await until(() => app.received.length === 4);
    expect(await list()).toHaveLength(3);
  });

  test('gets a delivery stored once that was lost with the queue', async () => {
    const { queue, lose } = await QUEUES.SQLite();
    const store = { redis: { url: `redis://127.0.0.1:${redis.port}` } };
    const sections = toSections({ store, provider: toProvider(undefined, { queue }) });
    await start(sections);
    await until(async () => (await pushPaystack()).status === 200);
    await until(() => app.received.length === 1);
    await stop();
    lose();
    await start(sections);
    await until(() => gate.log().some(({ msg }) => msg === 'store_up'));
    for (let count = 0; count < 3; count++) await Promise.all([pushPaystack(), pushPaystack()]);
    await until(() => app.received.length === 2);
    expect(await list()).toHaveLength(1);
  });
});

test.each<[string, Sections, Sections, number]>([
  ['has a shorter dedup.retention', { dedup: { retention: '1h' } }, { dedup: { retention: '20m' } }, 11 * MINUTE],
  ['has ack: onAccept', { ack: 'onResponse' }, {}, 0],
])(
  'a delivery that the app handled stays a duplicate if the config %s when it is repeated',
  async (_what, before, after, time) => {
    clock = new FakeClock(Date.now());
    const sqlite = { path: join(makeFolder(), 'queue.db'), allowVolatile: true };
    const provider = toProvider(undefined, { queue: { sqlite, retention: '10m' } });
    await start({ routes: [toInbox('billing', before)], provider });
    expect((await push('a')).status).toBe(time === 0 ? 200 : 202);
    await until(() => app.received.length === 1);
    await until(async () => (await list('?state=waiting')).length === 0);
    await clock.advance(time);
    await until(async () => (await list()).length === 0);
    await reload({ routes: [toInbox('billing', after)], provider });
    expect(await push('a')).toMatchObject({ status: 200, code: 'duplicate' });
    expect(app.received).toHaveLength(1);
  },
  60_000,
);

test('good deliveries arrive while twenty others fail', async () => {
  app.handler = ({ headers }, response) =>
    response.writeHead(String(headers['x-github-delivery']).startsWith('bad') ? 500 : 200).end();
  await start({ routes: [toInbox('billing', { dedup: { unsignedId: 'trust' } })], provider: toProvider() });
  const isAccepted = async (id: string): Promise<boolean> => (await push(id)).status === 202;
  for (let count = 0; count < 20; count++) expect(await isAccepted(`bad${count}`)).toBe(true);
  await until(() => app.received.length >= 20);
  const startedAt = performance.now();
  for (let count = 0; count < 5; count++) expect(await isAccepted(`good${count}`)).toBe(true);
  await until(async () => (await list('?state=delivered')).length === 5);
  expect(performance.now() - startedAt).toBeLessThan(2_000);
});

test('an app that is back after 40 s gets its backlog within 2 s, and no event has lost an attempt of its schedule', async () => {
  const other = await startStoppableApp();
  clock = new FakeClock(Date.now());
  const route = { ...toInbox('billing', { dedup: { unsignedId: 'trust' } }), upstream: other.url };
  await start({ routes: [route], provider: toProvider() });
  await other.stopApp();
  for (let count = 0; count < 20; count++) expect((await push(`event${count}`)).status).toBe(202);
  const wentAt = clock.monotonic();
  await until(async () => {
    await clock?.advance(200);
    return clock !== undefined && clock.monotonic() - wentAt >= 40_000;
  });
  expect(gate.log().filter(({ msg }) => msg === 'breaker_opened')).toHaveLength(1);
  await other.startAgain();
  const backAt = clock.monotonic();
  await until(async () => {
    await clock?.advance(20);
    return other.received.length > 0;
  });
  expect(clock.monotonic() - backAt).toBeLessThanOrEqual(2_000);
  await until(async () => {
    await clock?.advance(20);
    return other.received.length === 20;
  });
  expect(new Set(other.received).size).toBe(20);
  const deliveries = await until(async () => {
    const found = await list('?state=delivered');
    return found.length === 20 && found;
  });
  expect(deliveries.map(({ attempts }) => attempts)).toEqual(Array(20).fill(1));
}, 60_000);

/** The route of `billing` without `ack`. */
const toPlain = (): Sections => toInbox('billing', { ack: 'onResponse' });
const SCHEDULE = { schedule: ['30m', '30m'] };

/** Moves the fake clock until `look` gives something. */
function later<T extends object | true>(look: () => Promise<T | false>, step = 1_000): Promise<T> {
  return until(async () => {
    await clock?.advance(step);
    return look();
  });
}

/** One delivery was accepted, and the app has failed its first attempt. */
async function startFailing(sections: Sections): Promise<void> {
  app.handler = (_request, response) => response.writeHead(500).end();
  await start(sections);
  await until(async () => (await push('a')).status === 202);
  await until(async () => (await list())[0]?.['attempts'] === 1);
  app.handler = (_request, response) => response.end('handled');
  app.received.length = 0;
}

async function reload(sections: Sections): Promise<void> {
  gate.writeConfig(sections);
  await gate.gate.reload();
}

const linesOf = (msg: string): Record<string, unknown>[] => gate.log().filter((line) => line['msg'] === msg);

test('a route that loses ack in a reload gets what it accepted before', async () => {
  clock = new FakeClock(Date.now());
  const provider = toProvider(undefined, SCHEDULE);
  await startFailing({ provider, routes: [toInbox('billing')] });
  await reload({ provider, routes: [toPlain()] });
  expect(await push('a')).toMatchObject({ status: 200, code: 'duplicate' });
  await later(async () => app.received.length === 1, 60_000);
  expect(await until(async () => (await list('?state=delivered'))[0])).toMatchObject({ endpoint: 'inbox:billing', attempts: 2 });
  expect(await gate.metric('sidegate_provider_deliveries_total{endpoint="inbox:billing",result="delivered"}')).toBe(1);
  expect(await push('a')).toMatchObject({ status: 200, code: 'duplicate' });
  expect((await push('b')).status).toBe(503);
  expect(app.received).toHaveLength(1);
  expect(linesOf('inbox_routes_missing')).toEqual([]);
}, 60_000);

test.each(['a reload', 'a restart'])(
  'a dead delivery of a route that lost ack in %s is sent again when its sender repeats it',
  async (how) => {
    const provider = toProvider(undefined, SCHEDULE);
    const store = { redis: { url: `redis://127.0.0.1:${redis.port}` } };
    app.handler = (_request, response) => response.writeHead(410).end();
    const name = how.replace(' ', '-');
    await start({ store, provider, routes: [toInbox(name)] });
    await until(async () => (await push('a', name)).status === 202);
    await until(async () => (await list('?state=dead')).length === 1);
    app.handler = (_request, response) => response.end('handled');
    app.received.length = 0;
    const sections = { store, provider, routes: [toInbox(name, { ack: 'onResponse' })] };
    if (how === 'a reload') await reload(sections);
    else {
      await stop();
      await start(sections);
      await until(() => linesOf('store_up').length > 0);
    }
    expect(await push('a', name)).toMatchObject({ status: 200, code: 'duplicate' });
    await until(async () => (await list('?state=delivered')).length === 1);
    expect(app.received).toHaveLength(1);
    const body = JSON.stringify({ action: 'retry', type: 'inbox', states: ['delivered'], dryRun: true });
    const headers = { 'Content-Type': 'application/json' };
    expect((await send(gate.providerPort, { path: '/v1/repairs', headers, body })).text).toContain('"total":1');
  },
  60_000,
);

test('what the app of a route without ack handled stays a duplicate, although the queue does not know it', async () => {
  const provider = toProvider();
  await start({ provider, routes: [toInbox('billing')] });
  await reload({ provider, routes: [toPlain()] });
  expect((await push('a')).status).toBe(200);
  expect(await push('a')).toMatchObject({ status: 200, code: 'duplicate' });
  expect([app.received.length, (await list()).length]).toEqual([1, 0]);
});

test.each([
  ['is renamed', () => toInbox('other')],
  [
    'is no longer one for webhooks',
    () => ({ name: 'billing', match: { path: '/x' }, upstream: `http://127.0.0.1:${app.port}`, allow: 'anyone' }),
  ],
])(
  'deliveries of a route that %s die at the end of the schedule, with log lines and metrics of the route, and can be retried once it is back',
  async (_how, toRest) => {
    clock = new FakeClock(Date.now());
    const provider = toProvider(undefined, SCHEDULE);
    await startFailing({ provider, routes: [toInbox('billing')] });
    await reload({ provider, routes: [toRest()] });
    const [warning] = await until(() => linesOf('inbox_routes_missing').length > 0 && linesOf('inbox_routes_missing'));
    expect(warning).toMatchObject({ level: 'warn', count: 1, routes: ['billing'], deliveries: 1 });
    const series = 'sidegate_provider_deliveries_total{endpoint="inbox:billing",result="dead"}';
    // An increase from no series to 1 would not fire an alert.
    expect(await gate.metrics()).toContain(`${series} 0`);
    const [dead] = await later(async () => {
      const found = await list('?state=dead');
      return found.length > 0 && found;
    }, 60_000);
    const lastAttempt = { outcome: 'blocked', detail: 'there is no webhook route with the name billing' };
    expect(dead).toMatchObject({ endpoint: 'inbox:billing', attempts: 3, lastAttempt });
    expect(app.received).toHaveLength(0);
    expect(await gate.metric(series)).toBe(1);
    expect(linesOf('inbox_deliveries_dead')).toMatchObject([{ level: 'error', route: 'billing' }]);
    const body = JSON.stringify({ action: 'retry', endpoint: 'inbox:billing' });
    const retry = (): Promise<Answer> =>
      send(gate.providerPort, { path: '/v1/repairs', headers: { 'Content-Type': 'application/json' }, body });
    expect((await retry()).status).toBe(404);
    await reload({ provider, routes: [toInbox('billing')] });
    expect((await retry()).status).toBe(200);
    await later(async () => app.received.length === 1);
    await later(async () => (await list('?state=delivered')).length === 1);
  },
  60_000,
);

test('a route that returns before the end of the schedule gets its deliveries by itself', async () => {
  clock = new FakeClock(Date.now());
  const provider = toProvider(undefined, SCHEDULE);
  await startFailing({ provider, routes: [toInbox('billing')] });
  await reload({ provider, routes: [toInbox('other')] });
  await later(async () => (await list())[0]?.['attempts'] === 2, 60_000);
  await reload({ provider, routes: [toInbox('billing')] });
  await later(async () => app.received.length === 1, 60_000);
  await later(async () => (await list('?state=delivered')).length === 1);
  expect(linesOf('inbox_deliveries_dead')).toEqual([]);
}, 60_000);

test('a start names the routes that are missing, also if a SQLite queue is used beside the Redis of the store', async () => {
  const provider = toProvider(undefined, SCHEDULE);
  const store = { redis: { url: `redis://127.0.0.1:${redis.port}` } };
  await startFailing({ store, provider, routes: [toInbox('billing')] });
  await stop();
  await start({ store, provider, routes: [toInbox('other')] });
  expect(linesOf('inbox_routes_missing')).toMatchObject([{ routes: ['billing'] }]);
}, 60_000);

test('in PostgreSQL, deliveries of a route that this replica does not have wait for one that has it', async () => {
  const { queue } = await QUEUES.PostgreSQL();
  const provider = toProvider(undefined, { queue, schedule: ['1s', '1h'] });
  await startFailing({ provider, routes: [toInbox('billing')] });
  await reload({ provider, routes: [toInbox('other')] });
  await until(() => linesOf('inbox_routes_missing').length === 1);
  // Of the queue, in its own time.
  await until(async () => (await gate.metric('sidegate_provider_queue_oldest_due_age_seconds')) > 0);
  expect(await list()).toMatchObject([{ state: 'waiting', attempts: 1 }]);
  await reload({ provider, routes: [toInbox('billing')] });
  expect(await until(async () => (await list('?state=delivered'))[0])).toMatchObject({ attempts: 2 });
}, 60_000);
