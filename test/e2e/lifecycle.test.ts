import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readFileSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { delimiter, dirname, join } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { holdResponses } from '../support/app.ts';
import { send } from '../support/client.ts';
import { makeDelivery, SECRET } from '../support/deliveries.ts';
import { makeFolder, useApp } from '../support/fixtures.ts';
import { findFreePort } from '../support/free-port.ts';
import { startGate, toRoute, until } from '../support/gate.ts';
import { CHECKOUT_LAUNCHER, LAUNCHER, startGateProcess } from '../support/process.ts';

const OTHER_SECRET = 'whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD';
const app = useApp();

/** A stopped process whose queue of connections is full, so that the kernel drops further ones. Returns its port. */
async function startHangingApp(): Promise<number> {
  const listen =
    "const s = require('net').createServer().listen({ port: 0, host: '127.0.0.1', backlog: 1 }, () => console.log(s.address().port))";
  const child = spawn(process.execPath, ['-e', listen], { stdio: ['ignore', 'pipe', 'inherit'] });
  const sockets: Socket[] = [];
  onTestFinished(() => {
    child.kill('SIGKILL');
    for (const socket of sockets) socket.destroy();
  });
  const [line] = await once(child.stdout, 'data');
  child.kill('SIGSTOP');
  const port = Number(line);
  // The first of those that are not accepted shows that the queue is full.
  const connectNext = async (): Promise<boolean> => {
    const socket = connect({ port, host: '127.0.0.1' }).on('error', () => undefined);
    sockets.push(socket);
    return Promise.race([once(socket, 'connect').then(() => false), new Promise<boolean>((done) => setTimeout(done, 300, true))]);
  };
  await until(connectNext);
  return port;
}

