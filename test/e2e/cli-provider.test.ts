import { spawn } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { afterEach, describe, expect, test } from 'vitest';
import { refuse } from '../../src/core/refusal.ts';
import type { PasswordGate } from '../../src/gateway/pipeline/gates/gate.ts';
import { type CliEnd, runCommand } from '../support/cli.ts';
import { startServer, useFolder } from '../support/fixtures.ts';
import { findFreePort } from '../support/free-port.ts';
import { LAUNCHER } from '../support/process.ts';
import { startApi, type TestApi, type TestApiOptions } from '../support/provider/api.ts';
import { SECRET_TEXT } from '../support/provider/endpoints.ts';
import { toBasic } from '../support/users.ts';

const TOKEN = '0123456789abcdef0123456789abcdef';
const AT = 1_800_000_000_000;

const folder = useFolder();
const tokenFile = join(folder, 'token');
writeFileSync(tokenFile, `${TOKEN}\n`);
const secretFile = join(folder, 'secret');
writeFileSync(secretFile, `${SECRET_TEXT}\n`);

const PASSWORD = 'correct: hörse';
const passwordFile = join(folder, 'password');
writeFileSync(passwordFile, `${PASSWORD}\n`);
const { Authorization: ADA } = toBasic('ada', PASSWORD);
const checkAda: PasswordGate['check'] = ({ headers }) =>
  headers.get('authorization') === ADA ? { name: 'ada' } : refuse('credentials_required', 'bad_credentials');

let api: TestApi;
afterEach(() => api.stop());

async function start(options?: TestApiOptions): Promise<void> {
  api = await startApi(options);
}

const call = (...args: string[]): Promise<CliEnd> => runCommand([...args, '--provider', `http://127.0.0.1:${api.port}`]);

async function append(count: number, state?: 'dead' | 'skipped'): Promise<void> {
  const ids = Array.from({ length: count }, (_, i) => `e${i}`);
  await api.queue.append(
    ids.map((id, i) => ({
      id,
      type: 'invoice.paid',
      createdAt: AT + i * 1_000,
      body: Buffer.from('{}'),
      metadata: '{}',
      targets: [{ endpoint: 'acme' }],
    })),
  );
  const lastAttempt = { at: AT, duration: 12.4, status: 503, outcome: 'server_error', detail: 'HTTP \u001b[31m503\u202e' };
  if (state !== undefined) for (const id of ids) api.queue.settle(id, 'acme', { state, attempts: 10, lastAttempt });
}

