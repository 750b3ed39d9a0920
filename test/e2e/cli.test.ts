import { type SpawnSyncReturns, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { Webhook } from 'standardwebhooks';
import { describe, expect, test } from 'vitest';
import { stringify } from 'yaml';
import { verifyPassword } from '../../src/users/password-verify.ts';
import { parseHtpasswd } from '../../src/users/user-set.ts';
import { makeDelivery, SECRET, signV1, unixNow } from '../support/deliveries.ts';
import { useApp, useFolder, useGate } from '../support/fixtures.ts';
import { startGate, toRoute } from '../support/gate.ts';
import { LAUNCHER } from '../support/process.ts';
import { runOnTerminal } from '../support/terminal.ts';

const folder = useFolder();
const body = join(folder, 'event.json');
const secretFile = join(folder, 'secret');
const config = join(folder, 'gate.yaml');
writeFileSync(body, '{"a": 1}\n');
writeFileSync(secretFile, `${SECRET}\n`);
const app = useApp();
const gate = useGate(() => startGate({ routes: [toRoute(app.port)] }));

function run(...args: string[]): SpawnSyncReturns<string> {
  return spawnSync(process.execPath, [LAUNCHER, ...args], {
    encoding: 'utf8',
    env: { ...process.env, CLI_SECRET: SECRET },
    input: '{"from": "stdin"}',
  });
}

/** Beside this process the gate has to answer: a blocking call would starve it. */
async function runBeside(...args: string[]): Promise<{ status: number | null; stdout: string; stderr: string }> {
  const { execFile } = await import('node:child_process');
  return new Promise((done) => {
    execFile(process.execPath, [LAUNCHER, ...args], { encoding: 'utf8' }, (error, stdout, stderr) =>
      done({ status: error === null ? 0 : Number(error.code), stdout, stderr }),
    );
  });
}

describe('sidegate sign', () => {
  test('prints headers that another library accepts, from a file and from standard input', () => {
    for (const [args, text] of [
      [[body], readFileSync(body, 'utf8')],
      [[], '{"from": "stdin"}'],
    ] as const) {
      const { stdout, status } = run('sign', ...args, '--secret-env', 'CLI_SECRET', '--format', 'json');
      expect(status).toBe(0);
      const headers = Object.fromEntries(
        Object.entries(JSON.parse(stdout) as Record<string, string>).map(([name, value]) => [name.toLowerCase(), value]),
      );
      expect(() => new Webhook(SECRET).verify(text, headers)).not.toThrow();
    }
  });

  test('signs with the given ID and timestamp', () => {
    const { stdout } = run('sign', body, '--secret-file', secretFile, '--id', 'evt_7', '--timestamp', '1700000000');
    expect(stdout).toBe(
      `Content-Type: application/json\nWebhook-Id: evt_7\nWebhook-Timestamp: 1700000000\nWebhook-Signature: ${signV1('evt_7', 1_700_000_000, readFileSync(body))}\n`,
    );
  });

  test('prints a command that curl can run', async () => {
    const { stdout } = run(
      'sign',
      body,
      '--secret-file',
      secretFile,
      '--format',
      'curl',
      '--url',
      `http://127.0.0.1:${gate.port}/hooks/billing`,
    );
    const { execFile } = await import('node:child_process');
    const answer = await new Promise<string>((done) => execFile('sh', ['-c', stdout], (_error, out) => done(out)));
    expect(answer).toMatch(/^HTTP\/1\.1 200 OK/);
    expect(app.received.at(-1)?.body.toString()).toBe('{"a": 1}\n');
  });

  test.each([
    [['sign', '/nowhere'], 'missing secret: use either'],
    [['sign', '/nowhere', '--secret-env', 'CLI_SECRET'], 'cannot read the file /nowhere (ENOENT)'],
    [['sign', body, '--secret-env', 'NOT_SET'], 'the environment variable NOT_SET is not set'],
    [['sign', body, '--secret-env', 'CLI_SECRET', '--format', 'xml'], '--format xml is not one of'],
    [['sign', body, '--secret-env', 'CLI_SECRET', '--encoding', 'rot13'], '--encoding rot13 is not one of'],
    [['sign', body, '--secret-env', 'CLI_SECRET', '--timestamp', 'now'], '--timestamp now is not a Unix timestamp'],
    [['sign', body, '--secret-env', 'CLI_SECRET', '--id', 'a b'], '--id must have 1 to 256'],
    [['sign', '--secret-env', 'CLI_SECRET', '--format', 'curl'], '--format curl requires a file with the body'],
    [['send', 'ftp://x', body, '--secret-env', 'CLI_SECRET'], 'ftp://x is not an http or https URL'],
    [['sing'], 'Did you mean sign?'],
    [['check'], 'missing config file: use sidegate check FILE'],
    [['run'], 'sidegate: run needs --config FILE'],
    [['run', '--confg', 'x'], "sidegate: unknown option '--confg'. Did you mean --config?"],
    [['chek'], "sidegate: unknown command 'chek'. Did you mean check?"],
    [['check', '--format', 'jsno', 'x'], 'sidegate: --format jsno is not one of text, json. Did you mean json?'],
    [['verify', body, '--secret-env', 'CLI_SECRET', '-H', 'nonsense'], "use 'Name: value'"],
  ])('%j is a usage error with the reason', (args, reason) => {
    const { status, stderr } = run(...args);
    expect(stderr).toContain(reason);
    expect(status).toBe(2);
  });
});

describe('sidegate send', () => {
  test('delivers, and shows the response of the gate', async () => {
    const url = `http://127.0.0.1:${gate.port}/hooks/billing`;
    const args = ['send', url, body, '--secret-file', secretFile, '--id', `cli_${unixNow()}`];
    expect(await runBeside(...args)).toMatchObject({ status: 0, stdout: expect.stringMatching(/^200\n[^]*handled/) });
    expect(await runBeside(...args)).toMatchObject({ status: 0, stdout: expect.stringContaining('"code":"duplicate"') });
    expect(await runBeside(...args.slice(0, 5), '--timestamp', '1700000000')).toMatchObject({
      status: 1,
      stdout: expect.stringMatching(/^401\n[^]*www-authenticate: Webhook-Signature[^]*timestamp_outside_tolerance/),
    });
    expect(await runBeside('send', 'http://127.0.0.1:1/', body, '--secret-file', secretFile)).toMatchObject({
      status: 1,
      stderr: expect.stringContaining('ECONNREFUSED'),
    });
  });
});

describe('sidegate verify', () => {
  function verify(text: string | Buffer, headers: Record<string, string>, ...args: string[]): SpawnSyncReturns<string> {
    const file = join(folder, 'verify.json');
    writeFileSync(file, text);
    return run(
      'verify',
      file,
      '--secret-env',
      'CLI_SECRET',
      ...Object.entries(headers).flatMap(([name, value]) => ['-H', `${name}: ${value}`]),
      ...args,
    );
  }

  test('reports a valid delivery as valid', () => {
    const { body: bytes, headers } = makeDelivery();
    expect(verify(bytes, headers)).toMatchObject({ status: 0, stdout: expect.stringContaining('result: valid') });
  });

  test('explains what is wrong, and which input would have matched', () => {
    const { body: bytes, headers, id } = makeDelivery();
    const explain = (...args: Parameters<typeof verify>): string => {
      const { status, stdout } = verify(...args);
      expect(status).toBe(1);
      expect(stdout).not.toContain(SECRET.slice(6));
      return stdout;
    };
    expect(explain(`${bytes}\n`, headers)).toContain('it matches without the line end after the body');
    expect(explain('{}', headers)).toContain('the secret differs, or the body was parsed and serialized again');
    expect(explain(bytes, headers, '--encoding', 'utf8')).toContain('the secret of the key given decoded as base64');
    expect(explain(bytes, { ...headers, 'Webhook-Id': '' })).toContain('result: missing_signature');
    const ms = unixNow() * 1000;
    expect(
      explain(bytes, {
        ...headers,
        'Webhook-Timestamp': String(ms).slice(0, 12),
        'Webhook-Signature': signV1(id, String(ms).slice(0, 12), bytes),
      }),
    ).toContain('looks like milliseconds');
    expect(explain(bytes, headers, '--at', String(unixNow() + 1_000))).toMatch(
      /1\d{3} s old, tolerance 300 s: outside[^]*signature: match[^]*timestamp_outside_tolerance/,
    );
  });
});

describe('sidegate check', () => {
  test('exits 0 for a valid config, 1 with all problems otherwise, and 1 for a missing secret', () => {
    const text = `routes:\n  - name: a\n    match: { path: /a }\n    upstream: http://127.0.0.1:3000\n    webhook: { keys: [{ name: k, secret: { file: secret } }] }\n`;
    writeFileSync(config, text);
    expect(run('check', '--config', config)).toMatchObject({ status: 0, stdout: `${config}: ok\n` });
    writeFileSync(config, text.replace('file: secret', 'file: gone'));
    const missing = run('check', '--config', config);
    expect(missing.status).toBe(1);
    expect(missing.stdout).toContain(
      `${config}:5:42: error routes.0.webhook.keys.0.secret: ${join(folder, 'gone')} does not exist`,
    );
    writeFileSync(config, text.replace('path: /a', 'pth: /a').replace('http:', 'https:'));
    const problems = JSON.parse(run('check', '--config', config, '--format', 'json').stdout) as { path: string }[];
    expect(problems.map(({ path }) => path).sort()).toEqual(['routes.0.match.pth', 'routes.0.upstream']);
  });

  test.each([
    ['check', 'gate.yaml'],
    ['check', 'gate.yaml', '--format', 'json'],
    ['check', '-'],
    ['run', '--config', 'gate.yaml'],
    ['test', 'fixtures.yaml'],
  ])('shows no secret that is written in place of a reference: %s %s', (...args) => {
    const secret = 'kumquats';
    const keys = `[{ name: k, secret: { value: ${secret} } }, { name: l, secret: { ${secret} } }, secret:${secret}] # ${secret}`;
    const text = `routes:\n  - name: a\n    match: { path: /a }\n    upstream: http://127.0.0.1:3000\n    webhook: { keys: ${keys}\n      }\n`;
    writeFileSync(config, text);
    writeFileSync(
      join(folder, 'fixtures.yaml'),
      'config: gate.yaml\ntests: [{ name: a, request: { path: /a }, expect: { decision: forwarded } }]\n',
    );
    const { status, stdout, stderr } = spawnSync(process.execPath, [LAUNCHER, ...args], {
      encoding: 'utf8',
      cwd: folder,
      input: text,
    });
    expect(status).not.toBe(0);
    expect(stdout + stderr).toContain('unknown key');
    expect(stdout + stderr).not.toContain(secret);
  });

  test('passes the config of the quickstart once its secret exists', () => {
    const quickstart = readFileSync(resolve(import.meta.dirname, '..', '..', 'config', 'quickstart.yaml'), 'utf8').replaceAll(
      '../.cache/quickstart/secret',
      secretFile,
    );
    writeFileSync(config, quickstart);
    expect(run('check', '--config', config)).toMatchObject({ status: 0 });
  });
});

test('sidegate schema prints a JSON Schema', () => {
  expect(JSON.parse(run('schema').stdout)).toMatchObject({
    $schema: expect.stringContaining('draft-07'),
    title: 'sidegate configuration',
  });
});

test('sidegate --help names every command', async () => {
  await expect(run('--help').stdout).toMatchFileSnapshot(resolve(import.meta.dirname, '..', 'golden', 'help.txt'));
  expect(run().status).toBe(2);
  for (const command of ['run', 'inject-server']) expect(run(command, '--help').stdout).toBe(run('help', command).stdout);
});

test('run for people shows the console and the routes, and Ctrl-C ends it without the grace of a pod', async () => {
  const file = join(folder, 'run.yaml');
  const route = { name: 'open', match: { pathPrefix: '/a' }, upstream: 'http://127.0.0.1:1', allow: 'anyone' };
  const ports = { listen: { address: '127.0.0.1:0' }, admin: { address: '127.0.0.1:0' }, shutdown: { grace: '1h' } };
  writeFileSync(file, stringify({ ...ports, routes: [route] }));
  const child = spawn(process.execPath, [LAUNCHER, 'run', '--config', file, '--log-format', 'text']);
  const ended = once(child, 'close');
  let text = '';
  await new Promise<void>((resolve) => {
    child.stdout.setEncoding('utf8').on('data', (chunk: string) => {
      text += chunk;
      if (text.includes('Ctrl-C')) resolve();
    });
  });
  child.kill('SIGINT');
  expect(await ended).toEqual([0, null]);
  expect(text).toMatch(/Console: http:\/\/127\.0\.0\.1:\d+\//);
  expect(text).toMatch(/ {2}open: port \d+ \/a… to 127\.0\.0\.1:1/);
  expect(text).toMatch(/\d\d:\d\d:\d\d info {2}listening address=127\.0\.0\.1/);
  expect(run('run', '--config', file, '--log-format', 'tex').stderr).toBe(
    'sidegate: --log-format tex is not one of json, text\n',
  );
});

test('npm start -- --once shows four correct decisions and a round trip, and exits 0', () => {
  const { status, stdout } = spawnSync(process.execPath, ['quickstart/main.ts', '--once', '--free-ports'], {
    encoding: 'utf8',
    cwd: resolve(import.meta.dirname, '..', '..'),
  });
  expect(status).toBe(0);
  expect(stdout).toMatch(/signed .*200 forwarded .*yes\s+ok/);
  expect(stdout).toMatch(/POST \/v1\/events {2}202 msg_\S+ {2}reached the app: yes {2}ok/);
  expect(stdout.match(/ ok$/gm)).toHaveLength(5);
});

test('each command that npm start prints names files that exist', () => {
  const root = resolve(import.meta.dirname, '..', '..');
  const source = readFileSync(join(root, 'quickstart', 'main.ts'), 'utf8');
  const commands = [...source.matchAll(/^ {2}node (\S+) (\S+).*$/gm)];
  expect(commands.length).toBeGreaterThan(2);
  for (const [line, launcher = '', command = ''] of commands) {
    expect(existsSync(join(root, launcher)), line).toBe(true);
    expect(spawnSync(process.execPath, [launcher, command, '--help'], { cwd: root }).status, line).toBe(0);
  }
});

describe('sidegate hash-password', () => {
  const pipe = (input: string | Buffer, ...args: string[]): SpawnSyncReturns<string> =>
    spawnSync(process.execPath, [LAUNCHER, 'hash-password', ...args], { encoding: 'utf8', input });

  test.each([
    [['--cost', '10'], 'bcrypt'],
    [['--algorithm', 'argon2id'], 'argon2id'],
  ])('creates an entry with %j that the gate accepts', (args, algorithm) => {
    const { stdout, status } = pipe('\ufeffopen sesame\n', 'Aladdin', ...args);
    expect(status).toBe(0);
    const { entries, problems } = parseHtpasswd(stdout, { allowPlainText: false });
    expect(problems).toEqual([]);
    expect(entries).toMatchObject([{ user: 'Aladdin', hash: { algorithm, grade: 'good' } }]);
    const [entry] = entries as [(typeof entries)[number]];
    expect(verifyPassword(entry.hash, Buffer.from('open sesame'))).toBe(true);
    expect(verifyPassword(entry.hash, Buffer.from('open sesame '))).toBe(false);
  });

  test('creates an entry that Apache accepts', () => {
    const file = join(folder, 'users');
    writeFileSync(file, pipe('open sesame', 'Aladdin', '--cost', '10').stdout);
    expect(spawnSync('htpasswd', ['-vb', file, 'Aladdin', 'open sesame']).status).toBe(0);
    expect(spawnSync('htpasswd', ['-vb', file, 'Aladdin', 'wrong']).status).not.toBe(0);
  });

  test.each([
    ['', [], 'the password is empty'],
    ['a\u0001b', [], 'control character'],
    ['x'.repeat(73), [], '73 bytes; bcrypt supports at most 72: use --algorithm argon2id'],
    [Buffer.from('p\xe4ssword\n', 'latin1'), [], 'standard input is not UTF-8'],
    [Buffer.from('\ufeffx\n', 'utf16le'), [], 'standard input is not UTF-8'],
    ['x', ['a:b'], 'cannot contain a colon'],
    ['x', ['--cost', '4'], '--cost 4 is not an integer from 10 to 16'],
    ['x', ['--algorithm', 'md5'], 'is not one of bcrypt, argon2id'],
  ])('rejects %j with %j', (input, args, message) => {
    const { stderr, stdout, status } = pipe(input, ...args);
    expect([status, stdout]).toEqual([2, '']);
    expect(stderr).toContain(message);
  });

  test('prompts twice on a terminal, without echo', () => {
    const command = [process.execPath, LAUNCHER, 'hash-password', 'Aladdin', '--cost', '10'];
    const ask = (answers: string): SpawnSyncReturns<string> => runOnTerminal(command, { answers });
    const shown = ask('open sesane\u007f\u007fme\r|open sesame\r');
    expect(shown.status).toBe(0);
    expect(shown.stdout).not.toContain('sesame');
    const entry = /Aladdin:(\S+)/.exec(shown.stdout)?.[1] ?? '';
    expect(verifyPassword({ algorithm: 'bcrypt', text: entry }, Buffer.from('open sesame'))).toBe(true);
    expect(ask('one\r|other\r').stdout).toContain('the passwords do not match');
    expect(ask('one\u0003').status).toBe(2);
  });
});