describe('SIGTERM', () => {
  test('turns readiness off, serves during the grace period, finishes requests in progress, and exits 0', async () => {
    const gate = await startGateProcess({ shutdown: { grace: '1500ms', drain: '10s' }, routes: [toRoute(app.port)] });
    const readyz = async (): Promise<number> => (await fetch(`http://127.0.0.1:${gate.adminPort}/readyz`)).status;
    expect(await readyz()).toBe(200);
    const finish = holdResponses(app, 'late but whole');
    const slow = send(gate.port, makeDelivery());
    await until(() => app.received.length === 1);
    gate.child.kill('SIGTERM');
    await until(async () => (await readyz()) === 503);
    app.handler = (_request, response) => response.end('in grace');
    const during = await send(gate.port, makeDelivery());
    expect(during.text).toBe('in grace');
    expect(during.headers.connection).toBe('close');
    finish();
    expect((await slow).text).toBe('late but whole');
    expect(await gate.exit).toBe(0);
    expect(gate.log().at(-1)).toMatchObject({ msg: 'stopped', complete: true });
    expect(gate.log().filter(({ msg }) => msg === 'request')).toHaveLength(2);
  });

  test('does not wait for the grace period if the app has ended, as it has before a native sidecar', async () => {
    const gate = await startGateProcess({ shutdown: { grace: '60s' }, routes: [toRoute(await findFreePort())] });
    gate.child.kill('SIGTERM');
    expect(await gate.exit).toBe(0);
    expect(gate.log().at(-1)).toMatchObject({ msg: 'stopped', complete: true });
  });

  test('does not wait for an app that lets connections hang', async () => {
    const hanging = await startHangingApp();
    const gate = await startGateProcess({ shutdown: { grace: '500ms' }, routes: [toRoute(hanging)] });
    gate.child.kill('SIGTERM');
    expect(await gate.exit).toBe(0);
    expect(gate.log().at(-1)).toMatchObject({ msg: 'stopped', complete: true });
  });

  test('stops after the drain time, leaves requests with the app to their lease, and still exits 0', async () => {
    const gate = await startGateProcess({ shutdown: { grace: '0ms', drain: '200ms' }, routes: [toRoute(app.port)] });
    app.handler = () => undefined;
    const stuck = send(gate.port, makeDelivery()).catch(() => 'cut');
    await until(() => app.received.length === 1);
    gate.child.kill('SIGTERM');
    expect(await stuck).toBe('cut');
    expect(await gate.exit).toBe(0);
    expect(gate.log().at(-1)).toMatchObject({ msg: 'stopped', complete: false });
  });

  test('ends without force although the app and a client of the sending side never finish', async () => {
    const queue = { sqlite: { path: join(makeFolder(), 'queue.db'), allowVolatile: true } };
    const gate = await startGateProcess({
      shutdown: { grace: '0ms', drain: '200ms' },
      provider: { address: '127.0.0.1:0', queue },
      routes: [toRoute(app.port)],
    });
    app.handler = () => undefined;
    const stuck = send(gate.port, makeDelivery()).catch(() => 'cut');
    const { providerPort } = gate.log().find(({ msg }) => msg === 'listening') as { providerPort: number };
    const client = connect(providerPort, '127.0.0.1').on('error', () => undefined);
    client.write('POST /v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{');
    await until(() => app.received.length === 1);
    gate.child.kill('SIGTERM');
    expect(await stuck).toBe('cut');
    expect(await gate.exit).toBe(0);
    expect(gate.log().at(-1)).toMatchObject({ msg: 'stopped', complete: false });
    expect(gate.log().at(-1)).not.toHaveProperty('forced');
  });

  test.each([
    ['the event loop is blocked for ever', 'for (;;);', 'SIGKILL'],
    [
      'each turn of the event loop is long',
      'setInterval(() => { const end = Date.now() + 300; while (Date.now() < end); }, 0)',
      0,
    ],
  ] as const)('ends in time although %s', async (_title, work, expected) => {
    const folder = makeFolder();
    const preload = join(folder, 'busy.cjs');
    writeFileSync(preload, `process.on('SIGTERM', () => setTimeout(() => { ${work} }, 10));`);
    const times = { grace: '100ms', drain: '100ms' };
    const gate = await startGateProcess({ shutdown: times, routes: [toRoute(app.port)] }, [], {
      NODE_OPTIONS: `--require ${preload}`,
    });
    gate.child.kill('SIGTERM');
    expect(await gate.exit).toBe(expected);
  });

  test('ends in time although thousands of requests wait and their app does not respond', async () => {
    const limits = {
      maxInFlight: 1,
      maxQueued: 20_000,
      queueTimeout: '1m',
      maxRequestsPerClient: 20_000,
      maxConnectionsPerClient: 4_000,
    };
    const gate = await startGateProcess({ limits, shutdown: { grace: '0ms', drain: '200ms' }, routes: [toRoute(app.port)] });
    app.handler = () => undefined;
    const sockets = Array.from({ length: 1_000 }, () => connect(gate.port, '127.0.0.1').on('error', () => undefined));
    for (const socket of sockets) {
      const { headers, body } = makeDelivery();
      const fields = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
      socket.write(`POST /hooks/billing HTTP/1.1\r\nHost: a\r\nContent-Length: ${body.length}\r\n${fields.join('')}\r\n`);
      socket.write(body);
    }
    await until(() => app.received.length === 1);
    const metrics = async (): Promise<string> => (await fetch(`http://127.0.0.1:${gate.adminPort}/metrics`)).text();
    await until(async () => /^sidegate_http_requests_queued [1-9]\d\d/m.test(await metrics()));
    gate.child.kill('SIGTERM');
    expect(await gate.exit).toBe(0);
    // Not always the last line: a batch of the requests may still be on its way through the pipe.
    expect(gate.log().find(({ msg }) => msg === 'stopped')).toMatchObject({ complete: false });
  });

  test('a second time loses no line of the log', async () => {
    const gate = await startGateProcess({
      log: { flush: '10s' },
      shutdown: { grace: '1m', drain: '1m' },
      routes: [toRoute(app.port)],
    });
    gate.child.kill('SIGTERM');
    await until(() => gate.log().some(({ msg }) => msg === 'draining'));
    await send(gate.port, makeDelivery());
    expect(gate.log().some(({ msg }) => msg === 'request')).toBe(false);
    gate.child.kill('SIGTERM');
    expect(await gate.exit).toBe(143);
    expect(gate.log().at(-1)).toMatchObject({ msg: 'request', status: 200 });
  });

  test('a second time ends the process at once', async () => {
    const gate = await startGateProcess({ shutdown: { grace: '60s' }, routes: [toRoute(app.port)] });
    gate.child.kill('SIGTERM');
    await until(() => gate.log().some(({ msg }) => msg === 'draining'));
    gate.child.kill('SIGTERM');
    expect(await gate.exit).toBe(143);
  });
});

