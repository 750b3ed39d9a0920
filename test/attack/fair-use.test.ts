/** Attacks that hold what valid deliveries need: connections, places, streams. While each holds, valid deliveries get 200. */
import { readFileSync } from 'node:fs';
import { createServer, type ServerResponse } from 'node:http';
import { type ClientHttp2Session, connect as connectHttp2 } from 'node:http2';
import { request as openTlsRequest } from 'node:https';
import { connect, type Socket } from 'node:net';
import { type ConnectionOptions, connect as connectTls } from 'node:tls';
import { afterEach, describe, expect, test } from 'vitest';
import type { Clock } from '../../src/core/clock.ts';
import { holdResponses } from '../support/app.ts';
import { toTlsFiles } from '../support/certificates.ts';
import { type Answer, send } from '../support/client.ts';
import { makeDelivery } from '../support/deliveries.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { useApp, useAuthority, useServer } from '../support/fixtures.ts';
import { type Sections, startGate, type TestGate, toRoute, until } from '../support/gate.ts';
import { readToEnd } from '../support/proxy.ts';
import { makeEntry, toBasic } from '../support/users.ts';

const ATTACKER = '127.0.0.66';
const app = useApp();
const authority = useAuthority();
const files = { ...toTlsFiles(authority.issue('local', 'DNS:localhost,IP:127.0.0.1')), users: makeEntry('a', 'b') };
const sockets: Socket[] = [];
const sessions: ClientHttp2Session[] = [];
let gate: TestGate;
let fakeClock: FakeClock | undefined;

afterEach(async () => {
  for (const session of sessions.splice(0)) session.destroy();
  for (const socket of sockets.splice(0)) socket.destroy();
  const stopped = gate.stop();
  await fakeClock?.advance(60_000);
  fakeClock = undefined;
  await stopped;
});

async function start(sections: Sections, clock?: Clock): Promise<void> {
  const open = { name: 'open', match: { pathPrefix: '/' }, upstream: `http://127.0.0.1:${app.port}`, allow: 'anyone' };
  const shutdown = { grace: '0ms', drain: '100ms' };
  gate = await startGate({ shutdown, routes: [toRoute(app.port), open], ...sections }, clock, files);
}

/** Opens a connection that says `text` and no more. */
async function hold(port: number, text: string, localAddress = ATTACKER): Promise<Socket> {
  const socket = connect({ port, host: '127.0.0.1', localAddress });
  sockets.push(socket);
  // Flowing, or it would not notice its end.
  socket.on('error', () => undefined).resume();
  await new Promise<void>((resolve) => {
    socket.once('connect', resolve);
    socket.once('close', () => resolve());
  });
  if (text !== '') socket.write(text);
  return socket;
}

/** In batches: the system holds 511 connections that nobody has accepted yet, and the rest would try again seconds later. */
async function holdMany(count: number, text: string, port = gate.port): Promise<Socket[]> {
  const held: Socket[] = [];
  while (held.length < count) {
    const batch = Math.min(100, count - held.length);
    held.push(...(await Promise.all(Array.from({ length: batch }, () => hold(port, text)))));
  }
  return held;
}

const countOpen = (held: readonly Socket[]): number => held.filter(({ destroyed }) => !destroyed).length;
const limitHits = (limit: string): Promise<number> => gate.metric(`sidegate_limit_hits_total{limit="${limit}"}`);
const deliver = async (): Promise<number> => (await send(gate.port, makeDelivery())).status;

const SLOW_UPLOAD = 'POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\n\r\n';

