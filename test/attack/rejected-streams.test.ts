/** One client opens HTTP/2 streams that are rejected as fast as it can. Each costs the event loop a part of a millisecond, in which no other client is served. */
import { readFileSync } from 'node:fs';
import type { ServerResponse } from 'node:http';
import { type ClientHttp2Session, connect } from 'node:http2';
import { afterEach, describe, expect, test } from 'vitest';
import { toTlsFiles } from '../support/certificates.ts';
import { makeDelivery } from '../support/deliveries.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { useApp, useAuthority } from '../support/fixtures.ts';
import { type Sections, startGate, type TestGate, toRoute, until } from '../support/gate.ts';
import { FLAG, FRAME, type FrameClient, openFrames, toBlock, toFrame } from '../support/h2-frames.ts';

const OTHER = '127.0.0.66';
const CONNECTIONS = 32;
/** Concurrent streams of a connection. */
const STREAMS = 90;
/** Of `STREAMS` each: more streams than one client may reset or write wrongly. */
const GROUPS = 60;
/** Further ones reset the stream. */
const MOST_FIELDS = 190;
/** So many rejected streams without fields a client may have at once. */
const BURST = 1_000;
/** Envoy opens so many on a connection before it has read the settings. */
const ENVOY_STREAMS = 1_024;
/** In bytes; more than a stream buffers. */
const LARGE_RESPONSE = 300_000;
/** The identifier of SETTINGS_MAX_CONCURRENT_STREAMS. */
const MAX_CONCURRENT_STREAMS = 3;

const app = useApp();
const authority = useAuthority();
const files = toTlsFiles(authority.issue('local', 'DNS:localhost,IP:127.0.0.1'));
const frameClients: FrameClient[] = [];
let clock: FakeClock;
let gate: TestGate;
let session: ClientHttp2Session | undefined;

afterEach(async () => {
  for (const { socket } of frameClients.splice(0)) socket.destroy();
  session?.destroy();
  session = undefined;
  const stopped = gate.stop();
  await clock.advance(60_000);
  await stopped;
});

async function start(listen: Sections = {}): Promise<void> {
  clock = new FakeClock(Date.now());
  const tls = { certFile: 'tls.crt', keyFile: 'tls.key' };
  const open = { name: 'open', match: { path: '/open' }, upstream: `http://127.0.0.1:${app.port}`, allow: 'anyone' };
  const sections = { routes: [toRoute(app.port), open], listen: { address: '127.0.0.1:0', tls, ...listen } };
  gate = await startGate(sections, clock, files);
}

async function openClient(): Promise<FrameClient> {
  const client = await openFrames(gate.port, authority.ca);
  frameClients.push(client);
  client.socket.write(toFrame(FRAME.windowUpdate, 0, 0, Buffer.from([0x7f, 0, 0, 0])));
  return client;
}

const toHead = (method: string, path = '/nope'): Buffer =>
  toBlock([
    [':method', method],
    [':scheme', 'https'],
    [':authority', 'localhost'],
    [':path', path],
  ]);
const TRAILERS = toBlock(Array.from({ length: MOST_FIELDS }, (_, index) => [`x-${index}`, 'v'] as const));
const withTrailers = (id: number): Buffer =>
  Buffer.concat([
    toFrame(FRAME.headers, FLAG.endHeaders, id, toHead('POST')),
    toFrame(FRAME.headers, FLAG.endHeaders | FLAG.endStream, id, TRAILERS),
  ]);
const toRequest = (id: number, path?: string): Buffer =>
  toFrame(FRAME.headers, FLAG.endHeaders | FLAG.endStream, id, toHead('GET', path));
const toReset = (id: number): Buffer =>
  Buffer.concat([toRequest(id, '/open'), toFrame(FRAME.rstStream, 0, id, Buffer.from([0, 0, 0, 8]))]);
/** Names of fields are lower case (RFC 9113 §8.2). */
const toInvalid = (id: number): Buffer =>
  toFrame(FRAME.headers, FLAG.endHeaders | FLAG.endStream, id, Buffer.concat([toHead('GET'), toBlock([['Invalid', 'v']])]));

