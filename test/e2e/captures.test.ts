/** `capture: failures`: a rejected delivery is kept, and the real `sidegate explain` finds the cause of its rejection. */
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { afterEach, expect, test } from 'vitest';
import { type Answer, send } from '../support/client.ts';
import { type DeliveryOptions, makeDelivery, signV1, unixNow } from '../support/deliveries.ts';
import { useApp } from '../support/fixtures.ts';
import { type Sections, startGate, type TestGate, toRoute } from '../support/gate.ts';
import { LAUNCHER } from '../support/process.ts';

const OTHER_SECRET = 'whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD';
const app = useApp();
let gate: TestGate;
afterEach(() => gate.stop());

const toSections = (capture: string, route: Sections = {}): Sections => ({
  routes: [toRoute(app.port, { webhook: { capture }, route })],
});

interface Summary {
  readonly requestId: string;
  readonly [field: string]: unknown;
}

const ask = (path: string, method = 'GET'): Promise<Answer> => send(gate.adminPort, { method, path });
const list = async (): Promise<Summary[]> => (JSON.parse((await ask('/captures')).text) as { captures: Summary[] }).captures;
const deliver = (options: DeliveryOptions): Promise<Answer> => send(gate.port, makeDelivery(options));

/** What the command says of the latest capture. */
async function explainLatest(): Promise<{ readonly status: number | null; readonly result: Record<string, unknown> }> {
  const [latest] = await list();
  const { text } = await ask(`/captures/${latest?.requestId}`);
  const args = ['explain', '--config', gate.file, '--format', 'json', '-'];
  const { status, stdout, stderr } = spawnSync(process.execPath, [LAUNCHER, ...args], { encoding: 'utf8', input: text });
  expect(stderr).toBe('');
  return { status, result: JSON.parse(stdout) as Record<string, unknown> };
}

test('keeps a rejected delivery byte for byte, and explain finds that a proxy re-serialised its JSON', async () => {
  gate = await startGate(toSections('failures'));
  const id = 'msg_1';
  const body = Buffer.from('{"type":"a","text":"é \u2028"}');
  const signed = Buffer.from(JSON.stringify(JSON.parse(body.toString()), null, 4));
  const headers = { ...makeDelivery({ id, body }).headers, 'Webhook-Signature': signV1(id, unixNow(), signed) };
  expect((await send(gate.port, { headers, body })).status).toBe(401);
  const logged = gate.log().find(({ msg }) => msg === 'request');
  expect(await list()).toEqual([
    {
      requestId: logged?.['requestId'],
      route: 'billing',
      at: expect.stringMatching(/^\d{4}-.*Z$/),
      method: 'POST',
      reason: 'bad_signature',
      body: 'complete',
      bytes: expect.any(Number),
    },
  ]);
  const har = JSON.parse((await ask(`/captures/${logged?.['requestId']}`)).text);
  expect(Buffer.from(har.log.entries[0].request.postData.text, 'base64')).toEqual(body);
  const { status: exit, result } = await explainLatest();
  expect(exit).toBe(1);
  expect(result).toMatchObject({ result: 'signature_mismatch', route: 'billing', findings: [{ cause: 'body_reserialised' }] });
  expect(await gate.metric('sidegate_captures_total{outcome="kept"}')).toBe(1);
});

test('explains a delivery that was rejected by its headers, and reports that the body is missing', async () => {
  gate = await startGate(toSections('failures'));
  await deliver({ timestamp: unixNow() - 10_000 });
  expect(await explainLatest()).toMatchObject({
    status: 1,
    result: {
      result: 'timestamp_outside_tolerance',
      findings: [{ cause: 'late' }],
      notes: [expect.stringContaining('its body was not read')],
    },
  });
  await send(gate.port, { headers: { 'Content-Type': 'application/json' }, body: '{}' });
  expect(await explainLatest()).toMatchObject({ result: { result: 'missing_signature' } });
});

test('keeps a delivery that a route in observe mode would have rejected, and forwards it completely', async () => {
  gate = await startGate(toSections('failures', { mode: 'observe' }));
  const delivery = makeDelivery({ secret: OTHER_SECRET });
  expect((await send(gate.port, delivery)).status).toBe(200);
  expect(app.received[0]?.body).toEqual(delivery.body);
  expect(await list()).toMatchObject([{ reason: 'bad_signature', body: 'complete' }]);
});

