import { type ChildProcess, spawn } from 'node:child_process';
import { Agent } from 'node:http';
import { afterEach, describe, expect, test } from 'vitest';
import { holdResponses } from '../support/app.ts';
import { send } from '../support/client.ts';
import { makeDelivery } from '../support/deliveries.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { useApp } from '../support/fixtures.ts';
import { startGate, toRoute, until } from '../support/gate.ts';
import { type GateProcess, startGateProcess } from '../support/process.ts';
import { exchangeRaw, openSocket, readToEnd } from '../support/proxy.ts';

/** An app as a container has it: it finishes what is under way when it is told to stop, and is gone. */
const APP = `
const server = require('node:http').createServer((request, response) => {
  request.resume();
  process.once('finish-work', () => response.end('late but whole'));
  if (request.url !== '/hooks/slow') response.end('handled');
  else process.send('slow');
});
server.listen(Number(process.argv[1]), '127.0.0.1', () => process.send(server.address().port));
process.on('SIGTERM', () => { server.close(); process.emit('finish-work'); server.closeIdleConnections(); process.disconnect(); });
`;
const closers: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

interface AppProcess {
  readonly child: ChildProcess;
  readonly port: number;
  readonly exit: Promise<unknown>;
}

async function startAppProcess(port = 0): Promise<AppProcess> {
  const child = spawn(process.execPath, ['-e', APP, String(port)], { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] });
  const exit = new Promise((resolve) => child.once('exit', resolve));
  closers.push(() => child.kill('SIGKILL'));
  const given = await new Promise((resolve) => child.once('message', resolve));
  return { child, port: Number(given), exit };
}

async function startSidecar(port: number, sections = {}): Promise<GateProcess> {
  const { upstream: _own, ...route } = toRoute(port, { match: { pathPrefix: '/hooks' } });
  const args = ['--upstream', `http://127.0.0.1:${port}`];
  const gate = await startGateProcess({ shutdown: { grace: '300ms', drain: '10s' }, routes: [route], ...sections }, args);
  closers.push(async () => {
    gate.child.kill('SIGKILL');
    await gate.exit;
  });
  return gate;
}

describe('a pod that ends, with the gate as a native sidecar,', () => {
  test('serves until the app is gone, then responds with 503 and Retry-After, and loses no event', async () => {
    const app = await startAppProcess();
    const gate = await startSidecar(app.port);
    const agent = new Agent({ keepAlive: true });
    closers.push(() => agent.destroy());
    expect((await send(gate.port, { ...makeDelivery(), agent })).status).toBe(200);
    const slow = send(gate.port, { ...makeDelivery(), path: '/hooks/slow' });
    await new Promise((resolve) => app.child.once('message', resolve));

    // The kubelet ends the app first.
    app.child.kill('SIGTERM');
    expect((await slow).text).toBe('late but whole');
    await app.exit;
    const late = makeDelivery();
    const refused = await send(gate.port, { ...late, agent });
    expect(refused).toMatchObject({ status: 503, code: 'upstream_away' });
    expect(refused.headers).toMatchObject({ 'retry-after': '5', connection: 'close' });
    // Its own state is sound: the pod leaves its endpoints because it ends, not because of this.
    expect((await fetch(`http://127.0.0.1:${gate.adminPort}/readyz`)).status).toBe(200);

    // The app of another pod, or this one again: the event was not taken for handled.
    const next = await startAppProcess(app.port);
    expect((await send(gate.port, late)).text).toBe('handled');
    next.child.kill('SIGKILL');

    gate.child.kill('SIGTERM');
    expect(await gate.exit).toBe(0);
    expect(gate.log().at(-1)).toMatchObject({ msg: 'stopped', complete: true });
  });

  test('can be paused and resumed without being considered dead', async () => {
    const app = await startAppProcess();
    const gate = await startSidecar(app.port);
    const healthz = (signal?: AbortSignal) => fetch(`http://127.0.0.1:${gate.adminPort}/healthz`, { signal: signal ?? null });
    gate.child.kill('SIGSTOP');
    const controller = new AbortController();
    const unanswered = healthz(controller.signal);
    controller.abort();
    await expect(unanswered).rejects.toThrow();
    gate.child.kill('SIGCONT');
    expect((await healthz()).status).toBe(200);
  });
});