describe('an ID that is claimed but not yet with the app', () => {
  test('is released when the gate stops', async () => {
    const gate = await startGate({
      limits: { maxInFlight: 1 },
      shutdown: { grace: '0ms', drain: '300ms' },
      routes: [toRoute(app.port)],
    });
    app.handler = () => undefined;
    const first = send(gate.port, makeDelivery()).catch(() => undefined);
    await until(() => app.received.length === 1);
    const second = send(gate.port, makeDelivery());
    await until(async () => (await gate.metric('sidegate_http_requests_queued')) === 1);
    const stopped = gate.stop();
    expect(await second).toMatchObject({ status: 503, code: 'draining' });
    expect(await stopped).toBe(false);
    await first;
    expect(gate.log().find(({ code }) => code === 'draining')).toMatchObject({ reason: 'draining' });
  });
});

describe('a config that changes', () => {
  test('is reloaded without a restart; a broken one changes nothing and is reported', async () => {
    const gate = await startGate({ routes: [toRoute(app.port)] });
    gate.writeConfig({ routes: [toRoute(app.port, { match: { path: '/new' } })] });
    await until(async () => (await send(gate.port, { ...makeDelivery(), path: '/new' })).status === 200);
    expect((await send(gate.port, makeDelivery())).code).toBe('route_not_found');
    expect(await gate.metric('sidegate_config_last_reload_successful')).toBe(1);

    gate.writeConfig({ routes: [{ ...toRoute(app.port), name: 'BAD NAME' }] });
    await until(() => gate.log().some(({ msg }) => msg === 'config_reload_failed'));
    expect(await gate.metric('sidegate_config_last_reload_successful')).toBe(0);
    expect((await send(gate.port, { ...makeDelivery(), path: '/new' })).status).toBe(200);
    await gate.stop();
  });

  test('in a setting that needs a restart is rejected, with the reason', async () => {
    const gate = await startGate({ routes: [toRoute(app.port)] });
    gate.writeConfig({ limits: { maxInFlight: 7 }, routes: [toRoute(app.port)] });
    const line = await until(() => gate.log().find(({ msg }) => msg === 'config_reload_failed'));
    expect(line['problem']).toContain('changing limits requires a restart');
    await gate.stop();
  });

  test('drops the series of removed routes and keys', async () => {
    const gate = await startGate({
      routes: [{ ...toRoute(app.port, { match: { path: '/old' } }), name: 'old' }, toRoute(app.port)],
    });
    expect(await gate.metrics()).toContain('route="old"');
    gate.writeConfig({ routes: [toRoute(app.port)] });
    await until(async () => !(await gate.metrics()).includes('route="old"'));
    await gate.stop();
  });
});

test('a config that names a missing secret is reloaded once the secret exists', async () => {
  const gate = await startGate({ routes: [toRoute(app.port)] });
  gate.writeConfig({
    routes: [toRoute(app.port, { webhook: { keys: [{ name: 'current', secret: { file: 'later' } }] } })],
  });
  await until(() => gate.log().some(({ msg }) => msg === 'config_reload_failed'));
  expect((await send(gate.port, makeDelivery())).status).toBe(200);
  writeFileSync(join(gate.folder, 'later'), OTHER_SECRET);
  await until(async () => (await send(gate.port, makeDelivery({ secret: OTHER_SECRET }))).status === 200);
  await gate.stop();
});