describe('serves valid deliveries while one client', () => {
  test('repeats a captured delivery that the app still handles, more often than may wait', async () => {
    const other = toRoute(app.port, { match: { path: '/hooks/other' }, route: { name: 'other' } });
    await start({ limits: { maxWaiting: 8 }, routes: [toRoute(app.port), other] });
    const release = holdResponses(app);
    const captured = makeDelivery();
    const replays = Array.from({ length: 20 }, () => send(gate.port, { ...captured, from: ATTACKER }));
    await until(async () => app.received.length === 1 && (await limitHits('waiters')) > 0);
    const genuine = { ...makeDelivery(), path: '/hooks/other' };
    const first = send(gate.port, genuine);
    await until(() => app.received.length === 2);
    const countBusy = (): Promise<number> => gate.metric('sidegate_dedup_operations_total{outcome="in_progress"}');
    const before = await countBusy();
    const second = send(gate.port, genuine);
    await until(async () => (await countBusy()) > before);
    release();
    release();
    expect([(await first).status, (await second).status]).toEqual([200, 200]);
    await Promise.all(replays);
  });

  test('fills the memory for IDs with valid deliveries of its own route', async () => {
    const busy = toRoute(app.port, { match: { path: '/hooks/busy' }, route: { name: 'busy' } });
    await start({ store: { memory: { maxIds: 40 } }, routes: [toRoute(app.port), busy] });
    const statuses = [];
    for (let i = 0; i < 32; i++) statuses.push((await send(gate.port, { ...makeDelivery(), path: '/hooks/busy' })).status);
    expect(statuses).toEqual(statuses.map((_, i) => (i < 30 ? 200 : 503)));
    expect(gate.log().at(-1)).toMatchObject({ reason: 'dedup_unavailable', detail: expect.stringContaining('30 of 40 IDs') });
    expect([await limitHits('store_share'), await limitHits('store')]).toEqual([2, 0]);
    expect(await deliver()).toBe(200);
  });

  test('holds 1,030 silent connections', async () => {
    // A busy machine takes its time to open them; none may end by itself meanwhile.
    await start({ limits: { headTimeout: '5m' } });
    const held = await holdMany(1_030, '');
    expect(await deliver()).toBe(200);
    await until(() => countOpen(held) <= 512);
    expect(await limitHits('client_connections')).toBe(1_030 - 512);
  });

  test('holds 1,030 connections with half a request head', async () => {
    await start({});
    await holdMany(1_030, 'POST /hooks/billing HTTP/1.1\r\nHost: a\r\n');
    expect(await deliver()).toBe(200);
  });

  test('opens 1,030 connections through a load balancer with the PROXY protocol', async () => {
    await start({ listen: { address: '127.0.0.1:0', proxyProtocol: { from: [ATTACKER] } } });
    const held = await holdMany(1_030, 'PROXY TCP4 192.0.2.7 10.0.0.1 56324 443\r\n');
    await until(() => countOpen(held) <= 512);
    // Another client of the same balancer.
    const socket = await hold(gate.port, 'PROXY TCP4 192.0.2.8 10.0.0.1 56324 443\r\n');
    let text = '';
    socket.on('data', (chunk) => (text += String(chunk)));
    socket.write('GET /other HTTP/1.1\r\nHost: a\r\n\r\n');
    await until(() => text.startsWith('HTTP/1.1 200'));
    expect(await deliver()).toBe(200);
  });

  test('never sends the body it announced to an open route, and occupies no place with the app', async () => {
    await start({});
    await holdMany(300, SLOW_UPLOAD);
    expect(await deliver()).toBe(200);
    expect(await gate.metric('sidegate_http_requests_in_flight')).toBe(0);
  });

  test('uploads slowly to an open route over 400 connections', async () => {
    await start({});
    await holdMany(400, `${SLOW_UPLOAD}x`);
    await until(async () => (await gate.metric('sidegate_http_requests_in_flight')) === 72);
    expect(await deliver()).toBe(200);
    await until(async () => (await limitHits('client_in_flight')) > 0);
  });

  test('holds 100 HTTP/2 streams on each of eight sessions', async () => {
    await start({ listen: { address: '127.0.0.1:0', tls: { certFile: 'tls.crt', keyFile: 'tls.key' } } });
    const origin = `https://localhost:${gate.port}`;
    const held: ServerResponse[] = [];
    app.handler = ({ method }, response) => void (method === 'GET' ? held.push(response) : response.end('handled'));
    for (let i = 0; i < 8; i++) {
      const session = connectHttp2(origin, {
        ca: readFileSync(authority.ca),
        localAddress: ATTACKER,
        host: '127.0.0.1',
      } as object);
      sessions.push(session.on('error', () => undefined));
      for (let stream = 0; stream < 100; stream++) session.request({ ':path': '/' }).on('error', () => undefined);
    }
    await until(async () => (await limitHits('client_requests')) + (await limitHits('client_in_flight')) >= 600);
    await until(() => held.length === 72);
    const session = connectHttp2(origin, { ca: readFileSync(authority.ca) });
    sessions.push(session);
    const { body, headers } = makeDelivery();
    const stream = session.request({ ':path': '/hooks/billing', ':method': 'POST', ...headers });
    stream.end(body);
    expect(await new Promise((resolve) => stream.on('response', (answer) => resolve(answer[':status'])))).toBe(200);
    for (const response of held) response.end();
  });
});