describe('sidegate endpoints', () => {
  test('creates an endpoint and prints its secret once, on standard output', async () => {
    await start();
    const args = [
      'endpoints',
      'create',
      '--id',
      'e',
      '--url',
      'https://a.example',
      '--event',
      'a.*',
      '--event',
      'b',
      '--tenant',
      'c',
    ];
    const { code, stdout, stderr } = await call(...args, '--description', 'd');
    expect([code, stdout]).toEqual([0, expect.stringMatching(/^id: +e\nsecret: whsec_\S+\n$/)]);
    expect(stderr).toContain('not shown again');
    expect(api.registry.get('e')).toMatchObject({ events: ['a.*', 'b'], tenant: 'c', description: 'd' });
    expect((await call('endpoints', 'show', 'e')).stdout).not.toContain('whsec_');
  });

  test('reads settings from a file or standard input, and a secret from a file', async () => {
    await start();
    const args = [
      'endpoints',
      'create',
      '--settings',
      '-',
      '--secret-file',
      secretFile,
      '--provider',
      `http://127.0.0.1:${api.port}`,
    ];
    const input = JSON.stringify({ id: 'e', url: 'https://a.example', timeout: '3s', headers: { 'X-A': 'hidden' } });
    const { code, stdout } = await runCommand(args, { input });
    expect([code, stdout]).toEqual([0, expect.stringContaining(SECRET_TEXT)]);
    const shown = (await call('endpoints', 'show', 'e')).stdout;
    expect(shown).toMatch(/^timeout: +3s$/m);
    expect(shown).toMatch(/^headers: +X-A$/m);
    expect((await runCommand([...args.slice(0, 4), '--provider', 'http://127.0.0.1:1'], { input: '[]' })).code).toBe(2);
  });

  test('lists all endpoints, over several pages', async () => {
    await start();
    for (let i = 0; i < 260; i++) await api.request('POST', '/v1/endpoints', { id: `e${i}`, url: 'https://a.example' });
    await call('endpoints', 'disable', 'e7');
    const { stdout } = await call('endpoints', 'list');
    const lines = stdout.trimEnd().split('\n');
    expect([lines.length, lines[0]]).toEqual([262, expect.stringMatching(/^ID +STATE +EVENTS +TENANT +SOURCE +URL$/)]);
    expect(lines.find((line) => line.startsWith('acme'))).toMatch(/^acme +enabled +invoice\.\* +- +config +https/);
    expect(lines.find((line) => line.startsWith('e7 '))).toMatch(/^e7 +disabled \(manual\) since 20/);
    expect(JSON.parse((await call('endpoints', 'list', '--format', 'json')).stdout)).toHaveLength(261);
  });

  test('shows the tenant of an endpoint, which cannot be changed', async () => {
    await start();
    const create = (...args: string[]) => call('endpoints', 'create', '--url', 'https://a.example', ...args);
    await create('--id', 'one', '--tenant', 't1');
    await create('--id', 'every', '--all-tenants');
    const { stdout } = await call('endpoints', 'list');
    expect(stdout).toMatch(/^every +enabled +all +all tenants +api /m);
    expect(stdout).toMatch(/^one +enabled +all +t1 +api /m);
    expect((await call('endpoints', 'show', 'one')).stdout).toMatch(/^tenant: +t1$/m);
    expect((await create('--tenant', 't1', '--all-tenants')).stderr).toContain('set either `tenant` or `allTenants: true`');
    expect((await call('endpoints', 'update', 'one', '--tenant', 't2')).code).toBe(2);
  });

  test('updates, rotates, disables, enables, tests and deletes', async () => {
    await start();
    await call('endpoints', 'create', '--id', 'e', '--url', 'https://a.example');
    expect((await call('endpoints', 'update', 'e', '--url', 'https://b.example')).stdout).toContain('https://b.example');
    expect((await call('endpoints', 'update', 'e')).code).toBe(2);
    const rotated = await call('endpoints', 'rotate', 'e', '--grace', '1h', '--secret-file', secretFile);
    expect(rotated.stdout).toBe(`${SECRET_TEXT}\n`);
    expect((await call('endpoints', 'disable', 'e')).stdout).toBe('e is disabled\n');
    expect((await call('endpoints', 'test', 'e')).stderr).toBe('sidegate: the endpoint is disabled: enable it first\n');
    expect((await call('endpoints', 'enable', 'e')).stdout).toContain('deliveries retry --endpoint e --state skipped');
    const sent = await call('endpoints', 'test', 'e');
    const [, id] = /show (\S+)$/.exec(sent.stdout.trimEnd()) ?? [];
    expect((await call('deliveries', 'show', id ?? '')).stdout).toMatch(/^type: +sidegate\.test$/m);
    expect((await call('endpoints', 'stats', 'e')).stdout).toMatch(/^waiting: +1$/m);
    expect((await call('endpoints', 'delete', 'e')).code).toBe(0);
    expect(await call('endpoints', 'delete', 'e')).toEqual({
      code: 1,
      stdout: '',
      stderr: 'sidegate: there is no endpoint with this ID\n',
    });
  });

  test('shows every field that is wrong', async () => {
    await start();
    const { code, stderr } = await call('endpoints', 'create', '--url', 'https://a.example', '--event', 'a b', '--tenant', 'c d');
    expect(code).toBe(1);
    expect(stderr.trimEnd().split('\n')).toEqual([
      expect.stringMatching(/^sidegate: events\[0\]: /),
      expect.stringMatching(/^ {2}tenant: /),
    ]);
    expect((await call('endpoints', 'create')).stderr).toBe('sidegate: missing option: --url URL, or url in --settings\n');
    expect((await call('endpoints', 'update', 'acme', '--url', 'https://x.example')).stderr).toContain('provider.endpoints');
  });
});

