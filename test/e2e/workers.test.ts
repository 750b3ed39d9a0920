import { spawnSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { Agent, type ServerResponse } from 'node:http';
import { join } from 'node:path';
import { expect, test, vi } from 'vitest';
import { stringify } from 'yaml';
import type { Overview } from '../../src/admin/console/schemas.ts';
import { holdResponses } from '../support/app.ts';
import { type Answer, send } from '../support/client.ts';
import { makeDelivery } from '../support/deliveries.ts';
import { makeFolder, useApp, useRedis } from '../support/fixtures.ts';
import { type Sections, toRoute, until } from '../support/gate.ts';
import { type GateProcess, LAUNCHER } from '../support/process.ts';
import { readMetric, toStore, useWorkers, workersOf } from '../support/workers.ts';

/** Each is on its own connection: so many that both workers certainly get some. */
const ENOUGH = 40;
const OTHER_SECRET = `whsec_${Buffer.from('another secret of 32 bytes......').toString('base64')}`;

// Each test starts a process with two threads.
vi.setConfig({ testTimeout: 60_000 });
const app = useApp();
const redis = useRedis();
const start = useWorkers(redis);
const plain = (over: Sections = {}): Sections => ({ routes: [toRoute(app.port)], ...over });
const sendMany = (gate: GateProcess, secret?: string, count = ENOUGH): Promise<Answer[]> =>
  Promise.all(Array.from({ length: count }, () => send(gate.port, makeDelivery(secret === undefined ? undefined : { secret }))));
const statusesOf = (answers: readonly Answer[]): number[] => [...new Set(answers.map(({ status }) => status))];
const isRequest = ({ msg }: Record<string, unknown>): boolean => msg === 'request';

test('metrics, journal, keys and log show the requests of all workers', async () => {
  const gate = await start(plain());
  expect(statusesOf(await sendMany(gate))).toEqual([200]);
  const series = 'sidegate_http_requests_total{route="billing",method="POST",code="200"}';
  expect(await readMetric(gate, series)).toBe(ENOUGH);
  expect(await readMetric(gate, 'sidegate_http_request_duration_seconds_count{route="billing"}')).toBe(ENOUGH);
  expect(await readMetric(gate, 'sidegate_dedup_operations_total{outcome="new"}')).toBe(ENOUGH);
  expect(await readMetric(gate, 'sidegate_http_requests_in_flight')).toBe(0);
  // A scrape adds what is new, not everything once more.
  expect(await readMetric(gate, series)).toBe(ENOUGH);
  const admin = `http://127.0.0.1:${gate.adminPort}`;
  const { recorded } = (await (await fetch(`${admin}/journal`)).json()) as { recorded: number };
  expect(recorded).toBe(ENOUGH);
  const keys = await (await fetch(`${admin}/keys`)).json();
  expect(keys).toMatchObject({ routes: [{ keys: [{ name: 'current', matches: ENOUGH, lastUsed: expect.any(String) }] }] });
  // `log` parses each line, so all are whole.
  await until(() => gate.log().filter(isRequest).length === ENOUGH);
  expect(workersOf(gate, isRequest)).toEqual([1, 2]);
});

test('the console of a gate with workers shares each request and its figures once', async () => {
  const gate = await start(plain());
  const read = async (): Promise<Overview> =>
    (await (await fetch(`http://127.0.0.1:${gate.adminPort}/api/v1/overview`)).json()) as Overview;
  await read();
  expect(statusesOf(await sendMany(gate))).toEqual([200]);
  await until(async () => (await readMetric(gate, 'sidegate_console_shared_total{outcome="sent"}')) === ENOUGH);
  expect(await readMetric(gate, 'sidegate_console_shared_total{outcome="dropped"}')).toBe(0);
  expect((await read()).replicas).toHaveLength(1);
});

test('gauges add up: connections that are open, and requests that the app is handling', async () => {
  const gate = await start(plain({ limits: { maxInFlight: 64 } }));
  const finish = holdResponses(app);
  const held = sendMany(gate, undefined, 30);
  await until(() => app.received.length === 30);
  expect(await readMetric(gate, 'sidegate_http_requests_in_flight')).toBe(30);
  expect(await readMetric(gate, 'sidegate_connections')).toBe(30);
  for (let i = 0; i < 30; i++) finish();
  expect(statusesOf(await held)).toEqual([200]);
});

test('a rejected delivery is explained and captured, whichever worker rejected it', async () => {
  const gate = await start({ routes: [toRoute(app.port, { webhook: { capture: 'failures' } })] });
  expect(statusesOf(await sendMany(gate, OTHER_SECRET))).toEqual([401]);
  const admin = `http://127.0.0.1:${gate.adminPort}`;
  type Listed = { readonly captures: readonly { readonly requestId: string }[] };
  const { captures } = await until(async () => {
    const listed = (await (await fetch(`${admin}/captures`)).json()) as Listed;
    return listed.captures.length > 0 && listed;
  });
  await until(() => workersOf(gate, isRequest).length === 2);
  for (const { requestId } of captures)
    expect((await (await fetch(`${admin}/captures/${requestId}`)).text()).startsWith('{')).toBe(true);
  expect(await readMetric(gate, 'sidegate_captures_total{outcome="kept"}')).toBeGreaterThanOrEqual(captures.length);
  await until(async () => (await (await fetch(`${admin}/journal`)).text()).includes('explanation'));
});

test('a limit is that of all workers together', async () => {
  const gate = await start(plain({ limits: { maxInFlight: 5, maxQueued: 0, maxInFlightPerClient: 5 } }));
  const held: ServerResponse[] = [];
  app.handler = (_request, response) => void held.push(response);
  const answers = sendMany(gate);
  const rejected = `sidegate_http_requests_total{route="billing",method="POST",code="503"}`;
  await until(async () => (await readMetric(gate, rejected)) === ENOUGH - 5);
  // The rejections may be counted before the others have reached the app.
  await until(() => held.length >= 5);
  expect(held).toHaveLength(5);
  for (const response of held) response.end('handled');
  expect((await answers).filter(({ status }) => status === 200)).toHaveLength(5);
});

test('all workers take a new config and rotated secrets, or none does', async () => {
  const gate = await start(plain());
  expect(statusesOf(await sendMany(gate, OTHER_SECRET, 10))).toEqual([401]);
  const base = { workers: 2, listen: { address: '127.0.0.1:0' }, admin: { address: '127.0.0.1:0' }, shutdown: { grace: '0ms' } };
  const write = (route: Sections): void =>
    writeFileSync(gate.file, stringify({ ...base, store: toStore(redis), routes: [route] }));
  writeFileSync(join(gate.folder, 'other'), OTHER_SECRET);
  write(toRoute(app.port, { webhook: { keys: [{ name: 'other', secret: { file: 'other' } }] } }));
  await until(() => gate.log().some(({ msg }) => msg === 'config_reloaded'));
  expect(statusesOf(await sendMany(gate, OTHER_SECRET))).toEqual([200]);
  expect(statusesOf(await sendMany(gate))).toEqual([401]);
  write(toRoute(app.port, { match: { path: '/elsewhere', pathPrefix: '/both' } }));
  await until(() => gate.log().some(({ msg }) => msg === 'config_reload_failed'));
  expect(statusesOf(await sendMany(gate, OTHER_SECRET))).toEqual([200]);
});

test('all workers take a rotated secret, and reload on SIGHUP', async () => {
  const gate = await start(plain());
  writeFileSync(join(gate.folder, 'secret'), OTHER_SECRET);
  await until(() => workersOf(gate, ({ msg }) => msg === 'secret_reloaded').length === 2);
  expect(statusesOf(await sendMany(gate, OTHER_SECRET))).toEqual([200]);
  expect(statusesOf(await sendMany(gate))).toEqual([401]);
  gate.child.kill('SIGHUP');
  await until(() => gate.log().some(({ msg }) => msg === 'config_reloaded'));
  expect(workersOf(gate, ({ msg }) => msg === 'config_reloaded')).toEqual([1]);
  expect(statusesOf(await sendMany(gate, OTHER_SECRET))).toEqual([200]);
});

test('SIGTERM lets the requests of all workers finish, and nothing is lost of the log', async () => {
  const gate = await start(plain({ shutdown: { grace: '0ms', drain: '20s' }, log: { flush: '10s' } }));
  const finish = holdResponses(app);
  const held = sendMany(gate);
  await until(() => app.received.length === ENOUGH);
  gate.child.kill('SIGTERM');
  await until(() => gate.log().some(({ msg }) => msg === 'draining'));
  for (let i = 0; i < ENOUGH; i++) finish();
  expect(statusesOf(await held)).toEqual([200]);
  expect(await gate.exit).toBe(0);
  expect(gate.log().at(-1)).toMatchObject({ msg: 'stopped', complete: true });
  expect(gate.log().filter(({ code }) => code === 'forwarded')).toHaveLength(ENOUGH);
  expect(workersOf(gate, ({ code }) => code === 'forwarded')).toEqual([1, 2]);
});

test('a second SIGTERM ends the process at once, with the last lines of all workers', async () => {
  const gate = await start(plain({ shutdown: { grace: '0ms', drain: '20s' }, log: { flush: '10s' } }));
  expect(statusesOf(await sendMany(gate))).toEqual([200]);
  holdResponses(app);
  const held = send(gate.port, makeDelivery()).catch(() => 'cut');
  await until(() => app.received.length === ENOUGH + 1);
  gate.child.kill('SIGTERM');
  await until(() => gate.log().some(({ msg }) => msg === 'draining'));
  gate.child.kill('SIGTERM');
  expect(await gate.exit).toBe(143);
  expect(await held).toBe('cut');
  expect(gate.log().filter(isRequest)).toHaveLength(ENOUGH);
  expect(workersOf(gate, isRequest)).toEqual([1, 2]);
});

test('GET /prestop closes the connections of all workers after their next response', async () => {
  const gate = await start(plain());
  const agents = Array.from({ length: ENOUGH }, () => new Agent({ keepAlive: true, maxSockets: 1 }));
  const ask = (): Promise<Answer[]> => Promise.all(agents.map((agent) => send(gate.port, { ...makeDelivery(), agent })));
  const before = await ask();
  expect(new Set(before.map(({ headers }) => headers.connection))).toEqual(new Set(['keep-alive']));
  await fetch(`http://127.0.0.1:${gate.adminPort}/prestop`);
  const after = await ask();
  expect(new Set(after.map(({ headers }) => headers.connection))).toEqual(new Set(['close']));
  for (const agent of agents) agent.destroy();
});

test('the forward-auth endpoint has all workers, and the sending side only one', async () => {
  const folder = makeFolder();
  const provider = { address: '127.0.0.1:0', queue: { sqlite: { path: join(folder, 'queue.db'), allowVolatile: true } } };
  const gate = await start(plain({ authz: { address: '127.0.0.1:0' }, provider }));
  const { authzPort } = gate.log().find(({ msg }) => msg === 'listening') as { authzPort: number };
  const fields = { 'X-Forwarded-Method': 'POST', 'X-Forwarded-Proto': 'https', 'X-Forwarded-Host': 'a', 'X-Forwarded-Uri': '/' };
  for (let i = 0; i < ENOUGH; i++) await send(authzPort, { method: 'GET', path: '/', headers: fields });
  await until(() => gate.log().filter(({ port }) => port === 'authz').length === ENOUGH);
  expect(workersOf(gate, ({ port }) => port === 'authz')).toEqual([1, 2]);
  expect(gate.providerPort).toBeGreaterThan(0);
  expect((await fetch(`http://127.0.0.1:${gate.adminPort}/readyz`)).status).toBe(200);
});

test('a second gate on the same port does not start, although workers share ports', async () => {
  const gate = await start(plain());
  const folder = makeFolder();
  const file = join(folder, 'gate.yaml');
  writeFileSync(join(folder, 'secret'), OTHER_SECRET);
  const listen = { address: `127.0.0.1:${gate.port}` };
  writeFileSync(file, stringify({ workers: 2, listen, admin: { address: '127.0.0.1:0' }, store: toStore(redis), ...plain() }));
  const { status, stderr } = spawnSync(process.execPath, [LAUNCHER, 'run', '--config', file], {
    encoding: 'utf8',
    timeout: 20_000,
  });
  expect(status).toBe(1);
  expect(stderr).toContain(`127.0.0.1:${gate.port} is in use by another process`);
});
