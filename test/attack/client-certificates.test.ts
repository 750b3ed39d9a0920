import { copyFileSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer, type ServerResponse } from 'node:http';
import { type ClientHttp2Session, type ClientHttp2Stream, connect as connectHttp2 } from 'node:http2';
import { connect as connectTcp, createServer as createTcpServer, type Socket } from 'node:net';
import { join } from 'node:path';
import { type ConnectionOptions, connect, type TLSSocket } from 'node:tls';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { checkConfig } from '../../src/app/check.ts';
import { type Clock, systemClock } from '../../src/core/clock.ts';
import { makeAuthority, readPair, toTlsFiles } from '../support/certificates.ts';
import { makeFolder, startServer, useFolder, useServer } from '../support/fixtures.ts';
import { type Sections, startGate, type TestGate, until } from '../support/gate.ts';
import { PROXY_AUTH, PROXY_PASSWORD, PROXY_USER, readToEnd } from '../support/proxy.ts';
import { makeEntry } from '../support/users.ts';

const folder = useFolder();
const DAY_MS = 86_400_000;
const WISH = 'Connection: Upgrade\r\nUpgrade: websocket\r\n';

const authority = makeAuthority(folder, 'ca');
const other = makeAuthority(folder, 'other');
const local = authority.issue('local', 'DNS:localhost,IP:127.0.0.1');
const alice = authority.issue('alice', 'DNS:alice.example');
const bob = authority.issue('bob', 'DNS:bob.example');
const stranger = other.issue('stranger', 'DNS:stranger.example');
const list = join(folder, 'list.pem');
const withoutRevoked = authority.list(list);
const expiredList = authority.list(list, '-crl_lastupdate', '20200101000000Z', '-crl_nextupdate', '20200102000000Z');
authority.revoke(alice);
const withAlice = authority.list(list);
const listOfOther = other.list(list);

let held: ServerResponse | undefined;
let requests: string[];
let gate: TestGate;
/** How far the gate's wall clock is ahead of the real one, and whether it runs what is due at intervals. */
let ahead: number;
let isTicking: boolean;
const clock: Clock = {
  ...systemClock,
  now: () => systemClock.now() + ahead,
  every: (interval, action) => systemClock.every(interval, () => (isTicking ? action() : undefined)),
};

const server = createServer((request, response) => {
  requests.push(request.url ?? '');
  if (request.url === '/held') held = response;
  else response.end('hello');
});
server.on('upgrade', (_request, socket: Socket) => {
  socket.on('error', () => socket.destroy());
  socket.write('HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n');
  socket.pipe(socket);
});
const app = useServer(server);
beforeEach(() => {
  ahead = 0;
  isTicking = true;
  held = undefined;
  requests = [];
});
afterEach(() => gate.stop());

const start = async (tls: Sections = {}, crl = withoutRevoked, sections: Sections = {}): Promise<void> => {
  const upstream = `http://127.0.0.1:${app.port}`;
  const port = { certFile: 'tls.crt', keyFile: 'tls.key', clientCaFile: 'clients.crt', clientCrlFile: 'clients.crl', ...tls };
  gate = await startGate(
    {
      listen: { address: '127.0.0.1:0', tls: { clientCertificate: 'request', ...port } },
      proxy: {
        address: '127.0.0.1:0',
        tls: port,
        denyPrivate: false,
        basic: { realm: 'egress', users: { file: 'users' } },
        allow: [`127.0.0.1:${app.port}`],
      },
      routes: [
        { name: 'open', match: { pathPrefix: '/open' }, upstream, allow: 'anyone' },
        { name: 'staff', match: { pathPrefix: '/' }, upstream, clientCertificate: {} },
      ],
      ...sections,
    },
    clock,
    {
      users: makeEntry(PROXY_USER, PROXY_PASSWORD),
      ...toTlsFiles(local),
      'clients.crt': readFileSync(authority.ca, 'utf8'),
      'clients.crl': crl,
    },
  );
};
const count = (msg: string): number => gate.log().filter((line) => line['msg'] === msg).length;
/** Writes a file and waits until both ports have reloaded it. */
const reload = async (name: string, text: string | Buffer): Promise<void> => {
  const before = count('tls_reloaded');
  writeFileSync(join(gate.folder, name), text);
  await until(() => count('tls_reloaded') >= before + 2);
};
const open = (options: ConnectionOptions = readPair(alice), port = gate.port): Promise<TLSSocket> =>
  new Promise((resolve, reject) => {
    const base = { port, host: '127.0.0.1', ca: readFileSync(authority.ca), servername: 'localhost' };
    const socket = connect({ ...base, ...options }, () => resolve(socket));
    socket.on('error', reject);
    // A reset right behind the last response would throw that away.
    socket.on('error', () => socket.destroy());
  });
