import { type SpawnSyncReturns, spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, test } from 'vitest';
import { makeDelivery, SECRET, unixNow } from '../support/deliveries.ts';
import { useFolder } from '../support/fixtures.ts';
import { LAUNCHER } from '../support/process.ts';

const folder = useFolder();
const config = join(folder, 'gate.yaml');
const broken = join(folder, 'broken.yaml');
const body = join(folder, 'event.json');
const secret = join(folder, 'secret');
const pod = join(folder, 'pod.yaml');

beforeAll(() => {
  const keys = `[{ name: k, secret: { file: ${secret} } }]`;
  const text = `routes:\n  - name: a\n    match: { path: /a }\n    upstream: http://127.0.0.1:3000\n    webhook: { keys: ${keys} }\n`;
  writeFileSync(config, text);
  writeFileSync(broken, text.replace('name: a', 'name: A'));
  writeFileSync(body, '{"a":1}');
  writeFileSync(secret, SECRET);
  writeFileSync(
    pod,
    'apiVersion: v1\nkind: Pod\nmetadata: { name: a, labels: { sidegate.dev/inject: "true" }, annotations: { sidegate.dev/config: gate } }\nspec: { containers: [{ name: app, image: app, ports: [{ containerPort: 3000 }] }] }\n',
  );
});

function run(args: readonly string[], env: Readonly<Record<string, string>> = {}): SpawnSyncReturns<string> {
  return spawnSync(process.execPath, [LAUNCHER, ...args], { encoding: 'utf8', env: { ...process.env, ...env } });
}

/** Runs a shell line in which `$SIDEGATE` is the launcher. */
function runShell(line: string): SpawnSyncReturns<string> {
  const env = { ...process.env, SIDEGATE: `${process.execPath} ${LAUNCHER}`, CONFIG: config, BROKEN: broken };
  return spawnSync('bash', ['-c', line], { encoding: 'utf8', env });
}

describe('a pipe whose reader has closed it', () => {
  test.each([
    ['schema', '$SIDEGATE schema | head -1; echo $PIPESTATUS', '{\n0\n'],
    ['schema, without a reader', '$SIDEGATE schema | true; echo $PIPESTATUS', '0\n'],
    ['help', '$SIDEGATE --help | head -1; echo $PIPESTATUS', 'Usage: sidegate [options] [command]\n0\n'],
  ])('does not cause an error: %s', (_title, line, stdout) => {
    expect(runShell(line)).toMatchObject({ stdout, stderr: '' });
  });

  test('does not change the exit code', () => {
    expect(runShell('$SIDEGATE check $BROKEN | true; echo $PIPESTATUS')).toMatchObject({ stdout: '1\n', stderr: '' });
    expect(runShell('$SIDEGATE schema > /dev/full')).toMatchObject({
      status: 1,
      stderr: 'sidegate: cannot write to standard output (ENOSPC)\n',
    });
  });
});

describe('sidegate check FILE', () => {
  test('checks the file, as --config does', () => {
    expect(run(['check', config])).toMatchObject({ status: 0, stdout: `${config}: ok\n`, stderr: '' });
    expect(run(['check', broken])).toMatchObject({ status: 1, stdout: run(['check', '-c', broken]).stdout });
  });

  test('is a usage error with two files, or none', () => {
    expect(run(['check', config, '--config', config])).toMatchObject({ status: 2, stdout: '' });
    expect(run(['check', config, broken])).toMatchObject({ status: 2, stdout: '' });
    expect(run(['check']).stderr).toContain('sidegate check FILE');
  });
});

describe('every report', () => {
  const explain = ['explain', '--scheme', 'standard-webhooks', '--secret-file', secret, '--at', String(unixNow())];
  const requestFile = join(folder, 'request.txt');
  const signed = ['sign', body, '--secret-file', secret, '--id', 'a', '--timestamp', '1'];
  beforeAll(() => {
    const delivery = makeDelivery({ body: '{"a":1}' });
    const fields = Object.entries(delivery.headers).map(([name, value]) => `${name}: ${value}\r\n`);
    writeFileSync(requestFile, `POST /a HTTP/1.1\r\nHost: a\r\n${fields.join('')}\r\n{"a":1}`);
  });

  test.each([[['check', config]], [[...explain, requestFile]], [signed], [['inject', '-f', pod]]])(
    'follows --format, and goes into a file with --output: %j',
    (args) => {
      const file = join(folder, 'report');
      const shown = run([...args, '--format', 'json']);
      expect(() => JSON.parse(shown.stdout)).not.toThrow();
      expect(run([...args, '--format', 'json', '--output', file])).toMatchObject({ status: shown.status, stdout: '' });
      expect(readFileSync(file, 'utf8')).toBe(shown.stdout);
      expect(run([...args, '--format', 'xml'])).toMatchObject({ status: 2, stdout: '' });
      expect(run([...args, '-o', join(folder, 'none', 'x')]).stderr).toMatch(/cannot write --output \S+x \(ENOENT\)/);
    },
  );

  test('of explain distinguishes the format of its input', () => {
    expect(run([...explain, requestFile, '--input-format', 'http', '--format', 'json']).status).toBe(0);
    expect(run([...explain, requestFile, '--format', 'http'])).toMatchObject({ status: 2, stdout: '' });
  });
});

describe('a timeout', () => {
  const send = ['send', 'http://127.0.0.1:9/', body, '--secret-file', secret];

  test.each(['0', '5', '0s', 'soon', '-1', '99d'])('of %s is a usage error', (timeout) => {
    expect(run([...send, `--timeout=${timeout}`])).toMatchObject({ status: 2, stderr: expect.stringContaining('--timeout') });
  });
});