describe('sidegate deliveries', () => {
  test('lists what is selected', async () => {
    await start();
    await append(3, 'dead');
    const { stdout } = await call('deliveries', 'list', '--state', 'dead', '--state', 'skipped', '--limit', '2');
    const [head, first, ...rest] = stdout.trimEnd().split('\n');
    expect(head).toMatch(/^ID +TYPE +TENANT +STATE +ATTEMPTS +ACCEPTED +NEXT ATTEMPT +LAST OUTCOME$/);
    expect([first, rest.length]).toEqual([
      expect.stringMatching(/^e2~acme +invoice\.paid +- +dead +10 .*server_error \(503\)$/),
      1,
    ]);
    const json = await call('deliveries', 'list', '--format', 'json', '--from', '2h');
    expect(JSON.parse(json.stdout)).toHaveLength(3);
    expect((await call('deliveries', 'list', '--limit', '0')).code).toBe(2);
    expect((await call('deliveries', 'list', '--format', 'yaml')).code).toBe(2);
    expect((await call('deliveries', 'list', '--state', 'lost')).stderr).toContain('state[0]');
    expect((await call('deliveries', 'list', '--from', 'yesterday')).stderr).toContain('is neither a time such as');
  });

  test('shows attempts, with the control characters of a receiver escaped', async () => {
    await start();
    await append(1, 'dead');
    const { stdout } = await call('deliveries', 'show', 'e0~acme');
    expect(stdout).toContain('12 ms');
    expect(stdout).toContain('HTTP \\u001b[31m503\\u202e');
    expect((await call('deliveries', 'show', 'e0')).stderr).toContain('is not the ID of a delivery');
    expect((await call('deliveries', 'show', 'e0~none')).code).toBe(1);
  });

  test('retries, cancels and purges one delivery', async () => {
    await start();
    await append(1, 'dead');
    expect((await call('deliveries', 'retry', 'e0~acme')).stdout).toBe('retrying e0~acme\n');
    expect((await call('deliveries', 'retry', 'e0~acme')).stdout).toBe('retrying e0~acme\n');
    expect((await call('deliveries', 'cancel', 'e0~acme')).stdout).toBe('canceled e0~acme\n');
    const again = await call('deliveries', 'cancel', 'e0~acme');
    expect([again.code, again.stderr]).toEqual([1, 'sidegate: e0~acme does not wait, or does not exist\n']);
    expect((await call('deliveries', 'purge', 'e0~acme')).stdout).toBe('purged e0~acme\n');
    expect((await call('deliveries', 'retry', 'e0~acme', '--endpoint', 'acme')).code).toBe(2);
    expect((await call('deliveries', 'retry', 'e0~acme', '--dry-run')).code).toBe(2);
    expect((await call('deliveries', 'cancel', 'e0')).stderr).toContain('is not the ID of a delivery');
  });

  test('retries many, with plain lines for logs', async () => {
    await start();
    await append(100, 'skipped');
    const args = ['deliveries', 'retry', '--endpoint', 'acme', '--state', 'skipped'];
    expect((await call(...args, '--dry-run')).stdout).toBe('this would retry 100 deliveries\n');
    const { code, stdout, stderr } = await call(...args, '--yes');
    expect([code, stdout]).toEqual([0, 'retrying 100 deliveries\n']);
    expect(stderr.trimEnd().split('\n')).toEqual(Array.from({ length: 10 }, (_, i) => `retrying ${(i + 1) * 10} of 100`));
    expect((await call('deliveries', 'retry', '--yes')).stderr).toContain('select deliveries');
    expect((await call('deliveries', 'cancel', '--type', 'invoice.paid', '--yes')).stdout).toBe('canceled 100 deliveries\n');
    expect((await call('deliveries', 'purge', '--from', '2020-01-01T00:00:00Z', '--yes')).stdout).toBe('purged 100 deliveries\n');
  });

  test('asks before it changes many, and changes nothing without an answer', async () => {
    await start();
    await append(3, 'dead');
    const args = ['deliveries', 'purge', '--endpoint', 'acme'];
    const silent = await call(...args);
    expect([silent.code, silent.stderr]).toEqual([2, 'sidegate: this will purge 3 deliveries: add --yes to confirm it\n']);
    const provider = ['--provider', `http://127.0.0.1:${api.port}`];
    for (const input of ['n\n', '\n', 'yesterday\n', '']) {
      const { code, stderr } = await runCommand([...args, ...provider], { input, isInputTerminal: true });
      expect([code, stderr]).toEqual([1, 'this will purge 3 deliveries. Continue? [y/N] Nothing was changed.\n']);
    }
    expect((await api.request('GET', '/v1/deliveries?state=dead')).json.data).toHaveLength(3);
    const answered = await runCommand([...args, ...provider], { input: 'y\n', isInputTerminal: true });
    expect([answered.code, answered.stdout]).toEqual([0, 'purged 3 deliveries\n']);
  });

  test('says how many cannot be sent, and retries nothing for a disabled endpoint', async () => {
    await start();
    await append(3, 'dead');
    await call('endpoints', 'disable', 'acme');
    const { code, stdout } = await call('deliveries', 'retry', '--type', 'invoice.paid', '--yes');
    const why = 'as their endpoint does not exist, is disabled, or has another tenant';
    expect([code, stdout]).toEqual([0, `retrying 0 deliveries; 3 more cannot be sent, ${why}\n`]);
    const rejected = await call('deliveries', 'retry', '--endpoint', 'acme', '--yes');
    expect([rejected.code, rejected.stderr]).toEqual([1, 'sidegate: the endpoint is disabled: enable it first\n']);
  });

  test('recovers what was never for an endpoint', async () => {
    await start();
    await append(2);
    await call('endpoints', 'create', '--id', 'late', '--url', 'https://a.example', '--event', 'invoice.*');
    const args = ['deliveries', 'recover', '--endpoint', 'late'];
    expect((await call(...args)).stderr).toContain('use --endpoint and --from');
    expect((await call(...args, '--from', '2020-01-01T00:00:00Z', '--dry-run')).stdout).toBe('this would recover 2 deliveries\n');
    expect((await call(...args, '--from', '2020-01-01T00:00:00Z', '--yes')).stdout).toBe('recovered 2 deliveries\n');
  });

  test('shows a bar on a terminal', async () => {
    await start();
    await append(4, 'dead');
    const args = ['deliveries', 'retry', '--endpoint', 'acme', '--yes', '--provider', `http://127.0.0.1:${api.port}`];
    const { stderr } = await runCommand(args, { isTerminal: true });
    expect(stderr).toContain(`\r[${'#'.repeat(15)}${'.'.repeat(15)}] 2 of 4`);
    expect(stderr.endsWith(`\r[${'#'.repeat(30)}] 4 of 4\n`)).toBe(true);
  });

  test('exits 1 if a repair broke off, and says how to continue', async () => {
    await start();
    const port = await startServer(
      createServer((request, response) => {
        request.resume();
        response.writeHead(200, { 'Content-Type': 'application/x-ndjson' });
        response.write('{"changed":3,"total":9,"done":false}\n', () => response.destroy());
      }),
    );
    const args = ['deliveries', 'retry', '--endpoint', 'a', '--yes', '--provider', `http://127.0.0.1:${port}`];
    const { code, stderr } = await runCommand(args);
    expect(code).toBe(1);
    expect(stderr).toContain('the command ended after 3 of 9 deliveries');
    expect(stderr).toContain('run it again to continue');
  });

  test('shows no text of another server as progress', async () => {
    await start();
    const port = await startServer(
      createServer((_, response) => response.end('{"changed":"\\u001b]0;x\\u0007","total":9,"done":true}\n')),
    );
    const args = ['deliveries', 'retry', '--endpoint', 'a', '--yes', '--provider', `http://127.0.0.1:${port}`];
    for (const isTerminal of [true, false]) {
      const { code, stdout, stderr } = await runCommand(args, { isTerminal });
      expect([code, stdout]).toEqual([1, '']);
      expect(stderr).toContain("is not the API of sidegate's provider");
      expect(stderr).not.toContain('\u001b');
    }
  });
});

