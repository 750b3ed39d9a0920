/** Bodies that routes store, as the console and its API show them. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, expect, test } from 'vitest';
import { type Answer, send } from '../support/client.ts';
import { ADMIN, LOGIN, startConsoleGate } from '../support/console.ts';
import { makeDelivery } from '../support/deliveries.ts';
import { FakeClock, settle } from '../support/fake-clock.ts';
import { useApp } from '../support/fixtures.ts';
import { type Sections, startGate, type TestGate, toRoute, until } from '../support/gate.ts';
import { startRedis } from '../support/redis.ts';

const app = useApp();
const gates: TestGate[] = [];
let gate: TestGate;
afterEach(async () => {
  app.handler = (_request, response) => response.end('handled');
  for (const each of gates.splice(0)) await each.stop();
});

const keep = (started: TestGate): TestGate => {
  gates.push(started);
  return started;
};
const toStoring = (storeBody: Sections, webhook: Sections = {}): Sections[] => [
  toRoute(app.port, { webhook: { storeBody: { redact: [], ...storeBody }, ...webhook } }),
];
const start = async (storeBody: Sections = {}, sections: Sections = {}): Promise<void> => {
  gate = keep(await startGate({ routes: toStoring(storeBody), ...sections }));
};
const ask = (path: string, headers: Record<string, string> = {}, port = gate.adminPort): Promise<Answer> =>
  send(port, { method: 'GET', path, headers });
const listIds = async (port?: number): Promise<string[]> =>
  JSON.parse((await ask('/api/v1/deliveries', {}, port)).text).data.map(({ id }: { id: string }) => id);
interface Body {
  readonly text: string | null;
  readonly absence: string | null;
  readonly note: string | null;
}
const readBody = async (id: string, headers = {}, port?: number): Promise<Body | null> =>
  JSON.parse((await ask(`/api/v1/deliveries/${id}`, headers, port)).text).body;
/** Of the newest request. */
const readNewest = async (headers = {}): Promise<Body | null> => readBody((await listIds())[0] ?? '', headers);
const deliver = (body: Buffer | string): Promise<Answer> => send(gate.port, makeDelivery({ body }));

