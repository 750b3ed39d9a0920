/** A sidecar that starts while PostgreSQL does not respond: the gate works, and the sending side does as soon as it can. */
import { createHmac } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import pg from 'pg';
import { afterEach, beforeEach, describe, expect, onTestFinished, test } from 'vitest';
import { type Clock, systemClock } from '../../src/core/clock.ts';
import { makeAuthority } from '../support/certificates.ts';
import { type Answer, send } from '../support/client.ts';
import { startCuttingRelay } from '../support/cutting-relay.ts';
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

function toSections(schema: string, url = server.url(), postgres: Sections = {}): Sections {
  return {
    routes: [toHook('direct'), toHook('inbox', { ack: 'onAccept' })],
    provider: {
      address: '127.0.0.1:0',
      queue: { postgres: { url: { file: writeFile(url) }, schema, ...postgres } },
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

describe('a server that fails while the queue is opened', () => {
  /** With short pauses before the next try. */
  const clock: Clock = { ...systemClock, after: (delay, action) => systemClock.after(Math.min(delay, 100), action) };
  const start = (sections: Sections): Promise<TestGate> => startGate(sections, clock, { secret: SECRET });
  const isUp = async (): Promise<boolean> => (await gate.metric('sidegate_provider_queue_up')) === 1;
  beforeEach(() => server.restart());

  test('cuts the connections at any statement: the gate starts, and opens the queue later', async () => {
    const relay = await startCuttingRelay(server.port);
    const url = server.url().replace(`:${server.port}/`, `:${relay.port}/`);
    gate = await start(toSections('cut', url));
    await gate.stop();
    relay.statements.clear();
    gate = await start(toSections('cut', url));
    const statements = [...relay.statements];
    await gate.stop();
    for (const text of ['pg_is_in_recovery', 'AS now', 'LISTEN', 'AS endpoint', 'json FROM', 'WHERE name LIKE'])
      expect(statements).toContainEqual(expect.stringContaining(text));
    for (const [at, statement] of statements.entries()) {
      relay.cutAt(statement);
      gate = await start(toSections('cut', url));
      await until(() => relay.isCut);
      expect((await push('direct', `cut-${at}`)).status, statement).toBe(200);
      await until(isUp);
      await gate.stop();
    }
  }, 120_000);

  /** Locks what each start changes, in a schema that exists; gives what ends it. */
  async function lockLanes(schema: string): Promise<() => Promise<unknown>> {
    const client = new pg.Client(server.url());
    await client.connect();
    onTestFinished(() => client.end());
    await client.query(`BEGIN; LOCK TABLE ${schema}.lane`);
    return () => client.query('ROLLBACK');
  }

  test('holds a lock: the gate starts, and opens the queue when it is free', async () => {
    gate = await start(toSections('locked'));
    await gate.stop();
    const unlock = await lockLanes('locked');
    gate = await start(toSections('locked', server.url(), { statementTimeout: '1s' }));
    expect(gate.logText()).toContain('57014');
    expect((await push('direct', 'locked')).status).toBe(200);
    await unlock();
    await until(isUp);
  });

  test('has one connection for the role: the gate starts, and opens the queue when it has more', async () => {
    server.sql(`CREATE ROLE scarce LOGIN PASSWORD '${POSTGRES_PASSWORD}'; CREATE SCHEMA scarce AUTHORIZATION scarce`);
    gate = await start(toSections('scarce', server.url({ role: 'scarce' })));
    await gate.stop();
    server.sql('ALTER ROLE scarce CONNECTION LIMIT 1');
    // The connection is in use when the next one is needed.
    const unlock = await lockLanes('scarce');
    gate = await start(toSections('scarce', server.url({ role: 'scarce' })));
    expect(gate.logText()).toContain('53300');
    expect((await push('direct', 'scarce')).status).toBe(200);
    await unlock();
    server.sql('ALTER ROLE scarce CONNECTION LIMIT 20');
    await until(isUp);
  });

  test('rejects a later statement for lack of rights: the gate does not start', async () => {
    gate = await start(toSections('rights'));
    await gate.stop();
    server.sql(`CREATE ROLE reader LOGIN PASSWORD '${POSTGRES_PASSWORD}'; GRANT USAGE, CREATE ON SCHEMA rights TO reader;
      GRANT SELECT ON rights.version TO reader`);
    await expect(start(toSections('rights', server.url({ role: 'reader' })))).rejects.toThrow(/42501/);
    gate = await start({ routes: [toHook('direct')] });
  });
});
