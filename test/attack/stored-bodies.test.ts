/** Attacks on stored bodies: floods of clients that are not verified, replays, hostile JSON, secrets, readers without a right. */
import { networkInterfaces } from 'node:os';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { type Answer, send } from '../support/client.ts';
import { makeDelivery, SECRET } from '../support/deliveries.ts';
import { useApp } from '../support/fixtures.ts';
import { type Sections, startGate, type TestGate, toRoute } from '../support/gate.ts';

const OUTSIDE = Object.values(networkInterfaces())
  .flatMap((addresses) => addresses ?? [])
  .find(({ family, internal }) => family === 'IPv4' && !internal)?.address;
const FORGED = `whsec_${Buffer.alloc(24, 9).toString('base64')}`;
const TOKEN = 't'.repeat(32);
const HOSTILE = `"'><img/src=x/onerror=alert(1)><script>alert(2)</script></pre>\u202e\u0000`;

const app = useApp();
let gate: TestGate;
afterEach(() => gate.stop());

const toStoring = (name: string, storeBody: Sections = {}): Sections =>
  toRoute(app.port, {
    match: { path: `/hooks/${name}` },
    webhook: { storeBody: { redact: ['$.card', '$.customers[*].email'], ...storeBody }, maxBody: '2Mi' },
    route: { name },
  });
const start = async (sections: Sections = {}): Promise<void> => {
  gate = await startGate({ routes: [toStoring('billing'), toStoring('orders')], ...sections }, undefined, { token: TOKEN });
};
const ask = (path: string, headers: Record<string, string> = {}): Promise<Answer> =>
  send(gate.adminPort, { method: 'GET', path, headers });
const deliver = (body: Buffer | string, path = '/hooks/billing'): Promise<Answer> =>
  send(gate.port, { ...makeDelivery({ body }), path });
const stored = (): Promise<number> => gate.metric('sidegate_stored_body_bytes');
/** Everything that a reader can get. */
async function readAll(): Promise<string> {
  const texts: string[] = [];
  for (let cursor: string | null = ''; cursor !== null; ) {
    const query: string = cursor === '' ? '' : `&cursor=${cursor}`;
    const page = JSON.parse((await ask(`/api/v1/deliveries?limit=250${query}`)).text);
    for (const { id } of page.data) texts.push((await ask(`/api/v1/deliveries/${id}`)).text, (await ask(`/?request=${id}`)).text);
    cursor = page.cursor;
  }
  return [...texts, (await ask('/journal')).text, gate.logText(), await gate.metrics()].join('\n');
}

describe('against the memory', () => {
  test('clients that are not verified can store nothing and push out nothing, whatever they send', async () => {
    await start({ journal: { size: 120, maxBodyBytes: '64Ki' } });
    await deliver('{"genuine":"marked"}');
    const before = await stored();
    expect(before).toBeGreaterThan(0);
    for (let i = 0; i < 50; i++) {
      const body = JSON.stringify({ i, card: 'x'.repeat(5_000) });
      await send(gate.port, { ...makeDelivery({ secret: FORGED, body }), path: '/hooks/billing' });
      await send(gate.port, { ...makeDelivery({ timestamp: 1, body }), path: '/hooks/billing' });
      await send(gate.port, { method: 'POST', path: '/hooks/orders', body, headers: { 'Content-Type': 'application/json' } });
    }
    expect(await stored()).toBe(before);
    expect(await readAll()).toContain('marked');
  });

  test('one captured delivery can be replayed without storing another body', async () => {
    await start();
    const delivery = { ...makeDelivery({ body: '{"a":1}' }), path: '/hooks/billing' };
    await send(gate.port, delivery);
    const before = await stored();
    for (let i = 0; i < 50; i++) expect((await send(gate.port, delivery)).status).toBe(200);
    expect(await stored()).toBe(before);
  });

  test('a sender that floods stays within the bound, and pushes out only its own', async () => {
    await start({ journal: { maxBodyBytes: '64Ki' } });
    await deliver('{"quiet":"marked"}', '/hooks/orders');
    for (let i = 0; i < 100; i++) await deliver(JSON.stringify({ i, x: 'x'.repeat(8_000) }));
    expect(await stored()).toBeLessThanOrEqual(65_536);
    expect(await gate.metric('sidegate_stored_bodies_total{outcome="evicted"}')).toBeGreaterThan(80);
    expect(await readAll()).toContain('marked');
  });
});

