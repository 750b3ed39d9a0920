/** What a gate tells its operator of a refused signature, and what it does not tell the sender. */
import { createHmac } from 'node:crypto';
import { createServer, request } from 'node:http';
import express from 'express';
import { describe, expect, test } from 'vitest';
import { send } from '../support/client.ts';
import { makeDelivery, SECRET, unixNow } from '../support/deliveries.ts';
import { startServer, useApp } from '../support/fixtures.ts';
import { type Sections, startGate, type TestGate, toRoute, until } from '../support/gate.ts';

const OLD = 'whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX';
const REFUNDS = 'whsec_FxYVFBMSERAPDg0MCwoJCAcGBQQDAgEA';

const app = useApp();

function start(sections: Sections = {}): Promise<TestGate> {
  const keys = [
    { name: 'current', secret: { file: 'secret' } },
    { name: 'old', secret: { file: 'old' }, notAfter: '2020-01-01T00:00:00Z' },
  ];
  const refunds = toRoute(app.port, {
    route: { name: 'refunds' },
    match: { path: '/hooks/refunds' },
    webhook: { keys: [{ name: 'theirs', secret: { file: 'refunds' } }] },
  });
  const routes = [toRoute(app.port, { webhook: { keys } }), { ...refunds, name: 'refunds' }];
  return startGate({ routes, ...sections }, undefined, { old: OLD, refunds: REFUNDS });
}

type Line = Record<string, unknown>;

function explanations(gate: TestGate): Line[] {
  return gate.log().filter(({ msg }) => msg === 'signature_explained');
}

/** The explanation of the last request. */
function explained(gate: TestGate): Promise<Line> {
  return until(() => {
    const refused = gate.log().findLast(({ msg }) => msg === 'request');
    return explanations(gate).find(({ requestId }) => requestId === refused?.['requestId']);
  });
}

const PATH = '/hooks/billing';

test('finds a proxy that re-serialises JSON; the log and the metric name it, the response does not', async () => {
  const gate = await start();
  // Middleware as it stands before many an app: it parses, and passes on what it parsed.
  const middleware = express();
  middleware.use(express.json());
  middleware.post(PATH, (incoming, response) => {
    const { host: _, 'content-length': __, ...headers } = incoming.headers;
    const onward = request({ port: gate.port, path: PATH, method: 'POST', headers }, (answer) => {
      response.status(answer.statusCode ?? 500).set(answer.headers);
      answer.pipe(response);
    });
    onward.end(JSON.stringify(incoming.body));
  });
  const port = await startServer(createServer(middleware));
  const { body, headers } = makeDelivery({ body: '{\n  "type": "invoice.paid",\n  "data": {}\n}' });
  const answer = await send(port, { path: PATH, headers, body });
  expect(answer).toMatchObject({ status: 401, code: 'signature_mismatch' });
  const line = await explained(gate);
  expect(line).toMatchObject({
    level: 'warn',
    route: 'billing',
    causes: ['body_reserialised'],
    text: expect.stringContaining('indented by 2 spaces'),
    fix: expect.stringContaining('find the proxy or middleware'),
  });
  expect(await gate.metric('sidegate_explained_total{route="billing",cause="body_reserialised"}')).toBe(1);
  const journal = await (await fetch(`http://127.0.0.1:${gate.adminPort}/journal?reason=bad_signature`)).text();
  expect(journal).toContain('it matches over JSON indented by 2 spaces, with the key current');
  expect(journal).toContain('fix: find the proxy');
  expect(JSON.stringify(answer)).not.toMatch(/indented|reseriali[sz]ed|JSON\.stringify/);
  await gate.stop();
});

describe('the log shows', () => {
  test('which expired key, or key of another route, would have matched', async () => {
    const gate = await start();
    const deliver = (secret: string): Promise<unknown> => send(gate.port, { path: PATH, ...makeDelivery({ secret }) });
    await deliver(OLD);
    expect(await explained(gate)).toMatchObject({ causes: ['key_expired'], text: expect.stringContaining('the key old') });
    await deliver(REFUNDS);
    expect(await explained(gate)).toMatchObject({
      causes: ['other_route_key'],
      text: expect.stringContaining('the key theirs of the route refunds'),
    });
    await deliver(`whsec_${Buffer.alloc(24, 9).toString('base64')}`);
    expect(await explained(gate)).toMatchObject({ level: 'info', causes: ['unknown'] });
    for (const secret of [SECRET, OLD, REFUNDS]) expect(gate.logText()).not.toContain(secret.slice(6));
    await gate.stop();
  });

  test('from the head alone that it is another sender, or another time', async () => {
    const gate = await start();
    const headers = {
      'Content-Type': 'application/json',
      'X-Hub-Signature-256': `sha256=${createHmac('sha256', 'x').update('{}').digest('hex')}`,
    };
    await send(gate.port, { path: PATH, headers, body: '{}' });
    expect(await explained(gate)).toMatchObject({
      causes: ['other_preset', 'headers_missing'],
      text: expect.stringContaining('github'),
    });
    await send(gate.port, { path: PATH, ...makeDelivery({ timestamp: unixNow() - 1_000 }) });
    expect(await explained(gate)).toMatchObject({ causes: ['late'] });
    await send(gate.port, { path: PATH, ...makeDelivery({ timestamp: unixNow() * 1_000 }) });
    expect(await explained(gate)).toMatchObject({ causes: ['timestamp_unit'] });
    await gate.stop();
  });

  test('nothing about valid deliveries, or about rejections unrelated to signatures', async () => {
    const gate = await start();
    const delivery = makeDelivery();
    for (let i = 0; i < 2; i++) await send(gate.port, { path: PATH, ...delivery });
    await send(gate.port, { path: '/nowhere', ...delivery });
    await send(gate.port, { path: PATH, headers: { ...delivery.headers, 'Content-Type': 'text/plain' }, body: delivery.body });
    await send(gate.port, { path: PATH, ...makeDelivery({ secret: OLD }) });
    await explained(gate);
    expect(explanations(gate)).toHaveLength(1);
    await gate.stop();
  });
});

test('analyses beyond the limit of a route per minute are counted as skipped', async () => {
  const gate = await start({ explain: { perMinute: 2 } });
  for (let i = 0; i < 5; i++) await send(gate.port, { path: PATH, ...makeDelivery({ secret: OLD }) });
  await until(() => explanations(gate).length === 2);
  expect(await gate.metric('sidegate_explained_total{route="billing",cause="skipped"}')).toBe(3);
  await gate.stop();
});

test('a body larger than explain.maxBody is not analysed', async () => {
  const gate = await start({ explain: { maxBody: '1Ki' } });
  const body = JSON.stringify({ text: 'x'.repeat(2_000) });
  await send(gate.port, { path: PATH, ...makeDelivery({ secret: OLD, body }) });
  expect(await explained(gate)).toMatchObject({ causes: ['unknown'], text: expect.stringContaining('not kept') });
  await gate.stop();
});

test('explain: off analyses nothing', async () => {
  const gate = await start({ explain: 'off' });
  expect((await send(gate.port, { path: PATH, ...makeDelivery({ secret: OLD }) })).status).toBe(401);
  await gate.stop();
  expect(explanations(gate)).toEqual([]);
  expect(await Promise.resolve(gate.logText())).not.toContain('key_expired');
});