const toHead = (path: string, fields = ''): string => `GET ${path} HTTP/1.1\r\nHost: localhost\r\n${fields}\r\n`;
const ask = async (socket: Socket, path: string, fields?: string): Promise<string> => {
  socket.write(toHead(path, fields));
  return String(await new Promise((resolve) => socket.once('data', resolve)));
};
const statusOf = async (options: ConnectionOptions, path = '/'): Promise<number> => {
  const socket = await open(options);
  const text = await ask(socket, path, 'Connection: close\r\n');
  socket.destroy();
  return Number(text.slice('HTTP/1.1 '.length).slice(0, 3));
};
const closed = (socket: Socket): Promise<unknown> =>
  new Promise((resolve) => {
    socket.resume();
    if (socket.destroyed) resolve(undefined);
    else socket.once('close', resolve);
  });
const decided = (reason: string): Promise<number> =>
  gate.metric(`sidegate_auth_decisions_total{route="staff",scheme="none",decision="deny",reason="${reason}"}`);

const ENDS: readonly [string, string, () => unknown][] = [
  [
    'expires',
    'certificate_expired',
    () => {
      ahead = 3 * DAY_MS;
    },
  ],
  ['is revoked', 'client_trust_changed', () => reload('clients.crl', withAlice)],
  ['loses its CA', 'client_trust_changed', () => reload('clients.crt', readFileSync(other.ca))],
];

describe.each(ENDS)('when a client certificate %s, the gate', (_what, reason, end) => {
  beforeEach(() => start());

  test('closes its idle connections, and no connection of other clients', async () => {
    const socket = await open();
    const anonymous = await open({});
    expect(await ask(socket, '/')).toContain('200 OK');
    expect(await ask(anonymous, '/open')).toContain('200 OK');
    await end();
    await closed(socket);
    expect(await ask(anonymous, '/open')).toContain('200 OK');
    anonymous.destroy();
  });

  test('finishes the current response, and never passes on the next pipelined request', async () => {
    const socket = await open();
    socket.write(toHead('/held'));
    const response = await until(() => held);
    await end();
    isTicking = false;
    socket.write(toHead('/behind'));
    const all = readToEnd(socket);
    response.end('done');
    const text = await all;
    expect(text).toMatch(/^HTTP\/1\.1 200 OK\r\n[^]*done/);
    // The connection ends after the response that was pending when the gate noticed: before the next request, or after its rejection.
    const rejected = await decided(reason);
    expect([...text.matchAll(/HTTP\/1\.1 (\d+)/g)].map(([, status]) => status)).toEqual(
      rejected === 0 ? ['200'] : ['200', '403'],
    );
    expect(requests).toEqual(['/held']);
  });

  test('lets the streams of an HTTP/2 session finish, and accepts no new ones', async () => {
    const session: ClientHttp2Session = connectHttp2(`https://localhost:${gate.port}`, {
      ca: readFileSync(authority.ca),
      ...readPair(alice),
    });
    session.on('error', () => session.destroy());
    const stream = session.request({ ':path': '/held' });
    const response = await until(() => held);
    await end();
    const status = (each: ClientHttp2Stream): Promise<unknown> =>
      new Promise((resolve) => {
        each.once('response', (headers) => resolve(headers[':status']));
        each.once('error', () => resolve('error'));
        each.once('close', () => resolve('closed'));
        each.resume();
      });
    if (!session.closed) expect([403, 'error', 'closed']).toContain(await status(session.request({ ':path': '/behind' })));
    response.end('done');
    expect(await status(stream)).toBe(200);
    await until(() => session.destroyed);
    expect(requests).toEqual(['/held']);
  });

  test('ends its WebSockets', async () => {
    const socket = await open();
    expect(await ask(socket, '/', WISH)).toContain('101 Switching Protocols');
    await end();
    await closed(socket);
  });

  test('ends its tunnels', async () => {
    const socket = await open(readPair(alice), gate.proxyPort);
    socket.write(`CONNECT 127.0.0.1:${app.port} HTTP/1.1\r\nHost: 127.0.0.1:${app.port}\r\n${PROXY_AUTH}\r\n`);
    expect(String(await new Promise((resolve) => socket.once('data', resolve)))).toContain('200 Connection established');
    expect(await ask(socket, '/')).toContain('hello');
    await end();
    await closed(socket);
  });

  test('closes its keep-alive connections to the forward proxy', async () => {
    const socket = await open(readPair(alice), gate.proxyPort);
    expect(await ask(socket, `http://127.0.0.1:${app.port}/`, PROXY_AUTH)).toContain('200 OK');
    await end();
    await closed(socket);
  });
});

