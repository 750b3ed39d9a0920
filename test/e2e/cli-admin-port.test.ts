/** How the commands that use the console API reach the admin port, and authorize themselves there. */
import { writeFileSync } from 'node:fs';
import { createServer, request } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import { join } from 'node:path';
import { afterEach, describe, expect, test } from 'vitest';
import { useAdminCli } from '../support/admin-cli.ts';
import { readPair } from '../support/certificates.ts';
import { type CliEnd, CONTROLS, runCommand } from '../support/cli.ts';
import { PASSWORD, startConsoleGate } from '../support/console.ts';
import { startServer, useApp, useAuthority, useFolder } from '../support/fixtures.ts';
import { startGate, type TestGate, toRoute } from '../support/gate.ts';
import { LAUNCHER, startGateProcess } from '../support/process.ts';
import { runOnTerminal } from '../support/terminal.ts';
import { makeEntry } from '../support/users.ts';

const TOKEN = 't'.repeat(32);

const folder = useFolder();
const tokenFile = join(folder, 'token');
writeFileSync(tokenFile, `${TOKEN}\n`);
const authority = useAuthority();
const app = useApp();
let gate: TestGate;
const { call, callHere, asUser, passwordFile } = useAdminCli(() => gate);
afterEach(() => gate.stop());

const start = async (): Promise<void> => {
  gate = await startGate({ routes: [toRoute(app.port)] });
};