test('serves valid deliveries while many clients upload slowly to an open route', async () => {
  await start({});
  for (let client = 0; client < 8; client++)
    for (let i = 0; i < 40; i++) await hold(gate.port, `${SLOW_UPLOAD}x`, `127.0.1.${client}`);
  await until(async () => (await gate.metric('sidegate_http_requests_in_flight')) === 96);
  await until(async () => (await limitHits('route_in_flight')) > 0);
  expect(await deliver()).toBe(200);
});

test.each([
  ['one address', () => ATTACKER],
  ['an address for each', (index: number) => `127.0.2.${index}`],
])(
  'keeps a new connection until its delivery arrives, while uploads from %s take all connections again and again',
  async (_, toAddress) => {
    const [full, more] = [40, 20];
    await start({ limits: { maxConnections: full, maxConnectionsPerClient: full } });
    for (let i = 0; i < full; i++) await hold(gate.port, `${SLOW_UPLOAD}x`, toAddress(i));
    const requests = (): Promise<number> => gate.metric('sidegate_http_requests_in_flight');
    await until(async () => (await requests()) > 0);
    const sender = await hold(gate.port, '', '127.0.0.77');
    for (let i = full; i < full + more; i++) await hold(gate.port, `${SLOW_UPLOAD}x`, toAddress(i));
    await until(async () => (await limitHits('connections')) + (await limitHits('client_connections')) > more);
    const { headers, body } = makeDelivery();
    const fields = Object.entries({ Host: 'a', ...headers, 'Content-Length': body.length, Connection: 'close' });
    const answer = readToEnd(sender);
    sender.write(`POST /hooks/billing HTTP/1.1\r\n${fields.map(([name, value]) => `${name}: ${value}\r\n`).join('')}\r\n${body}`);
    expect(await answer).toContain('200 OK');
  },
);

test('serves valid deliveries while unsigned requests to an observed route keep the app busy', async () => {
  await start({
    routes: [
      toRoute(0),
      { ...toRoute(app.port, { route: { mode: 'observe' }, match: { path: '/observed' } }), name: 'observed' },
      { ...toRoute(app.port), name: 'enforced', match: { path: '/enforced' } },
    ].slice(1),
  });
  const held: ServerResponse[] = [];
  app.handler = ({ url }, response) => void (url === '/observed' ? held.push(response) : response.end('handled'));
  const unsigned = 'POST /observed HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}';
  await holdMany(300, unsigned);
  await until(() => held.length === 72);
  expect((await send(gate.port, { ...makeDelivery(), path: '/enforced' })).status).toBe(200);
});

describe('serves the other route of an app', () => {
  const FEW = { maxInFlight: 8, maxQueued: 8, queueTimeout: '1m' };
  const OTHER = '127.0.0.77';

  test('that hangs on the deliveries of one route, from many clients', async () => {
    await start({
      limits: FEW,
      routes: [toRoute(app.port), { ...toRoute(app.port), name: 'hangs', match: { path: '/hangs' } }],
    });
    const held: ServerResponse[] = [];
    app.handler = ({ url }, response) => void (url === '/hangs' ? held.push(response) : response.end('handled'));
    const requests = Array.from({ length: 24 }, (_, i) =>
      send(gate.port, { ...makeDelivery(), path: '/hangs', from: `127.0.1.${i}` }),
    );
    await until(async () => (await limitHits('route_in_flight')) === 12);
    await until(() => held.length === 6);
    expect((await send(gate.port, { ...makeDelivery(), from: OTHER })).status).toBe(200);
    app.handler = (_request, response) => void response.end('handled');
    for (const response of held) response.end();
    const statuses = (await Promise.all(requests)).map(({ status }) => status);
    expect(statuses.filter((status) => status === 200)).toHaveLength(12);
  });

  test('whose event streams no longer hold slots after the timeout of their route', async () => {
    fakeClock = new FakeClock();
    const open = { name: 'open', match: { pathPrefix: '/' }, upstream: `http://127.0.0.1:${app.port}`, allow: 'anyone' };
    await start({ limits: { ...FEW, maxInFlightUnverified: 8 }, routes: [{ ...open, timeout: '5s' }] }, fakeClock);
    let streams = 0;
    app.handler = ({ url }, response) => {
      if (url === '/other') response.end('handled');
      else response.writeHead(200).write('data: 1\n\n', () => streams++);
    };
    for (let i = 0; i < 8; i++) await hold(gate.port, 'GET / HTTP/1.1\r\nHost: a\r\n\r\n', `127.0.1.${i}`);
    await until(() => streams === 8);
    const waiting = send(gate.port, { path: '/other', method: 'GET', from: OTHER });
    await until(async () => (await gate.metric('sidegate_http_requests_queued')) === 1);
    for (let i = 0; i < 8; i++) await fakeClock.advance(1_000);
    expect((await waiting).status).toBe(200);
    expect(countOpen(sockets)).toBe(8);
    expect(await gate.metric('sidegate_http_requests_in_flight')).toBe(0);
  });
});