test('the API of the sending side closes the kept connection of a client that is revoked, and rejects an expired one', async () => {
  const tls = { certFile: 'tls.crt', keyFile: 'tls.key', clientCaFile: 'clients.crt', clientCrlFile: 'clients.crl' };
  await start({}, withoutRevoked, {
    provider: { address: '127.0.0.1:0', tls, queue: { sqlite: { path: join(makeFolder(), 'queue.db') } }, endpoints: [] },
  });
  const socket = await open(readPair(alice), gate.providerPort);
  expect(await ask(socket, '/v1/endpoints')).toContain('200 OK');
  await reload('clients.crl', withAlice);
  await closed(socket);
  const other = await open(readPair(bob), gate.providerPort);
  expect(await ask(other, '/v1/endpoints')).toContain('200 OK');
  ahead = 3 * DAY_MS;
  other.write(toHead('/v1/endpoints'));
  expect(await readToEnd(other)).not.toContain('200 OK');
});

describe('a certificate that expires on a kept connection', () => {
  beforeEach(async () => {
    await start();
    isTicking = false;
  });

  test('is rejected at the next request, which ends the connection', async () => {
    const socket = await open();
    expect(await ask(socket, '/')).toContain('200 OK');
    ahead = 3 * DAY_MS;
    socket.write(toHead('/after') + toHead('/behind'));
    const text = await readToEnd(socket);
    expect(text).toMatch(/^HTTP\/1\.1 403 Forbidden\r\n/);
    expect(text).toContain('Connection: close');
    expect(text.match(/HTTP\/1\.1 /g)).toHaveLength(1);
    expect(requests).toEqual(['/']);
    expect(await decided('certificate_expired')).toBe(1);
  });

  test('is also rejected if the clock goes back to before the certificate is valid', async () => {
    const socket = await open();
    expect(await ask(socket, '/')).toContain('200 OK');
    ahead = -3 * DAY_MS;
    expect(await ask(socket, '/')).toContain('403 Forbidden');
  });

  test('cannot open a WebSocket', async () => {
    const socket = await open();
    expect(await ask(socket, '/')).toContain('200 OK');
    ahead = 3 * DAY_MS;
    expect(await ask(socket, '/', WISH)).toContain('403 Forbidden');
  });

  test('does not close routes without client certificates, but ends the connection', async () => {
    const socket = await open();
    expect(await ask(socket, '/open')).toContain('200 OK');
    ahead = 3 * DAY_MS;
    const text = await ask(socket, '/open');
    expect(text).toContain('200 OK');
    expect(text).toContain('Connection: close');
  });

  test('is rejected by the forward proxy, for requests and tunnels', async () => {
    for (const line of [`GET http://127.0.0.1:${app.port}/late`, `CONNECT 127.0.0.1:${app.port}`]) {
      ahead = 0;
      const socket = await open(readPair(alice), gate.proxyPort);
      expect(await ask(socket, `http://127.0.0.1:${app.port}/`, PROXY_AUTH)).toContain('200 OK');
      ahead = 3 * DAY_MS;
      socket.write(`${line} HTTP/1.1\r\nHost: 127.0.0.1:${app.port}\r\n${PROXY_AUTH}\r\n`);
      expect(await readToEnd(socket)).toContain('403 Forbidden');
    }
    expect(requests).not.toContain('/late');
  });
});