describe('a secret that is rotated', () => {
  test('by the kubelet’s symlink swap applies at once, every time; one that disappears makes only its route respond with 503', async () => {
    const gate = await startGate({
      routes: [
        toRoute(app.port, { webhook: { keys: [{ name: 'current', secret: { file: 'mount/secret' } }] } }),
        { ...toRoute(app.port, { match: { path: '/other' } }), name: 'other' },
      ].slice(1),
    });
    const mount = join(gate.folder, 'mount');
    const swap = (version: number, secret: string | undefined): void => {
      mkdirSync(join(mount, `..v${version}`), { recursive: true });
      if (secret !== undefined) writeFileSync(join(mount, `..v${version}`, 'secret'), secret);
      symlinkSync(`..v${version}`, join(mount, '..data_tmp'));
      renameSync(join(mount, '..data_tmp'), join(mount, '..data'));
      if (version > 1) rmSync(join(mount, `..v${version - 1}`), { recursive: true });
    };
    swap(1, SECRET);
    symlinkSync('..data/secret', join(mount, 'secret'));
    gate.writeConfig({
      routes: [
        toRoute(app.port, { webhook: { keys: [{ name: 'current', secret: { file: 'mount/secret' } }] } }),
        { ...toRoute(app.port, { match: { path: '/other' } }), name: 'other' },
      ],
    });
    await until(async () => (await send(gate.port, makeDelivery())).status === 200);

    for (const [version, secret] of [
      [2, OTHER_SECRET],
      [3, SECRET],
      [4, OTHER_SECRET],
    ] as const) {
      swap(version, `${secret}\n`);
      await until(async () => (await send(gate.port, makeDelivery({ secret }))).status === 200);
      expect((await send(gate.port, makeDelivery({ secret: secret === SECRET ? OTHER_SECRET : SECRET }))).code).toBe(
        'signature_mismatch',
      );
    }
    swap(5, undefined);
    await until(async () => (await send(gate.port, makeDelivery({ secret: OTHER_SECRET }))).code === 'secret_unavailable');
    expect(await gate.metric('sidegate_route_ready{route="billing"}')).toBe(0);
    expect((await send(gate.port, { ...makeDelivery(), path: '/other' })).status).toBe(200);
    expect((await send(gate.port, makeDelivery({ secret: OTHER_SECRET }))).headers['retry-after']).toBe('30');
    swap(6, OTHER_SECRET);
    await until(async () => (await send(gate.port, makeDelivery({ secret: OTHER_SECRET }))).status === 200);
    expect(gate.logText()).not.toContain(SECRET.slice(6));
    await gate.stop();
  });

  test('has two live keys in the meantime, and the metric shows which one is used', async () => {
    const keys = [
      { name: 'current', secret: { file: 'new' } },
      { name: 'old', secret: { file: 'secret' } },
      { name: 'expired', secret: { file: 'expired' }, notAfter: '2020-01-01T00:00:00Z' },
    ];
    const gate = await startGate({ routes: [toRoute(app.port)] });
    writeFileSync(join(gate.folder, 'new'), OTHER_SECRET);
    writeFileSync(join(gate.folder, 'expired'), 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaAA');
    gate.writeConfig({ routes: [toRoute(app.port, { webhook: { keys } })] });
    await until(async () => (await send(gate.port, makeDelivery({ secret: OTHER_SECRET }))).status === 200);
    expect((await send(gate.port, makeDelivery())).status).toBe(200);
    expect(app.received.at(-1)?.headers['sidegate-key']).toBe('old');
    expect((await send(gate.port, makeDelivery({ secret: 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaAA' }))).code).toBe(
      'signature_mismatch',
    );
    expect(await gate.metric('sidegate_secret_last_used_timestamp_seconds{route="billing",key="current"}')).toBeGreaterThan(1e9);
    // A mismatch may be our own fault while a key is missing, and then it is never a 4xx.
    rmSync(join(gate.folder, 'new'));
    await until(async () => (await send(gate.port, makeDelivery({ secret: OTHER_SECRET }))).code === 'secret_unavailable');
    expect((await send(gate.port, makeDelivery())).status).toBe(200);
    await gate.stop();
  });
});

describe('a failed start', () => {
  const run = (file: string): ReturnType<typeof spawnSync> =>
    spawnSync(process.execPath, [LAUNCHER, 'run', '--config', file], { encoding: 'utf8' });

  test('exits 1 if its port is in use', async () => {
    const listen = { address: `127.0.0.1:${app.port}` };
    await expect(startGateProcess({ listen, routes: [toRoute(app.port)] })).rejects.toThrow('ended with 1');
  });

  test('reports that the config does not exist, and exits 1', () => {
    const { status, stderr } = run('/nowhere/gate.yaml');
    expect([status, stderr]).toEqual([1, '/nowhere/gate.yaml: error the file does not exist\n']);
  });
});

test('the launcher runs on the Node of the machine, even an old one', () => {
  // By its first line: a Node of the machine comes after that of devDependencies in the PATH of an npm script.
  const path = (process.env['PATH'] ?? '').split(delimiter).filter((folder) => !folder.includes('node_modules'));
  const shown = execFileSync(CHECKOUT_LAUNCHER, ['--version'], {
    encoding: 'utf8',
    env: { ...process.env, PATH: path.join(delimiter) },
  });
  expect(shown.trim()).toBe(
    (JSON.parse(readFileSync(join(dirname(dirname(CHECKOUT_LAUNCHER)), 'package.json'), 'utf8')) as { version: string }).version,
  );
});

test('a log reader that disconnects does not end the gate', async () => {
  const gate = await startGateProcess({ routes: [toRoute(app.port)] });
  gate.child.stdout?.destroy();
  for (let i = 0; i < 60; i++) expect((await send(gate.port, makeDelivery())).status).toBe(200);
  gate.child.kill('SIGTERM');
  expect(await gate.exit).toBe(0);
});
