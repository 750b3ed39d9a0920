/** Replicas with one queue, of which one does not know yet what another one accepted events for: a changed endpoint, or a newer config. */
import { createHmac } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, expect, test } from 'vitest';
import { FakeClock } from '../support/fake-clock.ts';
import { makeFolder, useApp, usePooler, usePostgres } from '../support/fixtures.ts';
import { type Sections, startGate, type TestGate, toRoute, until } from '../support/gate.ts';
import { call, listDeliveries, postEvent } from '../support/provider/client.ts';

const LIMIT_MS = 60_000;
const EVENTS = 20;
const SECRETS = [Buffer.alloc(32, 1), Buffer.alloc(32, 2)].map((bytes) => `whsec_${bytes.toString('base64')}`);

const before = useApp();
const after = useApp();
const server = usePostgres({ config: ['fsync = on'] });
const pooler = usePooler(server);
let schemas = 0;
const gates: TestGate[] = [];
afterEach(async () => {
  await Promise.all(gates.splice(0).map((gate) => gate.stop()));
});

/** Behind a pooler, which loses notifications, a replica learns of a change after ten seconds. */
async function start(schema: string, provider: Sections = {}, clock?: FakeClock): Promise<TestGate> {
  const file = join(makeFolder(), 'url');
  writeFileSync(file, pooler.url());
  const queue = { postgres: { url: { file }, schema, maxConnections: 3 } };
  const egress = { allowHttp: true, allowPrivate: ['127.0.0.0/8'] };
  const sections = { routes: [toRoute(before.port)], provider: { address: '127.0.0.1:0', queue, egress, ...provider } };
  const gate = await startGate(sections, clock);
  gates.push(gate);
  return gate;
}

const newSchema = (): string => `replicas_${++schemas}`;
const toUrl = ({ port }: { readonly port: number }): string => `http://127.0.0.1:${port}/`;
const post = async ({ providerPort }: TestGate, count: number, event: Sections = {}): Promise<void> => {
  for (let i = 0; i < count; i++) await postEvent(providerPort, event);
};
const untilSettled = (gate: TestGate): Promise<unknown> =>
  until(async () => (await listDeliveries(gate.providerPort, '?state=waiting')).length === 0);
const listStates = async ({ providerPort }: TestGate, type: string): Promise<unknown[]> =>
  (await listDeliveries(providerPort, `?type=${type}&limit=250`)).map(({ state }) => state);

/** Two replicas, and an endpoint whose lane the second one has. */
async function startTwo(
  endpoint: Sections,
  event: Sections = {},
  clock?: FakeClock,
): Promise<readonly [changer: TestGate, holder: TestGate]> {
  const schema = newSchema();
  const holder = await start(schema);
  expect((await call(holder.providerPort, 'POST', '/v1/endpoints', { id: 'acme', url: toUrl(before), ...endpoint })).status).toBe(
    201,
  );
  const changer = await start(schema, {}, clock);
  await post(holder, 5, event);
  await untilSettled(holder);
  before.received.length = after.received.length = 0;
  return [changer, holder];
}