describe('sidegate events', () => {
  test('lists events, and those that no endpoint selected', async () => {
    await start();
    await append(3, 'dead');
    await api.request('POST', '/v1/events', { id: 'x', type: 'other', tenant: 't', data: {} });
    const [head, first, ...rest] = (await call('events', 'list', '--limit', '2')).stdout.trimEnd().split('\n');
    expect(head).toMatch(/^ID +TYPE +TENANT +ACCEPTED +DELIVERIES +WAITING +FAILED$/);
    expect([first, rest[0]]).toEqual([
      expect.stringMatching(/^x +other +t +20\S+ +0 +0 +0$/),
      expect.stringMatching(/ 1 +0 +1$/),
    ]);
    const unrouted = await call('events', 'list', '--unrouted', '--format', 'json');
    expect(JSON.parse(unrouted.stdout)).toMatchObject([{ id: 'x' }]);
    expect(JSON.parse((await call('events', 'list', '--type', 'invoice.paid', '--format', 'json')).stdout)).toHaveLength(3);
  });

  test('erases the payload of one, or of all of a tenant after a confirmation', async () => {
    await start();
    for (const id of ['x', 'y', 'z']) await api.request('POST', '/v1/events', { id, type: 'a', tenant: 't', data: {} });
    expect((await call('events', 'erase', 'x')).stdout).toBe('erased the payload of x\n');
    expect((await call('events', 'erase', 'none')).code).toBe(1);
    for (const args of [[], ['x', '--tenant', 't'], ['--tenant', 't']])
      expect((await call('events', 'erase', ...args)).code).toBe(2);
    expect((await call('events', 'erase', '--tenant', 't', '--yes')).stdout).toBe('erased 2 payloads\n');
  });
});

