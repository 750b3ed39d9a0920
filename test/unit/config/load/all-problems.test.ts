import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { stringify } from 'yaml';
import { checkConfig } from '../../../../src/app/check.ts';
import { FakeClock } from '../../../support/fake-clock.ts';
import { useFolder } from '../../../support/fixtures.ts';

const folder = useFolder();

const GONE = { name: 'k', secret: { file: join(folder, 'gone') } };
const route = (name: string, more: object = {}): object => ({
  name,
  match: { path: `/${name}` },
  upstream: 'http://127.0.0.1:3000',
  allow: 'anyone',
  ...more,
});
const asksNothing = (name: string): object => route(name, { allow: undefined });

async function check(config: object): Promise<string[]> {
  const file = join(folder, 'gate.yaml');
  writeFileSync(file, stringify(config));
  return (await checkConfig(file, new FakeClock())).map(({ severity, path, message }) => `${severity} ${path}: ${message}`);
}

describe('a config with problems of several kinds', () => {
  test('reports problems of the schema, the rules and the files at once, across sections', async () => {
    const problems = await check({
      log: { level: 'verbose' },
      listen: { address: 8080, tls: { certFile: 'none.pem', keyFile: 'none.key' } },
      store: { redis: { url: 'http://redis' } },
      routes: [
        route('a', { timeout: '5 min' }),
        asksNothing('b'),
        route('c', { allow: undefined, webhook: { keys: [GONE] } }),
        route('d', { upstream: undefined }),
      ],
    });
    const paths = problems.map((problem) => problem.split(':')[0]);
    expect(paths).toEqual(
      expect.arrayContaining([
        'error log.level',
        'error listen.address',
        'error listen.tls.certFile',
        'error store.redis.url',
        'error routes.0.timeout',
        'error routes.1',
        'error routes.2.webhook.keys.0.secret',
        'error routes.3.upstream',
      ]),
    );
  });

  test('reports a missing section that a rule needs, together with an unknown key', async () => {
    const proxy = { address: '127.0.0.1:0', allow: ['app.example:80'], unknown: true };
    const problems = await check({ routes: [], proxy });
    expect(problems.map((problem) => problem.split(':')[0])).toEqual(['error proxy.basic', 'error proxy.unknown']);
  });

  test('reports missing files together with the error of a rule', async () => {
    const problems = await check({ routes: [asksNothing('a'), route('b', { allow: undefined, webhook: { keys: [GONE] } })] });
    expect(problems).toHaveLength(2);
    expect(problems.join('\n')).toMatch(
      /routes\.0: the route has no check[^]*routes\.1\.webhook\.keys\.0\.secret: .* does not exist/,
    );
  });
});

describe('the rules, applied to the valid rest,', () => {
  test.each<[string, object, string[]]>([
    [
      'a section that the schema rejects is not reported as missing',
      { routes: [route('a', { allow: undefined, webhook: { keys: 'x' } })] },
      ['routes.0.webhook.keys'],
    ],
    ['nor is a misspelt one', { routes: [route('a', { allow: undefined, webhok: { keys: [GONE] } })] }, ['routes.0.webhok']],
    [
      'nor what a rejected section would have held',
      {
        listen: { tls: { clientCaFile: 5 } },
        routes: [route('a', { allow: undefined, clientCertificate: { names: ['CN:a'] } })],
      },
      ['listen.tls'],
    ],
    [
      'nor the app of a route, where the one at the top is rejected',
      { upstream: 'localhost:3', routes: [route('a', { upstream: undefined })] },
      ['upstream'],
    ],
    ['a route without a name is not told to share it', { routes: [route('A'), route('A')] }, ['routes.0.name', 'routes.1.name']],
    ['a route that is not an object hides no other', { routes: ['x', asksNothing('b')] }, ['routes.0', 'routes.1']],
    [
      'a port that is rejected is not taken for its default',
      { listen: { address: 'x' }, admin: { address: '0.0.0.0:8080' }, routes: [route('a')] },
      ['listen.address'],
    ],
  ])('%s', async (_title, config, starts) => {
    const problems = await check(config);
    expect(problems.filter((problem) => !starts.some((start) => problem.startsWith(`error ${start}`)))).toEqual([]);
    for (const start of starts)
      expect(
        problems.some((problem) => problem.startsWith(`error ${start}`)),
        start,
      ).toBe(true);
  });

  test.each([{ routes: 5 }, { routes: [] }, [], { routes: [null] }, { routes: [[]], __proto__: 1 }, 'text'])(
    'report nothing, without an exception, if nothing is left: %j',
    async (config) => {
      expect((await check(config as object)).length).toBeGreaterThan(0);
    },
  );
});