describe('a connection to a gate that drains', () => {
  const app = useApp();

  const open = async () => {
    const clock = new FakeClock();
    const gate = await startGate(
      {
        shutdown: { grace: '5s', drain: '25s' },
        routes: [{ name: 'open', match: { pathPrefix: '/' }, upstream: `http://127.0.0.1:${app.port}`, allow: 'anyone' }],
      },
      clock,
    );
    return { clock, gate };
  };
  const GET = 'GET / HTTP/1.1\r\nHost: a\r\n\r\n';

  test('ends with the response in progress, which says Connection: close', async () => {
    const { clock, gate } = await open();
    const finish = holdResponses(app, 'late but whole');
    const answer = exchangeRaw(gate.port, GET);
    await until(() => app.received.length === 1);
    const stopped = gate.stop();
    finish();
    expect(await answer).toMatch(/^HTTP\/1\.1 200 [^]*\r\nConnection: close\r\n[^]*late but whole$/i);
    await clock.advance(5_000);
    expect(await stopped).toBe(true);
  });

  test('ends after a response whose head announced keep-alive', async () => {
    const { clock, gate } = await open();
    let finish = (): void => undefined;
    app.handler = (_request, response) => {
      response.writeHead(200, { 'Content-Length': 10 }).write('first');
      finish = () => void response.end('later');
    };
    const socket = openSocket(gate.port);
    socket.write(GET);
    expect(String(await new Promise((resolve) => socket.once('data', resolve)))).toMatch(/keep-alive[^]*first$/i);
    const rest = readToEnd(socket);
    const stopped = gate.stop();
    finish();
    expect(await rest).toBe('later');
    await clock.advance(5_000);
    expect(await stopped).toBe(true);
  });
});

describe('a pod that is about to end, with a pause of the app,', () => {
  const app = useApp();

  const start = async (clock?: FakeClock) => {
    const gate = await startGate({ routes: [toRoute(app.port)] }, clock);
    const agent = new Agent({ keepAlive: true });
    closers.push(
      async () => {
        const stopped = gate.stop();
        await clock?.advance(5_000);
        await stopped;
      },
      () => agent.destroy(),
    );
    return { gate, agent, hook: `http://127.0.0.1:${gate.adminPort}/prestop` };
  };

  test('closes connections with their next response after the preStop hook, serves all requests, and stays ready', async () => {
    const { gate, agent, hook } = await start();
    expect((await send(gate.port, { ...makeDelivery(), agent })).headers['connection']).toBe('keep-alive');
    expect((await fetch(hook)).status).toBe(200);
    for (let time = 0; time < 2; time++)
      expect(await send(gate.port, { ...makeDelivery(), agent })).toMatchObject({
        status: 200,
        headers: { connection: 'close' },
      });
    expect((await fetch(`http://127.0.0.1:${gate.adminPort}/readyz`)).status).toBe(200);
    expect(gate.log().filter(({ msg }) => msg === 'leaving')).toHaveLength(1);
  });

  test('keeps connections again if the pod did not end, because any process may have called the hook', async () => {
    const clock = new FakeClock();
    const { gate, agent, hook } = await start(clock);
    const ask = async () =>
      (await send(gate.port, { ...makeDelivery({ timestamp: Math.floor(clock.now() / 1_000) }), agent })).headers['connection'];
    await fetch(hook);
    expect(await ask()).toBe('close');
    await clock.advance(14 * 60_000);
    await fetch(hook);
    await clock.advance(14 * 60_000);
    expect(await ask()).toBe('close');
    await clock.advance(60_000);
    expect(await ask()).toBe('keep-alive');
    expect(gate.log().filter(({ msg }) => msg === 'leaving' || msg === 'staying')).toHaveLength(2);
  });

  test('changes nothing if the hook is requested with another method or path', async () => {
    const { gate, agent, hook } = await start();
    expect((await fetch(hook, { method: 'HEAD' })).status).toBe(200);
    for (const pause of ['601', '-1', 'soon', '1e2']) expect((await fetch(`${hook}?pause=${pause}`)).status).toBe(400);
    expect((await send(gate.port, { ...makeDelivery(), agent })).headers['connection']).toBe('keep-alive');
  });

  test('delays the response to the hook for the requested pause, unless the kubelet disconnects', async () => {
    const clock = new FakeClock();
    const { gate, hook } = await start(clock);
    await fetch(hook);
    await clock.advance(4_000);
    const before = clock.timers;
    const held = fetch(`${hook}?pause=5`);
    await until(() => clock.timers > before);
    await clock.advance(5_000);
    expect((await held).status).toBe(200);
    expect(clock.timers).toBe(before);
    const gone = new AbortController();
    const left = fetch(`${hook}?pause=5`, { signal: gone.signal });
    await until(() => clock.timers > before);
    gone.abort();
    await expect(left).rejects.toThrow();
    // The end of the connections of HTTP/2 is still planned.
    await until(() => clock.timers === before + 1);
    expect(gate.log().filter(({ msg }) => msg === 'leaving')).toHaveLength(1);
  });
});

describe('a gate that remembers IDs in memory', () => {
  const hint = expect.stringMatching(
    /^event IDs are kept in the memory of this process only: with several replicas, .* set store\.redis$/,
  );

  test('reports it once at its start, with the consequence for several replicas', async () => {
    const gate = await startGate({ routes: [toRoute(1)] });
    gate.writeConfig({ routes: [toRoute(2)] });
    await until(() => gate.log().some(({ msg }) => msg === 'config_reloaded'));
    await gate.stop();
    expect(gate.log().filter(({ msg }) => msg === 'dedup_in_memory')).toMatchObject([{ level: 'warn', hint }]);
  });

  test('reports nothing if no route remembers IDs', async () => {
    const gate = await startGate({ routes: [toRoute(1, { webhook: { dedup: 'off' } })] });
    await gate.stop();
    expect(gate.logText()).not.toContain('dedup_in_memory');
  });
});
