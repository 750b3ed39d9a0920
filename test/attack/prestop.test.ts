import { spawn } from 'node:child_process';
import { request } from 'node:http';
import { networkInterfaces } from 'node:os';
import { afterEach, describe, expect, test } from 'vitest';
import { injectPod } from '../../src/kubernetes/injector/inject.ts';
import { toSidecarDefaults } from '../../src/kubernetes/injector/injector-config.ts';
import { isRaw } from '../../src/kubernetes/injector/raw.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { startGate, type TestGate, toRoute, until } from '../support/gate.ts';

const ADMIN = { address: '0.0.0.0:0' };
const OUTSIDE = Object.values(networkInterfaces())
  .flatMap((addresses) => addresses ?? [])
  .find(({ family, internal }) => family === 'IPv4' && !internal)?.address;
let gate: TestGate;
let clock: FakeClock;
afterEach(async () => {
  const stopped = gate.stop();
  await clock.advance(5_000);
  await stopped;
});

async function start(admin: Record<string, unknown> = ADMIN): Promise<void> {
  clock = new FakeClock();
  gate = await startGate({ admin, routes: [toRoute(1)] }, clock);
}

const countLeaving = (): number => gate.log().filter(({ msg }) => msg === 'leaving').length;

describe('/prestop', () => {
  test.skipIf(OUTSIDE === undefined)('rejects clients that are not on loopback, and closes no connections for them', async () => {
    await start();
    const hook = `http://${OUTSIDE}:${gate.adminPort}/prestop`;
    for (const [path, method] of [
      ['', 'GET'],
      ['?pause=600', 'GET'],
      ['?pause=wrong', 'GET'],
      ['', 'HEAD'],
    ])
      expect((await fetch(hook + path, { method: method as string })).status).toBe(403);
    // The kubelet's own way of asking proves nothing: anyone can send it.
    expect((await fetch(hook, { headers: { 'User-Agent': 'kube-probe/1.36', 'X-Forwarded-For': '127.0.0.1' } })).status).toBe(
      403,
    );
    expect(countLeaving()).toBe(0);
    expect(await gate.metric('sidegate_admin_denied_total{reason="not_loopback"}')).toBe(5);
  });

  test.skipIf(OUTSIDE === undefined)('and every other endpoint reject what a mesh forwards from another pod', async () => {
    await start();
    // As Istio's proxy does: from an address of loopback to the pod's own.
    const ask = (method: string, path: string): Promise<number | undefined> =>
      new Promise((done, fail) => {
        const to = { host: OUTSIDE, port: gate.adminPort, localAddress: '127.0.0.6', method, path, agent: false };
        request(to, (response) => done(response.resume().statusCode))
          .once('error', fail)
          .end();
      });
    for (const path of ['/prestop', '/journal', '/keys', '/captures', '/api/v1/deliveries'])
      expect([path, await ask('GET', path)]).toEqual([path, 403]);
    expect(await ask('POST', '/routes/billing/forget')).toBe(403);
    expect(await ask('GET', '/healthz')).toBe(200);
    expect(countLeaving()).toBe(0);
  });

  test('holds at most four requests at once', async () => {
    await start();
    const hook = `http://127.0.0.1:${gate.adminPort}/prestop?pause=600`;
    const before = clock.timers;
    const stop = new AbortController();
    const held = Array.from({ length: 4 }, () => fetch(hook, { signal: stop.signal }).catch(() => undefined));
    // Two of the timers end HTTP/2 connections, and the time in which connections are closed.
    await until(() => clock.timers === before + 6);
    expect((await fetch(hook)).status).toBe(503);
    expect((await fetch(`http://127.0.0.1:${gate.adminPort}/prestop`)).status).toBe(200);
    stop.abort();
    await Promise.all(held);
    await until(() => clock.timers === before + 2);
  });
});

describe('the injected preStop hook', () => {
  const toCommand = (port: number, preStop: number): string[] => {
    const defaults = { ...toSidecarDefaults('sidegate:1'), mode: 'container' as const, adminPort: port, preStop };
    const pod = {
      metadata: { labels: { 'sidegate.dev/inject': 'true' }, annotations: { 'sidegate.dev/config': 'gate' } },
      spec: { containers: [{ name: 'app', image: 'app:1', ports: [{ containerPort: 3000 }] }] },
    };
    const kube = { major: 1, minor: 34 };
    const injection = injectPod(pod, { defaults, version: '1', kube, namespace: 'shop' });
    const [sidecar] = (injection.outcome === 'injected' ? injection.patch : []).flatMap((operation) =>
      'value' in operation && isRaw(operation.value) && 'image' in operation.value ? [operation.value] : [],
    ) as unknown as { lifecycle: { preStop: { exec: { command: string[] } } } }[];
    return sidecar?.lifecycle.preStop.exec.command ?? [];
  };
  const run = (command: readonly string[]): Promise<number | null> => {
    const [program = '', ...args] = command;
    return new Promise((done) => spawn(program, args, { stdio: 'ignore' }).once('exit', done));
  };

  test.each([
    ['without a token', ADMIN],
    ['with a token, which it does not have', { ...ADMIN, token: { secret: { env: 'PRESTOP_TOKEN' } } }],
  ])('reaches the gate over loopback, %s', async (_title, admin) => {
    process.env['PRESTOP_TOKEN'] = 'a-token-of-the-admin-port';
    await start(admin);
    expect(await run(toCommand(gate.adminPort, 0))).toBe(0);
    expect(countLeaving()).toBe(1);
  });

  test('lasts as long as the pause', async () => {
    await start();
    let code: number | null | undefined;
    const before = clock.timers;
    void run(toCommand(gate.adminPort, 5)).then((ended) => {
      code = ended;
    });
    await until(() => clock.timers === before + 3);
    await clock.advance(4_999);
    expect(code).toBeUndefined();
    await clock.advance(1);
    await until(() => code !== undefined);
    expect(code).toBe(0);
  });

  test('fails if nothing listens, instead of reporting success', async () => {
    await start();
    expect(await run(toCommand(1, 0))).not.toBe(0);
  });
});
