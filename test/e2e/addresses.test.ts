import { spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { request as openRequest } from 'node:http';
import { connect as connectHttp2 } from 'node:http2';
import { request as openTlsRequest } from 'node:https';
import { connect, type Socket } from 'node:net';
import { join } from 'node:path';
import { connect as connectTls } from 'node:tls';
import { afterEach, describe, expect, test } from 'vitest';
import { stringify } from 'yaml';
import { toTlsFiles } from '../support/certificates.ts';
import { type Delivery, makeDelivery } from '../support/deliveries.ts';
import { useApp, useAuthority, useFolder } from '../support/fixtures.ts';
import { findFreePort } from '../support/free-port.ts';
import { type Sections, startGate, toRoute, until } from '../support/gate.ts';
import { LAUNCHER, startGateProcess } from '../support/process.ts';
import { readToEnd } from '../support/proxy.ts';

const HOSTS = ['127.0.0.2', '127.0.0.3', '::1'];
const LISTEN = '127.0.0.2,127.0.0.3,::1:0';
const { upstream: _upstream, ...HOMELESS } = toRoute(0);
const folder = useFolder();
const closers: (() => unknown)[] = [];
const authority = useAuthority();
const pair = authority.issue('local', 'DNS:localhost,IP:127.0.0.2,IP:127.0.0.3,IP:::1');
const ca = readFileSync(authority.ca);
const app = useApp();

afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

/** Delivers on a connection of its own; the status. */
function deliver(host: string, port: number, { headers, body }: Delivery = makeDelivery()): Promise<number> {
  return new Promise((resolve, reject) => {
    const outgoing = openRequest({ host, port, method: 'POST', path: '/hooks/billing', headers, agent: false }, (incoming) => {
      incoming.resume();
      incoming.on('end', () => resolve(incoming.statusCode ?? 0));
    });
    outgoing.on('error', reject);
    outgoing.end(body);
  });
}

async function startProcess(sections: Sections, args: readonly string[]) {
  const gate = await startGateProcess(sections, args);
  closers.push(async () => {
    gate.child.kill('SIGKILL');
    await gate.exit;
  });
  return gate;
}

async function start(sections: Sections = {}) {
  const gate = await startGate(
    { ...sections, listen: { address: LISTEN, ...(sections['listen'] as Sections) }, routes: [toRoute(app.port)] },
    undefined,
    toTlsFiles(pair),
  );
  closers.push(() => gate.stop());
  return gate;
}

async function open(host: string, port: number): Promise<Socket> {
  const socket = connect(port, host);
  closers.push(() => socket.destroy());
  socket.on('error', () => undefined);
  await new Promise((resolve) => socket.once('connect', resolve));
  return socket;
}

const isRefused = (host: string, port: number): Promise<boolean> =>
  new Promise((resolve) => {
    const socket = connect(port, host);
    socket.once('connect', () => {
      socket.destroy();
      resolve(false);
    });
    socket.once('error', () => resolve(true));
  });

describe('a gate with listen addresses on its command line', () => {
  test('serves on each address, logs each, and keeps them after a reload', async () => {
    const args = ['--listen', LISTEN, '--admin', ':0', '--upstream', `http://127.0.0.1:${app.port}`];
    const gate = await startProcess({ listen: { address: '127.0.0.1:1' }, routes: [HOMELESS] }, args);
    const line = gate.log().find(({ msg }) => msg === 'listening');
    expect(line?.['addresses']).toEqual([`127.0.0.2:${gate.port}`, `127.0.0.3:${gate.port}`, `[::1]:${gate.port}`]);
    expect(line?.['adminAddress']).toBe('::');
    for (const host of HOSTS) expect(await deliver(host, gate.port)).toBe(200);
    // Not 127.0.0.1, where another test may use the same port.
    expect(await isRefused('127.0.0.4', gate.port)).toBe(true);
    for (const host of ['127.0.0.1', '[::1]']) expect((await fetch(`http://${host}:${gate.adminPort}/readyz`)).status).toBe(200);

    const routes = [{ ...HOMELESS, match: { pathPrefix: '/hooks' } }];
    writeFileSync(gate.file, stringify({ listen: { address: '127.0.0.1:2' }, shutdown: { grace: '0ms' }, routes }));
    await until(() => gate.log().some(({ msg }) => msg === 'config_reloaded'));
    for (const host of HOSTS) expect(await deliver(host, gate.port)).toBe(200);
    gate.child.kill('SIGTERM');
    expect(await gate.exit).toBe(0);
  });

  test('reports which flag is wrong', () => {
    const file = join(folder, 'homeless.yaml');
    writeFileSync(file, stringify({ routes: [HOMELESS] }));
    for (const command of ['run', 'check']) {
      const args = [
        LAUNCHER,
        command,
        '--config',
        file,
        '--listen',
        '$(SIDEGATE_POD_IPS):80',
        '--upstream',
        'http://127.0.0.1:1',
      ];
      const { status, stdout, stderr } = spawnSync(process.execPath, args, { encoding: 'utf8' });
      expect(status).toBe(1);
      expect(stdout + stderr).toContain('--listen: error listen.address: "$(SIDEGATE_POD_IPS)" is not a host name or IP address');
    }
  });

  test('reports an address of another machine, and a port in use', async () => {
    const file = join(folder, 'homeless.yaml');
    writeFileSync(join(folder, 'secret'), 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw');
    writeFileSync(file, stringify({ routes: [HOMELESS] }));
    const run = (listen: string): string =>
      spawnSync(
        process.execPath,
        [LAUNCHER, 'run', '--config', file, '--admin', '127.0.0.1:0', '--upstream', 'http://127.0.0.1:1', '--listen', listen],
        { encoding: 'utf8' },
      ).stderr;
    expect(run('127.0.0.2,192.0.2.1:0')).toMatch(
      /^sidegate: cannot listen on 192.0.2.1: this machine does not have that address/,
    );
    expect(run(`127.0.0.2,127.0.0.1:${app.port}`)).toMatch(new RegExp(`^sidegate: 127.0.0.1:${app.port} is in use`));
  });
});

describe('the app and the gate on one port', () => {
  test('run side by side, the app on loopback and the gate on the addresses of the pod', async () => {
    const args = ['--listen', `127.0.0.2,::1:${app.port}`, '--upstream', `http://127.0.0.1:${app.port}`];
    const gate = await startProcess({ routes: [HOMELESS] }, args);
    expect(gate.port).toBe(app.port);
    const deliveries = [makeDelivery(), makeDelivery()];
    expect(await deliver('127.0.0.2', app.port, deliveries[0])).toBe(200);
    expect(await deliver('::1', app.port, deliveries[1])).toBe(200);
    expect(app.received.map(({ headers }) => headers['sidegate-route'])).toEqual(['billing', 'billing']);
    const forged = { ...makeDelivery(), body: Buffer.from('forged') };
    expect(await deliver('127.0.0.2', app.port, forged)).toBe(401);
    expect(app.received).toHaveLength(2);
  });
});

describe('each of several addresses', () => {
  test('supports TLS, HTTP/1.1 and HTTP/2', async () => {
    const gate = await start({ listen: { tls: { certFile: 'tls.crt', keyFile: 'tls.key' } } });
    for (const host of HOSTS) {
      const { headers, body } = makeDelivery();
      const status = await new Promise<number | undefined>((resolve, reject) => {
        const options = { host, port: gate.port, method: 'POST', path: '/hooks/billing', headers, ca, agent: false };
        openTlsRequest(options, (incoming) => {
          incoming.resume();
          incoming.on('end', () => resolve(incoming.statusCode));
        })
          .on('error', reject)
          .end(body);
      });
      expect(status).toBe(200);
      const session = connectHttp2(`https://${host.includes(':') ? `[${host}]` : host}:${gate.port}`, { ca });
      closers.push(() => session.destroy());
      const second = makeDelivery();
      const stream = session.request({
        ':method': 'POST',
        ':authority': 'localhost',
        ':path': '/hooks/billing',
        ...second.headers,
      });
      stream.end(second.body);
      expect(await new Promise((resolve) => stream.once('response', (fields) => resolve(fields[':status'])))).toBe(200);
      session.close();
    }
    expect(app.received).toHaveLength(HOSTS.length * 2);
  });

  test.each([
    ['in clear text', undefined],
    ['with TLS', { certFile: 'tls.crt', keyFile: 'tls.key' }],
  ])('supports the PROXY protocol %s, and distinguishes connections from the same remote address and port', async (_, tls) => {
    const gate = await start({ listen: { proxyProtocol: { from: ['127.0.0.9'] }, ...(tls && { tls }) } });
    const localPort = await findFreePort();
    const answers = ['127.0.0.2', '127.0.0.3'].map(async (host, index) => {
      const socket = connect({ host, port: gate.port, localAddress: '127.0.0.9', localPort });
      closers.push(() => socket.destroy());
      await new Promise((resolve, reject) => {
        socket.once('connect', resolve);
        socket.once('error', reject);
      });
      socket.write(`PROXY TCP4 192.0.2.${index + 1} 10.0.0.1 56324 443\r\n`);
      return { socket, host };
    });
    for (const [index, { socket, host }] of (await Promise.all(answers)).entries()) {
      const stream = tls === undefined ? socket : connectTls({ socket, ca, host });
      const { headers, body } = makeDelivery();
      const fields = Object.entries(headers).map(([name, value]) => `${name}: ${value}\r\n`);
      stream.write(
        `POST /hooks/billing HTTP/1.1\r\nHost: a\r\nConnection: close\r\n${fields.join('')}Content-Length: ${body.length}\r\n\r\n${body}`,
      );
      expect(await readToEnd(stream)).toMatch(/^HTTP\/1\.1 200 /);
      expect(app.received[index]?.headers['x-forwarded-for']).toBe(`192.0.2.${index + 1}`);
    }
  });

  test('is closed at once when the gate drains, and its requests in progress are finished', async () => {
    const gate = await startGate({
      listen: { address: LISTEN },
      shutdown: { grace: '0ms', drain: '5s' },
      routes: [toRoute(app.port)],
    });
    const finish: (() => void)[] = [];
    app.handler = (_request, response) => void finish.push(() => response.end('late but whole'));
    const slow = HOSTS.map((host) => deliver(host, gate.port));
    const idle = await Promise.all(HOSTS.map((host) => open(host, gate.port)));
    const closed = idle.map(readToEnd);
    await until(() => app.received.length === HOSTS.length);
    const stopped = gate.stop();
    await until(() => isRefused('127.0.0.2', gate.port));
    for (const host of HOSTS) expect(await isRefused(host, gate.port)).toBe(true);
    for (const each of finish) each();
    expect(await Promise.all(slow)).toEqual([200, 200, 200]);
    expect(await stopped).toBe(true);
    expect(await Promise.all(closed)).toEqual(['', '', '']);
  });

  test('shares one limit on connections', async () => {
    const gate = await startGate({
      listen: { address: LISTEN },
      limits: { maxConnections: 2 },
      routes: [toRoute(app.port)],
    });
    closers.push(() => gate.stop());
    const first = await open('127.0.0.2', gate.port);
    await until(async () => (await gate.metric('sidegate_connections')) === 1);
    await open('::1', gate.port);
    await until(async () => (await gate.metric('sidegate_connections')) === 2);
    await open('127.0.0.3', gate.port);
    // The newcomer replaces the connection that has been idle for longest, on whichever address that came in.
    expect(await readToEnd(first)).toBe('');
    expect(await gate.metric('sidegate_limit_hits_total{limit="connections"}')).toBe(1);
  });
});