test('rejects every request of an expired certificate on a port that requires one, also on open routes', async () => {
  await start({ clientCertificate: 'require' });
  isTicking = false;
  const socket = await open();
  expect(await ask(socket, '/open')).toContain('200 OK');
  ahead = 3 * DAY_MS;
  expect(await ask(socket, '/open')).toContain('403 Forbidden');
  await closed(socket);
});

describe('a TLS session', () => {
  const resume = async (maxVersion: 'TLSv1.2' | 'TLSv1.3', port: number): Promise<TLSSocket> => {
    const first = await open({ ...readPair(alice), maxVersion }, port);
    let session: Buffer | undefined = first.getSession();
    first.on('session', (ticket: Buffer) => {
      session = ticket;
    });
    if (port === gate.port) expect(await ask(first, '/')).toContain('200 OK');
    first.destroy();
    return open({ session, maxVersion, ...(port === gate.port ? {} : readPair(alice)) }, port);
  };

  test.each(['TLSv1.2', 'TLSv1.3'] as const)('of %s is never resumed if the client presented a certificate', async (version) => {
    await start();
    for (const port of [gate.port, gate.proxyPort]) {
      const again = await resume(version, port);
      expect(again.isSessionReused()).toBe(false);
      if (port === gate.port) expect(await ask(again, '/')).toContain('403 Forbidden');
      again.destroy();
    }
  });
});

test('ends a connection whose handshake began before the certificate was revoked', async () => {
  await start();
  /** Passes on the client's first flight, and the one with its certificate only when told to. */
  let release = (): void => undefined;
  const relay = createTcpServer((near) => {
    const far = connectTcp(gate.port, '127.0.0.1');
    near.on('error', () => far.destroy());
    far.on('error', () => near.destroy());
    far.pipe(near);
    near.once('data', (hello: Buffer) => {
      far.write(hello);
      near.pause();
      release = () => near.pipe(far);
    });
  });
  const handshake = open({ ...readPair(alice), maxVersion: 'TLSv1.3' }, await startServer(relay));
  // In TLS 1.3 the client is done with its own flight, which the relay holds.
  const socket = await handshake;
  await reload('clients.crl', withAlice);
  release();
  socket.write(toHead('/'));
  await closed(socket);
  expect(requests).toEqual([]);
});

