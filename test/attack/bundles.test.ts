/** The bundles that users run: a refusal that one of them made must be a refusal in all others. */
import { generateKeyPairSync } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, expect, onTestFinished, test } from 'vitest';
import { type Answer, send } from '../support/client.ts';
import { makeDelivery } from '../support/deliveries.ts';
import { makeFolder, useApp } from '../support/fixtures.ts';
import { type Sections, toRoute, until } from '../support/gate.ts';
import { startPostgres } from '../support/postgres.ts';
import { type GateProcess, LAUNCHER, startGateProcess } from '../support/process.ts';
import { makeEntry, toBasic } from '../support/users.ts';

const RIGHT = toBasic('ada', 'right');
const NOBODY = [
  {},
  toBasic('ada', 'wrong'),
  toBasic('eve', 'right'),
  { authorization: 'Basic %' },
  { authorization: 'Bearer right' },
];

const app = useApp();
let gate: GateProcess;
afterEach(async () => {
  gate.child.kill('SIGKILL');
  await gate.exit;
});

function makeFile(name: string, text: string): string {
  const file = join(makeFolder(), name);
  writeFileSync(file, text);
  return file;
}

const toBasicSection = (): Sections => ({ realm: 'all', users: { file: makeFile('users', makeEntry('ada', 'right')) } });
const toQueue = (): Sections => ({ sqlite: { path: join(makeFolder(), 'queue.db'), allowVolatile: true } });

test('nobody acts through the console without a password', async () => {
  expect(LAUNCHER).toMatch(/bundle-[^]*sidegate\.cjs/);
  gate = await startGateProcess({
    admin: { address: '127.0.0.1:0', basic: toBasicSection() },
    routes: [toRoute(app.port)],
  });
  const lift = (headers: Readonly<Record<string, string>>, body = '{}'): Promise<Answer> =>
    send(gate.adminPort, { path: '/api/v1/logins/release', headers: { 'Content-Type': 'application/json', ...headers }, body });
  for (const headers of NOBODY) expect((await lift(headers)).status).toBe(401);
  expect((await lift(RIGHT)).status).toBe(422);
  expect((await lift(RIGHT, ' '.repeat(100_000))).status).toBe(413);
});

test('nobody calls the API of the sending side without a password', async () => {
  gate = await startGateProcess({ provider: { address: '127.0.0.1:0', basic: toBasicSection(), queue: toQueue() } });
  const list = (headers: Readonly<Record<string, string>>): Promise<Answer> =>
    send(gate.providerPort, { method: 'GET', path: '/v1/endpoints', headers });
  const create = (headers: Readonly<Record<string, string>>): Promise<Answer> =>
    send(gate.providerPort, {
      path: '/v1/endpoints',
      headers: { 'Content-Type': 'application/json', ...headers },
      body: '{"url":"https://example.com/","events":["*"]}',
    });
  for (const headers of NOBODY) expect([(await list(headers)).status, (await create(headers)).status]).toEqual([401, 401]);
  expect((await list(RIGHT)).text).toContain('"data":[]');
  expect((await create(RIGHT)).status).toBe(201);
});

test('an event that the app handled does not reach it again while the queue is down', async () => {
  const server = await startPostgres({ config: ['fsync = on'] });
  onTestFinished(() => server.stop());
  const provider = { queue: { postgres: { url: { file: makeFile('url', server.url()) } } } };
  gate = await startGateProcess({ provider, routes: [toRoute(app.port, { webhook: { ack: 'onAccept' } })] });
  const delivery = makeDelivery();
  const push = (): Promise<Answer> => send(gate.port, { path: '/hooks/billing', ...delivery });
  await until(async () => (await push()).status === 202);
  await until(() => app.received.length === 1);
  writeFileSync(gate.file, readFileSync(gate.file, 'utf8').replace('onAccept', 'onResponse'));
  gate.child.kill('SIGHUP');
  await until(() => gate.log().some(({ msg }) => msg === 'config_reloaded'));
  expect((await push()).status).toBe(200);
  await server.stop();
  for (let time = 0; time < 2; time++) expect((await push()).status).toBe(503);
  expect(app.received).toHaveLength(1);
});

test('the explanation of a rejected token names what is wrong with it', async () => {
  const { publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const secret = { file: makeFile('jwk', JSON.stringify(publicKey.export({ format: 'jwk' }))) };
  gate = await startGateProcess({
    routes: [toRoute(app.port, { webhook: { scheme: 'plaid', keys: [{ name: 'current', secret }] } })],
  });
  const answer = await send(gate.port, {
    path: '/hooks/billing',
    headers: { 'Content-Type': 'application/json', 'Plaid-Verification': 'abc' },
    body: '{}',
  });
  expect(answer.status).toBe(401);
  const explanation = await until(async () => {
    const { text } = await send(gate.adminPort, { method: 'GET', path: '/journal', headers: {} });
    return (JSON.parse(text) as { entries: { explanation?: object }[] }).entries.find((entry) => entry.explanation)?.explanation;
  });
  expect(JSON.stringify(explanation)).toContain('three parts');
});
