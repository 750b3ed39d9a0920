import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { stringify } from 'yaml';
import { checkFile } from '../../src/cli/check.ts';
import { useApp, useFolder, useRedis } from '../support/fixtures.ts';
import { findFreePort } from '../support/free-port.ts';
import { recordIo } from '../support/io.ts';
import { POSTGRES_PASSWORD, type PostgresServer, startPostgres } from '../support/postgres.ts';

const folder = useFolder();
const app = useApp();
const redis = useRedis();

async function check(redisPort: number, appPort: number, sections: object = {}): Promise<{ code: number; text: string }> {
  const file = join(folder, 'gate.yaml');
  const route = { name: 'a', match: { path: '/a' }, upstream: `http://127.0.0.1:${appPort}`, allow: 'anyone' };
  const store = { redis: { url: `redis://127.0.0.1:${redisPort}` } };
  writeFileSync(file, stringify({ store, routes: [route], ...sections }));
  const { io, stdout } = recordIo();
  const code = await checkFile(file, { format: 'text', connect: true }, io);
  return { code, text: stdout() };
}

test('passes a config whose store and app are reachable', async () => {
  const { code, text } = await check(redis.port, app.port);
  expect(text).toContain(`note: Redis at 127.0.0.1:${redis.port}: connected`);
  expect(text).toContain(`note: http://127.0.0.1:${app.port}: connected`);
  expect(code).toBe(0);
});

test('reports each failed connection, with its path in the config and the cause', async () => {
  const [noRedis, noApp] = [await findFreePort(), await findFreePort()];
  const { code, text } = await check(noRedis, noApp);
  expect(text).toMatch(
    new RegExp(
      `gate.yaml:3:5: error store.redis: Redis at 127.0.0.1:${noRedis} is down since \\S+Z: connection refused\\n.*\\n.*\\n  hint: start Redis`,
    ),
  );
  expect(text).toContain(`error routes.0.upstream: the app at http://127.0.0.1:${noApp} cannot be reached: connection refused`);
  expect(code).toBe(1);
});

test('reports a server that is not Redis', async () => {
  const { code, text } = await check(app.port, app.port);
  expect(text).toMatch(/error store\.redis: .*127\.0\.0\.1/);
  expect(code).toBe(1);
});

test('reports TLS files that cannot be used', async () => {
  const tls = { certFile: 'none.pem', keyFile: 'none.key' };
  const { code, text } = await check(redis.port, app.port, { listen: { tls } });
  expect(text).toMatch(/error listen\.tls\.certFile: .*none\.pem/);
  expect(code).toBe(1);
});

describe('a queue in PostgreSQL', () => {
  let server: PostgresServer;
  beforeAll(async () => {
    server = await startPostgres({ config: ['fsync = on'] });
  });
  afterAll(() => server.stop());

  async function checkQueue(url: string, over: object = {}): Promise<{ code: number; text: string }> {
    writeFileSync(join(folder, 'queue-url'), `${url}\n`);
    const postgres = { url: { file: 'queue-url' }, statementTimeout: '3s', ...over };
    return check(redis.port, app.port, { provider: { queue: { postgres } } });
  }

  test('is tested without a change: the next start creates the tables', async () => {
    const { code, text } = await checkQueue(server.url());
    expect(text).toContain('note: PostgreSQL, schema sidegate: connected');
    expect(code).toBe(0);
    expect(server.sql("SELECT count(*) FROM pg_namespace WHERE nspname = 'sidegate'")).toBe('0');
  });

  test('is tested by a role that owns nothing but the schema', async () => {
    server.sql(`CREATE ROLE owner LOGIN PASSWORD '${POSTGRES_PASSWORD}'; CREATE SCHEMA own AUTHORIZATION owner`);
    expect((await checkQueue(server.url({ role: 'owner' }), { schema: 'own' })).code).toBe(0);
    const { code, text } = await checkQueue(server.url({ role: 'owner' }), { schema: 'other' });
    expect(text).toMatch(
      /error provider\.queue\.postgres\.url: .*permission denied for database postgres \(42501\); grant the role the rights/,
    );
    expect(code).toBe(1);
  });

  test('has enough rights with either SQL of docs/provider.md', async () => {
    const page = readFileSync(join(import.meta.dirname, '..', '..', 'docs', 'provider.md'), 'utf8');
    const blocks = [...page.matchAll(/```sql\n(.*?)```/gs)].map(([, text = '']) => text);
    expect(blocks).toHaveLength(2);
    for (const [i, block] of blocks.entries()) {
      server.sql(`CREATE DATABASE place_${i} TEMPLATE template0 ENCODING 'UTF8'`);
      const text = block
        .replaceAll('ROLE sidegate', `ROLE sidegate_${i}`)
        .replaceAll(/(OWNER|AUTHORIZATION) sidegate/g, `$1 sidegate_${i}`);
      const database = text.includes('CREATE DATABASE') ? 'sidegate' : `place_${i}`;
      // psql runs a text as one transaction, in which no database can be created.
      for (const statement of text.replaceAll("'PASSWORD'", `'${POSTGRES_PASSWORD}'`).split(/(?<=;)\n/))
        if (statement !== '') server.sql(statement, `place_${i}`);
      expect((await checkQueue(server.url({ role: `sidegate_${i}`, database }))).text).toContain('schema sidegate: connected');
    }
  });

  test.each<[string, () => string, RegExp]>([
    [
      'a database that does not exist',
      () => server.url({ database: 'none' }),
      /database "none" does not exist \(3D000\); create the database/,
    ],
    ['a role that does not exist', () => server.url({ role: 'nobody' }), /error provider\.queue\.postgres\.url: .*nobody/],
    ['a URL that is none', () => 'postgres//nothing', /error provider\.queue\.postgres\.url: /],
  ])('is reported with its cause for %s, and never with the password', async (_, toUrl, expected) => {
    const { code, text } = await checkQueue(toUrl());
    expect(text).toMatch(expected);
    expect(text).not.toContain(POSTGRES_PASSWORD);
    expect(text).not.toContain(encodeURIComponent(POSTGRES_PASSWORD));
    expect(code).toBe(1);
  });

  test('is reported for a server that does not run, one that loses data, and a standby', async () => {
    const free = await findFreePort();
    const { text } = await checkQueue(`postgres://postgres:secret-word@127.0.0.1:${free}/postgres`);
    expect(text).toMatch(/error provider\.queue\.postgres\.url: the queue cannot use PostgreSQL at .*: connection refused/);
    expect(text).toContain('hint: docs/provider.md lists what the URL');
    expect(text).not.toContain('secret-word');
    const standby = await startPostgres({ standbyOf: server, config: ['fsync = on'] });
    try {
      expect((await checkQueue(standby.url())).text).toContain('is a read-only standby: give the URL of the primary');
    } finally {
      await standby.stop();
    }
    const unsafe = await startPostgres();
    try {
      expect((await checkQueue(unsafe.url())).text).toContain('set fsync = on in postgresql.conf');
    } finally {
      await unsafe.stop();
    }
  });
});