const isGoaway = ({ frames }: FrameClient): boolean => frames.some(({ type }) => type === FRAME.goaway);
/** Streams that have ended; each ends with a flag or with a reset. */
const countEnded = ({ frames }: FrameClient): number =>
  new Set(
    frames
      .filter(({ type, flags, stream }) => stream > 0 && (type === FRAME.rstStream || (type <= FRAME.headers && flags % 2 === 1)))
      .map(({ stream }) => stream),
  ).size;

/** Opens streams, in groups, until there are `count` or the gate closes the connection; resolves with how many it opened. */
async function flood(client: FrameClient, count: number, toStream: (id: number) => Buffer): Promise<number> {
  let opened = 0;
  let isClosed = false;
  void client.closed.then(() => {
    isClosed = true;
  });
  while (opened < count && !isClosed && !isGoaway(client)) {
    const group = Math.min(STREAMS, count - opened);
    client.socket.write(Buffer.concat(Array.from({ length: group }, (_, index) => toStream(2 * (opened + index) + 1))));
    opened += group;
    await until(() => isClosed || isGoaway(client) || countEnded(client) === opened);
  }
  return opened;
}

const countHits = (): Promise<number> => gate.metric('sidegate_limit_hits_total{limit="rejected_streams"}');
const countRequests = async (code: number): Promise<number> =>
  (await gate.metrics())
    .split('\n')
    .filter((line) => line.startsWith('sidegate_http_requests_total{') && line.includes(`code="${code}"`))
    .reduce((sum, line) => sum + Number(line.split(' ').at(-1)), 0);

/** The most streams that a connection may have, as its settings said last. */
function toConcurrent({ frames }: FrameClient): number | undefined {
  const values = frames
    .filter(({ type, flags }) => type === FRAME.settings && (flags & FLAG.ack) === 0)
    .flatMap(({ payload }) => Array.from({ length: payload.length / 6 }, (_, i) => payload.subarray(6 * i)))
    .filter((entry) => entry.readUInt16BE(0) === MAX_CONCURRENT_STREAMS)
    .map((entry) => entry.readUInt32BE(2));
  return values.at(-1);
}

async function deliver(localAddress: string): Promise<number> {
  session = connect(`https://localhost:${gate.port}`, {
    ca: readFileSync(authority.ca),
    localAddress,
    host: '127.0.0.1',
  } as object);
  const { body, headers } = makeDelivery();
  const stream = session.request({ ':path': '/hooks/billing', ':method': 'POST', ...headers });
  stream.end(body);
  return new Promise((resolve) => stream.once('response', (fields) => resolve(Number(fields[':status']))));
}

/** A connection whose first stream is a valid request, which the app has not answered. */
async function openHeld(listen?: Sections): Promise<{ client: FrameClient; response: ServerResponse }> {
  await start(listen);
  const held = new Promise<ServerResponse>((resolve) => {
    app.handler = (_request, response) => resolve(response);
  });
  const client = await openClient();
  client.socket.write(toRequest(1, '/open'));
  return { client, response: await held };
}

/** Sends some streams, and resolves once the gate has read them. */
async function send(client: FrameClient, from: number, toStream: (id: number) => Buffer): Promise<void> {
  const echo = Buffer.alloc(8);
  echo.writeUInt32BE(from);
  client.socket.write(Buffer.concat(Array.from({ length: STREAMS }, (_, index) => toStream(2 * (from + index) + 1))));
  client.socket.write(toFrame(FRAME.ping, 0, 0, echo));
  await client.next(({ type, payload }) => type === FRAME.goaway || (type === FRAME.ping && payload.equals(echo)));
}

/** Floods until GOAWAY on a connection whose first stream is a valid request, which the app has not answered. */
async function floodBehindRequest(): Promise<{ client: FrameClient; response: ServerResponse; opened: number }> {
  const { client, response } = await openHeld();
  const opened = await flood(client, 2 * BURST, (id) => toRequest(id + 2));
  return { client, response, opened };
}