describe('accepts new connections while one client repeats forged requests', () => {
  const KEPT = 200;
  const NEW = 20;
  const SESSIONS = 5;
  /** Forged answers until `NEW` others have connected, one after the other, and got theirs. */
  async function countForged(repeat: (onAnswer: () => void) => Promise<void>, toStatus = deliver): Promise<number> {
    let forged = 0;
    await repeat(() => {
      forged++;
    });
    await until(() => forged >= KEPT);
    const before = forged;
    await Promise.all(Array.from({ length: NEW }, async () => expect(await toStatus()).toBe(200)));
    return forged - before;
  }

  const deliverByTls = (): Promise<number> =>
    new Promise((resolve, reject) => {
      const { headers, body } = makeDelivery();
      const to = { host: '127.0.0.1', port: gate.port, path: '/hooks/billing', ca: readFileSync(authority.ca), agent: false };
      const outgoing = openTlsRequest({ ...to, method: 'POST', headers }, (incoming) => {
        incoming.resume();
        resolve(incoming.statusCode ?? 0);
      });
      outgoing.on('error', reject).end(body);
    });

  test('on many kept connections: Node accepts one connection in each turn, so a turn has only few requests then', async () => {
    await start({});
    const forgedRequest =
      'POST /hooks/billing HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}';
    const forged = await countForged(async (onAnswer) => {
      for (const socket of await holdMany(KEPT, forgedRequest))
        socket.on('data', () => {
          onAnswer();
          socket.write(forgedRequest);
        });
    });
    // Without the limit, each of their turns has all of the others.
    expect(forged).toBeLessThan((NEW * KEPT) / 3);
  });

  test('on the streams of HTTP/2 sessions', async () => {
    const certificate = { certFile: 'tls.crt', keyFile: 'tls.key' };
    const admin = {
      name: 'forged',
      match: { path: '/forged' },
      upstream: `http://127.0.0.1:${app.port}`,
      basic: { realm: 'a', users: { file: 'users' } },
    };
    await start({ listen: { address: '127.0.0.1:0', tls: certificate }, routes: [admin, toRoute(app.port)] });
    const forged = await countForged(async (onAnswer) => {
      for (let i = 0; i < SESSIONS; i++) {
        const ca = readFileSync(authority.ca);
        const socket = connectTls({
          host: '127.0.0.1',
          port: gate.port,
          ca,
          ALPNProtocols: ['h2'],
          localAddress: ATTACKER,
        } as ConnectionOptions);
        const session = connectHttp2(`https://127.0.0.1:${gate.port}`, { createConnection: () => socket });
        session.on('error', () => undefined);
        sessions.push(session);
        const repeat = (): void => {
          if (session.destroyed) return;
          const stream = session.request({ ':path': '/forged' });
          stream.on('error', () => undefined).resume();
          stream.on('end', () => {
            onAnswer();
            repeat();
          });
        };
        for (let each = 0; each < 100; each++) repeat();
      }
    }, deliverByTls);
    // 1,250 without the limit, and 600 with it: the client of this process, and handshakes, take turns, too.
    expect(forged).toBeLessThan(900);
  });
});

describe('limits clients behind a trusted proxy', () => {
  test('by their own requests, not by the connections of the proxy', async () => {
    await start({
      listen: { address: '127.0.0.1:0', trustedProxies: [ATTACKER] },
      limits: { maxConnectionsPerClient: 2, maxRequestsPerClient: 3 },
    });
    const held: ServerResponse[] = [];
    app.handler = (_request, response) => void held.push(response);
    const request = (client: string): string => `GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: ${client}\r\n\r\n`;
    await holdMany(5, request('192.0.2.7'));
    await until(async () => (await limitHits('client_requests')) === 2);
    await until(() => held.length === 3);
    await hold(gate.port, request('192.0.2.8'));
    await until(() => held.length === 4);
    expect(await limitHits('client_connections')).toBe(0);
  });
});

