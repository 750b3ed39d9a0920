import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { stringify } from 'yaml';
import { compileRoute } from '../../../src/app/compiled-route.ts';
import { readKeys } from '../../../src/app/keys.ts';
import { type ReloadParts, reloadFiles } from '../../../src/app/watched-sources.ts';
import { parseConfig } from '../../../src/config/load/load.ts';
import { KeyRing } from '../../../src/verify/schemes/keys.ts';
import { FakeClock } from '../../support/fake-clock.ts';
import { makeFolder } from '../../support/fixtures.ts';

test.each(['key', 'token', 'credentials'])('a secret that cannot be read is read again: the %s', async (lost) => {
  const folder = makeFolder();
  const toFile = (name: string): string => join(folder, name);
  for (const name of ['key', 'token', 'credentials']) writeFileSync(toFile(name), 'user:a-secret-of-sixteen-bytes-and-more');
  const webhook = {
    scheme: 'mandrill',
    publicUrl: 'https://hooks.example.com',
    keys: [{ name: 'k', secret: { file: toFile('key') } }],
    handshake: { verifyToken: { file: toFile('token') } },
    urlCredentials: { file: toFile('credentials') },
  };
  const route = { name: 'a', match: { path: '/a' }, upstream: 'http://127.0.0.1:3000', webhook };
  const { config } = parseConfig('f', stringify({ routes: [route] }), new FakeClock());
  if (config === undefined) throw new Error('the config is invalid');
  const routes = config.routes.map((each) => compileRoute(each));
  const [compiled] = routes;
  if (compiled === undefined) throw new Error('there is no route');
  const ring = new KeyRing((await readKeys(compiled, 0)).set);
  const parts = {
    config,
    routes,
    rings: new Map([['a', ring]]),
    logger: { info: () => undefined, warn: () => undefined, error: () => undefined },
    metrics: { route: () => ({ ready: () => undefined }) },
    keyEvidence: { renew: () => undefined },
  } as unknown as ReloadParts;
  expect(await reloadFiles([toFile('key')], parts)).toEqual([]);
  rmSync(toFile(lost));
  expect(await reloadFiles([toFile('key')], parts)).toContain(toFile(lost));
});
