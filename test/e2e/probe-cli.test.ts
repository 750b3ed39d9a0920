import { readFileSync, writeFileSync } from 'node:fs';
import { createServer as createTlsServer } from 'node:https';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { CHECKS } from '../../src/diagnostics/probe/run-checks.ts';
import { readPair } from '../support/certificates.ts';
import { type Consumer, startConsumer } from '../support/consumer.ts';
import { SECRET } from '../support/deliveries.ts';
import { useAuthority, useFolder, useServer } from '../support/fixtures.ts';
import { LAUNCHER } from '../support/process.ts';
import { type Ended, run } from '../support/run.ts';

const folder = useFolder();
const secretFile = join(folder, 'secret');
writeFileSync(secretFile, SECRET);
const seen: Record<string, string | undefined>[] = [];
let sound: Consumer;
let careless: Consumer;

beforeAll(async () => {
  sound = await startConsumer({
    toContent: ({ headers, body }) => {
      seen.push(headers as Record<string, string>);
      return body;
    },
  });
  careless = await startConsumer({ toEntries: (list) => list.split(' ') });
});
afterAll(async () => {
  await sound.close();
  await careless.close();
});

function probe(...args: readonly string[]): Promise<Ended> {
  return run(process.execPath, [LAUNCHER, 'probe', ...args, '--secret-file', secretFile], { API_KEY: 'open sesame' });
}

describe('sidegate probe', () => {
  test('exits 0 if all checks pass, and shows them in order', async () => {
    const { code, stdout, stderr } = await probe(sound.url);
    expect([code, stderr]).toEqual([0, '']);
    const shown = [...stdout.matchAll(/^ {2}(?:passed|see|-) +(\S+)/gm)].map(([, id]) => id);
    expect(shown).toEqual(CHECKS.map(({ id }) => id));
    expect(stdout).not.toContain('\u001b');
    expect(stdout).not.toContain(SECRET.slice(6));
  });

  test('exits 1 if one fails, and shows its impact', async () => {
    const { code, stdout } = await probe(careless.url, '--only', 'many-signatures');
    expect(code).toBe(1);
    expect(stdout).toMatch(
      /FAILED {2}many-signatures {2}minor\n {10}sent: .*\n {10}expected: rejected\n {10}actual: +204\n {10}impact: +\S/,
    );
    expect((await probe(careless.url, '--only', 'many-signatures', '--fail-on', 'major')).code).toBe(0);
  });

  test('runs the command to count how often an event was handled', async () => {
    const { code, stdout } = await probe(sound.url, '--only', 'duplicate,retry', '--count', 'test -n "$EVENT_ID" && echo 2');
    expect(code).toBe(1);
    expect(stdout.match(/actual: +204 to both; handled 2 times/g)).toHaveLength(2);
    expect((await probe(sound.url, '--only', 'duplicate', '--count', 'echo 1')).code).toBe(0);
    expect(await probe(sound.url, '--only', 'duplicate', '--count', 'echo many')).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('the command must print a number'),
    });
  });

  test('writes the report to a file, and the summary to standard output', async () => {
    const file = join(folder, 'report.json');
    const { stdout } = await probe(sound.url, '--only', 'stale', '--format', 'json', '--output', file);
    expect(stdout).toBe(`2 passed, 0 failed; written to ${file}\n`);
    expect(JSON.parse(readFileSync(file, 'utf8'))).toMatchObject({
      scheme: 'standard-webhooks',
      address: '127.0.0.1',
      requests: 2,
    });
  });

  test('sends the given headers, and hides those from the environment', async () => {
    seen.length = 0;
    const headers = ['-H', 'X-Tenant: blue', '--header-env', 'X-Api-Key=API_KEY'];
    const { code, stdout } = await probe(sound.url, '--only', 'stale', ...headers);
    expect(code).toBe(0);
    expect(seen[0]).toMatchObject({ 'x-tenant': 'blue', 'x-api-key': 'open sesame' });
    expect(stdout).not.toContain('sesame');
  });

  test('reaches an app that listens on one of the addresses of a name', async () => {
    expect((await probe(sound.url.replace('127.0.0.1', 'localhost'), '--only', 'stale')).code).toBe(0);
  });

  test('--list shows every check, and needs no other option', async () => {
    const { code, stdout } = await run(process.execPath, [LAUNCHER, 'probe', '--list']);
    expect(code).toBe(0);
    expect(stdout.trimEnd().split('\n')).toHaveLength(CHECKS.length);
  });

  test.each([
    [[], 'missing URL of the endpoint'],
    [['http://8.8.8.8/'], '8.8.8.8 is neither a loopback nor a private address'],
    [['https://8.8.8.8/', '--yes-i-own-this', '8.8.8.8', '--insecure'], '--insecure is only for private targets'],
    [['http://127.0.0.1:1/'], 'no response from 127.0.0.1:1 (127.0.0.1): ECONNREFUSED'],
    [['http://127.0.0.1/', '--only', 'everything'], '--only everything: unknown check'],
    [['http://127.0.0.1/', '--scheme', 'githab'], '--scheme githab: unknown scheme. Did you mean github?'],
    [['http://127.0.0.1/', '--scheme', 'unsigned'], 'unsigned has no signature'],
    [['http://127.0.0.1/', '--scheme', 'aws-sns'], 'aws-sns signs with a key that only the sender has'],
    [['http://127.0.0.1/', '--format', 'yaml'], '--format yaml is not one of text, json, junit'],
    [['http://127.0.0.1/', '--timeout', 'soon'], '--timeout soon is not a duration'],
    [['http://127.0.0.1/', '--parallel', '9'], '--parallel 9 is not an integer from 1 to 5'],
    [['http://127.0.0.1/', '-H', 'Webhook-Id: 1'], '--header Webhook-Id: the probe sets this signature header itself'],
    [['http://127.0.0.1/', '-H', 'Content-Length: 1'], 'Content-Length: the probe sets this header itself'],
    [['http://127.0.0.1/', '-H', 'nonsense'], "use 'Name: value'"],
    [['http://127.0.0.1/', '--header-env', 'X-Api-Key=NO_SUCH'], 'with an environment variable that is set'],
    [['http://127.0.0.1/', '--body', '/nowhere'], 'cannot read --body /nowhere (ENOENT)'],
  ])('exits 2 for %j', async (args, message) => {
    const { code, stdout, stderr } = await probe(...args);
    expect([code, stdout]).toEqual([2, '']);
    expect(stderr).toContain(message);
  });
});

describe('an endpoint with TLS', () => {
  const authority = useAuthority('probe-ca');
  const server = createTlsServer(readPair(authority.issue('endpoint', 'DNS:localhost')), (request, response) => {
    request.resume().on('end', () => response.writeHead(204).end());
  });
  const endpoint = useServer(server);

  test('passes if the CA that signed its certificate is given, or certificates are not checked', async () => {
    const url = `https://localhost:${endpoint.port}/`;
    expect((await probe(url, '--only', 'valid', '--ca', authority.ca)).code).toBe(0);
    expect((await probe(url, '--only', 'valid', '--insecure')).code).toBe(0);
    const strange = await probe(url, '--only', 'valid');
    expect([strange.code, strange.stderr]).toEqual([2, expect.stringContaining('UNABLE_TO_VERIFY_LEAF_SIGNATURE')]);
    const misnamed = await probe(url.replace('localhost', '127.0.0.1'), '--only', 'valid', '--ca', authority.ca);
    expect([misnamed.code, misnamed.stderr]).toEqual([2, expect.stringContaining('ERR_TLS_CERT_ALTNAME_INVALID')]);
  });
});