describe('ends', () => {
  test('a response that its client does not read completely within sendTimeout', async () => {
    const clock = new FakeClock();
    fakeClock = clock;
    await start({ limits: { sendTimeout: '10s' } }, clock);
    // Enough for the system's buffers, and the end stays with the gate.
    app.handler = (_request, response) => response.end(Buffer.alloc(8_000_000));
    const socket = await hold(gate.port, 'GET / HTTP/1.1\r\nHost: a\r\n\r\n');
    socket.pause();
    let isClosed = false;
    socket.on('close', () => {
      isClosed = true;
    });
    await until(() => app.received.length === 1);
    for (let i = 0; i < 30; i++) {
      await clock.advance(1_000);
      await new Promise((resolve) => setImmediate(resolve));
    }
    socket.resume();
    await until(() => isClosed);
  });

  test('HTTP/2 streams whose client gives no window for the response', async () => {
    const clock = new FakeClock();
    fakeClock = clock;
    await start(
      { limits: { sendTimeout: '10s' }, listen: { address: '127.0.0.1:0', tls: { certFile: 'tls.crt', keyFile: 'tls.key' } } },
      clock,
    );
    const session = connectHttp2(`https://localhost:${gate.port}`, {
      ca: readFileSync(authority.ca),
      settings: { initialWindowSize: 0 },
    });
    sessions.push(session);
    const stream = session.request({ ':path': '/' });
    let code: number | undefined;
    stream.on('error', () => undefined);
    stream.on('close', () => {
      code = stream.rstCode;
    });
    await new Promise((resolve) => stream.once('response', resolve));
    for (let i = 0; i < 12; i++) await clock.advance(1_000);
    await until(() => code !== undefined);
    expect(code).not.toBe(0);
    expect(await limitHits('send_stall')).toBe(1);
  });
});

describe('limits upgraded connections', () => {
  const server = createServer().on('upgrade', (_request, socket) => {
    socket.on('error', () => undefined).on('end', () => socket.end());
    socket.resume();
    socket.write('HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n');
  });
  const sleeper = useServer(server);

  const UPGRADE = 'GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n';
  const upgrade = async (localAddress: string): Promise<{ status: () => string | undefined; socket: Socket }> => {
    const socket = await hold(gate.port, UPGRADE, localAddress);
    let text = '';
    socket.on('data', (chunk) => (text += String(chunk)));
    const status = (): string | undefined => /^HTTP\/1\.1 (\d+)/.exec(text)?.[1];
    await until(status);
    return { status, socket };
  };

  test('per client and in total, and frees their places when they end', async () => {
    const upstream = `http://127.0.0.1:${sleeper.port}`;
    const open = { name: 'open', match: { pathPrefix: '/' }, upstream, allow: 'anyone' };
    await start({ limits: { maxUpgraded: 3, maxUpgradedPerClient: 2 }, routes: [open] });
    const first = await upgrade('127.0.0.66');
    const statuses = [first.status(), (await upgrade('127.0.0.66')).status(), (await upgrade('127.0.0.66')).status()];
    expect(statuses).toEqual(['101', '101', '503']);
    expect([(await upgrade('127.0.0.67')).status(), (await upgrade('127.0.0.68')).status()]).toEqual(['101', '503']);
    expect([await limitHits('client_upgrades'), await limitHits('upgrades')]).toEqual([1, 1]);
    first.socket.destroy();
    await until(async () => (await upgrade('127.0.0.66')).status() === '101');
  });
});

describe('the forward proxy and the forward-auth endpoint', () => {
  test('serve other clients while one holds 1,030 silent connections', async () => {
    const proxy = { address: '127.0.0.1:0', requireTls: false, basic: { realm: 'egress', users: { file: 'users' } } };
    const authz = { address: '127.0.0.1:0', trustedCallers: ['127.0.0.1'] };
    const basic = { name: 'open', match: { pathPrefix: '/' }, upstream: `http://127.0.0.1:${app.port}`, allow: 'anyone' };
    await start({ proxy, authz, routes: [basic] });
    await holdMany(1_030, '', gate.proxyPort);
    await holdMany(1_030, '', gate.authzPort);
    expect((await send(gate.proxyPort, { method: 'GET', path: 'http://a/' })).status).toBe(407);
    expect((await ask('192.0.2.7')).status).toBe(200);
  });
});

/** One caller asks for a client, on a connection of its own. */
const ask = (client: string, more: Readonly<Record<string, string>> = {}): Promise<Answer> =>
  send(gate.authzPort, { method: 'GET', path: '/', headers: { ...toFields(client), ...more } });
