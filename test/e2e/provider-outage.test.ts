/** A sidecar that starts while PostgreSQL does not respond: the gate works, and the sending side does as soon as it can. */
import { createHmac } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, onTestFinished, test } from 'vitest';
import { makeAuthority } from '../support/certificates.ts';
import { type Answer, send } from '../support/client.ts';
import { makeFolder, useApp, usePostgres } from '../support/fixtures.ts';
import { type Sections, startGate, type TestGate, toRoute, until } from '../support/gate.ts';
import { POSTGRES_PASSWORD, startPostgres } from '../support/postgres.ts';
import { call } from '../support/provider/client.ts';

const STANDARD_SECRET = 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw';
const SECRET = "It's a Secret to Everybody";
const BODY = '{"ref":"refs/heads/main"}';

const app = useApp();
const server = usePostgres({ config: ['fsync = on'] });
let gate: TestGate;

beforeEach(() => server.kill());
afterEach(async () => void (await gate.stop()));

const toHook = (name: string, webhook: Sections = {}): Sections =>
  toRoute(app.port, { match: { path: `/hooks/${name}` }, route: { name }, webhook: { scheme: 'github', ...webhook } });

function toSections(schema: string, url = server.url()): Sections {
  return {
    routes: [toHook('direct'), toHook('inbox', { ack: 'onAccept' })],
    provider: {
      address: '127.0.0.1:0',
      queue: { postgres: { url: { file: writeFile(url) }, schema } },
      egress: { allowHttp: true, allowPrivate: ['127.0.0.0/8'] },
      endpoints: [{ name: 'acme', url: `http://127.0.0.1:${app.port}/events`, secret: { file: writeFile(STANDARD_SECRET) } }],
    },
  };
}

function toUrlFile(sections: Sections): string {
  return (sections as { provider: { queue: { postgres: { url: { file: string } } } } }).provider.queue.postgres.url.file;
}

function writeFile(content: string): string {
  const file = join(makeFolder(), 'content');
  writeFileSync(file, content);
  return file;
}

function push(route: string, id: string): Promise<Answer> {
  const signature = `sha256=${createHmac('sha256', SECRET).update(BODY).digest('hex')}`;
  const headers = { 'Content-Type': 'application/json', 'X-GitHub-Delivery': id, 'X-Hub-Signature-256': signature };
  return send(gate.port, { path: `/hooks/${route}`, headers, body: BODY });
}

const UNAVAILABLE = { status: 503, body: { code: 'queue_unavailable' } };
const EVENT = { id: 'evt_1', type: 'invoice.paid', data: {} };
const readReadiness = async (): Promise<string> => (await fetch(`http://127.0.0.1:${gate.adminPort}/readyz`)).text();

test('forwards webhooks, and rejects with 503 what it would have to store, until the server responds', async () => {
  gate = await startGate(toSections('later'), undefined, { secret: SECRET });
  expect((await push('direct', 'a')).status).toBe(200);
  expect((await push('inbox', 'b')).status).toBe(503);
  expect(await call(gate.providerPort, 'POST', '/v1/events', EVENT)).toMatchObject(UNAVAILABLE);
  expect(await call(gate.providerPort, 'GET', '/v1/endpoints/acme')).toMatchObject(UNAVAILABLE);
  expect(await readReadiness()).toContain('the queue cannot store events');
  expect(await gate.metric('sidegate_provider_queue_up')).toBe(0);
  await gate.gate.reload();
  expect(gate.logText().match(/queue_down/g)).toHaveLength(1);
  await server.restart();
  await until(async () => (await call(gate.providerPort, 'POST', '/v1/events', EVENT)).status === 202);
  await until(() => app.received.some(({ url }) => url === '/events'));
  expect((await push('inbox', 'b')).status).toBe(202);
  await until(() => app.received.some(({ headers }) => headers['x-github-delivery'] === 'b'));
  expect(await readReadiness()).not.toContain('queue');
  expect(await gate.metric('sidegate_provider_queue_up')).toBe(1);
});

test('ends while it waits for the server', async () => {
  gate = await startGate(toSections('never'), undefined, { secret: SECRET });
  expect((await push('direct', 'c')).status).toBe(200);
});

test('does not start with a password that the server rejects', async () => {
  await server.restart();
  const wrong = toSections('wrong', server.url({ role: 'nobody' }));
  await expect(startGate(wrong, undefined, { secret: SECRET })).rejects.toThrow(/28P01/);
  gate = await startGate({ routes: [toHook('direct')] }, undefined, { secret: SECRET });
});

test('connects as before while its URL names another user, whose password it does not use', async () => {
  await server.restart();
  server.sql("CREATE ROLE other LOGIN SUPERUSER PASSWORD 'of-other'");
  const sections = toSections('users');
  gate = await startGate(sections, undefined, { secret: SECRET });
  const other = server.url({ role: 'other' }).replace(encodeURIComponent(POSTGRES_PASSWORD), 'of-other');
  writeFileSync(toUrlFile(sections), other);
  await server.kill();
  await server.restart();
  await until(async () => (await call(gate.providerPort, 'POST', '/v1/events', EVENT)).status === 202);
});

test('connects with the password of the URL and the files of TLS as they are now', async () => {
  const folder = makeFolder();
  const [before, after] = [makeAuthority(folder, 'before'), makeAuthority(folder, 'after')];
  const at = (name: string): string => join(folder, name);
  const copy = (from: string, to: string): void => writeFileSync(to, readFileSync(from));
  const copyClient = (authority: typeof before): void => {
    const { cert, key } = authority.issue('client', 'DNS:client');
    for (const [from, to] of [
      [authority.ca, 'ca.pem'],
      [cert, 'cert.pem'],
      [key, 'key.pem'],
    ] as const)
      copy(from, at(to));
  };
  copyClient(before);
  const secure = await startPostgres({ config: ['fsync = on'], tls: before.issue('server', 'DNS:localhost') });
  onTestFinished(secure.stop);
  const search = `?sslmode=verify-full&sslrootcert=${at('ca.pem')}&sslcert=${at('cert.pem')}&sslkey=${at('key.pem')}`;
  const url = secure.url({ search }).replace('127.0.0.1', 'localhost');
  const sections = toSections('rotated', url);
  gate = await startGate(sections, undefined, { secret: SECRET });
  const accept = async (id: string): Promise<number> =>
    (await call(gate.providerPort, 'POST', '/v1/events', { ...EVENT, id })).status;
  expect(await accept('first')).toBe(202);

  secure.sql("ALTER SYSTEM SET ssl_ca_file = 'root.crt'; ALTER ROLE postgres PASSWORD 'second'");
  const { cert, key } = after.issue('server', 'DNS:localhost');
  for (const [from, to] of [
    [cert, 'server.crt'],
    [key, 'server.key'],
    [after.ca, 'root.crt'],
  ] as const)
    copy(from, join(secure.folder, 'data', to));
  copyClient(after);
  writeFileSync(toUrlFile(sections), url.replace(encodeURIComponent(POSTGRES_PASSWORD), 'second'));
  await secure.restart();
  await until(async () => (await accept('second')) === 202);
});