describe('the connection to the admin port', () => {
  test('takes the token and the password from a file, the environment or standard input', async () => {
    gate = await startConsoleGate(app.port, {
      admin: {
        address: '127.0.0.1:0',
        token: { secret: { file: 'token' } },
        basic: { realm: 'console', users: { file: 'operators' } },
      },
    });
    const list = ['requests', 'list'];
    expect((await callHere(list)).stderr).toMatch(/not authorized by http:\/\/127\.0\.0\.1:\d+: use --token-file FILE or/);
    expect((await callHere([...list, '--token-file', passwordFile])).stderr).toContain('check --token-file');
    expect((await call([...list, '--token-env', 'TOKEN'], { env: { TOKEN: 'f'.repeat(32) } })).stderr).toContain(
      'the token is not that of admin.token',
    );
    expect((await callHere([...list, '--token-file', tokenFile])).code).toBe(0);
    expect((await call([...list, '--token-env', 'TOKEN'], { env: { TOKEN } })).code).toBe(0);
    expect((await call([...list, '--token-file', '-'], { input: `${TOKEN}\n` })).code).toBe(0);
    expect((await callHere([...list, ...asUser])).code).toBe(0);
    const piped = [...list, '--user', 'operator', '--password-file', '-'];
    expect((await call(piped, { input: `${PASSWORD}\n` })).code).toBe(0);
    expect((await callHere(piped, { input: 'wrong\n' })).stderr).toContain(
      'admin.basic has no such user, or the password is wrong',
    );
    const disable = ['endpoints', 'disable', 'acme', '--token-file', tokenFile];
    expect((await callHere(disable)).stderr).toContain('only users can act');
  }, 60_000);

  test('prompts for the password on a terminal', async () => {
    await start();
    const users = join(folder, 'users');
    writeFileSync(users, `${makeEntry('operator', PASSWORD)}\n`);
    const running = await startGateProcess({
      admin: { address: '127.0.0.1:0', basic: { realm: 'console', users: { file: users } } },
      routes: [toRoute(app.port)],
    });
    const args = ['requests', 'list', '--user', 'operator', '--admin', `http://127.0.0.1:${running.adminPort}`];
    const { stdout, status } = runOnTerminal([process.execPath, LAUNCHER, ...args], { answers: `${PASSWORD}\r` });
    running.child.kill('SIGKILL');
    expect([status, stdout]).toEqual([0, expect.stringMatching(/^Password: [^]*OUTCOME/)]);
    expect(stdout).not.toContain(PASSWORD);
  }, 60_000);

  test('keeps a password out of arguments and off the network', async () => {
    await start();
    const ask = (admin: string): Promise<CliEnd> => runCommand(['requests', 'list', ...asUser, '--admin', admin]);
    expect(await ask('http://192.0.2.1:9090')).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('a password is not sent to 192.0.2.1:9090 in clear text: use kubectl port-forward'),
    });
    for (const url of ['http://operator:hunter2@127.0.0.1:9090', 'operator:hunter2@127.0.0.1:9090', 'http://o:hunter2@a:x']) {
      const inUrl = await ask(url);
      expect([inUrl.code, inUrl.stderr]).toEqual([2, expect.stringContaining('--admin contains a user or a password')]);
      expect(inUrl.stderr).not.toContain('hunter2');
    }
    for (const wrong of ['127.0.0.1:9090', 'ftp://a', 'http://a/?x'])
      expect((await ask(wrong)).stderr).toContain(`--admin ${wrong} is not an http or https URL`);
  }, 60_000);

  test('says what to check if nobody listens, or something else does', async () => {
    await start();
    expect(await runCommand(['requests', 'list', '--admin', 'http://127.0.0.1:1'])).toEqual({
      code: 1,
      stdout: '',
      stderr:
        'sidegate: no response from http://127.0.0.1:1: ECONNREFUSED; check that sidegate runs, that a port-forward to its admin port is open, and --admin\n',
    });
    const responses: [string, number, string, string][] = [
      ['<html>', 200, 'text/html', 'is not the admin port of sidegate'],
      ['{"data":1}', 200, 'application/json', 'is not the admin port of sidegate'],
      ['null', 200, 'application/json', 'is not the admin port of sidegate'],
      ['', 302, 'text/html', 'is not the admin port of sidegate'],
      ['{', 500, 'application/problem+json', 'is not the admin port of sidegate'],
      ['null', 500, 'application/problem+json', 'is not the admin port of sidegate'],
      ['{"detail":"a\\u001b[31m","errors":[null,null]}', 500, 'application/problem+json', 'a\\u001b[31m'],
    ];
    for (const [body, status, type, message] of responses) {
      const server = createServer((_, response) =>
        response.writeHead(status, { 'Content-Type': type, Location: '/x' }).end(body),
      );
      const ended = await runCommand(['requests', 'list', '--admin', `http://127.0.0.1:${await startServer(server)}`]);
      expect([body, ended.code, ended.stdout]).toEqual([body, 1, '']);
      expect(ended.stderr).toContain(message);
      expect(ended.stderr).not.toMatch(CONTROLS);
    }
  }, 120_000);

  test('gives up on a list that does not end, and shows no more entries than it asked for', async () => {
    await start();
    let pages = 0;
    let body = '{"data":[],"cursor":"1","iterator":"1"}';
    const server = createServer((_, response) => {
      pages++;
      response.writeHead(200, { 'Content-Type': 'application/json' }).end(body);
    });
    const admin = ['--admin', `http://127.0.0.1:${await startServer(server)}`];
    for (const list of [
      ['requests', 'list'],
      ['deliveries', 'list'],
      ['endpoints', 'list'],
    ]) {
      pages = 0;
      const { code, stderr } = await runCommand([...list, ...admin]);
      expect([code, stderr]).toEqual([1, expect.stringContaining('the list does not end: it has more than 1000 empty pages')]);
      expect(pages).toBe(1_001);
    }
    body = `{"data":[${'1,'.repeat(500_000)}1],"cursor":"1"}`;
    const { code, stdout } = await runCommand(['requests', 'list', '--limit', '2', '--format', 'json', ...admin]);
    expect([code, stdout]).toEqual([0, '[\n  1,\n  1\n]\n']);
  }, 120_000);

  test('verifies a certificate by the CA that it is given, below a path', async () => {
    await start();
    const pair = authority.issue('console', 'DNS:localhost,IP:127.0.0.1');
    // A proxy with TLS before the admin port.
    const server = createTlsServer(readPair(pair), (incoming, response) => {
      const path = (incoming.url ?? '').replace(/^\/gate/, '');
      const outgoing = request({ port: gate.adminPort, path, headers: { host: '127.0.0.1' } }, (received) => {
        response.writeHead(received.statusCode ?? 502, received.headers);
        received.pipe(response);
      });
      outgoing.end();
    });
    const url = `https://127.0.0.1:${await startServer(server)}/gate/`;
    expect((await runCommand(['requests', 'list', '--admin', url])).stderr).toMatch(
      /no response from .*: [A-Z_]*(?:SELF_SIGNED|UNABLE)/,
    );
    expect((await runCommand(['requests', 'list', '--admin', url, '--ca', authority.ca])).code).toBe(0);
    expect((await runCommand(['requests', 'list', '--admin', url, '--ca', join(folder, 'none')])).stderr).toContain(
      'cannot read --ca',
    );
    const other = await runCommand(['requests', 'list', '--admin', url, '--ca', import.meta.filename]);
    expect(other.stderr).toContain(`--ca ${import.meta.filename} contains no certificate`);
  }, 60_000);
});
