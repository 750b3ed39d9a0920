/** `mode: observe`: everything is judged, counted and logged, and nothing is refused. */
import { describe, expect, test } from 'vitest';
import { send } from '../support/client.ts';
import { makeDelivery, unixNow } from '../support/deliveries.ts';
import { useApp } from '../support/fixtures.ts';
import { findFreePort } from '../support/free-port.ts';
import { type Sections, startGate, type TestGate, toRoute } from '../support/gate.ts';

const app = useApp();

function start(webhook: Sections = {}, more: Sections = {}): Promise<TestGate> {
  return startGate({ ...more, routes: [toRoute(app.port, { webhook, route: { mode: 'observe' } })] });
}

describe('a delivery that would be rejected', () => {
  const forged = makeDelivery({ secret: 'whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD' });
  const old = makeDelivery({ timestamp: unixNow() - 3_600 });
  const { 'Webhook-Signature': _, ...unsigned } = makeDelivery().headers;
  test.each([
    ['forged', forged, 'signature_mismatch', 'bad_signature'],
    ['stale', old, 'timestamp_outside_tolerance', 'timestamp_old'],
    ['unsigned', { headers: unsigned, body: '{}' }, 'missing_signature', 'missing_signature'],
    [
      'of another type',
      { ...forged, headers: { ...forged.headers, 'Content-Type': 'text/plain' } },
      'unsupported_media_type',
      'unsupported_media_type',
    ],
    ['with a query', { ...makeDelivery(), path: '/hooks/billing?a=1' }, 'malformed_request', 'query_not_signed'],
    ['by another method', { method: 'GET' }, 'unsupported_media_type', 'unsupported_media_type'],
  ] as const)('%s reaches the app byte for byte, with the code of the rejection', async (_title, delivery, code, reason) => {
    const gate = await start();
    const answer = await send(gate.port, delivery);
    expect(answer).toMatchObject({ status: 200, text: 'handled' });
    const [received] = app.received;
    expect(received?.headers['sidegate-observed']).toBe(code);
    expect(received?.headers).not.toHaveProperty('sidegate-key');
    if ('body' in delivery) expect(received?.body).toEqual(Buffer.from(delivery.body));
    expect(
      await gate.metric(
        `sidegate_auth_decisions_total{route="billing",scheme="standard-webhooks",decision="observe",reason="${reason}"}`,
      ),
    ).toBe(1);
    await gate.stop();
    expect(gate.log().find(({ msg }) => msg === 'request')).toMatchObject({
      level: 'warn',
      code: 'forwarded',
      observed: code,
      reason,
      status: 200,
    });
  });

  test('with a body above maxBody passes if its length is declared, and is rejected otherwise', async () => {
    const gate = await start({ maxBody: 100 });
    const big = makeDelivery({ body: JSON.stringify({ text: 'x'.repeat(200) }) });
    expect((await send(gate.port, big)).text).toBe('handled');
    expect(app.received[0]?.body).toEqual(big.body);
    expect(await send(gate.port, { ...big, headers: { ...big.headers, 'Transfer-Encoding': 'chunked' } })).toMatchObject({
      status: 413,
    });
    await gate.stop();
  });
});

test('a duplicate reaches the app again, and is marked', async () => {
  const gate = await start();
  const delivery = makeDelivery();
  expect((await send(gate.port, delivery)).text).toBe('handled');
  expect((await send(gate.port, delivery)).text).toBe('handled');
  expect(app.received.map(({ headers }) => headers['sidegate-observed'])).toEqual([undefined, 'duplicate']);
  expect(app.received.map(({ headers }) => headers['sidegate-key'])).toEqual(['current', 'current']);
  await gate.stop();
  const lines = gate.log().filter(({ msg }) => msg === 'request');
  expect(lines[1]).toMatchObject({ level: 'info', observed: 'duplicate' });
});

test('a valid delivery is forwarded as on any route', async () => {
  const gate = await start();
  expect((await send(gate.port, makeDelivery())).text).toBe('handled');
  expect(app.received[0]?.headers).toMatchObject({ 'sidegate-key': 'current', 'sidegate-route': 'billing' });
  expect(app.received[0]?.headers).not.toHaveProperty('sidegate-observed');
  await gate.stop();
});

test('an unverified delivery has no identity, and no client can set the field itself', async () => {
  const identity = { identity: { audience: 'app', key: { name: 'gate', secret: { file: 'identity' } } } };
  const sections = { ...identity, routes: [toRoute(app.port, { route: { mode: 'observe' } })] };
  const gate = await startGate(sections, undefined, { identity: 'a secret of the gate and of the app' });
  await send(gate.port, { headers: { 'Sidegate-Observed': 'ok', 'Sidegate-Identity': 'x' }, body: '{}' });
  await send(gate.port, makeDelivery());
  const [first, second] = app.received;
  expect(first?.headers).toMatchObject({ 'sidegate-observed': 'unsupported_media_type' });
  expect(first?.headers).not.toHaveProperty('sidegate-identity');
  expect(second?.headers).toHaveProperty('sidegate-identity');
  await gate.stop();
});

test('a store that is down rejects no delivery', async () => {
  const port = await findFreePort();
  const gate = await start(
    {},
    { store: { redis: { url: `redis://127.0.0.1:${port}`, commandTimeout: '100ms', connectTimeout: '100ms' } } },
  );
  expect((await send(gate.port, makeDelivery())).text).toBe('handled');
  expect(app.received[0]?.headers['sidegate-observed']).toBe('store_unavailable');
  await gate.stop();
});

test('observe mode is visible: a metric, and a log line at every start and reload', async () => {
  const gate = await start();
  expect(await gate.metric('sidegate_route_observed{route="billing"}')).toBe(1);
  expect(gate.log().find(({ msg }) => msg === 'route_observed')).toMatchObject({ level: 'warn', route: 'billing' });
  gate.writeConfig({ routes: [toRoute(app.port)] });
  await gate.gate.reload();
  expect(await gate.metric('sidegate_route_observed{route="billing"}')).toBe(0);
  expect((await send(gate.port, makeDelivery({ timestamp: 1 }))).code).toBe('timestamp_outside_tolerance');
  await gate.stop();
});