const toFields = (client: string): Record<string, string> => ({
  'X-Forwarded-For': client,
  'X-Original-Method': 'GET',
  'X-Original-URL': 'https://a/',
  'X-Forwarded-Host': 'a',
});

describe('one caller of the forward-auth endpoint gets responses for other clients while one client', () => {
  const limits = { maxConnections: 256, maxConnectionsPerClient: 128, maxRequestsPerClient: 128 };
  const authz = { address: '127.0.0.1:0', trustedCallers: ['127.0.0.0/8', '10.0.0.0/8'] };
  const limit = { failures: 10, by: ['client'] };
  const basic = { realm: 'a', users: { file: 'users' }, limit };
  const routes = [{ name: 'users', match: { pathPrefix: '/' }, upstream: 'http://127.0.0.1:1', basic }];
  const WRONG = toBasic('a', 'wrong');
  const RIGHT = toBasic('a', 'b');
  const OTHERS = ['127.0.0.1', '10.0.0.2', '192.0.2.7', '2001:db8::1'];

  /** The gate delays further attempts of a banned client, and its clock stands still. */
  const startBanned = async (client: string, more: Sections = {}, port: Sections = {}): Promise<FakeClock> => {
    const clock = new FakeClock();
    fakeClock = clock;
    await start({ limits: { ...limits, ...more }, authz: { ...authz, ...port }, routes }, clock);
    for (let i = 0; i < limit.failures; i++) {
      const guess = port['tls'] === undefined ? (await ask(client, WRONG)).status : await askHttp2(openSession(), client, WRONG);
      expect(guess).toBe(401);
    }
    return clock;
  };
  const openSession = (): ClientHttp2Session => {
    const session = connectHttp2(`https://localhost:${gate.authzPort}`, { ca: readFileSync(authority.ca) });
    sessions.push(session);
    return session;
  };
  const askHttp2 = (session: ClientHttp2Session, client: string, more: Readonly<Record<string, string>>): Promise<unknown> =>
    new Promise((resolve, reject) => {
      const stream = session.request({ ':path': '/', ...toFields(client), ...more });
      stream
        .on('response', (head) => resolve(head[':status']))
        .on('error', reject)
        .resume();
    });

  test.each([
    ['that could be a caller', '10.0.0.1', {}, {}],
    ['of another network', '203.0.113.66', {}, {}],
    [
      'by handshakes',
      '203.0.113.66',
      { maxUpgraded: 128, maxUpgradedPerClient: 64 },
      { Connection: 'Upgrade', Upgrade: 'websocket' },
    ],
  ])('sends 400 wrong passwords at once: %s', async (_, client, more, fields) => {
    const clock = await startBanned(client, more);
    const max = 'maxUpgradedPerClient' in more ? more.maxUpgradedPerClient : limits.maxRequestsPerClient;
    for (let round = 0; round < 2; round++) {
      const statuses: unknown[] = [];
      const attempts = Array.from({ length: 400 }, async () => {
        statuses.push(
          await ask(client, { ...WRONG, ...fields }).then(
            ({ status }) => status,
            () => 'closed',
          ),
        );
      });
      await until(() => statuses.length === 400 - max);
      const others = await Promise.all(OTHERS.map((other) => ask(other, { ...RIGHT, ...fields })));
      expect(others.map(({ status }) => status)).toEqual(OTHERS.map(() => 200));
      expect(statuses).toHaveLength(400 - max);
      await clock.advance(100);
      await Promise.all(attempts);
      expect(statuses.filter((status) => status === 403)).toHaveLength(max);
    }
  });

  test('has as many streams of HTTP/2 as it may have requests', async () => {
    const tls = { certFile: 'tls.crt', keyFile: 'tls.key' };
    const clock = await startBanned('203.0.113.66', {}, { tls });
    const session = openSession();
    for (let round = 0; round < 2; round++) {
      const statuses: unknown[] = [];
      const attempts = Array.from({ length: 400 }, async () => {
        statuses.push(await askHttp2(session, '203.0.113.66', WRONG));
      });
      await until(() => statuses.length === 400 - limits.maxRequestsPerClient);
      expect(new Set(statuses)).toEqual(new Set([503]));
      expect(await Promise.all(OTHERS.map((other) => askHttp2(session, other, RIGHT)))).toEqual(OTHERS.map(() => 200));
      await clock.advance(100);
      await Promise.all(attempts);
      expect(statuses.filter((status) => status === 403)).toHaveLength(limits.maxRequestsPerClient);
    }
  });
});