describe('a revocation list', () => {
  test('rejects the certificates it lists, in every version of TLS, with and without a server name', async () => {
    await start({}, withAlice);
    for (const maxVersion of ['TLSv1.2', 'TLSv1.3'] as const)
      for (const servername of ['localhost', ''])
        for (const [pair, status] of [
          [alice, 403],
          [bob, 200],
        ] as const)
          expect(await statusOf({ ...readPair(pair), maxVersion, servername, checkServerIdentity: () => undefined })).toBe(
            status,
          );
    expect(await statusOf(readPair(alice), '/open')).toBe(200);
  });

  test('ends the handshake on a port that requires certificates', async () => {
    await start({ clientCertificate: 'require' }, withAlice);
    const socket = await open(readPair(alice)).catch(() => undefined);
    socket?.write(toHead('/open'));
    if (socket !== undefined) await closed(socket);
    expect(requests).toEqual([]);
    expect(await statusOf(readPair(bob))).toBe(200);
  });

  test('rejects all clients of its CA once it has expired, and reports it', async () => {
    await start({}, expiredList);
    expect(await statusOf(readPair(bob))).toBe(403);
    expect(await gate.metric('sidegate_client_crl_next_update_timestamp_seconds{section="listen.tls"}')).toBe(
      Date.UTC(2020, 0, 2) / 1000,
    );
    expect(await checkConfig(gate.file, systemClock)).toContainEqual(
      expect.objectContaining({
        severity: 'warning',
        path: 'listen.tls.clientCrlFile',
        message: expect.stringContaining('expired on 2020-01-02'),
      }),
    );
    await reload('clients.crl', withAlice);
    expect(await statusOf(readPair(bob))).toBe(200);
    await reload('clients.crl', expiredList);
    expect(gate.log().findLast(({ msg }) => msg === 'tls_warning')).toMatchObject({ level: 'warn' });
  });

  test('is required for each CA, in any order within one file', async () => {
    const both = Buffer.concat([readFileSync(other.ca), readFileSync(authority.ca)]);
    await start({}, withAlice);
    await reload('clients.crt', both);
    expect([await statusOf(readPair(bob)), await statusOf(readPair(stranger))]).toEqual([200, 403]);
    expect(await checkConfig(gate.file, systemClock)).toContainEqual(
      expect.objectContaining({ severity: 'warning', message: 'the file contains no list of the CA "CN=other"' }),
    );
    for (const lists of [withAlice + listOfOther, `${listOfOther}text between\r\n${withAlice}`]) {
      await reload('clients.crl', lists);
      expect([await statusOf(readPair(alice)), await statusOf(readPair(bob)), await statusOf(readPair(stranger))]).toEqual([
        403, 200, 200,
      ]);
    }
  });

  test('rejects all clients if another CA of the same name signed it', async () => {
    const copies = makeFolder();
    await start({}, makeAuthority(copies, 'ca').list(join(copies, 'list.pem')));
    expect(await statusOf(readPair(bob))).toBe(403);
  });

  test.each([
    ['is empty', () => ''],
    ['is cut off', () => withAlice.slice(0, -40)],
    ['has a second list that is cut off', () => withAlice + listOfOther.slice(0, -60)],
    ['is not base64', () => withAlice.replace(/\n[^-]+\n/, '\n!!!!\n')],
    ['holds a certificate', () => readFileSync(authority.ca)],
    ['is DER', () => Buffer.from(withAlice.replace(/-----[^-]+-----/g, ''), 'base64')],
  ])('that %s is an error, and the previous list stays in use', async (_what, toText) => {
    await start({}, withAlice);
    writeFileSync(join(gate.folder, 'clients.crl'), toText());
    await until(() => count('tls_reload_failed') > 0);
    expect([await statusOf(readPair(alice)), await statusOf(readPair(bob))]).toEqual([403, 200]);
    expect(await checkConfig(gate.file, systemClock)).toContainEqual(
      expect.objectContaining({
        severity: 'error',
        path: 'listen.tls.clientCrlFile',
        hint: expect.stringContaining('openssl crl'),
      }),
    );
  });

  test('without client CAs is an error', async () => {
    await start();
    gate.writeConfig({
      listen: { tls: { certFile: 'tls.crt', keyFile: 'tls.key', clientCrlFile: 'clients.crl' } },
      routes: [{ name: 'open', match: { path: '/' }, upstream: 'http://127.0.0.1:3000', allow: 'anyone' }],
    });
    expect(await checkConfig(gate.file, systemClock)).toContainEqual(
      expect.objectContaining({
        severity: 'error',
        path: 'listen.tls.clientCrlFile',
        hint: 'set listen.tls.clientCaFile, or remove this key',
      }),
    );
  });
});

test('applies a list that changed together with the config', async () => {
  await start();
  const socket = await open();
  expect(await ask(socket, '/')).toContain('200 OK');
  writeFileSync(join(gate.folder, 'clients.crl'), withAlice);
  gate.writeConfig({ ...gate.sections, log: {} });
  await gate.gate.reload();
  await closed(socket);
  expect(await statusOf(readPair(alice))).toBe(403);
});

test('leaves connections open if only the server certificate was renewed', async () => {
  await start();
  const socket = await open();
  expect(await ask(socket, '/')).toContain('200 OK');
  const renewed = authority.issue('renewed', 'DNS:localhost,IP:127.0.0.1');
  copyFileSync(renewed.key, join(gate.folder, 'tls.key'));
  await reload('tls.crt', readFileSync(renewed.cert));
  expect(await ask(socket, '/')).toContain('200 OK');
  socket.destroy();
});