test('keeps nothing by default, no valid deliveries, and none rejected for another reason', async () => {
  gate = await startGate(toSections('off'));
  await deliver({ secret: OTHER_SECRET });
  expect(await list()).toEqual([]);
  gate.writeConfig(toSections('failures'));
  await gate.gate.reload();
  const delivery = makeDelivery();
  for (let i = 0; i < 2; i++) await send(gate.port, delivery);
  await send(gate.port, { ...delivery, headers: { ...delivery.headers, 'Content-Type': 'text/plain' } });
  await send(gate.port, { ...delivery, path: '/nowhere' });
  expect(await list()).toEqual([]);
});

test('keeps no token of a handshake, whatever parameter of a signed URL contains it', async () => {
  const token = '0123456789abcdef';
  const handshake = { verifyToken: { file: 'token' }, parameter: 'v' };
  const webhook = { scheme: 'mandrill', publicUrl: 'https://hooks.example.com', capture: 'failures', handshake };
  gate = await startGate({ routes: [toRoute(app.port, { webhook })] }, undefined, { token });
  const headers = { 'Content-Type': 'application/x-www-form-urlencoded', 'X-Mandrill-Signature': 'AAAAAAAAAAAAAAAAAAAAAAAAAAA=' };
  expect((await send(gate.port, { path: `/hooks/billing?v=${token}`, headers, body: 'mandrill_events=[]' })).status).toBe(401);
  const { text } = await ask(`/captures/${(await list())[0]?.requestId}`);
  expect(text).toContain('/redacted');
  expect(text).not.toContain(token);
});

test('a reload that disables capture deletes the captures, and one that keeps it enabled does not', async () => {
  gate = await startGate(toSections('failures'));
  await deliver({ secret: OTHER_SECRET });
  await gate.gate.reload();
  expect(await list()).toHaveLength(1);
  gate.writeConfig(toSections('off'));
  await gate.gate.reload();
  expect(await list()).toEqual([]);
  gate.writeConfig(toSections('failures'));
  await gate.gate.reload();
  expect(await list()).toEqual([]);
});

test('DELETE deletes them, an unknown request gets 404, another method 405', async () => {
  gate = await startGate(toSections('failures'));
  await deliver({ secret: OTHER_SECRET });
  expect(JSON.parse((await ask('/captures', 'DELETE')).text)).toEqual({ deleted: 1 });
  expect(await list()).toEqual([]);
  expect(await ask('/captures/gone')).toMatchObject({ status: 404, text: expect.stringContaining('GET /captures lists') });
  expect(await ask('/captures', 'POST')).toMatchObject({ status: 405, headers: { allow: 'GET, HEAD, DELETE' } });
});

test.each([
  [{ scheme: 'gitlab' }, 'deliveries of gitlab contain the secret itself'],
  [{ scheme: 'bearer' }, 'deliveries of bearer contain the secret itself'],
  [{ scheme: 'microsoft-graph' }, 'deliveries of microsoft-graph contain the secret itself'],
  [
    { scheme: 'custom', custom: { signature: { header: 'X-T', encoding: 'text', forms: [{ algorithm: 'token' }] }, signed: [] } },
    'contain the secret itself',
  ],
])('%j cannot be captured', async (webhook, message) => {
  gate = await startGate(toSections('off'));
  const found = await check({ routes: [toRoute(app.port, { webhook: { capture: 'failures', ...webhook } })] });
  expect(found).toContain(`webhook.capture: `);
  expect(found).toContain(message);
});

test('check warns that captures may contain personal data', async () => {
  gate = await startGate(toSections('off'));
  expect(await check(toSections('failures'))).toMatch(/capture.*personal data/);
});

async function check(sections: Sections): Promise<string> {
  gate.writeConfig(sections);
  const { stdout, stderr } = spawnSync(process.execPath, [LAUNCHER, 'check', '--config', join(gate.folder, 'gate.yaml')], {
    encoding: 'utf8',
  });
  return stdout + stderr;
}