describe('a stored body', () => {
  test('is shown with its size, and without redacted values', async () => {
    await start({ redact: ['$.data.card', '$.items[*].email'], maxBytes: '1Ki' });
    await deliver('{"data":{"c\\u0061rd":"4242"},"items":[{"email":"a@b"},{"email":"c@d"}],"id":12345678901234567890}');
    expect(await readNewest()).toEqual({
      text: '{"data":{"c\\u0061rd":"[redacted]"},"items":[{"email":"[redacted]"},{"email":"[redacted]"}],"id":12345678901234567890}',
      bytes: 97,
      isTruncated: false,
      redactions: 3,
      absence: null,
      note: '3 values are redacted.',
    });
    await deliver(JSON.stringify({ data: 'x'.repeat(1_024) }));
    expect(await readNewest()).toMatchObject({ text: null, absence: 'too_large', note: expect.stringContaining('maxBytes') });
    await deliver('{"data":{"card":"4242"},"data":{}}');
    expect(await readNewest()).toMatchObject({ text: null, absence: 'not_json' });
    expect(await gate.metric('sidegate_stored_bodies_total{outcome="stored"}')).toBe(1);
    expect(await gate.metric('sidegate_stored_bodies_total{outcome="not_stored"}')).toBe(2);
  });

  test('outlives the memory of the request, which is freed after the response', async () => {
    await start({ maxBytes: '64Ki' });
    const text = `"${'x'.repeat(50_000)}"`;
    await deliver(text);
    expect(await readNewest()).toMatchObject({ text, isTruncated: false });
    const [received] = app.received.slice(-1);
    expect(String(received?.body)).toBe(text);
  });

  test('is truncated if nothing must be redacted', async () => {
    await start({ maxBytes: 100 });
    await deliver(`"${'x'.repeat(500)}"`);
    expect(await readNewest()).toMatchObject({
      text: `"${'x'.repeat(99)}`,
      bytes: 502,
      isTruncated: true,
      note: 'The first 100 of 502 bytes.',
    });
  });

  test('is there although the app failed, and of the first delivery of an event only', async () => {
    await start();
    app.handler = (_request, response) => void response.writeHead(500).end();
    await deliver('{"a":1}');
    expect(await readNewest()).toMatchObject({ text: '{"a":1}' });
    app.handler = (_request, response) => response.end();
    const delivery = makeDelivery({ body: '{"a":2}' });
    await send(gate.port, delivery);
    await send(gate.port, delivery);
    const [second = '', first = ''] = await listIds();
    expect(await readBody(first)).toMatchObject({ text: '{"a":2}' });
    expect(await readBody(second)).toMatchObject({ absence: 'not_forwarded' });
  });

  test('is stored by the replica that has it, in its memory only', async () => {
    const redis = await startRedis();
    const store = { redis: { url: `redis://127.0.0.1:${redis.port}` } };
    try {
      await start({}, { store });
      const other = keep(await startGate({ store, routes: toStoring({}) }));
      await until(async () => (await gate.metric('sidegate_dedup_up')) === 1);
      await deliver('{"marked":1}');
      expect(await readNewest()).toMatchObject({ text: '{"marked":1}' });
      const id = await until(async () => (await listIds(other.adminPort))[0]);
      expect(await readBody(id, {}, other.adminPort)).toMatchObject({
        text: null,
        absence: 'other_replica',
        note: expect.stringMatching(/^Stored on \S+ only/),
      });
      const keys = redis.cli('--raw', 'KEYS', '*').split('\n');
      const values = keys.map((key) =>
        redis.cli('--raw', ...(key.endsWith('deliveries') ? ['XRANGE', key, '-', '+'] : ['GET', key])),
      );
      expect(values.join()).toContain(id);
      expect(values.join()).not.toContain('marked');
    } finally {
      await redis.stop();
    }
  }, 30_000);

  test('ends with its retention', async () => {
    const clock = new FakeClock(Date.now());
    gate = keep(await startGate({ routes: toStoring({ retention: '10m' }) }, clock));
    await send(gate.port, makeDelivery({ timestamp: Math.floor(clock.now() / 1_000) }));
    expect(await readNewest()).toMatchObject({ absence: null });
    expect(await gate.metric('sidegate_stored_body_bytes')).toBeGreaterThan(0);
    await clock.advance(601_000);
    expect(await readNewest()).toMatchObject({ text: null, absence: 'expired' });
    expect(await gate.metric('sidegate_stored_body_bytes')).toBe(0);
    const stopped = gate.stop();
    gates.length = 0;
    await clock.advance(60_000);
    await settle();
    await stopped;
  });

  test('ends with the reload that changes what is stored', async () => {
    await start();
    await deliver('{"email":"marked"}');
    const [id = ''] = await listIds();
    gate.writeConfig({ routes: toStoring({ redact: ['$.email'] }) });
    await gate.gate.reload();
    expect(await readBody(id)).toMatchObject({ text: null, absence: 'expired' });
    await deliver('{"email":"marked"}');
    expect(await readNewest()).toMatchObject({ text: '{"email":"[redacted]"}' });
    gate.writeConfig({ routes: [toRoute(app.port)] });
    await gate.gate.reload();
    expect(await readNewest()).toMatchObject({ absence: 'expired' });
    await deliver('{}');
    expect(await readNewest()).toBeNull();
    gate.writeConfig({ routes: toStoring({}) });
    await gate.gate.reload();
    await deliver('{"again":1}');
    expect(await readNewest()).toMatchObject({ text: '{"again":1}' });
  });

  test('is not shown if it contains a secret that was configured later, escaped or not', async () => {
    const later = `whsec_${Buffer.from('later+/='.repeat(4)).toString('base64')}`;
    const bare = later.slice('whsec_'.length);
    const escaped = [...later].map((each) => `\\u00${each.charCodeAt(0).toString(16)}`).join('');
    await start();
    for (const text of [later, bare, escaped, JSON.stringify(escaped).slice(1, -1), encodeURIComponent(later), 'none'])
      await deliver(`{"text":"${text}"}`);
    const ids = (await listIds()).toReversed();
    expect(await Promise.all(ids.map(async (id) => (await readBody(id))?.absence))).toEqual(ids.map(() => null));
    const keys = [{ name: 'later', secret: { file: 'later' } }];
    writeFileSync(join(gate.folder, 'later'), later);
    const other = toRoute(app.port, { match: { path: '/other' }, route: { name: 'other' }, webhook: { keys } });
    gate.writeConfig({ routes: [...toStoring({}), other] });
    await gate.gate.reload();
    const absences = await Promise.all(ids.map(async (id) => (await readBody(id))?.absence));
    expect(absences).toEqual([...Array.from({ length: 5 }, () => 'has_secret'), null]);
  });

  test('does not exist on routes that do not ask for it', async () => {
    gate = keep(await startGate({ routes: [toRoute(app.port)] }));
    await deliver('{}');
    expect(await readNewest()).toBeNull();
    expect(await gate.metrics()).toContain('sidegate_stored_bodies_total{outcome="stored"} 0');
  });
});

describe('only', () => {
  test('users read stored bodies if the console has users, not everyone on the machine', async () => {
    gate = keep(await startConsoleGate(app.port, { routes: toStoring({}) }));
    await deliver('{"marked":1}');
    expect(await readNewest()).toMatchObject({ text: null, absence: 'login_required', note: expect.stringContaining('log in') });
    expect(await readNewest(LOGIN)).toMatchObject({ text: '{"marked":1}', absence: null });
    const [id] = await listIds();
    expect((await ask(`/?request=${id}`)).text).not.toContain('marked');
    expect((await ask(`/?request=${id}`, LOGIN)).text).toContain('<code>{&quot;marked&quot;:1}</code>');
    expect((await ask(`/api/v1/deliveries/${id}`, { Authorization: 'Basic d3Jvbmc6d3Jvbmc=' })).status).toBe(401);
  });

  test('users read stored bodies, not holders of the token, who need no password to read the rest', async () => {
    const token = { secret: { file: 'token' } };
    gate = keep(await startConsoleGate(app.port, { admin: { ...ADMIN, token }, routes: toStoring({}) }));
    await deliver('{"marked":1}');
    const bearer = { Authorization: `Bearer ${'t'.repeat(32)}` };
    const { data } = JSON.parse((await ask('/api/v1/deliveries', bearer)).text);
    expect(await readBody(data[0].id, bearer)).toMatchObject({ absence: 'login_required' });
    expect(await readBody(data[0].id, LOGIN)).toMatchObject({ absence: null });
  });
});