describe('a client whose HTTP/2 streams are rejected', () => {
  test('gets only a part of them handled, however many connections it has, and others are served', {
    timeout: 60_000,
  }, async () => {
    await start();
    const clients: FrameClient[] = [];
    for (let i = 0; i < CONNECTIONS; i++) clients.push(await openClient());
    const opened = await Promise.all(clients.map((client) => flood(client, 2 * STREAMS, withTrailers)));
    expect(opened.reduce((sum, count) => sum + count)).toBeGreaterThanOrEqual(CONNECTIONS * STREAMS);
    await Promise.all(clients.map(({ closed }) => closed));
    // Each counts almost three times, because of its trailers.
    expect(await countRequests(404)).toBeLessThan(BURST / 2);
    // Those that arrive in one turn of the event loop may be too many for that.
    const ofTurn = await gate.metric('sidegate_limit_hits_total{limit="client_requests"}');
    expect((await countHits()) + ofTurn).toBeGreaterThanOrEqual(CONNECTIONS);
    expect(await deliver(OTHER)).toBe(200);
  });

  test('gets fewer of them handled if their paths are long, which compression makes a byte each', async () => {
    await start();
    await flood(await openClient(), 2 * BURST, (id) => toRequest(id, `/${'a'.repeat(8_000)}`));
    expect(await countRequests(404)).toBeLessThan(BURST / 2);
    expect(await countHits()).toBe(1);
  });

  test('may have few of them on new connections, until its time has come', async () => {
    await start();
    const first = await openClient();
    await flood(first, 2 * BURST, toRequest);
    expect(await countRequests(404)).toBeGreaterThan(BURST - STREAMS);
    expect(await countRequests(404)).toBeLessThan(BURST);
    await first.closed;
    const second = await openClient();
    await second.next(({ type }) => type === FRAME.settings);
    expect(toConcurrent(second)).toBe(10);
    await flood(second, 1, (id) => toRequest(id, '/open'));
    expect([isGoaway(second), toConcurrent(second)]).toEqual([false, 10]);
    await clock.advance(1_000);
    second.socket.write(toRequest(3, '/open'));
    await until(() => toConcurrent(second) === 100);
    expect(isGoaway(second)).toBe(false);
  });

  test('may have few streams on each of its connections after the first 32', async () => {
    await start();
    const clients: FrameClient[] = [];
    for (let i = 0; i < CONNECTIONS + 1; i++) clients.push(await openClient());
    for (const client of clients) await client.next(({ type }) => type === FRAME.settings);
    expect(clients.map(toConcurrent)).toEqual([...Array<number>(CONNECTIONS).fill(100), 10]);
    const [first, last] = [clients.at(0), clients.at(-1)];
    first?.socket.destroy();
    for (let id = 1; last !== undefined && toConcurrent(last) === 10; id += 2) {
      last.socket.write(toRequest(id, '/open'));
      await last.next(({ stream, flags, type }) => stream === id && type <= FRAME.headers && flags % 2 === 1);
    }
    expect(last && toConcurrent(last)).toBe(100);
  });

  test('that resets them gets only a part of them handled, over all its connections', async () => {
    await start();
    // Node ends each connection after 200 of them.
    for (let i = 0; (await countHits()) === 0; i++) {
      expect(i).toBeLessThan(BURST / STREAMS + 1);
      const client = await openClient();
      client.socket.write(Buffer.concat(Array.from({ length: STREAMS }, (_, index) => toReset(2 * index + 1))));
      // The gate answers after it has read all of them.
      client.socket.write(toFrame(FRAME.ping, 0, 0, Buffer.alloc(8)));
      await client.next(({ type }) => type === FRAME.ping || type === FRAME.goaway);
    }
  });

  test('still gets the response to its valid request', async () => {
    const { client, response } = await floodBehindRequest();
    response.end('handled');
    await client.next(({ stream, payload }) => stream === 1 && payload.toString() === 'handled');
    await client.closed;
  });
});