describe('against the redaction', () => {
  beforeEach(() => start());

  test.each<[string, string]>([
    ['a repeated name', '{"card":1,"card":"marked"}'],
    ['a repeated name that is escaped', '{"c\\u0061rd":1,"card":"marked"}'],
    ['a repeated parent', '{"customers":[],"customers":[{"email":"marked"}]}'],
    ['an escaped name', '{"c\\u0061r\\u0064":"marked","customers":[{"\\u0065mail":"marked"}]}'],
    ['an object in place of a text', '{"card":{"a":["marked"]},"customers":{"x":{"email":["marked"]}}}'],
    ['a text in place of a list', '{"customers":"[{\\"email\\":\\"marked\\"}]"}'],
    ['comments', '{/* */"card":"marked"}'],
    ['single quotes', "{'card':'marked'}"],
    ['a trailing comma', '{"card":"marked",}'],
    ['a second value', '{}{"card":"marked"}'],
    ['lines of JSON', '{}\n{"card":"marked"}'],
    ['an unpaired surrogate', '{"\\ud800":1,"card":"marked"}'],
    ['NaN', '{"card":"marked","n":NaN}'],
    ['a form', 'card=marked'],
    ['much nesting', `${'{"a":'.repeat(500)}{"card":"marked"}${'}'.repeat(500)}`],
    ['a huge list', JSON.stringify({ customers: Array.from({ length: 300 }, () => ({ email: 'marked' })) })],
    ['a body above the limit', JSON.stringify({ x: 'x'.repeat(9_000), card: 'marked' })],
  ])('%s hides no value', async (_, body) => {
    await deliver(body);
    expect(JSON.parse((await ask('/api/v1/deliveries')).text).data).toHaveLength(1);
    expect(await readAll()).not.toContain('marked');
  });

  test('megabytes of lists and levels take little time', async () => {
    const bodies = [`[${'1,'.repeat(500_000)}1]`, `${'['.repeat(900_000)}`, `{"customers":[${'{},'.repeat(300_000)}{}]}`];
    const started = performance.now();
    for (const body of bodies) await deliver(body);
    expect(performance.now() - started).toBeLessThan(5_000);
    expect(await stored()).toBe(0);
  });
});

describe('against secrets', () => {
  test('a body with a signing secret of any route is not stored, however it is written', async () => {
    await start({ routes: [toStoring('billing', { redact: [] })] });
    const bare = SECRET.slice('whsec_'.length);
    const escaped = [...bare].map((each) => `\\u${each.charCodeAt(0).toString(16).padStart(4, '0')}`).join('');
    for (const text of [SECRET, bare, escaped, encodeURIComponent(bare)]) await deliver(`{"text":"${text}"}`);
    await deliver(`${'x'.repeat(8_180)}${SECRET}`);
    expect(await stored()).toBe(0);
    for (const text of [bare, escaped]) expect(await readAll()).not.toContain(text);
  });
});

describe('against readers', () => {
  test('a hostile body is text: in JSON, and escaped in the page', async () => {
    await start({ routes: [toStoring('billing', { redact: [] })] });
    await deliver(HOSTILE);
    const { data } = JSON.parse((await ask('/api/v1/deliveries')).text);
    const answer = await ask(`/api/v1/deliveries/${data[0].id}`);
    expect(answer.headers['content-type']).toBe('application/json');
    expect(JSON.parse(answer.text).body.text).toBe(HOSTILE);
    const page = await ask(`/?request=${data[0].id}`);
    expect(page.text).toContain('&lt;script>alert(2)&lt;/script>&lt;/pre>');
    expect(page.text).not.toMatch(/<img|<script>/);
    expect(page.headers['content-security-policy']).toMatch(/^default-src 'none'; script-src 'self';/);
  });

  test('pages of other origins, and names that an attacker can make resolve to this machine, get nothing', async () => {
    await start();
    await deliver('{"marked":1}');
    const { data } = JSON.parse((await ask('/api/v1/deliveries')).text);
    for (const path of [`/api/v1/deliveries/${data[0].id}`, `/?request=${data[0].id}`])
      for (const headers of [{ 'Sec-Fetch-Site': 'cross-site' }, { Origin: 'https://evil.example' }, { Host: 'evil.example' }]) {
        const answer = await ask(path, headers as Record<string, string>);
        expect([path, answer.status, answer.text.includes('marked')]).toEqual([path, 403, false]);
      }
  });

  test.skipIf(OUTSIDE === undefined)('the token alone gets no body over the network, as the port has no TLS', async () => {
    const admin = { address: '0.0.0.0:0', token: { secret: { file: 'token' } } };
    await start({ admin });
    await deliver('{"marked":1}');
    const headers = { Authorization: `Bearer ${TOKEN}` };
    const { data } = JSON.parse((await ask('/api/v1/deliveries', headers)).text);
    const path = `/api/v1/deliveries/${data[0].id}`;
    expect(JSON.parse((await ask(path, headers)).text).body).toMatchObject({ text: '{"marked":1}' });
    const outside = await fetch(`http://${OUTSIDE}:${gate.adminPort}${path}`, { headers });
    expect(await outside.json()).toMatchObject({ body: { text: null, absence: 'not_loopback' } });
  });
});