describe('the connection to the provider', () => {
  test('needs the token that the provider has', async () => {
    await start({ token: TOKEN });
    expect((await call('endpoints', 'list')).stderr).toMatch(
      /not authorized by http:\/\/127\.0\.0\.1:\d+: use --token-file FILE/,
    );
    expect((await call('endpoints', 'list', '--token-file', secretFile)).stderr).toContain(
      'the token is not that of provider.token',
    );
    expect((await call('endpoints', 'list', '--token-file', tokenFile)).code).toBe(0);
    expect((await call('endpoints', 'list', '--token-file', join(folder, 'none'))).code).toBe(2);
    expect((await call('endpoints', 'list', '--token-file', tokenFile, '--token-env', 'X')).code).toBe(2);
  });

  test('may need a user and a password, which are no arguments', async () => {
    await start({ password: { challenge: 'Basic realm="api"', check: checkAda } });
    const asAda = ['endpoints', 'list', '--user', 'ada'];
    expect((await call('endpoints', 'list')).stderr).toContain('or --user NAME with a password');
    expect((await call(...asAda, '--password-file', passwordFile)).code).toBe(0);
    expect((await call('deliveries', 'list', '--user', 'ada', '--password-file', passwordFile)).code).toBe(0);
    const wrong = await call(...asAda, '--password-file', tokenFile);
    expect([wrong.code, wrong.stderr]).toEqual([1, expect.stringContaining('no such user, or the password is wrong')]);
    expect(wrong.stderr).not.toContain(TOKEN);
    for (const [message, ...args] of [
      ['use --user together with', ...asAda],
      ['use --user together with', 'endpoints', 'list', '--password-file', passwordFile],
      ['use either a token or a user', ...asAda, '--password-file', passwordFile, '--token-file', tokenFile],
      ['use either --password-env or', ...asAda, '--password-file', passwordFile, '--password-env', 'X'],
      ['contains a colon', 'endpoints', 'list', '--user', 'a:b', '--password-file', passwordFile],
    ] as const) {
      const { code, stderr } = await call(...args);
      expect([code, stderr]).toEqual([2, expect.stringContaining(message)]);
    }
  });

  test('says what to check if nobody listens, or something else does', async () => {
    await start();
    const closed = await findFreePort();
    const nobody = await runCommand(['endpoints', 'list', '--provider', `http://127.0.0.1:${closed}`]);
    expect(nobody).toEqual({
      code: 1,
      stdout: '',
      stderr: `sidegate: no response from http://127.0.0.1:${closed}: ECONNREFUSED; check that sidegate runs with a provider section, and --provider\n`,
    });
    const port = await startServer(createServer((_, response) => void response.end('<html>')));
    expect((await runCommand(['endpoints', 'list', '--provider', `http://127.0.0.1:${port}`])).stderr).toContain(
      "is not the API of sidegate's provider",
    );
    expect((await runCommand(['endpoints', 'list', '--provider', 'localhost:8482'])).code).toBe(2);
  });

  test('ends with a message if the provider does not respond in time', async () => {
    await start();
    const port = await startServer(createServer(() => undefined));
    const { code, stderr } = await runCommand([
      'endpoints',
      'list',
      '--provider',
      `http://127.0.0.1:${port}`,
      '--timeout',
      '200ms',
    ]);
    expect([code, stderr]).toEqual([1, expect.stringContaining('no response for 0.2 s')]);
  });

  test('works in the program as it is installed', async () => {
    await start();
    const child = spawn(process.execPath, [LAUNCHER, 'endpoints', 'show', 'acme', '--provider', `http://127.0.0.1:${api.port}`]);
    let stdout = '';
    child.stdout.setEncoding('utf8').on('data', (chunk: string) => {
      stdout += chunk;
    });
    expect(await new Promise((resolve) => child.once('close', resolve))).toBe(0);
    expect(stdout).toMatch(/^id: +acme$/m);
  }, 60_000);
});
