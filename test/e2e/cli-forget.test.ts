import { execFile } from 'node:child_process';
import { rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { afterEach, describe, expect, test } from 'vitest';
import { send } from '../support/client.ts';
import { makeDelivery } from '../support/deliveries.ts';
import { startServer, useApp } from '../support/fixtures.ts';
import { findFreePort } from '../support/free-port.ts';
import { startGate, type TestGate, toRoute } from '../support/gate.ts';
import { LAUNCHER } from '../support/process.ts';

const TOKEN = '0123456789abcdef0123456789abcdef';
const TOKEN_FROM = { secret: { file: 'token' } };

const app = useApp();
let gate: TestGate;

afterEach(() => gate.stop());

async function start(admin: object = {}): Promise<void> {
  gate = await startGate({ admin: { address: '127.0.0.1:0', ...admin }, routes: [toRoute(app.port)] }, undefined, {
    token: TOKEN,
  });
}

interface Ended {
  readonly status: number;
  readonly stdout: string;
  readonly stderr: string;
}

function forget(...args: string[]): Promise<Ended> {
  return new Promise((done) => {
    execFile(process.execPath, [LAUNCHER, 'forget', ...args], { encoding: 'utf8' }, (error, stdout, stderr) =>
      done({ status: error === null ? 0 : Number(error.code), stdout, stderr }),
    );
  });
}

const toArgs = (id: string, route = 'billing'): string[] => ['--config', gate.file, '--route', route, '--id', id];
const admin = (): string[] => ['--admin', `http://127.0.0.1:${gate.adminPort}`];

describe('sidegate forget', () => {
  test('finds address and token in the config, and lets the next delivery through', async () => {
    await start({ address: `0.0.0.0:${await findFreePort()}`, token: TOKEN_FROM });
    const delivery = makeDelivery();
    await send(gate.port, delivery);
    expect(await forget(...toArgs(delivery.id))).toEqual({
      status: 0,
      stdout: `${delivery.id} on billing: handled\nit was handled; the next valid delivery is forwarded\n`,
      stderr: '',
    });
    expect((await send(gate.port, delivery)).text).toBe('handled');
    expect((await send(gate.port, delivery)).code).toBe('duplicate');
  });

  test('exits 1 for an unknown ID, and says where it may be stored', async () => {
    await start();
    const { status, stdout } = await forget(...toArgs('evt_none'), ...admin());
    expect([status, stdout]).toEqual([
      1,
      expect.stringContaining('evt_none on billing: absent\nunknown: it is not an ID of this route'),
    ]);
  });

  test('prints the error of the gate: an unknown route, a wrong token', async () => {
    await start({ token: TOKEN_FROM });
    expect(await forget(...toArgs('x', 'none'), ...admin())).toMatchObject({
      status: 1,
      stderr: 'sidegate: 404 no route has this name; routes that remember IDs: billing\n',
    });
    rmSync(join(gate.folder, 'token'));
    writeFileSync(join(gate.folder, 'other'), 'f'.repeat(32));
    gate.writeConfig({ admin: { token: { secret: { file: 'other' } } }, routes: [toRoute(app.port)] });
    expect(await forget(...toArgs('x'), ...admin())).toMatchObject({
      status: 1,
      stderr: 'sidegate: 401 this is not the token of admin.token\n',
    });
  });

  test('exits 2 if the address or the token is missing', { timeout: 60_000 }, async () => {
    await start({ token: TOKEN_FROM });
    const cases: [string[], string][] = [
      [toArgs('x'), 'the config sets the admin port to 0, so the system chooses it: use --admin'],
      [[...toArgs('x'), '--admin', 'ftp://a'], '--admin ftp://a is not an http or https URL'],
      [[...toArgs('x'), ...admin(), '--timeout', '0'], '--timeout 0 is not a duration such as 5m'],
      [['--config', '/nowhere/gate.yaml', '--route', 'a', '--id', 'x'], 'the file does not exist'],
      [['--config', gate.file, '--route', 'a'], "required option '--id <id>'"],
    ];
    for (const [args, problem] of cases)
      expect(await forget(...args)).toMatchObject({ status: 2, stderr: expect.stringContaining(problem) });
    rmSync(join(gate.folder, 'token'));
    const { status, stderr } = await forget(...toArgs('x'), ...admin());
    expect([status, stderr]).toEqual([2, expect.stringContaining('admin.token.secret: ')]);
    expect(stderr).toContain('does not exist: create it, or mount the Secret there');
  });

  test('exits 1 if nothing responds', async () => {
    await start();
    const port = await findFreePort();
    expect(await forget(...toArgs('x'), '--admin', `http://127.0.0.1:${port}`)).toMatchObject({
      status: 1,
      stderr: `sidegate: no response from 127.0.0.1:${port}: ECONNREFUSED; check that sidegate is running and that this is its admin port\n`,
    });
  });

  test.each([
    ['200 and HTML', 200, '<html>', '200 <html>'],
    ['200 and another object', 200, '{"was":"__proto__"}', '200 {"was":"__proto__"}'],
    ['200 and no object', 200, 'null', '200 null'],
    ['too long a body', 200, 'x'.repeat(100_000), 'the response is too long for an admin port'],
  ])('exits 1 if another server responds with %s', async (_title, status, text, problem) => {
    await start();
    const port = await startServer(createServer((_request, response) => response.writeHead(status).end(text)));
    const ended = await forget(...toArgs('x'), '--admin', `http://127.0.0.1:${port}`);
    expect(ended).toMatchObject({ status: 1, stdout: '', stderr: expect.stringContaining(problem) });
  });
});