describe('an endpoint that another replica changed', { timeout: LIMIT_MS }, () => {
  test('gets the events that were accepted after the change at its new URL', async () => {
    const [changer] = await startTwo({});
    expect((await call(changer.providerPort, 'PATCH', '/v1/endpoints/acme', { url: toUrl(after) })).status).toBe(200);
    await post(changer, EVENTS);
    await untilSettled(changer);
    expect([before.received.length, after.received.length]).toEqual([0, EVENTS]);
  });

  test('is sent what waits as soon as its URL is corrected, although the old one asked for a pause', async () => {
    const [changer] = await startTwo({});
    before.handler = (_request, response) => response.writeHead(429, { 'Retry-After': '3600' }).end();
    await post(changer, 1);
    await until(() => before.received.length > 0);
    expect((await call(changer.providerPort, 'PATCH', '/v1/endpoints/acme', { url: toUrl(after) })).status).toBe(200);
    await post(changer, EVENTS);
    await until(() => after.received.length >= EVENTS);
  });

  test('is repaired as it is now', async () => {
    const [changer, holder] = await startTwo({ events: ['invoice.*'] });
    const repair = async (body: Sections): Promise<unknown> => {
      const request = { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body) };
      const text = await (await fetch(`http://127.0.0.1:${holder.providerPort}/v1/repairs`, request)).text();
      return JSON.parse(text.trimEnd().split('\n').at(-1) ?? '');
    };
    await post(holder, 3, { type: 'order.paid' });
    const events = ['invoice.*', 'order.*'];
    expect((await call(changer.providerPort, 'PATCH', '/v1/endpoints/acme', { events })).status).toBe(200);
    const recover = { action: 'recover', endpoint: 'acme', from: '2020-01-01T00:00:00Z' };
    expect(await repair(recover)).toEqual({ changed: 3, total: 3, done: true });
    await untilSettled(changer);
    expect((await call(changer.providerPort, 'POST', '/v1/endpoints/acme/disable')).status).toBe(200);
    expect(await repair({ action: 'retry', from: recover.from, states: ['delivered'] })).toMatchObject({
      changed: 0,
      excluded: 8,
      done: true,
    });
    expect((await call(changer.providerPort, 'POST', '/v1/endpoints/acme/enable')).status).toBe(200);
    const retry = { action: 'retry', endpoint: 'acme', states: ['delivered'] };
    expect(await repair(retry)).toMatchObject({ changed: 8, done: true });
  });

  test('gets the events that were accepted after its ID was created again, signed with the new secret', async () => {
    const [changer] = await startTwo({ secret: SECRETS[0] });
    expect((await call(changer.providerPort, 'DELETE', '/v1/endpoints/acme')).status).toBe(204);
    const created = { id: 'acme', url: toUrl(after), secret: SECRETS[1] };
    expect((await call(changer.providerPort, 'POST', '/v1/endpoints', created)).status).toBe(201);
    await post(changer, EVENTS);
    await untilSettled(changer);
    expect([before.received.length, after.received.length]).toEqual([0, EVENTS]);
    const key = Buffer.alloc(32, 2);
    for (const { headers, body } of after.received) {
      const signed = `${headers['webhook-id']}.${headers['webhook-timestamp']}.${body}`;
      expect(headers['webhook-signature']).toBe(`v1,${createHmac('sha256', key).update(signed).digest('base64')}`);
    }
  });

  test('can be created again after it was deleted, although another replica accepted events for it meanwhile', async () => {
    const [changer, holder] = await startTwo({});
    expect((await call(changer.providerPort, 'DELETE', '/v1/endpoints/acme')).status).toBe(204);
    await post(holder, EVENTS, { type: 'for.deleted' });
    await untilSettled(changer);
    expect(new Set(await listStates(changer, 'for.deleted'))).toEqual(new Set(['skipped']));
    const created = { id: 'acme', url: toUrl(after) };
    expect((await call(changer.providerPort, 'POST', '/v1/endpoints', created)).status).toBe(201);
  });

  test('keeps the events that were accepted after another replica created it again', async () => {
    const clock = new FakeClock(Date.now());
    const [changer, holder] = await startTwo({ schedule: ['1s', '1s', '1s', '1s'] }, {}, clock);
    let isUp = false;
    after.handler = (_request, response) => response.writeHead(isUp ? 200 : 503).end();
    expect((await call(changer.providerPort, 'DELETE', '/v1/endpoints/acme')).status).toBe(204);
    const created = { id: 'acme', url: toUrl(after), schedule: ['1s', '1s', '1s', '1s'] };
    expect((await call(holder.providerPort, 'POST', '/v1/endpoints', created)).status).toBe(201);
    await post(holder, 3, { type: 'for.new' });
    await clock.advance(2_000);
    // Its clock must not go on before it knows the endpoint: an unknown one is given up after some time.
    await until(async () => (await call(changer.providerPort, 'GET', '/v1/endpoints/acme')).status === 200);
    await clock.advance(13_000);
    isUp = true;
    await untilSettled(holder);
    const states = new Set(await listStates(holder, 'for.new'));
    gates.splice(gates.indexOf(changer), 1);
    const stopped = changer.stop();
    await clock.advance(60_000);
    await stopped;
    expect(states).toEqual(new Set(['delivered']));
  });

  test('gets the events of the tenant that its ID was created for again, and none is skipped', async () => {
    const [changer] = await startTwo({ tenant: 't1' }, { tenant: 't1' });
    expect((await call(changer.providerPort, 'DELETE', '/v1/endpoints/acme')).status).toBe(204);
    const created = { id: 'acme', url: toUrl(after), tenant: 't2' };
    expect((await call(changer.providerPort, 'POST', '/v1/endpoints', created)).status).toBe(201);
    await post(changer, EVENTS, { tenant: 't2', type: 'for.new' });
    await untilSettled(changer);
    expect([before.received.length, after.received.length]).toEqual([0, EVENTS]);
    expect(await listStates(changer, 'for.new')).toEqual(Array(EVENTS).fill('delivered'));
  });

  test('gets nothing that was accepted after it was disabled, and all that was accepted after it was enabled', async () => {
    const [changer, holder] = await startTwo({});
    expect((await call(changer.providerPort, 'POST', '/v1/endpoints/acme/disable')).status).toBe(200);
    // The holder goes on to accept events for it.
    await post(holder, 1, { type: 'for.disabled' });
    await untilSettled(changer);
    expect(await listStates(changer, 'for.disabled')).toEqual(['skipped']);
    expect((await call(changer.providerPort, 'POST', '/v1/endpoints/acme/enable')).status).toBe(200);
    await post(changer, EVENTS);
    await untilSettled(changer);
    expect(before.received).toHaveLength(EVENTS);
  });

  test('is shown, changed and deleted by each replica as it is', async () => {
    const [changer, holder] = await startTwo({});
    const [one, other] = [changer.providerPort, holder.providerPort];
    const statuses: number[] = [];
    const request = async (port: number, method: string, path: string, body?: object): Promise<void> => {
      statuses.push((await call(port, method, `/v1/endpoints${path}`, body)).status);
    };
    await request(one, 'POST', '', { id: 'new', url: toUrl(after) });
    await request(other, 'POST', '', { id: 'new', url: toUrl(after) });
    await request(other, 'GET', '/new');
    await request(other, 'POST', '/new/test');
    await request(other, 'DELETE', '/new');
    await request(one, 'DELETE', '/new');
    await request(one, 'POST', '', { id: 'new', url: toUrl(after) });
    await request(other, 'PATCH', '/new', { description: 'changed' });
    expect(statuses).toEqual([201, 409, 200, 202, 204, 404, 201, 200]);
    const { body } = await call(one, 'GET', '/v1/endpoints/new');
    expect(body['description']).toBe('changed');
  });
});