test('a client that goes on after its connection was ended is cut off, although a request is in flight', async () => {
  const { client, opened } = await floodBehindRequest();
  const ignored = Buffer.concat(Array.from({ length: 20_000 }, (_, index) => toRequest(2 * (opened + index) + 3)));
  client.socket.on('error', () => undefined).write(ignored);
  const before = clock.monotonic();
  await until(() => clock.advance(100).then(() => client.socket.destroyed));
  // Not by the time that the app has for its response.
  expect(clock.monotonic() - before).toBeLessThan(10_000);
});

describe('HTTP/2 streams are not limited', () => {
  test('if they are handled', async () => {
    await start();
    const client = await openClient();
    expect(await flood(client, BURST + 2 * STREAMS, (id) => toRequest(id, '/open'))).toBe(BURST + 2 * STREAMS);
    expect([isGoaway(client), await countRequests(200), await countHits()]).toEqual([false, BURST + 2 * STREAMS, 0]);
  });

  test('if they come through a trusted proxy, which has many clients', async () => {
    await start({ trustedProxies: ['127.0.0.1'] });
    const client = await openClient();
    expect(await flood(client, BURST + 2 * STREAMS, toRequest)).toBe(BURST + 2 * STREAMS);
    expect([isGoaway(client), await countRequests(404)]).toEqual([false, BURST + 2 * STREAMS]);
  });

  test('if they come through a trusted proxy at once, before it knows how many streams it may have', async () => {
    await start({ trustedProxies: ['127.0.0.1'] });
    const client = await openClient();
    client.socket.write(Buffer.concat(Array.from({ length: ENVOY_STREAMS }, (_, index) => toRequest(2 * index + 1))));
    await until(() => countEnded(client) === ENVOY_STREAMS);
    expect([isGoaway(client), await countRequests(404)]).toEqual([false, ENVOY_STREAMS]);
  });

  test('if a trusted proxy passes on what one of its clients cancels', async () => {
    await start({ trustedProxies: ['127.0.0.1'] });
    const client = await openClient();
    for (let i = 0; i < GROUPS; i++) await send(client, i * STREAMS, toReset);
    const next = 2 * GROUPS * STREAMS + 1;
    client.socket.write(toRequest(next, '/open'));
    await client.next(({ stream, type }) => stream === next && type === FRAME.headers);
    expect(isGoaway(client)).toBe(false);
  });

  test('if a trusted proxy passes on what one of its clients writes wrongly: its connection ends after the requests in flight', async () => {
    const { client, response } = await openHeld({ trustedProxies: ['127.0.0.1'] });
    for (let i = 1; i < GROUPS; i++) await send(client, i * STREAMS, toInvalid);
    expect(isGoaway(client)).toBe(false);
    await clock.advance(250);
    await client.next(({ type }) => type === FRAME.goaway);
    response.end('handled');
    await client.next(({ stream, payload }) => stream === 1 && payload.toString() === 'handled');
    await client.closed;
  });

  test('if their responses are large', async () => {
    await start();
    app.handler = (_request, response) => response.end(Buffer.alloc(LARGE_RESPONSE));
    session = connect(`https://localhost:${gate.port}`, { ca: readFileSync(authority.ca) });
    const statuses = Array.from({ length: 3 * STREAMS }, async () => {
      const stream = (session as ClientHttp2Session).request({ ':path': '/open' });
      const status = new Promise((resolve) => stream.once('response', (fields) => resolve(fields[':status'])));
      const ended = new Promise((resolve) => stream.resume().once('close', () => resolve(stream.rstCode)));
      return [await ended, await status];
    });
    expect(new Set((await Promise.all(statuses)).map(String))).toEqual(new Set(['0,200']));
  });

  test('if a client opens twice as many as it may have, before it knows the limit', async () => {
    await start();
    const client = await openClient();
    client.socket.write(Buffer.concat(Array.from({ length: 300 }, (_, index) => toRequest(2 * index + 1))));
    await until(() => countEnded(client) === 300);
    expect(isGoaway(client)).toBe(false);
  });
});
