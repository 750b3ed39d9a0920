import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { findOpenFilesProblem } from '../../../src/cli/run.ts';
import type { Config } from '../../../src/config/schema/config.ts';
import { makeFolder } from '../../support/fixtures.ts';
import { LAUNCHER } from '../../support/process.ts';

const toLimits = (soft: string): string =>
  `Limit                     Soft Limit           Hard Limit           Units\nMax open files            ${soft.padEnd(20)} 20000                files\n`;
const toConfig = (more: object = {}): Config =>
  ({
    limits: { maxConnections: 1_000, maxInFlight: 100, maxUpgraded: 500 },
    workers: 1,
    proxy: undefined,
    authz: undefined,
    provider: undefined,
    ...more,
  }) as Config;

test.each([
  ['1827', {}, 'is 1827, but the config needs up to 1828: 1000 for connections of clients, 700 for'],
  ['1828', {}, undefined],
  ['2827', { authz: {} }, 'needs up to 2828: 2000 for'],
  ['2851', { provider: {} }, 'needs up to 2852: 2024 for'],
  ['3527', { workers: 2 }, 'needs up to 3528: 2000 for connections of clients, 1400 for'],
  ['unlimited', {}, undefined],
])('with a limit of %s and %j', (soft, more, expected) => {
  const problem = findOpenFilesProblem(toConfig(more), toLimits(soft));
  if (expected === undefined) expect(problem).toBeUndefined();
  else expect(problem).toContain(expected);
});

test('the limit is unknown on systems without /proc', () => {
  expect(findOpenFilesProblem(toConfig(), '')).toBeUndefined();
});

test('a gate warns at its start', { timeout: 60_000 }, async () => {
  const folder = makeFolder();
  const config = "listen: { address: '127.0.0.1:0' }\nadmin: { address: '127.0.0.1:0' }\nroutes: []\n";
  writeFileSync(
    join(folder, 'gate.yaml'),
    config.replace('routes: []', "routes: [{ name: a, match: { path: / }, upstream: 'http://127.0.0.1:1', allow: anyone }]"),
  );
  const command = [
    '-c',
    'ulimit -n 256; exec "$@"',
    'sh',
    process.execPath,
    LAUNCHER,
    'run',
    '--config',
    join(folder, 'gate.yaml'),
  ];
  const child = spawn('/bin/sh', command, { stdio: ['ignore', 'pipe', 'inherit'] });
  let text = '';
  for await (const chunk of child.stdout) {
    text += String(chunk);
    if (text.includes('"listening"')) break;
  }
  child.kill('SIGKILL');
  await once(child, 'exit').catch(() => undefined);
  expect(text).toMatch(/"problem":"the limit of open files is 256, but the config needs up to \d+/);
});
