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
    limits: { maxConnections: 1_000, maxInFlight: 100 },
    proxy: undefined,
    authz: undefined,
    provider: undefined,
    ...more,
  }) as Config;

test.each([
  ['1227', {}, 'is 1227, but the config needs up to 1228: 1000 for connections of clients, 100 for'],
  ['1228', {}, undefined],
  ['2227', { authz: {} }, 'needs up to 2228: 2000 for'],
  ['2251', { provider: {} }, 'needs up to 2252: 2024 for'],
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
