/** Files and pipes without an end, or without a writer. */
import { execFileSync, type SpawnSyncReturns, spawnSync } from 'node:child_process';
import { truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { checkConfig } from '../../src/app/check.ts';
import { systemClock } from '../../src/core/clock.ts';
import { SECRET } from '../support/deliveries.ts';
import { useFolder } from '../support/fixtures.ts';
import { LAUNCHER } from '../support/process.ts';

const folder = useFolder();
const config = join(folder, 'gate.yaml');
const pipe = join(folder, 'pipe');
const large = join(folder, 'large');
const manifests = join(folder, 'manifests.yaml');
execFileSync('mkfifo', [pipe]);
writeFileSync(large, '');
truncateSync(large, 2 ** 33);
writeFileSync(join(folder, 'secret'), SECRET);
writeFileSync(join(folder, 'curl.txt'), "curl http://a/b --data @/dev/zero -H 'a: b'");
writeFileSync(manifests, '');

/** With a limit of its processor time, in seconds: a command that reads without end ends as well. */
function runInShell(script: string): SpawnSyncReturns<string> {
  const text = `ulimit -t 20; sidegate() { "${process.execPath}" "${LAUNCHER}" "$@"; }; ${script}`;
  return spawnSync('bash', ['-c', text], { encoding: 'utf8', cwd: folder, env: { ...process.env, SECRET }, timeout: 30_000 });
}

const CONTENT = 'it has more than 134217728 bytes; check that this is the right file';

describe('a command ends with an error that names the maximum:', () => {
  test.each([
    ['sign /dev/zero --secret-env SECRET', `cannot read the file /dev/zero: ${CONTENT}`],
    [`sign large --secret-env SECRET`, `cannot read the file large: ${CONTENT}`],
    ['send http://127.0.0.1:9/ - --secret-env SECRET < /dev/zero', `cannot read standard input: ${CONTENT}`],
    ['sign - --secret-file /dev/zero < /dev/null', '/dev/zero has more than 65536 bytes'],
    ['verify /dev/zero -H a:b --secret-env SECRET', CONTENT],
    ['explain /dev/zero --scheme github --secret-env SECRET', CONTENT],
    ['explain curl.txt --scheme github --secret-env SECRET', '/dev/zero that the command line names: it is not a regular file'],
    ['hash-password bob < /dev/zero', 'cannot read standard input: it has more than 65536 bytes'],
    ['inject -f - < /dev/zero', 'cannot read standard input: it has more than 16777216 bytes'],
    ['inject -f /dev/zero', 'cannot read the file /dev/zero: it has more than 16777216 bytes'],
    ['inject -f manifests.yaml --config /dev/zero', '/dev/zero: error the file has more than 1048576 bytes'],
    ['requests list --ca /dev/zero', 'cannot read --ca /dev/zero: it has more than 16777216 bytes'],
    ['requests list --token-file /dev/zero', '/dev/zero has more than 65536 bytes'],
  ])('sidegate %s', (command, reason) => {
    const { stderr, status } = runInShell(`sidegate ${command}`);
    expect(stderr).toContain(reason);
    expect(status).toBeGreaterThan(0);
  });
});

test('the substitution of a process is a body, a secret and a config', () => {
  const signed = runInShell('sidegate sign <(printf 1) --secret-file <(printf %s "$SECRET") --id a --timestamp 1700000000');
  expect([signed.status, signed.stdout]).toEqual([0, expect.stringContaining('Webhook-Signature: v1,')]);
  const checked = runInShell(`sidegate check <(printf 'routes: [{ nam: a }]')`);
  expect(checked.stdout).toMatch(/:1:12: error routes\.0\.nam: unknown key[^\n]*\n {2}1 \| routes: \[\{ nam: … \}\]\n/);
});

describe('a config that names it is rejected:', () => {
  const route = (more: object): object => ({
    routes: [{ name: 'a', match: { path: '/a' }, upstream: 'http://127.0.0.1:1', ...more }],
  });
  const open = { ...route({ allow: 'anyone' }) };
  const postgres = (url: object): object => ({ ...open, provider: { queue: { postgres: { url } } } });
  const places: readonly [string, (file: string) => object, number][] = [
    ['a secret', (file) => route({ webhook: { scheme: 'github', keys: [{ name: 'k', secret: { file } }] } }), 65_536],
    [
      'a certificate',
      (tls) => ({ ...open, listen: { address: '127.0.0.1:0', tls: { certFile: tls, keyFile: tls } } }),
      16_777_216,
    ],
    ['users', (file) => route({ basic: { realm: 'a', requireTls: false, users: { file } } }), 16_777_216],
    ['the URL of the queue', (file) => postgres({ file }), 65_536],
    ['the CA of Redis', (caFile) => ({ ...open, store: { redis: { url: 'rediss://a', tls: { caFile } } } }), 16_777_216],
    ['the CA of the collector', (caFile) => ({ ...open, tracing: { otlp: { url: 'https://a/v1/traces', caFile } } }), 16_777_216],
  ];
  test.each(places)('%s', async (_, toConfig, max) => {
    for (const [file, reason] of [
      [pipe, 'is not a regular file'],
      ['/dev/zero', 'is not a regular file'],
      [large, `has more than ${max} bytes`],
    ] as const) {
      writeFileSync(config, JSON.stringify(toConfig(file)));
      const problems = await checkConfig(config, systemClock);
      expect(problems).toContainEqual(expect.objectContaining({ severity: 'error', message: `${file} ${reason}` }));
    }
  });
});
