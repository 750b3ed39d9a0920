import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { stringify } from 'yaml';
import { checkFile } from '../../src/cli/check.ts';
import { useApp, useFolder, useRedis } from '../support/fixtures.ts';
import { findFreePort } from '../support/free-port.ts';
import { recordIo } from '../support/io.ts';

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
      `gate.yaml:3:5: error store.redis: Redis at 127.0.0.1:${noRedis} is down since \\S+Z: connection refused\\n  hint: start Redis`,
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