describe('replicas during an update of the config', { timeout: LIMIT_MS }, () => {
  test.each([
    ['gets a tenant', {}, { tenant: 't1' }],
    ['loses its tenant', { tenant: 't1' }, {}],
    ['is no longer for all tenants', { allTenants: true }, { tenant: 't1' }],
    ['is for all tenants', { tenant: 't1' }, { allTenants: true }],
  ])('send what each of them accepted, and skip nothing, while an endpoint %s', async (_change, from, to) => {
    const schema = newSchema();
    const secret = join(makeFolder(), 'secret');
    writeFileSync(secret, SECRETS[0] as string);
    const toProvider = (app: typeof before, tenant: Sections): Sections => ({
      endpoints: [{ name: 'acme', url: toUrl(app), secret: { file: secret }, ...tenant }],
    });
    const older = await start(schema, toProvider(before, from));
    const newer = await start(schema, toProvider(after, to));
    const tenantOf = (endpoint: Sections): Sections => ('tenant' in endpoint ? { tenant: endpoint['tenant'] } : {});
    await post(older, 5, tenantOf(from));
    await untilSettled(older);
    await post(newer, EVENTS, { ...('allTenants' in to ? { tenant: 't2' } : tenantOf(to)), type: 'for.new' });
    await post(older, 5, { ...('allTenants' in from ? { tenant: 't2' } : tenantOf(from)), type: 'for.old' });
    await untilSettled(newer);
    expect(await listStates(newer, 'for.new')).toEqual(Array(EVENTS).fill('delivered'));
    expect(await listStates(newer, 'for.old')).toEqual(Array(5).fill('delivered'));
  });
});
